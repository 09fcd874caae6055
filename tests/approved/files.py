"""The approved files: where each lies, and how its text is made anew."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.approved import askers, bounds, diagnoses, plan_sweeps, plans, readings, sweeps

FOLDER = Path(__file__).parent


def made() -> dict[Path, Callable[[], str]]:
    """Every approved file, and what writes it."""
    of_rules = {FOLDER / "diagnoses" / f"{code}.yaml": partial(diagnoses.answers, code) for code in diagnoses.codes()}
    of_plans = {FOLDER / "plans" / f"{model}.txt": partial(plans.answers, model) for model in plans.launches()}
    of_questions = {
        FOLDER / "plan_sweeps" / f"{model}.txt": partial(plan_sweeps.answers, model) for model in plans.launches()
    }
    of_figures = {FOLDER / "sweeps" / f"{code}.txt": partial(sweeps.answers, code) for code in sweeps.codes()}
    of_documents = {FOLDER / "readings" / f"{kind}.txt": partial(readings.answers, kind) for kind in readings.kinds()}
    of_programs = {FOLDER / "askers" / f"{kind}.txt": partial(askers.answers, kind) for kind in askers.kinds()}
    of_numbers = {FOLDER / "bounds" / f"{kind}.txt": partial(bounds.answers, kind) for kind in bounds.kinds()}
    return of_programs | of_numbers | of_rules | of_plans | of_questions | of_figures | of_documents


def present() -> set[Path]:
    """The files that lie there."""
    texts = (
        FOLDER.glob(f"{kind}/*.txt") for kind in ("plans", "plan_sweeps", "sweeps", "readings", "askers", "bounds")
    )
    return {*FOLDER.glob("diagnoses/*.yaml"), *(path for kind in texts for path in kind)}


def text(path: Path) -> str:
    """The approved text; empty where nothing was approved yet."""
    return path.read_text(encoding="utf-8") if path.exists() else ""
