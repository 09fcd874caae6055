"""Where a unit's settings stand, line by line, without secrets."""

from pathlib import Path

from vllm_doctor.gather.unit_files import is_rendered, settings
from vllm_doctor.records.host import Unit

UNIT = """[Unit]
Description=vLLM
[Service]
# ExecStart=/bin/old
Environment=VLLM_CPU_KVCACHE_SPACE=1
ExecStart=/opt/vllm/bin/vllm serve m \\
  --max-model-len 4096 \\
  --api-key sk-a1b2c3d4e5f6a7b8
Restart=on-failure
"""


def test_each_line_is_told_with_its_number_and_a_continued_line_has_its_own(tmp_path: Path) -> None:
    fragment, drop_in, file = tmp_path / "vllm@.service", tmp_path / "50-ops.conf", tmp_path / "env"
    fragment.write_text(UNIT)
    drop_in.write_text("[Service]\nExecStart=\nExecStart=/opt/vllm/bin/vllm serve m  --swap-space 4\n")
    file.write_text("# of the host\nVLLM_LOGGING_LEVEL=DEBUG\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\n")
    unit = Unit("vllm@main.service", "loaded", "failed", "failed", "exit-code", fragment=str(fragment),
                drop_ins=(str(drop_in),), properties={"EnvironmentFiles": f"{file} (ignore_errors=no)"})  # fmt: skip
    told = [(Path(one.path).name, one.line, one.directive, one.text) for one in settings(unit)]
    assert told == [
        ("vllm@.service", 5, "Environment", "VLLM_CPU_KVCACHE_SPACE=1"),
        ("vllm@.service", 6, "ExecStart", "/opt/vllm/bin/vllm serve m"),
        ("vllm@.service", 7, "ExecStart", "--max-model-len 4096"),
        ("vllm@.service", 8, "ExecStart", "--api-key [hidden]"),
        ("50-ops.conf", 2, "ExecStart", ""),
        ("50-ops.conf", 3, "ExecStart", "/opt/vllm/bin/vllm serve m  --swap-space 4"),
        ("env", 2, "EnvironmentFile", "VLLM_LOGGING_LEVEL=DEBUG"),
        ("env", 3, "EnvironmentFile", "HF_TOKEN=[hidden]"),
    ]


def test_a_file_that_may_not_be_read_tells_nothing(tmp_path: Path) -> None:
    unit = Unit("vllm.service", "loaded", "failed", "failed", "", fragment=str(tmp_path / "none"))
    assert settings(unit) == ()


def test_the_options_of_vllms_own_config_file_are_told_and_their_secrets_are_not(tmp_path: Path) -> None:
    fragment, config, old = tmp_path / "vllm.service", tmp_path / "main.yaml", tmp_path / "old.yaml"
    fragment.write_text(
        f"[Service]\nExecStart=/v serve --config {old}\nExecStart=\nExecStart=/v serve --config={config}\n"
    )
    old.write_text("swap-space: 4\n")
    config.write_text(
        "# ours\nmodel: m\nmax_model_len: 131072  # long\napi-key: sk-a1b2c3d4e5f6a7b8\nnested:\n  a: 1\n"
    )
    unit = Unit("vllm.service", "loaded", "failed", "failed", "exit-code", fragment=str(fragment))
    told = [(one.line, one.text) for one in settings(unit) if one.path == str(config)]
    assert told == [(2, "model: m"), (3, "max_model_len: 131072"), (4, "api-key: [hidden]")]
    assert not [one for one in settings(unit) if one.path == str(old)]


def test_a_unit_that_the_role_renders_is_told_from_one_that_a_person_wrote(tmp_path: Path) -> None:
    template = Path(__file__).resolve().parents[2] / "templates" / "vllm.service.j2"
    first = next(line for line in template.read_text().splitlines() if line.startswith("# Rendered by role vllm"))
    fragment = tmp_path / "vllm@main.service"
    unit = Unit("vllm@main.service", "loaded", "active", "running", "", fragment=str(fragment))
    fragment.write_text(f"{first}\n{UNIT}")
    assert is_rendered(unit)
    fragment.write_text(f"# edited by hand\n{UNIT}")
    assert not is_rendered(unit)
