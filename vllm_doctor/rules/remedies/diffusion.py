"""What makes a diffusion model's request fit: vllm-omni's engine of such models has no KV cache, no share of the card.

Options of vllm-omni (diffusion/data.py, OmniDiffusionConfig), not of vLLM.
"""

from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.out_of_memory import Oom
from vllm_doctor.rules.say import thing

# Both of vllm-omni's ways to keep parts of the model on the host (docs: diffusion acceleration, CPU offload).
_OFFLOADS = ("enable-cpu-offload", "enable-layerwise-offload")


def diffuses(oom: Oom) -> bool:
    """Do the calls go through vllm-omni's engine of diffusion models?"""
    return any(says(file, "call-of-diffusion") for file in oom.fault.files)


def fit(case: Case, oom: Oom) -> tuple[Change, ...]:
    """The decoder of pixels works in tiles, or the request is smaller, or a part of the model waits on the host: what
    the launch does not have yet."""
    tiles = (_TILES,) if _decodes(oom) and case.flag("vae-use-tiling") is not True else ()
    return (*tiles, _SMALLER, *offload(case))


def offload(case: Case) -> tuple[Change, ...]:
    """A part of the model waits on the host, where neither way of it is in the launch."""
    return () if any(case.flag(name) is True for name in _OFFLOADS) else (_OFFLOAD,)


def _decodes(oom: Oom) -> bool:
    crash = oom.fault.crash
    codes = [frame.code for link in crash.links for frame in link.frames] if crash is not None else []
    return any(says(code, "code-of-vae") for code in codes)


_TILES = thing(
    ChangeKind.OS,
    "vae-use-tiling",
    Direction.ADD,
    "start vllm-omni with --vae-use-tiling: the VAE then decodes one tile of the picture after another",
    command="vllm serve MODEL --omni --vae-use-tiling",
)
_SMALLER = thing(
    ChangeKind.OS,
    "request",
    Direction.LOWER,
    "the memory of a step grows with width × height × frames",
    command="grep -rnE 'num_frames|height|width' CLIENT   # the values of the request: halve one",
)
_OFFLOAD = thing(
    ChangeKind.OS,
    "enable-cpu-offload",
    Direction.ADD,
    "start vllm-omni with --enable-cpu-offload: text encoder and transformer are then on the GPU one after the other",
    command="vllm serve MODEL --omni --enable-cpu-offload",
)
