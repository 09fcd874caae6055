"""How many processes a server splits its weights over."""

from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.oom_killer import Kill

# The kernel shows 15 characters of a name: the process beside the ranks, which holds no weights.
_CORE = "enginecor"


def ranks(case: Case) -> int:
    """Tensor by pipeline parallel, as the launch or the log has them, and no fewer than workers signed the log."""
    told = (case.count("tensor-parallel-size") or 1) * (case.count("pipeline-parallel-size") or 1)
    return max(told, case.run.ranks if case.run is not None else 1)


def ranks_of(case: Case, kill: Kill) -> int:
    """Processes like the killed one in its group: each rank is one, the engine's core is alone."""
    return 1 if _CORE in kill.name.lower() else ranks(case)
