"""The repair of a unit where one thing of it is other: the first of several, what is absent, the other spelling."""

import msgspec
import pytest

from tests.remedy.test_repair import (
    DROP_IN,
    FAILED,
    FILE,
    FRAGMENT,
    GONE,
    JOBS,
    LONGER,
    OVER,
    OWN,
    SHORTER,
    START,
    STOP,
    repair,
)
from tests.render.sample import diagnosis, finding
from vllm_doctor.records.finding import Change
from vllm_doctor.records.host import Launch, Listener, Machine, Program, Setting, WeightFile, WeightFiles
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Direction, Severity
from vllm_doctor.remedy.repair import repaired

LIVE = Snapshot(taken_at="2026-11-22T10:00:00+00:00", live=True, unit=Known(FAILED, "systemctl show"))


def line(text: str, at: int = 30) -> Setting:
    return Setting(FRAGMENT, at, "ExecStart", f"/opt/vllm/bin/vllm serve m {text}")


@pytest.mark.parametrize(
    ("shot", "codes"),
    [
        (msgspec.structs.replace(LIVE, live=False), ["VD121"]),
        (msgspec.structs.replace(LIVE, unit=Unknown("no systemd", "")), ["VD121"]),
        (LIVE, []),
    ],
)
def test_a_log_a_host_without_systemd_and_a_healthy_unit_have_none(shot: Snapshot, codes: list[str]) -> None:
    told = diagnosis(*(finding(code) for code in codes))
    assert repaired(told, shot) is told


def test_the_first_finding_is_repaired() -> None:
    told = msgspec.structs.replace(
        diagnosis(finding("VD121", changes=(SHORTER,)), finding("VD121", changes=(GONE,))),
        launch=("vllm", "serve", "m"),
    )
    unit = Known(msgspec.structs.replace(FAILED, settings=OVER), "systemctl show")
    found = repaired(told, msgspec.structs.replace(LIVE, unit=unit)).repair
    assert found is not None
    assert "--max-model-len" in found.where


@pytest.mark.parametrize(("code", "starts"), [("VD510", True), ("VD511", False), ("VD512", False)])
def test_a_unit_that_runs_is_started_again_only_for_its_port(code: str, *, starts: bool) -> None:
    told = diagnosis(msgspec.structs.replace(finding(code, changes=(STOP,)), severity=Severity.DEGRADED))
    machine = Known(Machine("gpu7", weights=WeightFiles(1)), "/proc")
    launch = Known(Launch(("vllm", "serve", "m"), "m", {}), "ExecStart")
    found = repaired(told, msgspec.structs.replace(LIVE, machine=machine, launch=launch)).repair
    assert found is not None
    assert (found.commands, found.deed) == (((START,), "start it") if starts else ((), ""))


@pytest.mark.parametrize(
    ("rendered", "deed", "put"),
    [
        ("--max-model-len 4096", "put back the unit's own --max-model-len 4096", "--max-model-len 4096"),
        ("--max-model-len=65408", "put back the unit's own --max-model-len=65408", "--max-model-len=65408"),
        ("--max-model-len auto", "", "--max-model-len 65408"),
        ("--max-model-len 70000", "", "--max-model-len 65408"),
        ("", "", "--max-model-len 65408"),
    ],
)
def test_only_the_units_own_value_is_put_back(rendered: str, deed: str, put: str) -> None:
    told = repair(SHORTER, line(rendered), *OVER[1:])
    assert told.deed == deed
    assert told.commands[0] == f"sed -i '3s/--max-model-len 131072/{put}/' {DROP_IN}"


def test_a_value_that_must_rise_may_be_the_units_own_as_it_is_written_there() -> None:
    longer = msgspec.structs.replace(SHORTER, before=2048, after=4096, direction=Direction.RAISE)
    lower = msgspec.structs.replace(LONGER, text="/opt/vllm/bin/vllm serve m --max-model-len 2048")
    assert repair(longer, line("--max-model-len=4096"), OVER[1], lower).deed.endswith("--max-model-len=4096")


TOGETHER = msgspec.structs.replace(JOBS, together=True)


@pytest.mark.parametrize("other", [TOGETHER, msgspec.structs.replace(GONE, name="seed", together=True)])
def test_what_is_nowhere_in_the_unit_and_is_no_option_to_add_leaves_no_command(other: Change) -> None:
    assert repair((SHORTER, other), *OVER).commands == ()


@pytest.mark.parametrize("word", ["$VLLM_ARGS", "${VLLM_ARGS}"])
@pytest.mark.parametrize(
    ("directive", "text"),
    [("EnvironmentFile", "VLLM_ARGS=--max-model-len 131072"), ("Environment", '"VLLM_ARGS=--max-model-len 131072"')],
)
def test_a_variable_of_either_spelling_is_found_where_it_is_set(word: str, directive: str, text: str) -> None:
    told = repair(SHORTER, line(word), Setting(FILE, 4, directive, text))
    assert told.where.startswith(f"--max-model-len 131072 in {FILE} line 4")


def test_of_a_config_file_the_line_of_that_option_is_told() -> None:
    config = [Setting("/c.yaml", at, "--config", text) for at, text in ((2, "max-model-len: 9"), (3, "seed: 1"))]
    assert repair(SHORTER, line("--config /c.yaml"), *config).where == "max-model-len: 9 in /c.yaml line 2"


