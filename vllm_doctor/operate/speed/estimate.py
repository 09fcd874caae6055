"""What NVIDIA's aiconfigurator says of a planned launch.

It adds up the times of operators, which its authors measured with vLLM on some cards, and what its formulas say of the
others (https://github.com/ai-dynamo/aiconfigurator, Apache-2.0). Its memory model is not used: how many requests run at
once follows from the plan.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

import msgspec

from vllm_doctor.gather.extras import brings
from vllm_doctor.gather.processes import NotRun, python
from vllm_doctor.operate.speed.asked import Lengths
from vllm_doctor.operate.speed.estimated import NoSpeed, Speed
from vllm_doctor.plan.advice.recommendation import requests_held
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner, PlanProblem
from vllm_doctor.records import excerpt

TOOL = "aiconfigurator"
_PATIENCE_S = 120.0


class _Figures(msgspec.Struct, frozen=True):
    """What the process answers."""

    requests: float
    first_token_ms: float
    per_token_ms: float
    tokens_per_s: float
    requests_per_s: float
    measured_with: str

    @property
    def possible(self) -> bool:
        """Are these times and rates?"""
        rates = (self.requests, self.first_token_ms, self.per_token_ms, self.tokens_per_s, self.requests_per_s)
        return all(isfinite(rate) and rate > 0 for rate in rates)


def speed(
    planner: Planner, p: Prediction, config: Section | None, asked: Lengths, *, most: int | None, price: float | None
) -> Speed | NoSpeed:
    """The estimate for the launch that `p` predicts. `most` is how many requests at once the workload has, `price` what
    one card costs an hour. Raises PlanProblem where such a request is longer than the launch takes."""
    if asked.tokens > p.length:
        raise PlanProblem(
            f"--speed: {asked.prompt} and {asked.answer} tokens are {asked.tokens}; needed: at most {p.length}, the "
            f"longest request of this launch"
        )
    tool = _installed()
    if isinstance(tool, NoSpeed):
        return tool
    reason = _not_modelled(planner, p)
    if config is None or reason is not None:
        return NoSpeed(reason or f"{TOOL} reads no GGUF")
    requests = at_once(p, asked, most)
    if requests < 1:
        return NoSpeed("the KV cache holds no such request")
    given = {"config": config.values, "asked": _question(planner, p.settings, asked, requests)}
    ran = python("vllm_doctor.operate.speed.child", deadline_s=_PATIENCE_S, stdin=msgspec.json.encode(given))
    if isinstance(ran, NotRun):
        return NoSpeed(f"{TOOL} did not answer within {_PATIENCE_S:g} s")
    if ran.code < 0:
        return NoSpeed(f"{tool} was ended by signal {-ran.code}")
    if ran.code != 0:
        return NoSpeed(f"{tool} refuses: {_last(ran.err)}")
    try:
        told = msgspec.json.decode(ran.out, type=_Figures)
    except msgspec.DecodeError:
        return NoSpeed(f"{tool} answers in a form that is not known here")
    if not told.possible:
        return NoSpeed(f"{tool} answers no times")
    cards = p.settings.parallel.cards
    return Speed(
        asked,
        round(told.requests),
        told.first_token_ms,
        told.per_token_ms,
        told.tokens_per_s,
        told.requests_per_s,
        tool,
        excerpt.word(told.measured_with),
        tuple(_left_out(p.settings)),
        None if price is None else price * cards / (told.tokens_per_s * 3600) * 1e6,
    )


def at_once(p: Prediction, asked: Lengths, most: int | None) -> int:
    """How many such requests one data-parallel rank runs at once: what its cache holds, its slots, the workload."""
    held, ranks = p.settings.seqs, p.settings.parallel.dp
    if (fits := requests_held(p, asked.tokens)) is not None:
        held = min(held, int(fits[1] / ranks))
    if most is not None:
        held = min(held, -(-most // ranks))
    return held


def _installed() -> str | NoSpeed:
    try:
        return f"{TOOL} {version(TOOL)}"
    except PackageNotFoundError:
        return NoSpeed(f"{TOOL}, which estimates it, is not installed", f"{brings('speed')} (0.8 GB)")


def _not_modelled(planner: Planner, p: Prediction) -> str | None:
    """What of the launch decides its speed and is not in the tool."""
    s = p.settings
    if p.outcome != "ok":
        return "the launch does not start"
    if planner.gpu is None or planner.gpu.speed_as is None:
        return f"{TOOL} has no measurements of {'this card' if planner.gpu is None else planner.gpu.name}"
    if s.host.weights_gib:
        return f"{TOOL} does not model weights in memory of the host"
    if s.quantization not in {None, "fp8"} and planner.arch.quantization is None:
        return f"{TOOL} does not model --quantization {s.quantization}"
    return None


def _left_out(s: Settings) -> list[str]:
    """What makes the launch faster or slower than the estimate."""
    told = []
    if s.speculative is not None:
        told.append("speculative decoding")
    if s.loras:
        told.append("LoRA adapters")
    if s.eager:
        told.append("eager mode")
    if s.context_parallel > 1:
        told.append("context parallelism")
    return told


def _question(planner: Planner, s: Settings, asked: Lengths, requests: int) -> dict[str, Any]:
    """The arguments of its cli_estimate. Where requests come one by one, a step takes one prompt beside the others'
    answers; a longer prompt is cut into steps of --max-num-batched-tokens."""
    parallel = s.parallel
    out: dict[str, Any] = {
        "system_name": planner.gpu.speed_as if planner.gpu is not None else "",
        "backend_name": "vllm",
        "isl": asked.prompt,
        "osl": asked.answer,
        "batch_size": requests,
        "ctx_tokens": min(s.batched, asked.prompt),
        "tp_size": parallel.tp,
        "pp_size": parallel.pp,
        "attention_dp_size": parallel.dp,
    }
    if planner.arch.moe is not None:
        ranks = parallel.tp * parallel.dp
        out |= {"moe_tp_size": 1, "moe_ep_size": ranks} if parallel.expert else {"moe_tp_size": ranks, "moe_ep_size": 1}
    if s.kv_dtype.startswith("fp8"):
        out["kvcache_quant_mode"] = "fp8"
    if s.quantization == "fp8" and planner.arch.quantization is None:
        out |= {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"}
    return out


def _last(text: str) -> str:
    """The first sentence of a traceback's last line, without the exception's class and the library's own paths."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "without a reason"
    told = lines[-1].partition(": ")[2] or lines[-1]
    return excerpt.said(told.partition(". ")[0].partition(" at /")[0].rstrip("."))
