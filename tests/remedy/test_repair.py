"""The repair on a host: the line where the value stands, what is true now, commands that work as pasted."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.render.sample import diagnosis, finding
from vllm_doctor.records.finding import Change, Repair
from vllm_doctor.records.host import Launch, Listener, Machine, Program, Setting, Unit, WeightFile, WeightFiles
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.remedy.repair import _NO_MODEL, repaired

FRAGMENT, DROP_IN = "/etc/systemd/system/vllm@.service", "/etc/systemd/system/vllm@main.service.d/50-ops.conf"
OWN = Setting(FRAGMENT, 30, "ExecStart", "/opt/vllm/bin/vllm serve m --max-model-len 4096")
LONGER = Setting(DROP_IN, 3, "ExecStart", "/opt/vllm/bin/vllm serve m --max-model-len 131072 --swap-space 4")
OVER = (OWN, Setting(DROP_IN, 2, "ExecStart", ""), LONGER)
SHORTER = Change(
    ChangeKind.FLAG, "max-model-len", 131072, 65408, Direction.LOWER, Applicability.NEEDS_REVIEW, "vllm_max_model_len"
)
GONE = Change(ChangeKind.FLAG, "swap-space", 4, None, Direction.REMOVE, Applicability.SAFE, "vllm_swap_space")
FAILED = Unit("vllm@main.service", "loaded", "failed", "failed", "exit-code", restarts=2, fragment=FRAGMENT,
              properties={"Restart": "on-failure", "StartLimitBurst": "3", "TimeoutStopUSec": "1min"})  # fmt: skip
START = "systemctl reset-failed vllm@main.service; systemctl restart vllm@main.service"


def repair(
    change: Change | tuple[Change, ...],
    *settings: Setting,
    code: str = "VD121",
    unit: Unit = FAILED,
    machine: Machine | None = None,
) -> Repair:
    argv = ("/opt/vllm/bin/vllm", "serve", "m", "--port", "8000")
    shot = Snapshot(
        taken_at="2026-11-22T10:00:00+00:00",
        live=True,
        unit=Known(msgspec.structs.replace(unit, settings=settings), "systemctl show"),
        launch=Known(Launch(argv, "m", {"port": "8000"}), "ExecStart"),
        machine=Known(machine or Machine("gpu7"), "/proc"),
    )
    changes = change if isinstance(change, tuple) else (change,)
    told = msgspec.structs.replace(diagnosis(finding(code, changes=changes)), launch=argv)
    found = repaired(told, shot).repair
    assert found is not None
    return found


def test_a_drop_in_is_named_with_its_line_and_what_the_unit_has_and_the_inventory_is_not_at_fault() -> None:
    told = repair(SHORTER, *OVER)
    assert told.where == (
        f"--max-model-len 131072 in {DROP_IN} line 3: "
        "a drop-in over the unit's own file, which has --max-model-len 4096"
    )
    assert told.commands == (
        f"sed -i '3s/--max-model-len 131072/--max-model-len 4096/' {DROP_IN}",
        f"systemctl daemon-reload && {START}",
    )
    assert told.inventory_keeps is False


def test_the_units_own_value_is_not_put_back_where_it_would_not_cure() -> None:
    own = msgspec.structs.replace(OWN, text=OWN.text.replace("4096", "99999"))
    assert "65408" in repair(SHORTER, own, *OVER[1:]).commands[0]


def test_an_option_that_no_release_knows_goes_with_the_space_before_it() -> None:
    told = repair(GONE, *OVER)
    assert told.commands[0] == f"sed -i '3s/ --swap-space 4//' {DROP_IN}"
    assert told.where.endswith("which has no such option")


@pytest.mark.parametrize(("change", "left"), [(SHORTER, "4096 --swap-space 4"), (GONE, "131072")])
def test_the_command_does_what_it_says(change: Change, left: str, tmp_path: Path) -> None:
    path = tmp_path / "50-ops.conf"
    path.write_text(f"[Service]\nExecStart=\nExecStart={LONGER.text}\n")
    place = msgspec.structs.replace(LONGER, path=str(path))
    command = repair(change, OWN, msgspec.structs.replace(OVER[1], path=str(path)), place).commands[0]
    subprocess.run(["sh", "-c", command], check=True)
    assert path.read_text().splitlines()[-1] == f"ExecStart=/opt/vllm/bin/vllm serve m --max-model-len {left}"


@pytest.mark.parametrize(
    ("change", "key", "left"),
    [(SHORTER, "max_model_len: 131072", "max_model_len: 65408  # long\n"), (GONE, "swap-space: 4", "")],
)
def test_a_line_of_the_config_file_is_named_and_corrected(change: Change, key: str, left: str, tmp_path: Path) -> None:
    path = tmp_path / "main.yaml"
    path.write_text(f"model: m\n{key}  # long\n")
    told = repair(change, Setting(FRAGMENT, 30, "ExecStart", f"/v serve --config {path}"),
                  Setting(str(path), 2, "--config", key))  # fmt: skip
    assert told.where == f"{key} in {path} line 2"
    assert told.inventory_keeps is False
    subprocess.run(["sh", "-c", told.commands[0]], check=True)
    assert path.read_text() == f"model: m\n{left}"


def test_options_that_are_corrected_together_have_a_command_each() -> None:
    told = repair((SHORTER, msgspec.structs.replace(GONE, together=True)), *OVER)
    assert told.commands == (
        f"sed -i '3s/--max-model-len 131072/--max-model-len 4096/' {DROP_IN}",
        f"sed -i '3s/ --swap-space 4//' {DROP_IN}",
        f"systemctl daemon-reload && {START}",
    )


def test_one_of_two_other_ways_to_cure_it_has_no_command() -> None:
    assert not any("swap-space" in command for command in repair((SHORTER, GONE), *OVER).commands)


def test_an_option_under_its_right_name_stands_where_the_mistyped_one_stood() -> None:
    typo = msgspec.structs.replace(LONGER, text="/opt/vllm/bin/vllm serve m --max-model-length 8192 --seed 1")
    gone = msgspec.structs.replace(GONE, name="max-model-length", before=8192)
    meant = msgspec.structs.replace(SHORTER, before=None, after=8192, direction=Direction.SET, together=True)
    assert repair((gone, meant), OWN, OVER[1], typo).commands[0] == (
        f"sed -i '3s/--max-model-length 8192/--max-model-len 8192/' {DROP_IN}"
    )


def test_a_line_that_is_not_as_told_is_not_edited() -> None:
    spaced = msgspec.structs.replace(
        LONGER, text=LONGER.text.replace("--max-model-len 131072", "--max-model-len  131072")
    )
    assert not any(c.startswith("sed") for c in repair(SHORTER, OWN, OVER[1], spaced).commands)


FILE = "/etc/default/vllm-main"
BY_FILE = (
    OWN,
    Setting(DROP_IN, 2, "ExecStart", ""),
    Setting(DROP_IN, 3, "ExecStart", "/opt/vllm/bin/vllm serve m $VLLM_ARGS"),
    Setting(FILE, 1, "EnvironmentFile", 'VLLM_ARGS="--swap-space 4 --max-model-len 131072"'),
)


def test_a_value_that_an_environment_file_brings_into_the_command_line_is_found_there() -> None:
    told = repair(SHORTER, *BY_FILE)
    assert told.where == (
        f"--max-model-len 131072 in {FILE} line 1: an environment file; the unit's own file has --max-model-len 4096"
    )
    assert told.commands[0] == f"sed -i '1s/--max-model-len 131072/--max-model-len 4096/' {FILE}"
    assert repair(GONE, *BY_FILE).commands[0] == f"sed -i '1s/--swap-space 4 //' {FILE}"


def test_of_several_variables_in_the_command_line_each_is_asked_and_of_one_its_last_line_counts() -> None:
    both = msgspec.structs.replace(BY_FILE[2], text="/opt/vllm/bin/vllm serve m $VLLM_ARGS ${VLLM_LOG_ARGS}")
    logs = Setting(FILE, 2, "EnvironmentFile", 'VLLM_LOG_ARGS="--disable-log-requests"')
    told = repair(SHORTER, *BY_FILE[:2], both, BY_FILE[3], logs)
    assert told.where.startswith(f"--max-model-len 131072 in {FILE} line 1: an environment file")
    over = Setting(FILE, 3, "EnvironmentFile", 'VLLM_ARGS="--swap-space 4"')
    assert repair(SHORTER, *BY_FILE[:2], both, BY_FILE[3], logs, over).where == ""


def test_a_variable_that_the_command_line_does_not_take_is_not_where_the_value_stands() -> None:
    unused = msgspec.structs.replace(BY_FILE[3], text='OTHER="--max-model-len 131072"')
    assert repair(SHORTER, *BY_FILE[:3], unused).where == ""


def test_the_units_state_says_what_has_to_be_cleared() -> None:
    assert repair(SHORTER, *OVER).now[0] == "the unit failed; systemd gave up after 3 starts (its start limit)"
    again = msgspec.structs.replace(FAILED, active_state="activating", sub_state="auto-restart", restarts=1)
    told = repair(SHORTER, *OVER, unit=again)
    assert told.now[0] == "the unit restarts: attempt 2 of 3"
    assert told.commands[-1].endswith("# may take 1min until the old run has stopped")


def test_a_unit_that_is_active_between_two_failures_is_not_called_running_alone() -> None:
    between = msgspec.structs.replace(FAILED, active_state="active", sub_state="running", result="success", restarts=1)
    assert repair(SHORTER, *OVER, unit=between).now[0] == "the unit is active (running): attempt 2 of 3 to start"


STOP = Change(ChangeKind.OS, "port-holder", None, None, Direction.STOP, Applicability.MANUAL)


def test_a_port_that_is_held_is_freed_by_stopping_its_unit_and_one_that_is_free_again_is_used() -> None:
    held = Machine("gpu7", listeners=(Listener(8000, 3834, "python3", "reports.service"),))
    told = repair(STOP, code="VD510", machine=held)
    assert told.now[1] == "port 8000 is held by pid 3834 (python3), unit reports.service"
    assert told.commands == ("systemctl stop reports.service", START)
    assert told.deed == "stop reports.service, unless it is wanted: then another port for one of the two"
    free = repair(STOP, code="VD510", machine=Machine("gpu7"))
    assert free.now[1] == "port 8000 is free again"
    assert free.deed == "start it"
    assert free.commands == (START,)


def test_a_weight_file_is_named_with_its_size_and_the_size_that_it_should_have() -> None:
    cut = WeightFile("/srv/m/model.safetensors", 946156, 2365392, "2026-11-22T13:40:34+00:00")
    told = repair(STOP, code="VD512", machine=Machine("gpu7", weights=WeightFiles(1, (cut,))))
    assert told.now[1] == (
        "/srv/m/model.safetensors: 946,156 bytes, its header asks for 2,365,392; changed 2026-11-22T13:40:34+00:00"
    )
    assert told.commands == ()
    beside = msgspec.structs.replace(cut, copy="/srv/m kept/model.safetensors")
    told = repair(STOP, code="VD512", machine=Machine("gpu7", weights=WeightFiles(1, (beside,))))
    assert told.commands == ("cp -p '/srv/m kept/model.safetensors' /srv/m/model.safetensors", START)
    assert told.deed == "put back the whole file, if that is the same model"
    whole = repair(STOP, code="VD512", machine=Machine("gpu7", weights=WeightFiles(1)))
    assert whole.now[1] == "all 1 weight files of the folder are whole now"
    assert whole.deed == "start it"
    assert whole.commands == (START,)


def test_where_no_weight_file_could_be_looked_at_nothing_is_called_whole() -> None:
    gone = WeightFiles(0, missing="/srv/m/tiny", beside=("/srv/m/a", "/srv/m/b"))
    told = repair(STOP, code="VD512", machine=Machine("gpu7", weights=gone))
    assert told.now[1] == "/srv/m/tiny is not there; folders with a model beside it: /srv/m/a, /srv/m/b"
    assert (told.deed, told.commands) == ("", ())
    shut = WeightFiles(0, denied="/srv/m/tiny", group="vllm", why="user vllm may not read it: owner root, mode 700")
    told = repair(STOP, code="VD512", machine=Machine("gpu7", weights=shut))
    assert told.now[1] == "/srv/m/tiny is there, and user vllm may not read it: owner root, mode 700"
    assert told.commands == ("chgrp -R vllm /srv/m/tiny && chmod -R g+rX /srv/m/tiny", START)


MODEL = Change(ChangeKind.FLAG, "model", "/srv/m/tiny", None, Direction.CHANGE, Applicability.MANUAL)


def test_a_model_is_no_option_that_was_taken_out() -> None:
    told = repair(MODEL, OWN, code="VD511")
    assert told.commands == ()
    assert told.now == ("the unit failed; systemd gave up after 3 starts (its start limit)",)


def test_a_run_that_cannot_start_is_not_waited_for_and_one_that_serves_is() -> None:
    starting = msgspec.structs.replace(FAILED, active_state="active", sub_state="running", restarts=0)
    name = "vllm@main.service"
    lost = f"systemctl reset-failed {name}; systemctl kill -s KILL {name}; systemctl restart {name}"
    assert repair(SHORTER, *OVER, unit=starting).commands[-1] == f"systemctl daemon-reload && {lost}"
    between = msgspec.structs.replace(starting, active_state="activating", sub_state="auto-restart")
    assert "kill" not in repair(SHORTER, *OVER, unit=between).commands[-1]


def test_a_program_that_is_gone_is_linked_to_the_only_one_beside_it() -> None:
    at = "/opt/vllm/current"
    one = repair(STOP, code="VD514", machine=Machine("gpu7", program=Program(at, ("/opt/vllm/releases/0.32.0",))))
    assert one.now[1] == f"{at} is not there; the same program is beside it in: /opt/vllm/releases/0.32.0"
    assert one.commands == (f"ln -sfn /opt/vllm/releases/0.32.0 {at}", START)
    for beside in ((), ("/opt/vllm/releases/0.31.0", "/opt/vllm/releases/0.32.0")):
        assert repair(STOP, code="VD514", machine=Machine("gpu7", program=Program(at, beside))).commands == ()


def test_a_models_folder_that_is_gone_is_told_with_what_lies_beside() -> None:
    one = Machine("gpu7", weights=WeightFiles(0, missing="/srv/m/tiny", beside=("/srv/m/tiny-v2",)))
    told = repair(MODEL, OWN, code="VD511", machine=one)
    assert told.now[1] == "/srv/m/tiny is not there; folders with a model beside it: /srv/m/tiny-v2"
    assert told.commands == ("ln -s /srv/m/tiny-v2 /srv/m/tiny", START)
    more = Machine("gpu7", weights=WeightFiles(0, missing="/srv/m/tiny", beside=("/srv/m/a", "/srv/m/b")))
    assert repair(MODEL, OWN, code="VD511", machine=more).commands == ()
    shut = WeightFiles(0, denied="/srv/m/tiny", group="vllm", why="user vllm may not read it: owner root, mode 700")
    closed = repair(MODEL, OWN, code="VD511", machine=Machine("gpu7", weights=shut))
    assert closed.now[1] == "/srv/m/tiny is there, and user vllm may not read it: owner root, mode 700"
    assert closed.commands == ("chgrp -R vllm /srv/m/tiny && chmod -R g+rX /srv/m/tiny", START)
    above = Machine(
        "gpu7", weights=WeightFiles(0, denied="/srv/m", why="user vllm may not read it: owner root, mode 700")
    )
    assert repair(MODEL, OWN, code="VD511", machine=above).commands[0] == "chmod o+x /srv/m"
    back = repair(MODEL, OWN, code="VD511", machine=Machine("gpu7", weights=WeightFiles(2)))
    assert (back.deed, back.commands) == ("start it", (START,))


def test_what_was_taken_out_after_the_failed_run_needs_a_start_alone() -> None:
    told = repair(GONE, OWN)
    assert told.now[1] == "the launch has --swap-space 4 no more"
    assert told.deed == "start it"
    assert told.commands == (START,)


@pytest.mark.parametrize(
    ("state", "restarts", "extra", "words"),
    [
        (("activating", "auto-restart", "exit-code"), 0, {}, "the unit restarts: attempt 1 of 3"),
        (("activating", "start", "success"), 1, {}, "the unit restarts: attempt 2 of 3"),
        (("activating", "start", "success"), 0, {}, "the unit is activating (start)"),
        (("inactive", "dead", "success"), 0, {}, "the unit is inactive (dead)"),
        (("failed", "failed", "exit-code"), 0, {}, "the unit is failed (failed)"),
        (("failed", "failed", "exit-code"), 2, {"Restart": "no"}, "the unit is failed (failed)"),
        (
            ("failed", "failed", "start-limit-hit"),
            4,
            {"Restart": "no"},
            "the unit failed; systemd gave up after 5 starts",
        ),
        (("activating", "auto-restart", "exit-code"), 3, {"StartLimitBurst": "0"}, "the unit restarts: attempt 4"),
        (
            ("failed", "failed", "exit-code"),
            0,
            {"InactiveEnterTimestamp": "Sat 10:00", "ActiveEnterTimestamp": "Sat 09:00"},
            "the unit is failed (failed) since Sat 10:00",
        ),
    ],
)
def test_each_state_of_a_unit_has_its_words(
    state: tuple[str, str, str], restarts: int, extra: dict[str, str], words: str
) -> None:
    active, sub, result = state
    unit = msgspec.structs.replace(FAILED, active_state=active, sub_state=sub, result=result, restarts=restarts)
    unit = msgspec.structs.replace(unit, properties={**FAILED.properties, **extra})
    assert repair(SHORTER, *OVER, unit=unit).now[0].removesuffix(" (its start limit)") == words


JOBS = Change(ChangeKind.ENV, "MAX_JOBS", None, "2", Direction.SET, Applicability.MANUAL)


@pytest.mark.parametrize(
    ("text", "stands", "command"),
    [
        ("MAX_JOBS=16", "MAX_JOBS=16", "sed -i s"),
        ('A=1 "MAX_JOBS=16" B=2', '"MAX_JOBS=16"', ""),
        ("NOT_MAX_JOBS=16", "", ""),
    ],
)
def test_a_variable_is_found_in_the_line_of_the_unit_that_sets_it(text: str, stands: str, command: str) -> None:
    line = Setting(FRAGMENT, 12, "Environment", text)
    earlier = Setting(FRAGMENT, 11, "Environment", "MAX_JOBS=64")
    told = repair(JOBS, OWN, line, code="VD604")
    assert told.where == (f"{stands} in {FRAGMENT} line 12" if stands else "")
    assert repair(JOBS, OWN, earlier, line, code="VD604").where.endswith("line 12" if stands else "line 11")
    if command:
        assert told.commands[0] == f"sed -i 12s/MAX_JOBS=16/MAX_JOBS=2/ {FRAGMENT}"


def test_no_more_than_three_of_the_cut_files_are_named_and_a_header_that_is_none_is_told() -> None:
    cut = tuple(WeightFile(f"/srv/m/{n}.safetensors", 10, None, "2026-11-22") for n in range(5))
    told = repair(STOP, code="VD512", machine=Machine("gpu7", weights=WeightFiles(5, cut)))
    assert len(told.now) == 1 + 3
    assert told.now[1] == "/srv/m/0.safetensors: 10 bytes, it has no header of safetensors; changed 2026-11-22"


@pytest.mark.parametrize(("rendered", "kept"), [(65408, 65408), (65407, 65407), (65409, 65408)])
def test_the_units_own_value_is_taken_where_it_is_as_good_as_the_one_asked_for(rendered: int, kept: int) -> None:
    own = msgspec.structs.replace(OWN, text=f"/opt/vllm/bin/vllm serve m --max-model-len {rendered}")
    told = repair(SHORTER, own, *OVER[1:])
    assert f"/--max-model-len {kept}/' {DROP_IN}" in told.commands[0]


@pytest.mark.parametrize(("wanted", "kept"), [(4095, 4096), (4096, 4096), (4097, 4097)])
def test_a_value_that_must_rise_may_be_the_one_asked_for(wanted: int, kept: int) -> None:
    longer = msgspec.structs.replace(SHORTER, before=2048, after=wanted, direction=Direction.RAISE)
    lower = msgspec.structs.replace(LONGER, text="/opt/vllm/bin/vllm serve m --max-model-len 2048 --swap-space 4")
    told = repair(longer, OWN, OVER[1], lower)
    assert f"/--max-model-len {kept}/' {DROP_IN}" in told.commands[0]


@pytest.mark.parametrize("count", [5, 6, 7])
def test_six_folders_beside_the_one_that_is_missing_are_named(count: int) -> None:
    machine = Machine(
        "gpu7", weights=WeightFiles(0, missing="/srv/m", beside=tuple(f"/srv/m{n}" for n in range(count)))
    )
    told = repair((), code=_NO_MODEL, machine=machine)
    assert " ".join(told.now).count("/srv/m") == 1 + min(count, 6)
