"""Bad input in an inventory: refused with the line to change, before any host is asked."""

from pathlib import Path

import pytest
import yaml

from vllm_doctor.preflight.host_table import failures, table
from vllm_doctor.preflight.judged import Checked, Result
from vllm_doctor.preflight.sources import Sources
from vllm_doctor.preflight.variables import PLAYBOOKS, Option, Variables, options

KNOWN = (
    Option("vllm_max_model_len", "vllm", "int"),
    Option("vllm_version", "vllm", "str"),
    Option("vllm_port", "vllm", "int"),
    Option("vllm_extra_args", "vllm", "list"),
    Option("vllm_enforce_eager", "vllm", "bool"),
    Option("vllm_api_token", "vllm", "str", secret=True),
    Option("vllm_secrets", "vllm", "dict", secret=True),
    Option("vllm_doctor_python", "vllm_doctor", "str"),
    Option("vllm_instances", "vllm", "list", elements="dict", empty=False),
    Option(
        "vllm_doctor_guard_policy",
        "vllm_doctor",
        "dict",
        inner=(
            Option("restarts_a_day", "vllm_doctor", "int"),
            Option("pressure", "vllm_doctor", "dict", inner=(Option("kv", "vllm_doctor", "float"),)),
        ),
    ),
    Option("nvidia_driver_enabled", "nvidia_driver", "bool"),
    Option("nvidia_driver_version", "nvidia_driver", "str"),
    Option("site_serial", PLAYBOOKS, "raw"),
    Option("site_state", PLAYBOOKS, "str", ("present", "absent")),
    Option("drain_all", PLAYBOOKS, "raw"),
    Option("nvidia_driver_flavour", "nvidia_driver", "str", ("auto", "open", "proprietary")),
)


