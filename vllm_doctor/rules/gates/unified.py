"""Whether GPU and host share one memory, by what names the card."""

from vllm_doctor.rules.case import Case

_UNIFIED = ("gb10", "dgx spark", "thor", "orin", "jetson")


def shares_memory(case: Case) -> bool:
    """Has the card no memory of its own? False where nothing names it."""
    return any(mark in _name(case).lower() for mark in _UNIFIED)


def is_named(case: Case) -> bool:
    """Does anything name the card?"""
    return bool(_name(case))


def _name(case: Case) -> str:
    run = case.run
    return case.gpu_name or (hit.fields["card"] if run is not None and (hit := run.first("card-of-the-host")) else "")
