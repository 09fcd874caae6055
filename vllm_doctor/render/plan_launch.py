"""The recommended launch as a line to paste."""

from __future__ import annotations

from msgspec.structs import replace

from vllm_doctor.launch import quote
from vllm_doctor.launch.parse import LaunchLine
from vllm_doctor.launch.write import option, serve_words
from vllm_doctor.plan.advice.recommendation import Choice
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner
from vllm_doctor.render.plan_verdict import verdict_in_words

_LINE = 76  # with a backslash behind it, a line stands whole on 80 columns


def advised_launch(planner: Planner, choice: Choice) -> LaunchLine:
    """The launch as it was asked, with the options of the recommendation."""
    flags = {n: v if isinstance(v, bool) else str(v) for n, v in choice.launch.items()}
    kept = {n: v for n, v in planner.line.flags.items() if n not in choice.dropped}
    return replace(planner.line, flags={**kept, **flags})


def chosen(planner: Planner, bare: Prediction, choice: Choice) -> Planner:
    """The plan of the recommended launch, with a note of what the launch without its options does."""
    note = f"vllm serve {planner.line.model} alone {verdict_in_words(bare)}"
    return replace(planner, line=advised_launch(planner, choice), notes=(*planner.notes, note))


def pasted(line: LaunchLine, planner: Planner) -> list[str]:
    """The launch in lines that a shell joins, an option never apart from its value."""
    set_, start = [f"{k}={v}" for k, v in line.env.items()], serve_words(replace(line, flags={}), planner.version)
    given = [(n, v) for n, v in line.flags.items() if n != "model"]  # which stands behind the program
    at = start.index("--model") if "--model" in start else len(start)
    head, named = (*set_, *start[:at]), start[at:]  # an option that names the model stands like the others
    parts = [quote.words(head), *([quote.words(named)] if named else [])]
    parts += [quote.words(option(n, v, planner.version)) for n, v in given]
    out = [f"  run      {parts[0]}"]
    for part in parts[1:]:
        if len(out[-1]) + 1 + len(part) <= _LINE:
            out[-1] += f" {part}"
        else:
            out.append(f"             {part}")
    return [*(f"{each} \\" for each in out[:-1]), out[-1]]
