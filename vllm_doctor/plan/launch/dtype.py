"""The type in which a model computes: as asked, or as its release chooses for the checkpoint and the card."""

from __future__ import annotations

from vllm_doctor.knowledge.generations import AMPERE
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.of_launch import LaunchGiven, LaunchSaid
from vllm_doctor.plan.launch.refused import NOT_IN_FLOAT16
from vllm_doctor.plan.launch.settings import DTYPE_BYTES


def dtype_of(given: LaunchGiven, said: LaunchSaid) -> str:
    """The name that torch has for it."""
    flags, version, arch, gpu = given.flags, given.version, given.arch, given.gpu
    asked = flags.text("dtype") or "auto"
    asked = {"half": "float16", "float": "float32"}.get(asked, asked)
    old = gpu is not None and gpu.capability is not None and gpu.capability < AMPERE
    overflows = arch.model_type in NOT_IN_FLOAT16 and given.does.keeps_gemma_from_float16
    if asked == "auto":
        asked = "bfloat16" if arch.dtype in {None, "float32", "bfloat16"} or overflows else arch.dtype
        if gpu is not None and arch.dtype == "bfloat16" and old and given.does.takes_stored_dtype:
            instead = "float32" if overflows else "float16"
            what = f"auto, which is the checkpoint's bfloat16 in {version}"
            said.refusals.append(
                Refusal("--dtype", what, f"{instead} on {gpu.name}, compute capability {gpu.capability}")
            )
            asked = instead
        elif asked == "bfloat16" and old and overflows:
            said.notes.append(
                f"dtype: {arch.model_type} is not run in float16, and bfloat16 needs 8.0: float32 is planned"
            )
            asked = "float32"
        elif asked == "bfloat16" and old:
            said.notes.append(
                f"dtype: bfloat16 needs compute capability 8.0; {gpu.name if gpu else ''} has "
                f"{gpu.capability if gpu else ''}, so float16 is planned"
            )
            asked = "float16"
    elif asked == "bfloat16" and old and gpu is not None:
        said.refusals.append(
            Refusal(
                "--dtype",
                "bfloat16",
                f"float16 on {gpu.name} (compute capability {gpu.capability}); bfloat16 needs 8.0",
            )
        )
    elif asked == "float16" and overflows:
        said.refusals.append(Refusal("--dtype", asked, f"bfloat16 or float32: {arch.model_type} overflows in float16"))
    if asked not in DTYPE_BYTES:
        said.notes.append(f"dtype {asked} is not a plain type; planned as 2 bytes a value")
        return "bfloat16"
    return asked
