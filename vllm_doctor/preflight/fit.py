"""Does the model fit the cards that the bus shows? The planner's word, before a driver, a wheel or a service exists.

The planner needs packages that an Ansible controller may lack; then the answer is unknown, and the role vllm asks
again on the host before a service is touched.
"""

import functools
from typing import TYPE_CHECKING

from vllm_doctor.preflight.judged import Checked, HostToJudge, Instance, Result

if TYPE_CHECKING:
    from vllm_doctor.plan.prediction.record import Prediction
    from vllm_doctor.plan.question.planner import Planner

_NAME = "model fits"
_OTHERWISE = "take a smaller or quantized model, more cards, or larger ones"
_LESS_ON_HOST = "keep less on the host (the launch's offload and swap sizes), or take a larger one"
_LATER = "the role vllm asks again on the host, before its service is touched"


def model_fits(case: HostToJudge) -> Checked:
    """15: every instance's weights, activations and one request of its length fit its cards, and what it keeps on the
    host fits there. Each instance is asked by itself."""
    if case.intent.cpu or not case.intent.vllm or not case.intent.launches:
        return Checked(_NAME, Result.NOT_APPLICABLE)
    rows = [_one(case, launch) for launch in case.intent.launches]
    for verdict in (Result.FAIL, Result.WARN, Result.UNKNOWN):
        for row in rows:
            if row.verdict is verdict:
                return row
    return Checked(_NAME, Result.OK, "; ".join(row.found for row in rows))


def _one(case: HostToJudge, launch: Instance) -> Checked:
    """One instance: what is missing for an answer, or the answer."""
    if case.host.gpus is None or not case.gpus:
        return _unknown(launch, "no card is known", "a card")
    if case.intent.slices or any(name.startswith("MIG-") for name in launch.gpus):
        return _unknown(launch, "MIG slices: their memory is known once they are made", "whole cards")
    if len({gpu.device for gpu in case.gpus}) > 1:
        if launch.gpus:
            return _unknown(launch, "cards of several kinds", "one kind")
        kinds = ", ".join(dict.fromkeys(gpu.label for gpu in case.gpus))
        found, action = f"{launch.name} sees cards of several kinds: {kinds}", "set vllm_gpus to cards of one kind"
        return Checked(_NAME, Result.WARN, found, "one kind for each service", f"{action}, as nvidia-smi -L lists them")
    configs = dict(case.host.model_configs)
    config = configs.get(launch.folder) or configs.get(launch.model)
    if config is None:
        return _unknown(
            launch,
            f"no config.json of {launch.model} on the host or in preflight_model_configs",
            "the model's config.json",
        )
    version, count = case.intent.vllm_version or "", len(launch.gpus) or len(case.gpus)
    try:
        return _judged(launch, case.gpus[0].label, count, version, config, case.host.memory_gib)
    except ImportError as missing:
        return _unknown(launch, f"the controller has no Python package {missing.name}", "it, for the planner")


@functools.cache  # a fleet has few kinds of hosts
def _judged(  # noqa: PLR0917
    launch: Instance, card: str, count: int, version: str, config: str, memory: float | None
) -> Checked:
    """The plan, with the planner's own numbers where the inventory says nothing. Raises ImportError."""
    from vllm_doctor.launch.parse import LaunchError
    from vllm_doctor.plan.advice.choice import choose
    from vllm_doctor.plan.advice.recommendation import Workload, safe
    from vllm_doctor.plan.advice.under_load import remedy_under_load
    from vllm_doctor.plan.launch.flags import SettingError
    from vllm_doctor.plan.model.config_json import ConfigError
    from vllm_doctor.plan.question.planner import PlanProblem, Question, planner

    words = (*launch.environment, "vllm", "serve", launch.model, *launch.words)
    try:
        host = f"{memory:.1f}" if memory else None
        plan = planner(Question(words, gpu=card, gpus=count, version=version, config=config, host_memory_gib=host))
        choice = choose(plan, Workload(), "balanced")
        chosen = choice.launch if choice else {}
        left_open = {name: value for name, value in chosen.items() if name not in plan.line.flags}
        told = plan.predict({n: v if isinstance(v, bool) else str(v) for n, v in left_open.items()})
    except (PlanProblem, ConfigError, LaunchError, SettingError) as problem:
        return _unknown(launch, str(problem), "a launch that can be planned")
    if told.outcome == "unknown":
        return _unknown(launch, "; ".join(told.settings.doubts), "a model and a layout that this plan knows")
    outcome = "" if told.outcome == "ok" else f"{told.outcome}: "
    found = f"{launch.name} on {count} x {plan.gpu.name if plan.gpu else card}: {outcome}{_sum(plan, told)}"
    if told.outcome == "oom-host":
        wanted = f"{told.host.total_gib:.1f} GiB beside what the processes themselves take"
        return Checked(_NAME, Result.FAIL, found, wanted, _LESS_ON_HOST)
    offload = left_open.get("cpu-offload-gb")
    if safe(told) and offload:
        spilled = f"{offload} GiB of the weights in host memory, which every step reads over PCIe"
        return Checked(_NAME, Result.WARN, f"{found}, with {spilled}", "weights on the card", _OTHERWISE)
    if safe(told):
        return Checked(_NAME, Result.OK, found)
    if told.lacking_gib is not None and (less := remedy_under_load(plan, told)) is not None:
        ends = Result.FAIL if told.verdict == "fails-under-load" else Result.WARN
        return Checked(_NAME, ends, found, _needed(told), f"set {_variable(less.flag)}: {less.value}")
    better = [
        f"{_variable(n)}: {v}" for n, v in chosen.items() if n in plan.line.flags and plan.line.flags[n] != str(v)
    ]
    return Checked(
        _NAME,
        Result.WARN if told.verdict in {"starts", "uncertain"} else Result.FAIL,
        found,
        _needed(told),
        f"set {', '.join(better)}" if better else _OTHERWISE,
    )


def _sum(plan: "Planner", told: "Prediction") -> str:
    """The arithmetic per card, or what the release would refuse."""
    if told.settings.refusals:
        return "; ".join(f"{r.flag} {r.found}, which vLLM refuses" for r in told.settings.refusals)
    if told.outcome == "oom-host":
        kept = " + ".join(f"{pool.name} {pool.total:.1f}" for pool in told.host.pools)
        return f"{kept} GiB of the host's memory, which has {plan.known.host_gib:g}"
    pool = f"{told.available_kv_gib or 0.0:.2f} GiB for the KV cache"
    if told.settings.kv_bytes:
        return f"{pool}, as asked, of {plan.total_gib:g} GiB"
    parts = (
        ("weights", told.weights_gib),
        ("non-torch", told.non_torch_gib),
        ("activation", told.activation_gib),
        ("graphs", told.cudagraph_budget_gib),
    )
    minus = "".join(f" - {name} {value:.2f}" for name, value in parts if value)
    return f"{plan.total_gib:g} x {told.settings.utilization:g}{minus} = {pool}"


def _needed(told: "Prediction") -> str:
    if told.settings.refusals:
        return "; ".join(r.needed for r in told.settings.refusals)
    if told.lacking_gib is not None:
        return f"{told.lacking_gib:.2f} GiB more beside the KV cache for a step of {told.settings.batched} tokens"
    return f"{told.needed_kv_gib:.2f} GiB for one request of {told.length} tokens"


def _variable(flag: str) -> str:
    return f"vllm_{flag.replace('-', '_')}"


def _unknown(launch: Instance, found: str, needed: str) -> Checked:
    return Checked(_NAME, Result.UNKNOWN, f"{launch.name}: {found}", needed, _LATER)
