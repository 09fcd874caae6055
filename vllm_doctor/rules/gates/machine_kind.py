"""What `uname -m` says of the machine, as far as the log tells it."""

from vllm_doctor.rules.case import Case

_KINDS = {"machine-power": "ppc64le", "machine-z": "s390x", "machine-arm": "aarch64"}


def machine_kind(case: Case) -> str | None:
    """None where nothing names a machine that is not the usual one."""
    run = case.run
    if run is None:
        return None
    return next((kind for message, kind in _KINDS.items() if run.first(message) is not None), None)
