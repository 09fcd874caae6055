"""The names that vLLM's metrics have in the releases that are watched."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import Version

MetricNames = Mapping[str, str]


class NoCommonNameError(ValueError):
    """Releases that give a metric different names, one of them both; the text says which."""


@cache
def metric_words() -> Mapping[str, tuple[str, ...]]:
    """Each word of alerts.yml with the names that the metric has had, newest first."""
    import yaml

    loaded = yaml.safe_load(Path(__file__).with_name("metrics.yml").read_text(encoding="utf-8"))
    return {word: tuple(names) for word, names in loaded.items()}


def metric_names(releases: Sequence[Version]) -> tuple[MetricNames, tuple[str, ...]]:
    """The selector of each word in these releases, and the words that some of them have no metric for.

    One name that all of them have; else each one's own, where no release has two of those. Raises NoCommonNameError.
    """
    found: dict[str, str] = {}
    lacking: list[str] = []
    for word, candidates in metric_words().items():
        has = {at: [name for name in candidates if _has(name, at)] for at in releases}
        common = next((name for name in candidates if all(name in here for here in has.values())), None)
        chosen = [common] if common else sorted({here[0] for here in has.values() if here})
        if not chosen or not all(has.values()):
            lacking.append(word)
        if any(len(set(here) & set(chosen)) > 1 for here in has.values()):
            told = "; ".join(f"{at}: {', '.join(here)}" for at, here in has.items())
            raise NoCommonNameError(f"no one name for {word} ({told})")
        found[word] = chosen[0] if len(chosen) == 1 else _any(chosen or list(candidates[:1]))
    return found, tuple(lacking)


def _any(chosen: Sequence[str]) -> str:
    return chosen[0] if len(chosen) == 1 else f"{{__name__=~{json.dumps('|'.join(chosen))}}}"


def _has(name: str, at: Version) -> bool:
    known = history("metrics", "metrics")
    return any(known.exists(told, at) for told in {name, name.removesuffix("_total")})
