"""VD515: the loader or the linker does not find the driver library."""

from vllm_doctor.log.match import read
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding, thing

_IDS = (
    "linker-cuda",
    "libcuda-assert",
    "cudart-missing",
)

_NO_DEVICE = frozenset({"device-type", "device-empty", "no-gpus"})


def judge(case: Case) -> Outcome:
    """Was libcuda not found?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return _warned(case) or fault
    library = fault.fields("cudart-missing").get("library", "libcuda.so")
    if not library.startswith("libcuda."):
        return Clear(f"{library} is a library of the toolkit")
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "libcuda-symlink",
                Direction.ADD,
                (
                    "create the link libcuda.so beside the driver's libcuda.so.1, then run ldconfig; in a "
                    "container the toolkit mounts it"
                ),
                command=_LINK,
            ),
            environment(
                "LIBRARY_PATH",
                Direction.SET,
                "tells the linker which folder contains libcuda instead",
                command="dirname $(ldconfig -p | awk '/libcuda.so/{print $NF; exit}')",
            ),
        ),
        refute="`ldconfig -p | grep libcuda.so` shows libcuda.so and libcuda.so.1",
    )


def _warned(case: Case) -> Finding | None:
    """vLLM warned that the driver's library is not there, and then found no device: a container without the driver."""
    run, root = case.run, case.root
    hit = run.first("ops-import") if run is not None else None
    if hit is None or root is None or not root.ids & _NO_DEVICE:
        return None
    if (read("cudart-missing", hit.fields["why"]) or {}).get("library") != "libcuda.so.1":
        return None
    return finding(
        RULE,
        phase=Phase.DRIVER_CUDA_MISMATCH,
        evidence=(case.line(hit.index), *shown(case, root, *_NO_DEVICE)),
        changes=(
            thing(
                ChangeKind.OS,
                "container-gpus",
                Direction.ADD,
                "NVIDIA's container toolkit mounts the driver's libcuda.so.1: --gpus all, or the device plugin; "
                "without a container: install the driver",
                command="docker run --gpus all …   # nvidia-ctk runtime configure --runtime=docker, once",
            ),
            environment(
                "LD_LIBRARY_PATH",
                Direction.SET,
                "names the folder of libcuda.so.1 if it is mounted elsewhere",
                command="find / -name libcuda.so.1 2>/dev/null",
            ),
        ),
        refute="`ldconfig -p | grep libcuda.so.1` lists libcuda where the server runs",
    )


_LINK = """lib=$(ldconfig -p | awk '/libcuda.so.1/{print $NF; exit}') && ln -s "$lib" "${lib%.1}" && ldconfig"""

RULE = rule("VD515", reads=frozenset({Signal.LOG}), judge=judge)
