"""What a plan says where one thing of the question is another: each option of a launch left out, its number doubled (a
fraction halved), each field of the model's config.json left out or doubled, each release, each card. A
line where it matters.

A plan that is approved whole shows one side of each bound and one factor of each product; here a term that is not split
by the ranks, a bound that moved by a release or a wrong unit shows as figures that a person can check in the head.
"""

import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from tests.approved.plans import FOLDER, launches
from tests.approved.readings import differs
from vllm_doctor.knowledge import gpus
from vllm_doctor.knowledge.versions import sampled
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.plan.launch.flags import SettingError
from vllm_doctor.plan.model.config_json import ConfigError
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import PlanProblem, Question, planner

_NUMBER = re.compile(r"\d{1,9}|0\.\d{1,4}")
# Whose first launch goes through every release (dense, sparse with latent attention, hybrid, sliding windows), and
# through every card.
THROUGH = {
    "version": ("llama-8b", "deepseek-v3", "qwen3.5-27b", "gemma3-27b", "gpt-oss-20b", "qwen2.5-vl-7b"),
    "gpu": ("llama-8b", "gpt-oss-20b", "deepseek-v3", "qwen3.5-27b", "llama-8b-fp8"),
}
_COUNTED = frozenset({"weights", "one request"})
# Of the figures that are others: the terms come first, and what follows from them.
_SHOWN = 8
_REFUSED = (LaunchError, SettingError, ConfigError, PlanProblem)


def answers(model: str) -> str:
    """Every question about a model, and what each part of it does."""
    return "\n".join(_told(model)) + "\n"


def _told(model: str) -> Iterator[str]:
    config = json.loads((FOLDER / "models" / f"{model}.json").read_text(encoding="utf-8"))
    for words in launches()[model]:
        before = figures(config, question(words))
        yield f"$ {words}"
        yield from (f"  {name} = {value}" for name, value in before.items())
        for what, changed in _of_launch(words):
            yield from line(what, before, figures(config, question(changed)))
    asked = question(launches()[model][0])
    before = figures(config, asked)
    yield "config.json of the first"
    for what, other in _of_config(config):
        yield from line(what, before, figures(other, asked))
    for kind, values in (("version", tuple(map(str, sampled()))), ("gpu", gpus.names())):
        if model not in THROUGH[kind]:
            continue
        yield f"every {kind} of the first, each beside the one before it"
        last = before
        for value in values:
            after = figures(config, {**asked, kind: value})
            yield from line(value, last, after)
            last = after


def line(what: str, before: dict[str, str], after: dict[str, str], most: int = _SHOWN) -> Iterator[str]:
    """What is refused, or the figures that are others, `most` of them; nothing where all are the same."""
    if "refused" in after:
        yield f"  {what}: refused: {after['refused']}"
    elif before != after:
        yield f"  {what}: {differs(before, after, most)}"


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="plan-sweeps-")


def figures(
    config: Any, asked: dict[str, Any], more: Callable[[Prediction], Mapping[str, object]] = lambda _: {}
) -> dict[str, str]:
    """What is predicted, GiB to the hundredth (to the kilobyte what is counted); why not, where it is refused. `more`
    adds figures."""
    path = Path(_folder().name) / "config.json"
    path.unlink(missing_ok=True)  # ext4 writes a file that was emptied to the disk before it goes on
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        told = planner(Question(config=str(path), **asked)).predict()
    except _REFUSED as why:
        return {"refused": str(why).replace(str(path), "config.json")}
    found = {
        "outcome": told.outcome,
        "refused for": _reasons(told.settings.refusals, told, asked),
        "unknown": _reasons((*told.settings.doubts, *told.host.unsure), told, asked),
        "weights": told.weights_gib,
        "outside torch": told.non_torch_gib,
        "activation": told.activation_gib,
        "graphs": told.cudagraph_gib,
        "graphs in the budget": told.cudagraph_budget_gib,
        "KV cache": told.available_kv_gib,
        "from": told.margin_gib[0] if told.margin_gib is not None else None,
        "to": told.margin_gib[1] if told.margin_gib is not None else None,
        "tokens": told.kv_tokens,
        "blocks": told.gpu_blocks,
        "length": told.length,
        "at once": told.concurrency,
        "longest": told.longest,
        "one request": told.needed_kv_gib,
        "budget": told.budget_gib,
        "tokens a step": told.settings.batched,
        "sequences": told.settings.seqs,
        "ranks": told.settings.parallel.tp,
        **{f"{t.name}, less and more": f"{t.below:.3f} {t.above:.3f}" for t in told.taken},
        **more(told),
    }
    return {name: _written(name, v) for name, v in found.items() if v is not None}


