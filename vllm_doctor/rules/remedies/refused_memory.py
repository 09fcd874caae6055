"""What to change where a driver refuses memory that it calls free: limits of its own, which no model's size cures."""

from vllm_doctor.log.match import read
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.out_of_memory import Oom
from vllm_doctor.rules.gates.unified import is_named, shares_memory
from vllm_doctor.rules.say import environment, set_flag, thing, upgrade

# Level Zero refuses one allocation of 4 GiB and more, unless it is asked for relaxed limits.
_ONE_BLOCK = 4 * GIB
# Lines around the error in which the pool may speak.
_BESIDE = 8
# Windows' driver counts all memory of a card; Linux' keeps a part of it for itself (23.64 of 24).
_ALL_OF_IT = frozenset(size * GIB for size in (6, 8, 10, 11, 12, 16, 20, 24, 32))
_TTM = "cat /sys/module/ttm/parameters/pages_limit; grep . /sys/class/drm/card*/device/mem_info_*_total"
_WSL = "dmesg | grep -i dxgk | tail; free -g"
_DRIVER = "sudo dmesg | grep -iE 'xe |i915|amdgpu' | tail"


def of_driver(case: Case, torch: TorchOom | None) -> tuple[Change | None, ...]:
    """Changes for the maker's driver; for NVIDIA's, which has no limit that a setting raises, those of WSL."""
    if torch is None:
        return ()
    if torch.backend == "CUDA":
        return _wsl(case, torch)
    if torch.backend == "HIP":
        return _amd(case)
    return _intel(torch) if torch.backend == "XPU" else ()


def pool_status(oom: Oom) -> str | None:
    """What the driver answered to a call of sleep mode's pool beside the error; None where the pool says nothing.

    The pool gives torch no memory where a call of it fails, whatever the reason, and torch then says that memory ran
    out (csrc/cumem_allocator.cpp, my_malloc)."""
    near = oom.run.lines[max(0, oom.fault.index - _BESIDE) : oom.fault.last + _BESIDE + 1]
    told = (read("cumem-status", line.text) for line in near)
    return next((said["status"] for said in told if said is not None), None)


def of_pool(case: Case, status: str) -> tuple[Change | None, ...]:
    """Changes where the pool of sleep mode, and no amount of memory, is at fault."""
    without = f"without sleep mode vLLM takes memory as torch does: the driver answered its pool with '{status}'"
    return (
        set_flag(case, "enable-sleep-mode", None, Direction.REMOVE, without),
        environment("PYTORCH_CUDA_ALLOC_CONF", Direction.REMOVE, "the pool and expandable segments do not go together")
        if case.env("PYTORCH_CUDA_ALLOC_CONF") is not None
        else None,
        upgrade(case, "a newer release may map memory for its pool in another way"),
    )


def _amd(case: Case) -> tuple[Change | None, ...]:
    """The kernel's TTM gives a GPU without memory of its own so many pages of the host's, half of them by default."""
    if is_named(case) and not shares_memory(case):
        return ()
    pages = (
        "if GPU and host share their memory: the kernel lends the GPU so many pages of 4 KiB (a parameter of the "
        "kernel: GiB × 262144, without amdgpu.gttsize beside it; the carve-out of the firmware may then be small)"
    )
    # pytorch #177974 and #179930, merged in 2026: for ROCm 7.0 and later.
    segments = "torch then asks for pieces and for no large block; older torch for ROCm ignores this, with a warning"
    return (
        thing(ChangeKind.OS, "ttm.pages_limit", Direction.RAISE, pages, command=_TTM),
        environment("PYTORCH_CUDA_ALLOC_CONF", Direction.SET, segments, to="expandable_segments:True"),
    )


def _wsl(case: Case, torch: TorchOom) -> tuple[Change | None, ...]:
    """Windows backs what WSL takes of the GPU with memory of its own, of which WSL's page cache keeps what the weights
    were read into; what can be had lies below what the driver calls free (microsoft/WSL 41176 and 41285)."""
    run = case.run
    told = run is not None and run.first("not-pinned", "wsl-named") is not None
    return (memory_of_wsl(),) if told or torch.total in _ALL_OF_IT else ()


def memory_of_wsl() -> Change:
    """What lets Windows back more of the GPU's memory."""
    pages = (
        "if Windows shows little memory free: set autoMemoryReclaim=dropCache under [experimental] of .wslconfig, or a "
        "memory= of at most half of the host's, then `wsl --shutdown`: WSL keeps the pages of read weights, and "
        "Windows needs memory to back what the GPU gives"
    )
    return thing(ChangeKind.OS, "wsl-memory", Direction.CHANGE, pages, command=_WSL)


def _intel(torch: TorchOom) -> tuple[Change | None, ...]:
    large = "Level Zero refuses one block of 4 GiB and more unless limits are relaxed (UR_L0_… in newer oneAPI)"
    return (
        environment("UR_L0_USE_RELAXED_ALLOCATION_LIMITS", Direction.SET, large, to=1)
        if torch.asked >= _ONE_BLOCK
        else None,
        environment(
            "ZE_AFFINITY_MASK",
            Direction.SET,
            "shows the process one card alone: with several visible some releases refuse the first allocation on any",
            to=0,
        ),
        thing(
            ChangeKind.OS,
            "gpu-driver",
            Direction.CHANGE,
            "driver, oneAPI and torch of one release belong together: take an image, or a driver, that fits",
            command=_DRIVER,
        ),
    )
