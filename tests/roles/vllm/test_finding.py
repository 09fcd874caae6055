"""The failed play's message: what was seen, the sum, and the line to change with its place."""

import json
from pathlib import Path

from tests.roles.vllm.plugins import load

plugin = load("plugins/filter/vllm_finding.py")

ANSWER = json.dumps(
    {
        "verdict": "finding",
        "findings": [
            {
                "code": "VD121",
                "title": "It does not fit",
                "evidence": [{"source": "journal", "excerpt": "ValueError: too long"}],
                "arithmetic": [{"name": "missing", "value": 0.53, "unit": "GiB", "formula": "1.53 − 1"}],
                "changes": [
                    {
                        "name": "max-model-len",
                        "from": 9,
                        "to": 4,
                        "direction": "lower",
                        "inventory_var": "vllm_max_model_len",
                    }
                ],
            },
            {"code": "VD1", "title": "another"},
        ],
    }
)


def inventory(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_message_has_evidence_sum_and_the_line_with_its_place(tmp_path: Path) -> None:
    here = inventory(tmp_path, hosts="vllm:\n", group_vars__vllm="---\nvllm_max_model_len: 9\n")
    text = plugin.finding_text(ANSWER, "gpu01", ["vllm"], [here])
    assert "VD121 It does not fit" in text
    assert "ValueError: too long [journal]" in text
    assert "missing = 0.53 GiB   (1.53 − 1)" in text
    assert "change: vllm_max_model_len: 4   # now 9" in text
    assert f"in {tmp_path}/group_vars/vllm.yml:2" in text
    assert "also:  VD1 another" in text


def test_what_the_title_could_not_hold_follows_it() -> None:
    finding = {"code": "VD901", "title": "it hangs", "detail": "since the NCCL watchdog of rank 3 ended"}
    lines = plugin.finding_text(json.dumps({"findings": [finding]}), "gpu01").splitlines()
    assert lines == ["VD901 it hangs", "  since the NCCL watchdog of rank 3 ended"]


def test_what_no_variable_changes_says_what_to_do() -> None:
    repair = {"kind": "os", "name": "vllm@main.service", "from": None, "to": None, "direction": "repair"}
    finding = {"code": "VD901", "title": "it hangs", "changes": [{**repair, "why": "systemctl restart it"}]}
    text = plugin.finding_text(json.dumps({"verdict": "finding", "findings": [finding]}), "gpu01")
    assert "change: repair vllm@main.service: systemctl restart it" in text


def test_the_strongest_file_is_named_and_those_of_others_are_not(tmp_path: Path) -> None:
    line = "vllm_max_model_len: 9\n"
    files = {"host_vars__gpu02": line, "group_vars__other": line, "group_vars__all": line}
    here = inventory(tmp_path, **files)
    assert str(plugin.where("vllm_max_model_len", "gpu01", ["vllm"], [here])).endswith("group_vars/all.yml:1")
    inventory(tmp_path, host_vars__gpu01=line)
    assert str(plugin.where("vllm_max_model_len", "gpu01", ["vllm"], [here])).endswith("host_vars/gpu01.yml:1")


def test_of_two_inventories_the_later_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        inventory(folder, group_vars__vllm="vllm_port: 1\n")
    assert str(second) in str(plugin.where("vllm_port", "gpu01", ["vllm"], [first, second]))


def test_a_variable_that_no_line_sets_is_said_so(tmp_path: Path) -> None:
    assert "no line sets it yet" in plugin.where("vllm_port", "gpu01", [], [inventory(tmp_path, hosts="all:\n")])


def test_without_an_answer_of_the_doctor_the_journal_speaks() -> None:
    text = plugin.finding_text("", "gpu01", journal="last words")
    assert "could not be asked" in text
    assert "last words" in text
    assert "verdict unknown" in plugin.finding_text('{"verdict": "unknown", "findings": []}', "gpu01", journal="x")


def test_without_a_finding_it_says_what_the_doctor_did_not_see() -> None:
    unseen = {"verdict": "unknown", "findings": [], "unknown": [{"signal": "journal", "reason": "permission denied"}]}
    assert plugin.finding_text(json.dumps(unseen), "gpu01") == (
        "The doctor has no finding (verdict unknown; not seen: journal: permission denied)."
    )


def test_a_mapping_a_variable_s_own_name_and_a_deed_are_written_as_one_types_them() -> None:
    def told(**change: object) -> str:
        return plugin.finding_text(json.dumps({"findings": [{"code": "VD1", "changes": [change]}]}), "gpu1")

    passes = '{"pass_config": {"fuse_allreduce_rms": false}}'
    config = told(kind="flag", name="compilation-config", to=passes, inventory_var="vllm_compilation_config")
    assert "vllm_compilation_config: {pass_config: {fuse_allreduce_rms: false}}" in config
    own = told(kind="env", name="attention-backend", variable="VLLM_ATTENTION_BACKEND", to="XFORMERS",
               inventory_var="vllm_environment")  # fmt: skip
    assert "vllm_environment: {VLLM_ATTENTION_BACKEND: XFORMERS}" in own
    assert "nvidia-smi" in told(kind="os", name="other-gpu-processes", direction="stop", command="nvidia-smi")
    assert "lower gpu-memory-utilization by 0.03" in told(
        kind="flag", name="gpu-memory-utilization", direction="lower", by=0.03, why="it is short"
    )


def test_its_lines_are_those_that_the_doctor_itself_writes() -> None:
    """A list is a list, and what a log could have made a template of stays text."""

    def told(**change: object) -> str:
        return plugin.finding_text(json.dumps({"findings": [{"code": "VD1", "changes": [change]}]}), "gpu1")

    sizes = {"name": "cudagraph-capture-sizes", "to": "1 2 4", "inventory_var": "vllm_cudagraph_capture_sizes"}
    assert "vllm_cudagraph_capture_sizes: [1, 2, 4]" in told(kind="flag", **sizes)
    model = {"name": "model", "to": "{{ lookup('pipe', 'id') }}", "inventory_var": "vllm_model"}
    assert "vllm_model: !unsafe " in told(kind="flag", **model)