def _reasons(why: Sequence[object], told: Prediction, asked: dict[str, Any]) -> str | None:
    """Without the names of the release and the card: what is the same of the next one is no line."""
    card = gpus.find(asked["gpu"]) if "gpu" in asked else None
    text = "; ".join(map(str, why)).replace(f"vLLM {told.settings.version}", "this release")
    text = re.sub(rf"(?<![\d.]){re.escape(str(told.settings.version))}(?![\d.]\d)", "this release", text)
    return (text.replace(card.name, "this card") if card is not None else text) or None


def _written(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6f}" if name in _COUNTED else f"{value:.2f}"
    return str(value)


_OPTIONS = {
    "--gpu": "gpu",
    "--gpus": "gpus",
    "--gpu-memory-gib": "gpu_memory_gib",
    "--vllm-version": "version",
    "--weights-gib": "weights_gib",
    "--available-kv-gib": "available_kv_gib",
}


def question(words: str) -> dict[str, Any]:
    """The question in the words between `plan --model-config M` and the end; what only the advice asks for is out."""
    options, _, launch = words.partition(" -- ")
    given = shlex.split(options)
    asked: dict[str, Any] = {_OPTIONS[a]: b for a, b in zip(given[::2], given[1::2], strict=True) if a in _OPTIONS}
    return {**asked, "gpus": int(asked.get("gpus", 1)), "launch": tuple(shlex.split(launch))}


def _of_launch(words: str) -> Iterator[tuple[str, str]]:
    options, sep, launch = words.partition(" -- ")
    said = shlex.split(launch)
    for at, word in enumerate(said):
        if _NUMBER.fullmatch(word):
            other = f"{float(word) / 2:g}" if "." in word else str(int(word) * 2)
            yield f"{said[at - 1]} {other}", options + sep + shlex.join((*said[:at], other, *said[at + 1 :]))
        if word.startswith("-"):
            until = at + 1 if said[at + 1 : at + 2] == [] or said[at + 1].startswith("-") else at + 2
            yield f"without {word}", options + sep + shlex.join((*said[:at], *said[until:]))


def _of_config(config: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field left out; a number doubled, a switch turned, a list without its last item."""
    inner = config
    for key in above:
        inner = inner[key]
    for key, old in inner.items():
        name = ".".join((*above, key))
        yield f"without {name}", _with(config, above, key, None)
        if isinstance(old, bool):
            yield f"{name} {not old}", _with(config, above, key, not old)
        elif isinstance(old, int | float):
            yield f"{name} {old * 2:g}", _with(config, above, key, old * 2)
        elif isinstance(old, list) and len(old) > 1:
            yield f"{name} less one", _with(config, above, key, old[:-1])
        elif isinstance(old, dict):
            yield from _of_config(config, (*above, key))


def _with(config: dict[str, Any], above: tuple[str, ...], key: str, new: object) -> dict[str, Any]:
    changed = deepcopy(config)
    inner = changed
    for one in above:
        inner = inner[one]
    if new is None:
        del inner[key]
    else:
        inner[key] = new
    return changed
