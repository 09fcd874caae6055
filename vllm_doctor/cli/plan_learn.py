"""`plan --learn`: what a start logged beside what was planned, kept for the next plan on this host."""

from __future__ import annotations

import contextlib
import json as jsons
from collections.abc import Callable
from pathlib import Path

from vllm_doctor.cli import terminal
from vllm_doctor.cli.streams import say
from vllm_doctor.plan.question.logged_starts import Difference, compare, read_log, recall, remember
from vllm_doctor.plan.question.planner import PlanProblem, Question, planner
from vllm_doctor.records.reading import Unknown
from vllm_doctor.records.unit_name import service
from vllm_doctor.render.plan_json import SCHEMA_VERSION
from vllm_doctor.render.plan_tables import differences

JOURNAL = "journal"
_NO_GPU = "the CPU build has no profile run: there is nothing to compare with a plan"


def learn(source: str, ask: Callable[[], Question], unit: str | None, *, json: bool) -> bool:
    """Compare, keep and print; True, also where there is nothing that a plan could be compared with. Raises
    PlanProblem where the start says nothing or the terms cannot be kept."""
    if source == JOURNAL:
        from vllm_doctor.cli.plan_host import start_log

        cpu, lines = start_log(unit)
        if cpu:
            return _not_applicable(_NO_GPU, json=json)
    else:
        lines = _file(source)
    question = ask()
    plan = planner(question)
    logged = read_log(lines)
    predicted = plan.predict()
    found = compare(predicted, logged)
    if not found:
        raise PlanProblem(
            f"--learn: {source} holds none of the lines in which vLLM states its memory; needed: the log of a start"
        )
    history = recall(plan.gpu.name if plan.gpu is not None else None, Path(question.config or ""))
    try:
        place, news = remember(history, predicted, logged)
    except OSError as problem:
        raise PlanProblem(
            f"--learn: the terms cannot be kept ({problem}); needed: a folder this user may write ($VLLM_DOCTOR_STATE)"
        ) from None
    if unit is not None and source == JOURNAL:
        tell_history(unit, found)
    _print(found, str(place), news=news, json=json)
    return True


def tell_history(unit: str, found: list[Difference]) -> None:
    """`vllm-doctor history` shows what this start took beside its plan. The comparison stands without it."""
    from vllm_doctor.operate.history import deeds

    told = "; ".join(f"{one.term} {one.planned:.2f} planned, {one.logged:.2f} logged" for one in found) + " (GiB)"
    with contextlib.suppress(OSError):
        deeds.record(service(unit), "plan", told)


def _file(source: str) -> list[str]:
    from vllm_doctor.gather.logfile import text_lines

    lines = text_lines(source)
    if isinstance(lines, Unknown):
        raise PlanProblem(f"--learn: {lines.reason}; needed: a start-up log of vLLM")
    return lines


def _not_applicable(reason: str, *, json: bool) -> bool:
    told = {"schema_version": SCHEMA_VERSION, "verdict": "not_applicable", "reason": reason, "changed": False}
    say(jsons.dumps(told) + "\n" if json else f"not applicable: {reason}\n")
    return True


def _print(found: list[Difference], place: str, *, news: bool, json: bool) -> None:
    if not json:
        terminal.told(differences(found, place))
        return
    told = [{"term": d.term, "planned_gib": round(d.planned, 3), "logged_gib": round(d.logged, 3)} for d in found]
    answer = {
        "schema_version": SCHEMA_VERSION,
        "verdict": "ok",
        "compared": told,
        "kept_in": place,
        "changed": news,
    }
    say(jsons.dumps(answer) + "\n")
