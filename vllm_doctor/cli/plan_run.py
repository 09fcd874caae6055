"""What `plan` does with its options: host facts, question, prediction, choice, print."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from vllm_doctor.cli import terminal
from vllm_doctor.cli.command_line import missing, refuse_missing
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit, of_plan
from vllm_doctor.cli.streams import say
from vllm_doctor.knowledge.gpus import elsewhere, find, names
from vllm_doctor.knowledge.hub import is_gguf, is_name, of_page, with_revision
from vllm_doctor.plan.advice.alternatives import left
from vllm_doctor.plan.advice.choice import choose
from vllm_doctor.plan.advice.choice.split import in_four_bits
from vllm_doctor.plan.advice.recommendation import PROFILES, Profile, Workload, safe
from vllm_doctor.plan.advice.remedies import hardware, remedies
from vllm_doctor.plan.model.config_json import ConfigError
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question import goal
from vllm_doctor.plan.question.ask import PROBLEMS
from vllm_doctor.plan.question.planner import MODEL_ALONE, Planner, PlanProblem, Question, planner
from vllm_doctor.records import excerpt
from vllm_doctor.render import plan as plan_text
from vllm_doctor.render import plan_json, plan_tables
from vllm_doctor.render.plan_launch import chosen
from vllm_doctor.render.plan_record import Plan


class PlanOptions(msgspec.Struct, frozen=True):
    """The command line of `plan`."""

    launch: tuple[str, ...]
    gpu: str | None
    gpus: int | None
    gpu_memory_gib: str | None
    host_memory_gib: str | None
    vllm_version: str | None
    model_config: tuple[str, ...]
    draft_config: str | None
    weights_gib: str | None
    available_kv_gib: str | None
    profile: str
    context: str | None
    concurrency: int | None
    metrics: str | None
    sweep: str | None
    upgrade: str | None
    goal: str | None
    prices: str | None
    speed: str | None
    unit: str | None
    learn: str | None
    explain: bool
    json: bool


def run(o: PlanOptions) -> Exit:
    """Print the plan; OK when the launch as asked starts, INCOMPLETE when that cannot be said. Raises UsageProblem for
    a question that has no answer."""
    configs = [("--model-config", name) for name in o.model_config]
    drafter = [] if _on_hub(o.draft_config) else [("--draft-config", o.draft_config)]
    refuse_missing(missing([("--metrics", o.metrics), ("--prices", o.prices), *drafter, *configs]))
    try:
        if o.goal is not None or (o.prices is not None and o.speed is None):
            return _goal(o)
        _alone(o)
        if o.sweep is not None:
            return _sweep(o)
        return _one(o)
    except PROBLEMS as problem:
        raise UsageProblem(f"plan: {problem}") from None


def _question(o: PlanOptions, config: str | None) -> Question:
    asked = Question(
        _whole_line(o.launch),
        o.gpu,
        o.gpus or 1,
        o.gpu_memory_gib,
        o.vllm_version,
        config,
        o.weights_gib,
        o.available_kv_gib,
        host_memory_gib=o.host_memory_gib,
        draft_config=_draft_config(o.draft_config),
    )
    card_known = o.gpu is not None or o.gpu_memory_gib is not None or o.available_kv_gib is not None
    if asked.launch and card_known and o.vllm_version and config:
        return asked
    from vllm_doctor.cli.plan_host import fill

    return fill(asked, unit=o.unit, count=o.gpus)


def _on_hub(name: str | None) -> bool:
    """Is this owner/name of a hub, and nothing that lies here?"""
    return name is not None and name.count("/") == 1 and is_name(name) and not Path(name).exists()


def _draft_config(name: str | None) -> str | None:
    if name is None or not _on_hub(name):
        return name
    from vllm_doctor.cli.plan_host import of_hub

    return of_hub(name)


def _whole_line(words: tuple[str, ...]) -> tuple[str, ...]:
    """A model alone, a name of the hub or a folder that is here, with flags or without, is `vllm serve` of it. Raises
    PlanProblem for one word that is neither."""
    first = words[0] if words else ""
    if len(words) > 1 and is_name(first) and first not in _STARTERS and words[1] in _STARTERS:
        # A model, and the line that starts it: one of the two is enough, and they may say the same.
        if first in words[2:]:
            return words[1:]
        named = excerpt.value(first)
        raise PlanProblem(
            f"found {named} before a launch line of another model; needed: the launch line alone, behind --"
        )
    folder = _folder(first) if first and first not in _STARTERS else None
    if folder is not None:
        return ("vllm", "serve", str(folder), *words[1:])
    alone = bool(first) and is_name(first) and ("/" in first or len(words) == 1) and first not in _STARTERS
    if alone or (len(words) == 1 and is_gguf(first)):
        return ("vllm", "serve", *words)
    if len(words) == 1 and "/" in first and not first.endswith(_PROGRAMS):
        raise PlanProblem(_no_model(first))
    return words


_STARTERS = frozenset({"vllm", "serve", "python", "python3", "docker", "podman"})
_PROGRAMS = tuple(f"/{name}" for name in _STARTERS)


def _no_model(word: str) -> str:
    """What one word is that names no model, and what is needed in its place."""
    if (model := of_page(word)) is not None:
        return f"found {excerpt.value(word)}, a page of a hub; needed: the model's name alone, {model}"
    if "://" in word:
        return f"found {excerpt.value(word)}, which plan does not fetch; needed: --model-config config.json beside it"
    if (named := with_revision(word)) is not None:
        model, revision = named
        return f"found {excerpt.value(word)}; needed: {model} --revision {revision}, where that is a revision"
    try:
        there = Path(word).expanduser().is_dir()
        file = Path(word).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):
        there = file = False
    if file and word.endswith(".json"):
        return f"found {excerpt.value(word)}, a file; needed: --model-config {shlex.quote(word)} in its place"
    found = "a folder without a config.json" if there else "no folder here and no name of a hub (owner/model)"
    return f"found {excerpt.value(word)}, {found}; needed: the model's folder, its name, or --model-config config.json"


def _folder(name: str) -> Path | None:
    """The model's folder that is here under this name; None where there is none, or can be none."""
    try:
        folder = Path(name).expanduser().absolute()
        return folder if (folder / "config.json").is_file() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, of no user, or with a zero byte
        return None


