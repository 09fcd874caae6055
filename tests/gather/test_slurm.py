"""Jobs of Slurm: what scontrol and sacct print (the form of Slurm 22.05 and 24.05) is read, and what the job wrote."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.gather.test_containers import answered
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import slurm
from vllm_doctor.gather.target import Target, target

Put: TypeAlias = Callable[[str, str], None]
GIB = 1 << 30
SHOWN = """\
JobId=4711 JobName=vllm
   UserId=ops({uid}) GroupId=ops({uid}) MCS_label=N/A
   Priority=4294901756 Nice=0 Account=(null) QOS=(null)
   JobState={state} Reason={reason} Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={exit}
   RunTime=00:10:04 TimeLimit=01:00:00 TimeMin=N/A
   SubmitTime=2026-03-01T09:59:00 EligibleTime=2026-03-01T09:59:00
   StartTime=2026-03-01T10:00:00 EndTime=2026-03-01T10:10:04 Deadline=N/A
   Partition=gpu AllocNode:Sid=login1:17226
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=gpu[01-02]
   BatchHost=gpu01
   NumNodes=2 NumCPUs=64 NumTasks=2 CPUs/Task=32 ReqB:S:C:T=0:0:*:*
   {tres}
   MinCPUsNode=32 MinMemoryNode=64G MinTmpDiskNode=0
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=/home/ops/my jobs/vllm.sbatch
   WorkDir={folder}
   StdErr={out}
   StdIn=/dev/null
   StdOut={out}
   Power=
   TresPerNode=gres:gpu:4

"""
SCRIPT = """\
#!/bin/bash
#SBATCH --gres=gpu:4 --mem=64G --time=01:00:00
export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz
srun vllm serve org/m --tensor-parallel-size 4 --max-model-len 131072
"""
REFUSED = (
    "(APIServer pid=90) INFO 03-01 10:00:12 [api_server.py:1839] vLLM API server version 0.11.0\n"
    "(APIServer pid=90) INFO 03-01 10:00:13 [utils.py:233] non-default args: {'model': 'org/m'}\n"
    "(EngineCore_DP0 pid=91) ERROR 03-01 10:03:01 [core.py:708] ValueError: To serve at least one request with the "
    "model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache "
    "memory (9.0 GiB). Based on the available memory, the estimated maximum model length is 73728. Try increasing "
    "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n"
)
SERVED = (
    "(APIServer pid=90) INFO 03-01 10:00:12 [api_server.py:1839] vLLM API server version 0.11.0\n"
    "(APIServer pid=90) INFO:     Application startup complete.\n"
)


TRES = "TRES=cpu=64,mem=128G,node=2,billing=64,gres/gpu=8"


def shown(folder: Path, state: str, reason: str = "None", code: str = "0:0", *, out: str = "", tres: str = TRES) -> str:
    """What `scontrol show job` prints of a job whose output is in `folder`."""
    return SHOWN.format(
        uid=os.geteuid(),
        state=state,
        reason=reason,
        exit=code,
        tres=tres,
        folder=folder,
        out=out or folder / "vllm.out",
    )


def slurm_has(put: Put, folder: Path, told: str, wrote: str = "", script: str = SCRIPT) -> None:
    """A cluster with this one job."""
    (folder / "shown").write_text(told)
    (folder / "script").write_text(script)
    if wrote:
        (folder / "vllm.out").write_text(wrote)
    put(
        "scontrol",
        f"""case "$1 $2 $3" in
