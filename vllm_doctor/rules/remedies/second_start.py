"""The same launch once more, where the first start compiled inside its profile run and the next one does not."""

from vllm_doctor.knowledge import gpus
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.terms.compiling import COMPILED_FROM, PINNED_FROM
from vllm_doctor.plan.terms.matrices import padded_vocab
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.kv_cache import TooSmall
from vllm_doctor.rules.say import thing

# Seven starts logged the table within this; it also covers the rounding of the printed figures.
_NEAR_GIB = 0.06
_ELEMENT = 2


def second_start(case: Case, small: TooSmall) -> Change | None:
    """Start again, where the copy of the embedding table that this start's compilation made is what is missing."""
    table = _table_gib(case)
    if small.need is None or small.have is None or table is None or not _compiled_here(case):
        return None
    if small.have + table - _NEAR_GIB < small.need:
        return None
    why = (
        f"this start compiled inside its profile run, and timing the kernels copied the embedding table: the next "
        f"start finds the compiled code, and has about {table:.2f} GiB more ({small.have:.2f} + {table:.2f} against "
        f"{small.need:.2f}), as long as vLLM's compile cache is kept"
    )
    return thing(
        ChangeKind.OS, "start-again", Direction.REPAIR, why, command="systemctl restart UNIT   # or the same command"
    )


def _compiled_here(case: Case) -> bool:
    """Did this start compile, in a release that takes memory for it in the profile run?"""
    run, version = case.run, case.version
    if run is None or run.engine != "V1" or version is None:
        return False
    does, card = behaviour(version), gpus.find(case.gpu_name) if case.gpu_name else None
    capability = card.capability if card is not None else None
    if not does.benchmarks_kernels or (capability is not None and capability < COMPILED_FROM):
        return False
    # A copy that may stay is not had back (plan/terms/compiling.py).
    if (capability or 0.0) >= PINNED_FROM and not does.keeps_profile_whole:
        return False
    return run.first("compile-took") is not None and run.first("compiled-before") is None


def _table_gib(case: Case) -> float | None:
    """The embedding table of one rank; None where the model is not known, or looks its tokens up before that part."""
    config = case.model_config
    if config is None or "vision_config" in config or "audio_config" in config or config.get("is_encoder_decoder"):
        return None
    rows, width = config.get("vocab_size"), config.get("hidden_size")
    if not isinstance(rows, int) or not isinstance(width, int):
        return None
    ranks = case.count("tensor-parallel-size") or 1
    return padded_vocab(rows, ranks) // ranks * width * _ELEMENT / GIB
