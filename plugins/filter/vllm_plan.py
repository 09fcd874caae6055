"""The plan between inventory and units: what is asked of the doctor on the host, and what its answer changes."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

ANSWERED = {0, 1, 3}


def chosen(plan: Mapping[str, Any]) -> str:
    """Say which words of a launch are the plan's, for people: in every run, not only where they changed.

    `plan` is one of module vllm_plan's. A launch of which the plan is not sure is not refused; how sure it is is said.
    """
    unit, told, judged = plan["unit"], json.loads(plan["answer"]["stdout"]), json.loads(plan["judged"]["stdout"])
    card, launch = told.get("card") or {}, (told.get("recommended") or {}).get("launch") or {}
    own = [f"--{name} {value}" for name, value in launch.items() if name not in unit["arguments"]]
    where = f"{card.get('gpus')} x {card.get('name')}"
    said = f"{unit['name']} on {where}: {', '.join(own) or 'nothing; the inventory sets all of it'}"
    predicted = judged["predicted"]
    if predicted.get("verdict") != "uncertain":
        return said
    odds = predicted.get("odds")
    sure = "" if odds is None else f", in about {max(5, min(95, round(odds * 20) * 5))} of 100 such cases"
    return f"{said}; whether it starts is uncertain{sure}"


def refused(plans: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """List the plans (of module vllm_plan) of what cannot work on this host, as {found, needed, do} with the sum."""
    rows = []
    for unit, result in ((plan["planned"], plan["judged"]) for plan in plans):
        if result["rc"] not in ANSWERED:
            found = (result.get("stderr") or "the plan gave no answer").strip().splitlines()[-1]
            rows.append(
                {"found": f"{unit['name']}: {found}", "needed": "a plan", "do": "mend it, or vllm_plan_on_host: false"}
            )
            continue
        answer = json.loads(result["stdout"])
        predicted = answer["predicted"]
        if predicted["outcome"] != "ok" and predicted.get("verdict") != "uncertain":
            rows.append(_row(unit, answer))
    return rows


def _row(unit: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, str]:
    told = answer["predicted"]
    card = answer.get("card") or {}
    terms = ("weights", "non_torch", "activation", "cudagraph")
    sums = " + ".join(f"{name.replace('_', '-')} {told[f'{name}_gib']}" for name in terms if told.get(f"{name}_gib"))
    refusals = "; ".join(f"--{r['flag']}: {r['found']}" for r in answer.get("refused") or [])
    recommended = (answer.get("recommended") or {}).get("launch") or {}
    better = {
        name: value
        for name, value in recommended.items()
        if name in unit["arguments"] and str(unit["arguments"][name]) != str(value)
    }
    size = f" of {card['total_gib']} GiB" if card.get("total_gib") else ""
    where = f"{card.get('gpus')} x {card.get('name')}{size}"
    sums = f"{sums} GiB leave {told.get('available_kv_gib')} GiB for the KV cache"
    see = shlex.join(["vllm-doctor", "plan", "--explain", "--", "vllm", "serve", str(unit["model"])])
    if told["outcome"] == "unknown":
        return {
            "found": f"{unit['name']}: whether it fits on {where} is unknown: {refusals or 'see --explain'}",
            "needed": "a launch whose memory the doctor can tell",
            "do": f"{see} … says what is missing; vllm_plan_on_host: false launches it unplanned",
        }
    return {
        "found": f"{unit['name']}: {told['outcome']} on {where}: {refusals or sums}",
        "needed": f"{told.get('needed_kv_gib')} GiB of KV cache for one request of vllm_max_model_len",
        "do": ", ".join(f"vllm_{n.replace('-', '_')}: {v}" for n, v in better.items())
        or f"a smaller model or a larger card ({see} …)",
    }


def difference(answer: str) -> str:
    """Write what a start logged beside what was planned, in one line."""
    terms = json.loads(answer).get("compared") or []
    return "; ".join(f"{t['term']} {t['planned_gib']} planned, {t['logged_gib']} GiB logged" for t in terms)


class FilterModule:
    """The filters of the plan."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name them."""
        return {
            "vllm_plan_chosen": chosen,
            "vllm_plan_difference": difference,
            "vllm_plan_refused": refused,
        }
