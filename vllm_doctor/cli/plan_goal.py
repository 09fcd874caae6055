"""`plan --goal context=N,concurrency=N`: which cards, and how many of them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from vllm_doctor.cli import terminal
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.streams import say
from vllm_doctor.knowledge.gpus import Card, find
from vllm_doctor.plan.advice.set_ups import cards_with_own_memory, set_ups
from vllm_doctor.plan.question.goal import goal, prices
from vllm_doctor.plan.question.planner import PlanProblem, Question, planner
from vllm_doctor.render import goal as render

# Cards of one host, where nobody says how many.
_MOST = 8
# Stands for the card while the question is read: nothing of it is in the answer.
_ANY = "NVIDIA H100 80GB HBM3"


def reached(
    asked: str,
    ask: Callable[[str], Question],
    gpu: str | None,
    gpus: int | None,
    file: str | None,
    *,
    explain: bool,
    json: bool,
) -> Exit:
    """Print the set-ups; OK where there is one, INCOMPLETE where the nearest cannot be judged. Raises PlanProblem."""
    wanted = goal(asked)
    priced = {} if file is None else prices(file)
    plan = planner(replace(ask(gpu or _ANY), gpus=gpus or _MOST))
    cards = _cards(plan.gpu if gpu is not None else None, priced, file)
    answer = set_ups(plan, wanted, cards, priced)
    told = render.Reached(wanted, str(plan.version), answer, plan.notes)
    if json:
        import json as written

        say(written.dumps(render.as_dict(told)) + "\n")
    else:
        terminal.told(render.text(told, explain=explain))
    if answer.rows:
        return Exit.OK
    unsure = answer.nearest is not None and answer.nearest.predicted.verdict == "unknown"
    return Exit.INCOMPLETE if unsure else Exit.FINDINGS


def _cards(one: Card | None, priced: dict[str, float], file: str | None) -> tuple[Card, ...]:
    """The card that was asked for; else those that have a price, where there are prices; else all."""
    if one is not None:
        if priced and one.name not in priced:
            raise PlanProblem(f"--prices {file}: holds no price of {one.name}; needed: one, or --goal without --prices")
        return (one,)
    found = (find(name) for name in priced)
    return tuple(card for card in found if card is not None) or cards_with_own_memory()
