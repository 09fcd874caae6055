"""The same launch once more, where the first start compiled inside its profile run and the next one does not."""

from vllm_doctor.knowledge import gpus
from vllm_doctor.knowledge.version import Version
from vllm_doctor.plan.terms.matrices import padded_vocab
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.kv_cache import TooSmall
from vllm_doctor.rules.say import thing

# Since 0.11.1 Inductor times combined kernels with copies of their inputs (plan/terms/compiling.py has the sources).
_COPIES_FROM = Version((0, 11, 1))
# Until 0.31 the copy may stay on compute capability 12, and what stays is not had back.
_STAYS_ON, _UNTIL = 12.0, Version((0, 31))
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
    if run is None or run.engine != "V1" or version is None or version < _COPIES_FROM:
        return False
    card = gpus.find(case.gpu_name) if case.gpu_name else None
    if card is not None and (card.capability or 0.0) >= _STAYS_ON and version < _UNTIL:
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
