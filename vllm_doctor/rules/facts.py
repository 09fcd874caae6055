"""What was read of the subject itself, beside the findings."""

from collections.abc import Sequence

from vllm_doctor.log.startup_phase import StartupPhase, startup_phase_of
from vllm_doctor.records.finding import Finding, Scalar
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.foresight import planned_kv_gib
from vllm_doctor.rules.gates.deaths import START_FAILED

# What these rules name happens at a start as well as at any request: their own words do not tell when it was.
_AT_ANY_TIME = frozenset({"VD208", "VD516", "VD518", "VD526", "VD527", "VD599", "VD606", "VD705"})

# What ends a server from outside vLLM, at its start as at any later hour; their words and a kernel's tell no more.
_FROM_OUTSIDE = frozenset({"VD603", "VD704", "VD801", "VD803"})
# A line without a traceback tells no more of its time than they do.
_LINE_ALONE = frozenset({"VD528"})
# The parent says so of a call at a start and of a step alike (v1/executor/multiproc_executor.py).
_RELAYED = "worker-error-relay"


def undated(case: Case, findings: Sequence[Finding]) -> dict[str, Scalar]:
    """Does neither a call nor a line nor the rule tell whether the server was up when it failed?

    Without a call, a start is assumed; where a client's request is what is to change, a request was there.
    """
    run, root = case.run, case.root
    if run is not None and _asks_the_client(findings) and not any(death.id in START_FAILED for death in run.deaths):
        return {"failed_while_serving": True}
    if findings and findings[0].code in _FROM_OUTSIDE | _LINE_ALONE and _shows_no_start(case):
        return {"time_of_failure_unseen": True}
    if run is None or root is None or not findings or findings[0].code not in _AT_ANY_TIME:
        return {}
    assumed = root.startup_phase is StartupPhase.CONFIG and startup_phase_of(root.functions) is None
    dead = any(death.id != _RELAYED for death in run.deaths)
    if not assumed or root.of_a_request or dead or run.reached() is not None or run.launch is not None:
        return {}
    return {"time_of_failure_unseen": True}


def _asks_the_client(findings: Sequence[Finding]) -> bool:
    return bool(findings) and any(change.name == "client-input" for change in findings[0].changes[:1])


def _shows_no_start(case: Case) -> bool:
    """Files alone, and no line of them is a step of a start, its launch, or the end of one that failed."""
    run = case.run
    if case.live or case.container is not None:
        return False
    if run is None:
        return True
    placed = case.root is not None and startup_phase_of(case.root.functions) is not None
    failed = any(death.id in START_FAILED for death in run.deaths)
    return not placed and not failed and run.reached() is None and run.launch is None


def facts_of(case: Case) -> dict[str, Scalar]:
    """What was read of the subject itself: version, model, how far the start came, runs before this one."""
    facts: dict[str, Scalar] = {"vllm_version": case.version_text}
    if by_code := case.version_by_code:
        facts["vllm_version_by_lines"] = " to ".join((by_code[0], by_code[-1])) if by_code[2:] else " or ".join(by_code)
    facts["model"] = case.model
    if case.gpu_name:
        count = len(case.gpus or ())
        facts["card"] = f"{count} × {case.gpu_name}" if count > 1 else case.gpu_name
    if case.driver is not None and case.driver.module:
        facts["driver"] = case.driver.module
    run = case.run
    if run is not None:
        reached = run.reached()
        facts |= {
            "reached": reached.value if reached is not None else None,
            "earlier_runs": run.log.earlier_runs,
            "earlier_lives": run.log.earlier_runs,  # its name before 0.2.0
            "lines_read": len(run.lines),
            "bytes_skipped": run.log.last.skipped_bytes,
            "complete_head": run.log.last.complete_head,
        }
        root = run.root
        if root is not None and (root.of_a_request or root.startup_phase is StartupPhase.SERVING):
            facts["failed_while_serving"] = True
        facts |= {"failed_while_serving": True} if run.refused is not None else {}
        facts |= {f"log_note_{number}": note for number, note in enumerate(run.log.notes[:8], 1)}
        for name, message, field in (("available_kv_gib", "kv-available", "size"), ("kv_tokens", "kv-size", "tokens")):
            value = run.number(message, field)
            if value is not None:
                facts[name] = value
    if case.weights_gib is not None:
        facts["weights_gib"] = case.weights_gib
    if case.live and "available_kv_gib" in facts and (planned := planned_kv_gib(case)) is not None:
        facts["planned_kv_gib"] = planned
    if case.past is not None and case.past.before_crash:
        facts["before_last_crash"] = case.past.before_crash
    if case.past is not None and case.past.restarted:
        facts["guard_restarted"] = case.past.restarted
    return facts
