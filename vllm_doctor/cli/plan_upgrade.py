"""`plan --upgrade FROM:TO`: what another release does to the memory of a launch, term by term."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from vllm_doctor.cli import terminal
from vllm_doctor.cli.exit_codes import Exit, of_plan
from vllm_doctor.cli.streams import say
from vllm_doctor.knowledge.versions import Version, newest_known, parse_version
from vllm_doctor.plan.behaviour import otherwise, rows
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner, PlanProblem, Question, planner
from vllm_doctor.records import excerpt
from vllm_doctor.render import upgrade as render


def compare_releases(asked: str, ask: Callable[[], Question], *, json: bool) -> Exit:
    """Print both plans beside each other; OK where the launch starts with the later release. Raises PlanProblem."""
    before, after = _releases(asked)
    question = ask()
    plans = [planner(replace(question, version=str(version))) for version in (before, after)]
    was, will = (plan.predict() for plan in plans)
    told = render.Upgrade(before, after, was, will, _touched(plans, (was, will)))
    if json:
        import json as written

        say(written.dumps(render.as_dict(told)) + "\n")
    else:
        terminal.told(render.text(told))
    return of_plan(told.after.verdict)


def _touched(plans: Iterable[Planner], predictions: Iterable[Prediction]) -> frozenset[str]:
    """The behaviours that these launches depend on: each is taken the other way round, and what is planned compared."""
    found = set()
    for plan, predicted in zip(plans, predictions, strict=True):
        for row in rows():
            with otherwise(row.name):
                if _figures(plan.predict()) != _figures(predicted):
                    found.add(row.name)
    return frozenset(found)


def _figures(p: Prediction) -> tuple[object, ...]:
    s = p.settings
    sizes = (p.weights_gib, p.non_torch_gib, p.activation_gib, p.cudagraph_gib, p.cudagraph_budget_gib)
    return (*sizes, p.margin_gib, p.kv_tokens, p.needed_kv_gib, p.outcome, s.seqs, s.batched, s.refusals, s.doubts)


def _releases(asked: str) -> tuple[Version, Version]:
    first, _, second = asked.partition(":")
    versions = parse_version(first), parse_version(second)
    if asked.count(":") != 1 or versions[0] is None or versions[1] is None:
        raise PlanProblem(
            f"--upgrade: found {excerpt.value(asked)}; needed: two releases with a colon, such as 0.28.0:0.33.0"
        )
    if versions[0] == versions[1]:
        raise PlanProblem(f"--upgrade: found {excerpt.value(asked)}, one release twice; needed: two releases")
    newest = newest_known()
    if max(versions[0], versions[1]) > newest:  # nothing could be said but what the newest one does
        raise PlanProblem(
            f"--upgrade: found {excerpt.value(asked)}; needed: releases up to {newest}, the newest that was read"
        )
    return versions[0], versions[1]