@pytest.mark.parametrize(
    ("before", "after", "script"),
    [
        ("/srv/a.b", "/srv/c", r"--model \/srv\/a\.b/--model \/srv\/c"),
        ("[x]", "R&D", r'--model \[x\]/--model "R\&D"'),
        ("a*b^c$", "a", r"--model a\*b\^c\$/--model a"),
    ],
)
def test_signs_that_sed_would_read_are_escaped(before: str, after: str, script: str) -> None:
    change = msgspec.structs.replace(SHORTER, name="model", before=before, after=after, direction=Direction.CHANGE)
    told = repair(change, Setting(FRAGMENT, 30, "ExecStart", f"vllm serve --model {before}"))
    assert [c.replace("'", "") for c in told.commands[:1]] == [f"sed -i 30s/{script}/ {FRAGMENT}"]


@pytest.mark.parametrize(
    ("change", "settings", "gone"),
    [
        (GONE, (OWN,), True),
        (GONE, (OWN, Setting(FRAGMENT, 31, "Environment", "A=1")), True),
        (GONE, (Setting(FRAGMENT, 31, "Environment", "A=1"),), False),  # its lines were not read
        (GONE, (), False),
        (msgspec.structs.replace(GONE, direction=Direction.LOWER), (OWN,), True),
        (msgspec.structs.replace(GONE, before=None), (OWN,), True),
        (msgspec.structs.replace(GONE, direction=Direction.LOWER, before=None), (OWN,), False),
        (msgspec.structs.replace(GONE, name="port"), (OWN,), False),  # the launch has it
        (JOBS, (OWN,), False),
    ],
)
def test_an_option_is_gone_where_the_failed_run_had_it(
    change: Change, settings: tuple[Setting, ...], *, gone: bool
) -> None:
    told = repair(change, *settings)
    assert len(told.now) == 1 + gone
    assert told.commands == ((START,) if gone else ())


@pytest.mark.parametrize("words", [("--port", "9001"), ("--port=9001",), ()])
def test_the_port_is_the_launchs_or_8000(words: tuple[str, ...]) -> None:
    held = Machine("gpu7", listeners=tuple(Listener(port, 7, f"at-{port}", "") for port in (8000, 9001, 9002)))
    told = msgspec.structs.replace(diagnosis(finding("VD510", changes=(STOP,))), launch=("vllm", "serve", "m", *words))
    launch = Known(Launch(told.launch, "m", {}), "ExecStart")
    found = repaired(told, msgspec.structs.replace(LIVE, machine=Known(held, "/proc"), launch=launch)).repair
    assert found is not None
    port = 9001 if words else 8000
    assert found.now[1] == f"port {port} is held by pid 7 (at-{port})"


@pytest.mark.parametrize(
    ("pid", "unit", "who", "stop", "whom"),
    [
        (7, None, "pid 7 (a)", "kill 7", "pid 7 (a)"),
        (7, "x.service", "pid 7 (a), unit x.service", "systemctl stop x.service", "x.service"),
        (None, "x.service", "a process of another user, unit x.service", "systemctl stop x.service", "x.service"),
        (None, None, "a process of another user", None, None),
    ],
)
def test_who_holds_the_port_is_stopped_by_its_unit_or_its_number(
    pid: int | None, unit: str | None, who: str, stop: str | None, whom: str | None
) -> None:
    held = Machine("gpu7", listeners=(Listener(8000, pid, "a", unit or ""), Listener(8000, 9, "b", "y.service")))
    told = repair(STOP, code="VD510", machine=held)
    assert told.now[1] == f"port 8000 is held by {who}"
    assert told.commands == ((stop, START) if stop else ())
    assert told.deed == (f"stop {whom}, unless it is wanted: then another port for one of the two" if whom else "")


@pytest.mark.parametrize(("checked", "commands"), [(0, ()), (1, (START,))])
def test_a_folder_of_which_nothing_could_be_looked_at_is_no_reason_to_start(
    checked: int, commands: tuple[str, ...]
) -> None:
    assert repair(STOP, code="VD511", machine=Machine("gpu7", weights=WeightFiles(checked))).commands == commands


@pytest.mark.parametrize("count", [5, 6, 7])
def test_six_folders_beside_a_program_are_named(count: int) -> None:
    beside = tuple(f"/opt/v{n}" for n in range(count))
    told = repair(STOP, code="VD514", machine=Machine("gpu7", program=Program("/opt/vllm", beside)))
    assert told.now[1].count("/opt/v") == 1 + min(count, 6)


@pytest.mark.parametrize("copies", [("", "/b/1"), ("/b/0", ""), ("/b/0", "/b/1")])
def test_cut_files_are_put_back_where_each_has_a_whole_copy(copies: tuple[str, str]) -> None:
    cut = tuple(WeightFile(f"/m/{n}", 10, 20, "2026-11-22", copy=copy) for n, copy in enumerate(copies))
    told = repair(STOP, code="VD512", machine=Machine("gpu7", weights=WeightFiles(2, cut)))
    assert len(told.commands) == (3 if all(copies) else 0)
