"""The plan between inventory and units: what is asked of the doctor on the host, and what its answer changes."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# Nothing of these is memory; a key or an address need not reach the plan.
ASIDE = {
    "host",
    "port",
    "api-key",
    "served-model-name",
    "shutdown-timeout",
    "max-num-queued-reqs",
    "chat-template",
    "lora-modules",
}


def command(unit: Mapping[str, Any], program: str, release: str) -> list[str]:
    """Write the doctor's command line for the launch of a unit, as the release at `release` would be started."""
    count = ["--gpus", str(len(unit["gpus"]))] if unit["gpus"] else []
    words = [program, "plan", "--format", "json", "--vllm-version", unit["version"], *count, "--"]
    words += [f"{name}={value}" for name, value in unit["environment"].items() if name.startswith("VLLM_")]
    words += [f"{release}/bin/vllm", "serve", str(unit["model"])]
    for name, value in unit["arguments"].items():
        words += [] if name in ASIDE else _words(name, value)
    return words


def _words(name: str, value: object) -> list[str]:
    if value is None or value is False:
        return [] if value is None else [f"--no-{name}"]
    if value is True:
        return [f"--{name}"]
    if isinstance(value, dict):
        return [f"--{name}", json.dumps(value)]
    return [f"--{name}", *map(str, value)] if isinstance(value, list | tuple) else [f"--{name}", str(value)]


def planned(units: Iterable[Mapping[str, Any]], answers: Iterable[str]) -> list[dict[str, Any]]:
    """Put each answer under the words of its unit: the inventory goes before the plan. `answers` are JSON texts."""
    return [_planned(unit, json.loads(answer)) for unit, answer in zip(units, answers, strict=True)]


def _planned(unit: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    recommended = answer.get("recommended") or {}
    card = answer.get("card") or {}
    return {
        **unit,
        "template": card.get("template") or "generic" if unit["template"] == "auto" else unit["template"],
        "arguments": {**(recommended.get("launch") or {}), **unit["arguments"]},
        "environment": {**(recommended.get("env") or {}), **unit["environment"]},
    }


def chosen(unit: Mapping[str, Any], answer: str) -> str:
    """Say which words of a launch are the plan's, for people: in every run, not only where they changed."""
    told = json.loads(answer)
    card, launch = told.get("card") or {}, (told.get("recommended") or {}).get("launch") or {}
    own = [f"--{name} {value}" for name, value in launch.items() if name not in unit["arguments"]]
    where = f"{card.get('gpus')} x {card.get('name')}"
    return f"{unit['name']} on {where}: {', '.join(own) or 'nothing; the inventory sets all of it'}"


def refused(units: Iterable[Mapping[str, Any]], results: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """List the launches that cannot work on this host, as {found, needed, do}, each with the sum."""
    rows = []
    for unit, result in zip(units, results, strict=True):
        if result["rc"] not in {0, 1}:
            found = (result.get("stderr") or "the plan gave no answer").strip().splitlines()[-1]
            rows.append(
                {"found": f"{unit['name']}: {found}", "needed": "a plan", "do": "mend it, or vllm_plan_on_host: false"}
            )
            continue
        answer = json.loads(result["stdout"])
        if answer["predicted"]["outcome"] != "ok":
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
    where = f"{card.get('gpus')} x {card.get('name')} of {card.get('total_gib')} GiB"
    sums = f"{sums} GiB leave {told.get('available_kv_gib')} GiB for the KV cache"
    see = shlex.join(["vllm-doctor", "plan", "--explain", "--", "vllm", "serve", str(unit["model"])])
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
            "vllm_plan_command": command,
            "vllm_plan_difference": difference,
            "vllm_plan_refused": refused,
            "vllm_planned": planned,
        }