def _remembered(plan: Planner, question: Question) -> Planner:
    from vllm_doctor.plan.question.logged_starts import recall

    return plan.with_history(recall(plan.gpu.name if plan.gpu is not None else None, Path(question.config or "")))


def _workload(o: PlanOptions) -> Workload:
    if o.metrics is None:
        return Workload(_context(o), o.concurrency, None, "as given by --context" if o.context else "")
    from vllm_doctor.cli.plan_host import workload

    measured = workload(o.metrics)
    context = _context(o) or measured.context
    return replace(measured, context=context, concurrency=o.concurrency or measured.concurrency)


def _context(o: PlanOptions) -> int | None:
    """The tokens of --context; None where it is not there. Raises PlanProblem for what is no such number."""
    if o.context is None:
        return None
    tokens = goal.whole(o.context)
    if not 1 <= tokens <= goal.LONGEST:
        raise PlanProblem(
            f"--context: found {excerpt.value(o.context)}; needed: tokens from 1 to {goal.LONGEST:,}, such as 131072 "
            "or 128k (128 × 1024)"
        )
    return tokens


def _profile(name: str) -> Profile:
    for known in PROFILES:
        if name == known:
            return known
    raise PlanProblem(f"--profile: found {name!r}; needed: one of {', '.join(PROFILES)}")


def _in_four_bits(plan: Planner, o: PlanOptions, profile: Profile) -> Prediction | None:
    """What a checkpoint in 4 bits would do on the same cards; None where that is no way either."""
    four = in_four_bits(plan)
    choice = choose(four, _workload(o), profile) if four is not None else None
    return choice.predicted if choice is not None and "cpu-offload-gb" not in choice.launch else None


def _one(o: PlanOptions) -> Exit:
    if len(o.model_config) > 1:
        raise PlanProblem("--model-config: found several; needed: one, or --sweep models")
    profile = _profile(o.profile)
    if o.learn is not None:
        from vllm_doctor.cli.plan_learn import learn

        ask = partial(_question, o, o.model_config[0] if o.model_config else None)
        return Exit.OK if learn(o.learn, ask, o.unit, json=o.json) else Exit.FINDINGS
    if o.upgrade is not None:
        _without_workload(o)
        from vllm_doctor.cli.plan_upgrade import compare_releases

        later = replace(o, vllm_version=o.vllm_version or o.upgrade.partition(":")[2])
        return compare_releases(
            o.upgrade, partial(_question, later, o.model_config[0] if o.model_config else None), json=o.json
        )
    question = _question(o, o.model_config[0] if o.model_config else None)
    plan = _remembered(planner(question), question)
    predicted = plan.predict()
    whole = plan.total_gib is not None and o.available_kv_gib is None  # a card was asked about, not a pool alone
    choice = choose(plan, _workload(o), profile) if whole and not predicted.sizes_only else None
    model_alone = len(o.launch) == 1 or question.launch == MODEL_ALONE
    if model_alone and choice is not None and predicted.verdict != "starts" == choice.predicted.verdict:
        # A model's name asks for a launch, it is none: the answer is about the one to paste.
        plan = chosen(plan, predicted, choice)
        predicted = plan.predict()
    fits = safe(predicted) or predicted.outcome in {"rejected", "unknown"} or predicted.sizes_only or not whole
    stopgap = choice is not None and "cpu-offload-gb" in choice.launch and "cpu-offload-gb" not in plan.line.flags
    told = Plan(
        plan,
        predicted,
        choice,
        () if fits else remedies(plan),
        () if fits or (choice is not None and not stopgap and not o.explain) else hardware(plan),
        left(plan, choice.launch) if choice is not None and (o.json or o.explain) else (),
        None if fits or choice is not None else _in_four_bits(plan, o, profile),
        _workload(o),
    )
    if o.speed is not None:
        from vllm_doctor.cli.plan_speed import with_speed

        told = with_speed(told, o.speed, question.config, o.prices)
    if o.json:
        import json

        say(json.dumps(plan_json.as_dict(told)) + "\n")
    else:
        terminal.told(plan_text.text(told, explain=o.explain))
    return of_plan(predicted.verdict)


