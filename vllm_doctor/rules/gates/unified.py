"""Whether GPU and host share one memory, by what names the card."""

from vllm_doctor.rules.case import Case

_UNIFIED = ("gb10", "dgx spark", "thor", "orin", "jetson")


def shares_memory(case: Case) -> bool:
    """Has the card no memory of its own? False where nothing names it."""
    run = case.run
    told = case.gpu_name or (hit.fields["card"] if run is not None and (hit := run.first("card-of-the-host")) else "")
    return any(mark in told.lower() for mark in _UNIFIED)
