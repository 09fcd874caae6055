"""The approved files: where each lies, and how its text is made anew."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tests.approved import (
    askers,
    bounds,
    diagnoses,
    engines,
    media,
    odd_lines,
    places,
    plan_options,
    plan_sweeps,
    plan_together,
    plans,
    readings,
    rests_on,
    rules_together,
    sweeps,
    wordings,
)

FOLDER = Path(__file__).parent


def made() -> dict[Path, Callable[[], str]]:
    """Every approved file, and what writes it."""
    kinds: dict[str, tuple[str, Iterable[str], Callable[[str], str]]] = {
        "askers": ("txt", askers.kinds(), askers.answers),
        "bounds": ("txt", bounds.kinds(), bounds.answers),
        "diagnoses": ("yaml", diagnoses.codes(), diagnoses.answers),
        "engines": ("txt", engines.models(), engines.answers),
        "odd_lines": ("txt", odd_lines.kinds(), odd_lines.answers),
        "places": ("txt", places.kinds(), places.answers),
        "plans": ("txt", plans.launches(), plans.answers),
        "plan_sweeps": ("txt", plans.launches(), plan_sweeps.answers),
        "plan_options": ("txt", plan_options.models(), plan_options.answers),
        "plan_together": ("txt", plan_together.models(), plan_together.answers),
        "rests_on": ("txt", rests_on.codes(), rests_on.answers),
        "rules_together": ("txt", rules_together.codes(), rules_together.answers),
        "sweeps": ("txt", sweeps.codes(), sweeps.answers),
        "readings": ("txt", readings.kinds(), readings.answers),
        "media": ("txt", media.kinds(), media.answers),
        "wordings": ("txt", wordings.families(), wordings.answers),
    }
    return {
        FOLDER / kind / f"{name}.{end}": partial(write, name)
        for kind, (end, all_of, write) in kinds.items()
        for name in all_of
    }


def present() -> set[Path]:
    """The files that lie there."""
    kinds = (
        "engines",
        "odd_lines",
        "places",
        "plans",
        "plan_sweeps",
        "plan_options",
        "plan_together",
        "sweeps",
        "rests_on",
        "rules_together",
        "readings",
        "askers",
        "bounds",
        "media",
        "wordings",
    )
    texts = (FOLDER.glob(f"{kind}/*.txt") for kind in kinds)
    return {*FOLDER.glob("diagnoses/*.yaml"), *(path for kind in texts for path in kind)}


def text(path: Path) -> str:
    """The approved text; empty where nothing was approved yet."""
    return path.read_text(encoding="utf-8") if path.exists() else ""