def _goal(o: PlanOptions) -> Exit:
    if o.goal is None:
        raise PlanProblem(
            f"--prices {o.prices}: found neither --goal nor --speed; needed: --goal context=N,concurrency=N beside it, "
            "or --speed PROMPT:ANSWER"
        )
    beside = {
        "--sweep": o.sweep,
        "--upgrade": o.upgrade,
        "--learn": o.learn,
        "--metrics": o.metrics,
        "--context": o.context,
        "--concurrency": o.concurrency,
        "--speed": o.speed,
        "--weights-gib": o.weights_gib,
        "--available-kv-gib": o.available_kv_gib,
        "--gpu-memory-gib": o.gpu_memory_gib if o.gpu is None else None,
    }
    found = [name for name, value in beside.items() if value is not None]
    if found:
        raise PlanProblem(f"--goal: found {found[0]} beside it; needed: --goal without it (--gpu names one card)")
    if len(o.model_config) > 1:
        raise PlanProblem("--model-config: found several; needed: one")
    from vllm_doctor.cli.plan_goal import reached

    config = o.model_config[0] if o.model_config else None

    def ask(card: str) -> Question:
        return _question(replace(o, gpu=card), config)

    return reached(o.goal, ask, o.gpu, o.gpus, o.prices, explain=o.explain, json=o.json)


def _without_workload(o: PlanOptions) -> None:
    """Raises PlanProblem where a workload stands beside --upgrade, which compares the launch as it is."""
    beside = {"--context": o.context, "--concurrency": o.concurrency, "--metrics": o.metrics}
    found = [name for name, value in beside.items() if value is not None]
    if found:
        raise PlanProblem(
            f"--upgrade: found {found[0]} beside it; needed: --upgrade without it (--max-model-len in the launch says "
            "how long a request is)"
        )


def _alone(o: PlanOptions) -> None:
    """Raises PlanProblem where --speed stands beside a question about more than one launch."""
    beside = {"--sweep": o.sweep, "--upgrade": o.upgrade, "--learn": o.learn, "--available-kv-gib": o.available_kv_gib}
    found = [name for name, value in beside.items() if value is not None]
    if o.speed is not None and found:
        raise PlanProblem(f"--speed: found {found[0]} beside it; needed: --speed without it")


def _plain(o: PlanOptions) -> None:
    """Raises PlanProblem where --sweep, which compares the launch as it is, stands beside what it would not answer."""
    work = {"--context": o.context, "--concurrency": o.concurrency, "--metrics": o.metrics}
    found = [name for name, value in {"--upgrade": o.upgrade, "--learn": o.learn, **work}.items() if value is not None]
    if found:
        way = "--goal finds cards for a workload" if found[0] in work else "one of the two"
        raise PlanProblem(f"--sweep: found {found[0]} beside it; needed: --sweep without it ({way})")


def _sweep(o: PlanOptions) -> Exit:
    """OK where one of the rows starts; INCOMPLETE where a model that was named could not be planned."""
    _plain(o)
    rows: list[tuple[str, int, Prediction | str]] = []
    if o.sweep == "models":
        if not o.model_config:
            raise PlanProblem("--sweep models: no --model-config; needed: one for each model")
        for config in o.model_config:
            try:
                plan = planner(_question(o, config))
                rows.append((config, plan.gpus, plan.predict()))
            except ConfigError as problem:
                rows.append((config, o.gpus or 1, str(problem)))
    else:
        wanted = names() if o.sweep == "gpus" else tuple(n.strip() for n in (o.sweep or "").split(",") if n.strip())
        first = wanted[0] if wanted else None
        plan = planner(_question(replace(o, gpu=o.gpu or first), o.model_config[0] if o.model_config else None))
        for name in wanted:
            card = find(name) or elsewhere(name)
            if card is None or not card.total_gib:
                raise PlanProblem(
                    f"--sweep: found {excerpt.value(name)}; needed: gpus, models, or names of cards"
                    + (" with their size" if card is not None else "")
                )
            rows.append((card.name, plan.gpus, plan.on(card, plan.gpus).predict()))
    if o.json:
        import json

        told = [
            {
                "name": n,
                "gpus": c,
                "predicted": None if isinstance(p, str) else plan_json.predicted_figures(p),
                "problem": p if isinstance(p, str) else None,
            }
            for n, c, p in rows
        ]
        say(json.dumps({"schema_version": plan_json.SCHEMA_VERSION, "sweep": told}) + "\n")
    else:
        terminal.told(plan_tables.sweep(rows))
    if any(isinstance(p, str) for _, _, p in rows):
        return Exit.INCOMPLETE
    return Exit.OK if any(not isinstance(p, str) and p.verdict == "starts" for _, _, p in rows) else Exit.FINDINGS