class Inventory:
    """An inventory folder with one file of group variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "group_vars").mkdir()
        (folder / "hosts.yml").write_text("all:\n  children:\n    gpu:\n      hosts:\n        gpu1: {}\n")

    def judge(self, text: str, allowed: tuple[str, ...] = ()) -> tuple[Checked, ...]:
        (self.folder / "group_vars" / "gpu.yml").write_text(text)
        values = yaml.load(text.replace("!vault |", "|"), Loader=yaml.SafeLoader) or {}
        variables = Variables(KNOWN, Sources([self.folder / "hosts.yml"]), {"max-model-len": "vllm_max_model_len"})
        return variables.judge("gpu1", ["gpu"], values, allowed)


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(tmp_path)


@pytest.mark.parametrize(
    ("line", "verdict", "says"),
    [
        ("site_seriall: 1", "fail", "write site_serial"),
        ("site_stat: absent", "fail", "write site_state"),
        ("SITE_SERIAL: 1", "fail", "write site_serial"),
        ("drain_al: true", "fail", "write drain_all"),
        ("sit_serial: 1", "fail", "write site_serial"),  # no prefix of ours, and almost the same
        # Somebody's own, perhaps; perhaps what was meant.
        ("site_name: fra1", "warn", "remove it, or list it in preflight_extra_variables"),
        ("site_status: down", "warn", "write site_state; if it is your own, list it in preflight_extra_variables"),
        ("nvidia_version: '580'", "warn", "write nvidia_driver_version; if it is your own, list it in"),
    ],
)
def test_a_slip_in_a_variable_of_the_playbooks_is_named_once_with_the_right_name(
    inventory: Inventory, line: str, verdict: str, says: str
) -> None:
    (row,) = inventory.judge(f"{line}\n")
    assert (row.check, row.verdict) == ("variable name", verdict)
    assert row.action.startswith(f"group_vars/gpu.yml:1: {says}")
    assert inventory.judge(f"{line}\n", allowed=(line.partition(":")[0],)) == ()


@pytest.mark.parametrize("line", ["nvidia_smi_log: /tmp/x", "web_state: 1", "sitemap: 1", "site_serial: 1"])
def test_what_is_somebody_elses_or_right_is_not_spoken_of(inventory: Inventory, line: str) -> None:
    assert inventory.judge(f"{line}\n") == ()


def test_good_variables_draw_no_complaint(inventory: Inventory) -> None:
    assert (
        inventory.judge(
            "vllm_version: '0.33.0'\nvllm_enforce_eager: true\nunrelated: 1\nvllm_extra_args: [--seed, '1']\n"
        )
        == ()
    )


@pytest.mark.parametrize(
    ("text", "check", "action"),
    [
        ("---\nvllm_max_modle_len: 4096\n", "variable name", "group_vars/gpu.yml:2: write vllm_max_model_len"),
        ("vlm_version: '0.33.0'\n", "variable name", "group_vars/gpu.yml:1: write vllm_version"),
        ("\n\nvllm_version: 0.33\n", "variable type", "group_vars/gpu.yml:3: put it in quotes"),
        ("nvidia_driver_enabled: 'yes'\n", "variable type", "group_vars/gpu.yml:1: write true without quotes"),
        ("vllm_port: '8000'\n", "variable type", "group_vars/gpu.yml:1: write it as a number, without quotes"),
        ("vllm_port: true\n", "variable type", "group_vars/gpu.yml:1: write it as a number, without quotes"),
        ("nvidia_driver_flavour: opne\n", "variable type", "group_vars/gpu.yml:1: write open"),
        (
            "vllm_extra_args: --port 1\n",
            "variable type",
            "group_vars/gpu.yml:1: write a list, in brackets: vllm_extra_args: [",
        ),
        ("vllm_port: 1\nvllm_port: 2\n", "variable twice", "group_vars/gpu.yml:2: remove one of the two"),
        ("vllm_prot: 1\n", "variable name", "group_vars/gpu.yml:1: write vllm_port"),
        ("VLLM_VERSION: '1'\n", "variable name", "group_vars/gpu.yml:1: write vllm_version"),
        ("vllm-version: '1'\n", "variable name", "group_vars/gpu.yml:1: write vllm_version"),
        ("vllm_docter_pyton: x\n", "variable name", "group_vars/gpu.yml:1: write vllm_doctor_python"),
        ("vllm_instances: [main]\n", "variable type", "group_vars/gpu.yml:1: in each entry write a mapping"),
        ("vllm_instances:\n", "variable type", "group_vars/gpu.yml:1: write one, or take the line out"),
    ],
)
def test_names_and_types(inventory: Inventory, text: str, check: str, action: str) -> None:
    rows = inventory.judge(text)
    assert rows[0].check == check
    assert rows[0].action.startswith(action)


@pytest.mark.parametrize(
    ("text", "found", "needed", "action"),
    [
        ("{restarts_a_dy: 2}", "restarts_a_dy", "one of restarts_a_day, pressure", "write restarts_a_day"),
        ("{pressure: {kv: much}}", "pressure.kv: 'much'", "a number", "write it as a number"),
        ("{pressure: {full: 1}}", "pressure.full", "one of kv", "take it out"),
        ("{pressure: 1}", "pressure: 1", "a mapping", "write a mapping"),
    ],
)
def test_the_keys_of_a_mapping_are_judged_where_the_specification_names_them(
    inventory: Inventory, text: str, found: str, needed: str, action: str
) -> None:
    (row,) = inventory.judge(f"vllm_doctor_guard_policy: {text}\n")
    assert (row.found, row.needed) == (f"vllm_doctor_guard_policy.{found}", needed)
    assert row.action.startswith(f"group_vars/gpu.yml:1: {action}")


@pytest.mark.parametrize(
    "args", ["[--port, '9000']", "[--port=9000]", "['--max_model_len 4096']", "[--no-enforce-eager]"]
)
def test_an_extra_argument_may_not_shadow_a_variable(inventory: Inventory, args: str) -> None:
    rows = inventory.judge(f"vllm_extra_args: {args}\n")
    assert [row.check for row in rows] == ["extra argument"]
    assert rows[0].action.startswith("group_vars/gpu.yml:1: set vllm_")


@pytest.mark.parametrize(
    "text",
    [
        "vllm_api_token: abc123\n",
        "vllm_extra_args: [hf_abcdefghijklmnopqrstuv]\n",
        "mine:\n  deep:\n    db_password: hunter2\n",
        "mine:\n  aws_secret_access_key: hunter2\n",
        "mine:\n  passwords: [hunter2]\n",
        "mirror: https://joe:hunter2@mirror.example.net/\n",
        "vllm_secrets: {ANYTHING: hunter2}\n",
        "vllm_api_token: '{{ mine }}'\nmine: hunter2\n",
        "vllm_secrets: {A: '{{ one }}'}\none: '{{ two | trim }}'\ntwo: hunter2\n",
    ],
)
def test_a_secret_in_plain_text_is_refused_and_not_shown(inventory: Inventory, text: str) -> None:
    rows = inventory.judge(text)
    assert [row.check for row in rows] == ["secret in plain text"]
    assert "hunter2" not in str(rows)
    assert "abc123" not in str(rows)


@pytest.mark.parametrize(
    "text",
    [
        "vllm_api_token: '{{ vault_token }}'\n",
        "vllm_api_token: ''\n",
        "vllm_api_token: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n",
        "other_token_file: /etc/x\n",
        "use_token: true\n",
        "max_num_batched_tokens: 8192\nmine: {num_speculative_tokens: 3}\n",
        "vllm_api_token: \"{{ lookup('file', 'mine') }}\"\nmine: hunter2\n",
        "vllm_secrets: {A: '{{ vault_a }}'}\n",
        "mirror: https://mirror.example.net:8443/x@y\n",
    ],
)
def test_references_and_vault_values_are_fine(inventory: Inventory, text: str) -> None:
    assert inventory.judge(text) == ()


@pytest.mark.parametrize("text", ["vllm_port: 'hunter2'\nvllm_api_token: [hunter2]\n", "vllm_secrets: [hunter2]\n"])
def test_a_secret_of_the_wrong_type_is_not_shown(inventory: Inventory, text: str) -> None:
    rows = [row for row in inventory.judge(text) if "port" not in row.found]
    assert {row.check for row in rows} == {"variable type", "secret in plain text"}
    assert "hunter2" not in str(rows)


def test_what_a_reference_brought_is_not_shown(inventory: Inventory) -> None:
    (inventory.folder / "group_vars" / "gpu.yml").write_text("vllm_port: '{{ vault_port }}'\n")
    variables = Variables(KNOWN, Sources([inventory.folder / "hosts.yml"]))
    (row,) = variables.judge("gpu1", ["gpu"], {"vllm_port": "hunter2"})
    assert (row.check, row.found) == ("variable type", "vllm_port (value not shown)")


def test_a_file_after_e_counts_and_is_named(inventory: Inventory) -> None:
    (inventory.folder / "mine.yml").write_text("---\nvllm_secrets: {A: hunter2}\n")
    sources = Sources([inventory.folder / "hosts.yml"], files=[inventory.folder / "mine.yml"])
    (row,) = Variables(KNOWN, sources).judge("gpu1", ["gpu"], {})
    assert row.action.startswith("mine.yml:2: encrypt it")


def test_a_file_of_variables_that_nobody_takes(inventory: Inventory) -> None:
    for name in ("host_vars/gpu01.yml", "host_vars/gpu1.yml", "group_vars/all.yml", "group_vars/gqu/vars.yml"):
        (inventory.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (inventory.folder / name).touch()
    sources = Sources([inventory.folder / "hosts.yml"])
    assert sources.strays(["gpu1"], ["all", "gpu"]) == ("host_vars/gpu01.yml", "group_vars/gqu")


def test_a_variable_of_ones_own_can_be_allowed(inventory: Inventory) -> None:
    assert inventory.judge("vllm_house_note: x\n")
    assert inventory.judge("vllm_house_note: x\n", ("vllm_house_note",)) == ()


@pytest.mark.parametrize(("typed", "where"), [(True, "on the command line (-e)"), (False, "in the inventory")])
def test_what_no_file_sets_came_from_the_command_line_or_from_a_program(
    inventory: Inventory, typed: bool, where: str
) -> None:
    name = "nvidia_driver_enabled"
    sources = Sources([inventory.folder / "hosts.yml"], typed=[name] if typed else [])
    (row,) = Variables(KNOWN, sources).judge("gpu1", ["gpu"], {name: "false"})
    assert row.action.startswith(f"{where}: write false without quotes")
    assert """-e '{"nvidia_driver_enabled": false}'""" in row.action


def test_a_secret_typed_with_e_is_refused_and_not_shown(inventory: Inventory) -> None:
    variables = Variables(KNOWN, Sources([inventory.folder / "hosts.yml"]))
    nested = {"X": ["hf_abcdefghijklmnopqrstuv"]}
    typed = {"vllm_api_token": "hunter2", "mine": nested, "vllm_port": 8000, "use_token": "true"}
    rows = variables.typed_secrets(typed)
    assert [row.found.split()[0] for row in rows] == ["mine", "vllm_api_token"]
    assert "hunter2" not in str(rows)
    assert "-e @FILE" in rows[1].action


def test_host_variables_win_over_group_variables(inventory: Inventory) -> None:
    (inventory.folder / "host_vars").mkdir()
    (inventory.folder / "host_vars" / "gpu1.yml").write_text("---\n# why\nvllm_port: '1'\n")
    rows = inventory.judge("vllm_port: '1'\n")
    assert rows[0].action.startswith("host_vars/gpu1.yml:3")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("hosts.ini", "[gpu]\ngpu1 vllm_prt=1\n", 2),
        ("hosts.yml", "gpu:\n  hosts:\n    gpu1:\n      vllm_prt: 1\n", 4),
        ("hosts.yml", "gpu:\n  hosts: {gpu1: }\n  vars:\n    vllm_prt: 1\n", 4),
        # What another host or group says is not this one's.
        ("hosts", "[gpu]\ngpu1 vllm_prt=1\ngpu2 vllm_prt=2\n[web:vars]\nvllm_prt=3\n", 2),
        ("hosts", "[gpu]\ngpu[0:9]\n[gpu:vars]\nvllm_prt = 1\n[web]\nweb1 vllm_prt=1\n", 4),
        ("hosts.yml", "a:\n  children:\n    gpu: {vars: {vllm_prt: 1}}\n    web: {vars: {vllm_prt: 1}}\n", 3),
        ("hosts.yml", "gpu:\n  hosts:\n    gpu[1:4]: {vllm_prt: 1}\n    web1: {vllm_prt: 1}\n", 3),
    ],
)
@pytest.mark.parametrize("whole", [False, True], ids=["file", "folder"])
def test_lines_inside_the_inventory_file(tmp_path: Path, name: str, text: str, line: int, whole: bool) -> None:
    (tmp_path / name).write_text(text)
    for no_inventory in ("hosts.bak", "README.md", ".hidden"):
        (tmp_path / no_inventory).write_text("[gpu:vars]\nvllm_prt=1\n")
    (row,) = Variables(KNOWN, Sources([tmp_path if whole else tmp_path / name])).judge("gpu1", ["gpu"], {"vllm_prt": 1})
    assert row.action == f"{name}:{line}: write vllm_port"


def test_options_of_argument_specs() -> None:
    specs = {"argument_specs": {"main": {"options": {"a_b": {"type": "bool"}, "a_c": {"choices": [1, 2]}}}}}
    assert list(options("a", specs)) == [Option("a_b", "a", "bool"), Option("a_c", "a", "str", (1, 2))]


class TestTable:
    FAIL = Checked("disk space", Result.FAIL, "3 GiB", "30 GiB", "free the space")

    def test_hosts_with_the_same_row_share_it(self) -> None:
        text = table({"gpu1": (self.FAIL,), "gpu2": (self.FAIL,)})
        assert "gpu1, gpu2" in text
        assert text.count("disk space") == 1

    def test_failures_come_first_and_ok_is_left_out(self) -> None:
        warn = Checked("driver branch alive", Result.WARN, "branch 535 ended", "580", "upgrade")
        text = table({"gpu1": (warn, Checked("x", Result.OK)), "gpu2": (self.FAIL,)})
        assert text.index("disk space") < text.index("driver branch")
        assert "(warn)" in text

    def test_no_complaint_is_no_table(self) -> None:
        assert table({"gpu1": (Checked("x", Result.OK),)}) == ""

    def test_count_of_failed_hosts(self) -> None:
        assert failures({"a": (self.FAIL, self.FAIL), "b": ()}) == 1
