"""`plan --speed PROMPT:ANSWER`: the plan with an estimate of how fast its launch is."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from vllm_doctor.operate.speed.asked import lengths
from vllm_doctor.operate.speed.estimate import speed
from vllm_doctor.plan.model.config_json import read_config
from vllm_doctor.plan.question.goal import prices
from vllm_doctor.plan.question.planner import Planner, PlanProblem
from vllm_doctor.render.plan_record import Plan


def with_speed(plan: Plan, asked: str, config: str | None, file: str | None) -> Plan:
    """The plan with the estimate of the launch to paste. Raises PlanProblem for lengths or a price that do not do."""
    wanted = lengths(asked)
    price = None if file is None else _price(file, plan.planner)
    described = None if config is None or plan.predicted.settings.gguf is not None else read_config(Path(config))
    told = speed(plan.planner, plan.told, described, wanted, most=plan.work.concurrency, price=price)
    return replace(plan, speed=told)


def _price(file: str, planner: Planner) -> float:
    found = prices(file)
    name = None if planner.gpu is None else planner.gpu.name
    if name not in found:
        raise PlanProblem(f"--prices {file}: holds no price of {name or 'this card'}; needed: one")
    return found[name]
