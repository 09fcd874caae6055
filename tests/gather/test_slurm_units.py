"""Each figure of a Slurm job in its unit, and each state as what the rules know."""

import pytest

from vllm_doctor.gather.slurm import seen

JOB = {"JobId": "71", "JobState": "RUNNING", "NumNodes": "1"}


@pytest.mark.parametrize(
    ("tres", "nodes", "size"),
    [
        ("cpu=8,mem=512,node=1", "1", 512 << 20),  # without a letter: megabytes
        ("mem=512K", "1", 512 << 10),
        ("mem=64M", "1", 64 << 20),
        ("mem=96G", "1", 96 << 30),
        ("mem=1.50G", "1", 3 << 29),
        ("mem=2T", "1", 2 << 40),
        ("mem=96G", "2", 48 << 30),  # of the whole job: each node has its part
        ("mem=96G", "2-4", 48 << 30),
        ("mem=0", "1", None),  # all that the node has
        ("cpu=8", "1", None),
        ("mem=many", "1", None),
    ],
)
def test_host_memory_is_of_one_node_in_bytes(tres: str, nodes: str, size: int | None) -> None:
    assert seen(JOB | {"AllocTRES": tres, "NumNodes": nodes}).container.memory_limit == size


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"AllocTRES": "cpu=8,gres/gpu=4"}, 4),
        ({"TRES": "gres/gpu=2", "ReqTRES": "gres/gpu=8"}, 2),  # what it was given counts before what it asked for
        ({"AllocTRES": "cpu=1", "OverSubscribe": "OK"}, 0),
        ({"AllocTRES": "cpu=1", "OverSubscribe": "NO"}, None),  # the whole node, with what is in it
        ({"AllocTRES": "cpu=1", "OverSubscribe": "OK", "TresPerNode": "gres:gpu:1"}, None),
        ({"AllocTRES": "cpu=1"}, None),
    ],
)
def test_no_gpu_is_said_only_where_no_field_can_name_one(fields: dict[str, str], gpus: int | None) -> None:
    assert seen(JOB | fields).container.gpus == gpus


@pytest.mark.parametrize(
    ("exit_code", "state", "number", "for_memory"),
    [
        ("0:0", "COMPLETED", 0, False),
        ("1:0", "FAILED", 1, False),
        ("0:9", "FAILED", 137, False),
        ("0:15", "CANCELLED", 143, False),
        ("0:125", "OUT_OF_MEMORY", 253, True),
        ("", "FAILED", None, False),
    ],
)
def test_an_end_has_the_number_that_a_shell_would_have(
    exit_code: str, state: str, number: int | None, *, for_memory: bool
) -> None:
    ended = JOB | {"ExitCode": exit_code, "JobState": state, "EndTime": "2026-11-20T10:00:00", "StartTime": "Unknown"}
    end = seen(ended).container.end
    assert end is not None
    assert (end.exit_code, end.reason, end.oom_killed, end.started_at, end.finished_at) == (
        number,
        state,
        for_memory,
        None,
        "2026-11-20T10:00:00",
    )


@pytest.mark.parametrize(
    ("state", "known"),
    [("RUNNING", "running"), ("PENDING", "waiting"), ("SUSPENDED", "paused"), ("FAILED", "exited"), ("", "exited")],
)
def test_a_state_is_one_that_the_rules_know(state: str, known: str) -> None:
    assert seen(JOB | {"JobState": state}).container.state == known
    began = seen(JOB | {"JobState": state, "StartTime": "2026-11-20T09:00:00"}).container.started_at
    assert began == (None if known == "waiting" else "2026-11-20T09:00:00")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"JobId": "71"}, "71"),
        ({"JobId": "71", "ArrayJobId": "70", "ArrayTaskId": "3"}, "70_3"),
        ({"JobId": "71", "ArrayJobId": "70", "ArrayTaskId": "1-9"}, "71"),
        ({"JobId": "7;reboot"}, "7reboot"),
    ],
)
def test_a_task_of_an_array_has_both_numbers_and_a_name_is_no_command(fields: dict[str, str], name: str) -> None:
    assert seen(JOB | fields).container.name == name