"show job 4711") cat {folder}/shown;;
"show job "*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1;;
"write batch_script 4711") cat {folder}/script;;
esac""",
    )


@pytest.fixture
def answer_of(on_path: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """The answer to a job of this state, reason and exit code."""

    def of(*stands: str, wrote: str) -> dict[str, Any]:
        slurm_has(on_path, tmp_path, shown(tmp_path, *stands), wrote)
        return answered(capsys, "slurm:4711")[1]

    return of


@pytest.mark.parametrize(
    ("word", "wanted"),
    [("slurm:4711", Target("slurm", "4711")), ("slurm:4711_3", Target("slurm", "4711_3"))],
)
def test_a_job_goes_by_its_number(word: str, wanted: Target) -> None:
    assert target(word) == wanted


@pytest.mark.parametrize("word", ["slurm:-p", "slurm:0", "slurm:4711.batch", "slurm:$(id)"])
def test_no_other_word_is_handed_to_scontrol(word: str) -> None:
    assert isinstance(target(word), str)
    assert run(["diagnose", word]) == Exit.USAGE


def test_a_job_s_log_launch_memory_and_cards_come_from_slurm(
    on_path: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm_has(on_path, tmp_path, shown(tmp_path, "FAILED", "NonZeroExitCode", "1:0"), REFUSED)
    code, told = answered(capsys, "slurm:4711")
    assert (code, told["findings"][0]["code"], told["medium"]) == (Exit.FINDINGS, "VD121", "slurm")
    assert told["subject"] == {"host": "gpu01", "unit": None, "gpu": None, "place": "slurm:4711"}
    assert told["facts"]["vllm_version"] == "0.11.0"
    assert "hf_abcdef" not in str(told)
    (job,) = slurm.jobs(shown(tmp_path, "FAILED", "NonZeroExitCode", "1:0"))
    one = slurm.seen(job, SCRIPT).container
    assert (one.memory_limit, one.gpus, one.node, one.limit) == (64 * GIB, 8, "gpu01", "01:00:00")
    assert one.end is not None
    assert (one.end.exit_code, one.end.started_at) == (1, "2026-03-01T10:00:00")


@pytest.mark.parametrize(
    ("stands", "code", "title", "change"),
    [
        (("TIMEOUT", "TimeLimit", "0:0"), "VD008", "The job reached its time limit", "--time=; it was 01:00:00"),
        (
            ("OUT_OF_MEMORY", "OutOfMemory", "0:125"),
            "VD003",
            "The job was killed at its memory limit of 64.0 GiB",
            "96G",
        ),
        (("NODE_FAIL", "NodeDown", "1:0"), "VD008", "The job's node failed", "sinfo -R -n gpu01"),
        (("PREEMPTED", "None", "0:0"), "VD008", "A job of higher priority preempted this one", "requeue 4711"),
        (
            ("PENDING", "QOSMaxGRESPerJob"),
            "VD008",
            "Slurm will not start the job: QOSMaxGRESPerJob",
            "sacctmgr show qos",
        ),
    ],
)
def test_what_slurm_itself_did_is_a_finding(
    stands: tuple[str, ...], code: str, title: str, change: str, answer_of: Callable[..., dict[str, Any]]
) -> None:
    told = answer_of(*stands, wrote="" if stands[0] == "PENDING" else SERVED)
    first = told["findings"][0]
    assert (first["code"], first["title"]) == (code, title)
    assert change in str(first["changes"])


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("AssocMaxWallDurationPerJobLimit", "allows to one job"),
        ("QOSMaxGRESMinutesPerJob", "allows to one job"),
        ("QOSMaxCpuPerNode", "allows to one job"),
        ("QOSMinGRES", "requires of each job"),
        ("QOSNotAllowed", "QOS is unknown, or not one of its account"),
        ("AccountNotAllowed", "not one of the partition"),
    ],
)
def test_a_bound_on_one_job_never_ends(reason: str, why: str, answer_of: Callable[..., dict[str, Any]]) -> None:
    first = answer_of("PENDING", reason, wrote="")["findings"][0]
    assert (first["code"], first["confidence"]) == ("VD008", "confirmed")
    assert why in first["changes"][0]["why"]


# Slurm's job reason codes that end when other jobs end, or when a node comes back.
WAITS = (
    *("QOSMaxGRESPerUser", "QOSMaxJobsPerUserLimit", "AssocMaxJobsLimit", "AssocMaxSubmitJobLimit", "AssocGrpGRES"),
    *("MaxCpuPerAccount", "QOSGrpNodeLimit", "QOSUsageThreshold", "ReqNodeNotAvail"),
)


@pytest.mark.parametrize(
    ("stands", "verdict", "because"),
    [
        (("PENDING", "Priority"), "unknown", "the job does not run (waiting): PENDING: Reason=Priority"),
        *((("PENDING", reason), "unknown", f"PENDING: Reason={reason}") for reason in WAITS),
        (("CANCELLED",), "ok", "the job was cancelled (scancel), and nothing had failed"),
        (("FAILED", "NonZeroExitCode", "0:9"), "unknown", "the job was killed (SIGKILL, exit code 137)"),
        (("RUNNING",), "ok", "no completion was tried"),
    ],
)
def test_what_slurm_did_not_do_is_none(
    stands: tuple[str, ...], verdict: str, because: str, answer_of: Callable[..., dict[str, Any]]
) -> None:
    told = answer_of(*stands, wrote=SERVED if stands[0] == "RUNNING" else "")
    assert (told["verdict"], told["findings"]) == (verdict, [])
    assert because in told["path"][-1]["because"]


def test_a_job_that_scontrol_forgot_is_asked_of_the_accounting(
    on_path: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm_has(on_path, tmp_path, "")
    row = (
        "4712|TIMEOUT|0:0|None|2026-03-01T10:00:00|2026-03-01T11:00:20|01:00:00|billing=8,cpu=8,gres/gpu=4,mem=64G,node=1|"
        f"|gpu03|1|{os.geteuid()}|{tmp_path}"
    )
    on_path("sacct", f'case "$*" in *"-j 4712 "*) echo "{row}";; esac')
    (tmp_path / "slurm-4712.out").write_text(SERVED)
    code, told = answered(capsys, "slurm:4712")
    assert (code, told["findings"][0]["title"]) == (Exit.FINDINGS, "The job reached its time limit")
    assert (told["subject"]["host"], told["facts"]["lines_read"]) == ("gpu03", 2)
    code, told = answered(capsys, "slurm:4713")
    assert code == Exit.USAGE
    assert "Invalid job id specified" in told["err"]


def test_output_that_is_not_the_job_s_user_s_is_not_read(
    on_path: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("root:secret-of-root\n")
    told = shown(tmp_path, "FAILED", "NonZeroExitCode", "1:0", out=str(secret)).replace(f"({os.geteuid()})", "(4242)")
    slurm_has(on_path, tmp_path, told)
    answer = answered(capsys, "slurm:4711")[1]
    assert "it is not a file of the job's user" in str(answer["unknown"])
    assert "secret-of-root" not in str(answer)


def test_the_same_is_said_of_the_file_that_scontrol_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = f"Req{TRES}\n   Alloc{TRES.replace('128', '100')}"
    (tmp_path / "job.txt").write_text(shown(tmp_path, "OUT_OF_MEMORY", "OutOfMemory", "0:125", tres=new))
    (tmp_path / "vllm.log").write_text(SERVED)
    code, told = answered(capsys, str(tmp_path / "job.txt"), str(tmp_path / "vllm.log"))
    assert (code, told["findings"][0]["title"]) == (
        Exit.FINDINGS,
        "The job was killed at its memory limit of 50.0 GiB",
    )


def test_a_name_in_somebody_s_file_is_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(tmp_path, "SUSPENDED").replace("JobId=4711", "JobId=47;$(id)").replace("=gpu01", "=gpu01;`id`")
    (tmp_path / "job.txt").write_text(told)
    answer = answered(capsys, str(tmp_path / "job.txt"))[1]
    assert answer["subject"] == {"host": "gpu01id", "unit": None, "gpu": None, "place": "slurm:47id"}
    assert "scontrol resume 47id" in answer["path"][-1]["because"]


def test_no_gpu_is_said_only_of_a_job_that_asked_for_none(tmp_path: Path) -> None:
    (job,) = slurm.jobs(shown(tmp_path, "FAILED", tres="TRES=cpu=64,mem=128G,node=2,billing=64"))
    assert slurm.seen(job).container.gpus is None
    assert slurm.seen({**job, "TresPerNode": ""}).container.gpus == 0
    assert slurm.seen({**job, "TresPerNode": "", "OverSubscribe": "NO"}).container.gpus is None


def test_a_configuration_that_others_can_write_is_not_loaded(
    on_path: Put, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm_has(on_path, tmp_path, shown(tmp_path, "TIMEOUT"))
    settings = tmp_path / "slurm.conf"
    settings.touch()
    settings.chmod(0o666)
    monkeypatch.setenv("SLURM_CONF", str(settings))
    code, told = answered(capsys, "slurm:4711")
    assert (code, "SLURM_CONF is not used" in told["err"]) == (Exit.USAGE, True)
