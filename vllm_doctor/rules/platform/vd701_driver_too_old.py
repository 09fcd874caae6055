"""VD701: the driver offers an older CUDA than this build was made for."""

from vllm_doctor.knowledge import generations, gpus
from vllm_doctor.knowledge.compat import DriverFit, table
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Change, Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

_IDS = (
    "driver-old",
    "driver-insufficient",
    "cuda-804",
    "ptx-newer",
)


def judge(case: Case) -> Outcome:
    """Is the driver too old for the CUDA of this build?"""
    fault = named(case, *_IDS)
    unfit = _unfit(case)
    if isinstance(fault, NotHere | Unseen) and unfit is None:
        seen = case.driver is not None and case.version is not None
        return Clear("the driver fits the CUDA of this build") if isinstance(fault, Unseen) and seen else fault
    told = isinstance(fault, Fault)
    found = fault.fields("driver-old").get("found") if isinstance(fault, Fault) else None
    return finding(
        RULE,
        title=_title(found) if told or unfit is None else unfit.excerpt,
        severity=severity(case, fault) if isinstance(fault, Fault) else Severity.BLOCKS_START,
        confidence=Confidence.CONFIRMED if told else Confidence.LIKELY,
        evidence=(
            *(shown(case, fault, *_IDS) if isinstance(fault, Fault) else ()),
            *((unfit,) if unfit is not None else ()),
        ),
        changes=(
            thing(
                ChangeKind.OS,
                "driver",
                Direction.UPGRADE,
                "this driver runs every CUDA version, up to 13.0, that a release of vLLM was built for",
                to=table().default_driver,
                before=case.driver.module if case.driver is not None else None,
                inventory="nvidia_driver_version",
                command=_install(case, table().default_driver),
            ),
            _older_cuda(case, found),
        ),
        refute="`nvidia-smi` shows a CUDA version at least that of `torch.version.cuda`",
    )


def _install(case: Case, driver: str) -> str:
    """By the branch, whose packages NVIDIA's repositories name so; the next start of the host loads it.

    Before Turing a card runs under the proprietary modules alone (NVIDIA's driver README, "Open Linux Kernel Modules");
    WSL takes Windows' driver, and a package of Linux' overwrites its library (NVIDIA, "CUDA on WSL").
    """
    run = case.run
    if run is not None and run.first("wsl-named") is not None:
        return "nvidia-smi.exe   # in WSL the driver is that of Windows: install it there, and no Linux package here"
    branch = driver.partition(".")[0]
    card = gpus.find(case.gpu_name) if case.gpu_name else None
    proprietary = card is not None and card.capability is not None and card.capability < generations.TURING
    deb, stream = (f"cuda-drivers-{branch}", "dkms") if proprietary else (f"nvidia-open-{branch}", "open")
    rpm = f"nvidia-driver:{branch}-{stream}"
    other = "" if card is not None else f". Cards before Turing (V100, P100): cuda-drivers-{branch}"
    return f"apt-get install {deb}   # on the host; RHEL: dnf module install {rpm}; then reboot{other}"


def _older_cuda(case: Case, found: str | None) -> Change | None:
    """The newest release whose wheel is of the driver's CUDA major; none is of CUDA 11."""
    majors = {int(found) // 1000} if found is not None and found.isdecimal() and len(found) < 10 else set()
    driver = case.driver.module if case.driver is not None else None
    fit = [
        version
        for version in table().wheels()
        if (wheel := table().wheel(version)) is not None
        and (
            int(wheel.cuda.partition(".")[0]) in majors
            or (driver is not None and table().fit(driver, wheel.cuda) in {DriverFit.NATIVE, DriverFit.MINOR})
        )
    ]
    if not fit or (case.version is not None and case.version <= as_version(fit[-1])):
        return None
    why = (
        f"use the newest release that was built for the driver's CUDA {'' if not majors else min(majors)} instead"
    ).rstrip()
    return thing(
        ChangeKind.PACKAGE,
        "image",
        Direction.CHANGE,
        why,
        to=fit[-1],
        before=case.version_text,
        inventory="vllm_version",
    )


def _unfit(case: Case) -> Evidence | None:
    """What the table of drivers and wheels says against this pair; None where it fits, serves, or nobody knows."""
    driver, version, run = case.driver, case.version, case.run
    if driver is None or driver.module is None or version is None or (run is not None and run.served()):
        return None
    local = (case.version_text or "").partition("+")[2]
    wheel = table().wheel(str(version))
    cuda = (
        f"{local[2:-1]}.{local[-1]}"
        if local[:2] == "cu" and local[2:].isdecimal() and len(local) == 5
        else wheel.cuda
        if wheel is not None
        else None
    )
    if local.startswith("cpu") or cuda is None or table().fit(driver.module, cuda) is not DriverFit.FAIL:
        return None
    floor = table().family_floor(cuda)
    text = f"Driver {driver.module} cannot run CUDA {cuda}, for which vLLM {version} was built"
    return Evidence(
        "driver", "/proc/driver/nvidia/version", f"{text}; this build needs {floor} or newer" if floor else text
    )


def _title(found: str | None) -> str:
    """The driver's CUDA in words: 1000 × major + 10 × minor."""
    if found is None:
        return RULE.title
    return f"The driver offers CUDA {int(found) // 1000}.{int(found) % 1000 // 10}; this build needs a newer one"


RULE = rule("VD701", reads=frozenset({Signal.LOG, Signal.VERSION, Signal.DRIVER, Signal.GPUS}), judge=judge)
