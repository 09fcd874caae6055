"""What `tune` must know of the unit before it begins; what it cannot know is said with the option that gives it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.tune_options import TuneOptions
from vllm_doctor.gather import probe, release, systemd, unit_line
from vllm_doctor.gather.http import Pass
from vllm_doctor.gather.launch import parse_argv
from vllm_doctor.gather.look import key_of
from vllm_doctor.gather.metrics import scrape_twice
from vllm_doctor.knowledge import serving
from vllm_doctor.operate.launch_text import can_change
from vllm_doctor.operate.tune import bench as tune_bench
from vllm_doctor.operate.tune import guidellm as tune_guidellm
from vllm_doctor.operate.tune import unit as tune_unit
from vllm_doctor.operate.tune.decide import TrialSetting
from vllm_doctor.operate.tune.load_generator import Benchmark, LoadTarget
from vllm_doctor.operate.tune.unit import TunedUnit, flag_number
from vllm_doctor.plan.advice.recommendation import Predict
from vllm_doctor.records.host import Scrape
from vllm_doctor.records.reading import Known

# A mean of fewer requests says little of the service's own load.
ENOUGH = 50
PROMPT, OUTPUT = 512, 128


class Facts(msgspec.Struct, frozen=True):
    """The service, the load and the bounds."""

    service: TunedUnit
    version: str
    start: TrialSetting
    as_it_stands: bool
    target: LoadTarget
    lengths: str
    tokenizer: str
    bench: Benchmark | None
    predict: Predict | None
    plan: str
    pool_tokens: int | None


def facts_of_unit(o: TuneOptions) -> Facts:
    """Look at the unit. Raises UsageProblem."""
    found = _unit(o)
    flags = parse_argv(found.argv, found.env).flags
    base = probe.base_url(flags)
    if base is None:
        raise UsageProblem(f"tune: {o.unit} listens on a Unix socket; needed: a TCP port, to put a load on it")
    line = unit_line.line(found.unit.name)
    if line is None or not can_change(line):
        raise UsageProblem(
            f"tune: a shell or a wrapper starts vLLM in {o.unit}; needed: ExecStart= with vLLM's own command line"
        )
    service = TunedUnit(found.unit.name, found.argv, base, line)
    scrape = _metrics(base, Pass(key_of(found), probe.certificate_of(flags)))
    waiting = (serving.total(scrape, serving.RUNNING) or 0) + (serving.total(scrape, serving.WAITING) or 0)
    if waiting and not (o.busy or o.dry_run):
        raise UsageProblem(
            f"tune: {o.unit} is serving {waiting:.0f} requests, which restarts would cut off; "
            "needed: drain it first, or --busy"
        )
    predict, plan, planned = _plan(o, found)
    version = release.version(found.argv, found.unit.main_pid)
    start = _start(o, found.argv, planned)
    target, lengths = _target(o, found, base, scrape, planned)
    bench = _benchmark(o.load, found.argv)
    launch = parse_argv(found.argv, found.env)
    tokenizer = flags.get("tokenizer")
    return Facts(
        service=service,
        version=version.value if isinstance(version, Known) else "unknown",
        start=start,
        as_it_stands=o.from_seqs is None and o.from_tokens is None,
        target=target,
        lengths=lengths,
        tokenizer=tokenizer if isinstance(tokenizer, str) else launch.model or target.model,
        bench=bench,
        predict=predict,
        plan=plan,
        pool_tokens=_pool(scrape),
    )


def _benchmark(load: str, argv: tuple[str, ...]) -> Benchmark | None:
    """What makes the load: the release's own benchmark goes before GuideLLM, and either before our streams."""
    if load == "own":
        return None
    bench = tune_bench.find(argv) if load != "guidellm" else None
    if load == "vllm-bench" and bench is None:
        raise UsageProblem(f"tune: --load vllm-bench: {argv[0]} has no `bench serve`; needed: --load own")
    if bench is not None or load == "vllm-bench":
        return bench
    other = tune_guidellm.find()
    if isinstance(other, tune_guidellm.Guidellm):
        return other
    if load == "guidellm":
        raise UsageProblem(f"tune: --load guidellm: {other}; needed: {tune_guidellm.NEEDED}, or --load auto")
    return None


def _unit(o: TuneOptions) -> systemd.Found:
    """The unit as it is without a trial; one that an earlier run left is ended first."""
    found = systemd.find(o.unit, 5)
    if not isinstance(found, Known):
        raise UsageProblem(f"tune: --unit {o.unit}: {found.reason}")
    one = found.value[0]
    left = TunedUnit(one.unit.name, one.argv, "")
    if left.drop_in.exists() and not o.dry_run:
        tune_unit.restore(left)
        found = systemd.find(o.unit, 5)
        one = found.value[0] if isinstance(found, Known) else one
        problem = tune_unit.ready(TunedUnit(one.unit.name, one.argv, _base(one)), o.ready_s)
        if problem is not None:
            raise UsageProblem(f"tune: ended a trial that an earlier run had left, and now {problem}")
    if one.unit.active_state != "active":
        raise UsageProblem(
            f"tune: {o.unit} is {one.unit.active_state}; needed: a service that serves (vllm-doctor diagnose)"
        )
    if not one.argv or not one.argv[0].startswith("/"):
        raise UsageProblem(
            f"tune: the command line of {o.unit} cannot be read; needed: ExecStart= with an absolute path"
        )
    return unit_line.exact(one)


def _base(found: systemd.Found) -> str:
    return probe.base_url(parse_argv(found.argv, found.env).flags) or ""


def _metrics(base: str, given: Pass) -> Scrape:
    told = scrape_twice(base, deadline_s=5, interval_s=0.2, given=given)
    if not isinstance(told, Known):
        raise UsageProblem(
            f"tune: metrics: {told.reason}; needed: a server that answers /metrics, by which tune sees trouble"
        )
    return told.value.scrapes[-1]


def _plan(o: TuneOptions, found: systemd.Found) -> tuple[Predict | None, str, dict[str, int]]:
    """The prediction for changed flags, a word about it, and the launch's numbers as this release resolves them."""
    from vllm_doctor.cli.plan_host import fill
    from vllm_doctor.launch.parse import LaunchError
    from vllm_doctor.plan.advice.recommendation import safe
    from vllm_doctor.plan.launch.flags import SettingError
    from vllm_doctor.plan.model.config_json import ConfigError
    from vllm_doctor.plan.question.logged_starts import recall
    from vllm_doctor.plan.question.planner import PlanProblem, Question, planner

    try:
        asked = fill(Question(found.argv), unit=o.unit, count=None)
        plan = planner(asked)
        plan = plan.with_history(recall(plan.gpu.name if plan.gpu is not None else None, Path(asked.config or "")))
        settings = plan.settings()
        told = plan.predict()
    except (PlanProblem, ConfigError, LaunchError, SettingError) as problem:
        if not (o.without_plan or o.dry_run):
            raise UsageProblem(
                f"tune: no plan: {problem}. Without a plan a trial may not start; needed: the missing input, or "
                "--without-plan (the KV cache alone bounds the ramp)"
            ) from None
        return None, f"none ({problem}); the KV cache alone bounds the ramp", {}
    resolved = {"seqs": settings.seqs, "tokens": settings.batched, "length": settings.length}
    if not safe(told):
        return (
            plan.predict,
            f"it predicts {told.outcome} for the launch as it stands, so nothing larger is tried",
            resolved,
        )
    return plan.predict, "the settings that it calls safe bound the ramp", resolved


def _start(o: TuneOptions, argv: tuple[str, ...], planned: dict[str, int]) -> TrialSetting:
    seqs = o.from_seqs or flag_number(argv, "max-num-seqs") or planned.get("seqs")
    if seqs is None:
        raise UsageProblem(f"tune: {o.unit} does not say max_num_seqs and no plan knows it; needed: --from-seqs N")
    return TrialSetting(seqs, o.from_tokens or flag_number(argv, "max-num-batched-tokens") or planned.get("tokens"))


def _target(
    o: TuneOptions, found: systemd.Found, base: str, scrape: Scrape, planned: dict[str, int]
) -> tuple[LoadTarget, str]:
    prompts, outputs = (serving.histogram(scrape, n) for n in (serving.PROMPT_LENGTHS, serving.OUTPUT_LENGTHS))
    prompt, output, source = PROMPT, OUTPUT, f"fewer than {ENOUGH} requests are measured"
    if prompts and outputs and prompts.mean and outputs.mean and min(prompts.count, outputs.count) >= ENOUGH:
        prompt, output = max(1, round(prompts.mean)), max(2, round(outputs.mean))
        source = f"the mean of {prompts.count:.0f} requests that it served"
    if o.prompt_tokens or o.output_tokens:
        prompt, output, source = o.prompt_tokens or prompt, o.output_tokens or output, "as asked for"
    longest = flag_number(found.argv, "max-model-len") or planned.get("length")
    if longest is not None and prompt + output > longest:
        if o.prompt_tokens or o.output_tokens:
            raise UsageProblem(
                f"tune: found a load of {prompt} + {output} tokens; needed: at most max_model_len, {longest}"
            )
        prompt, output = max(1, longest // 2), max(1, longest // 4)
        source += f", shortened to max_model_len {longest}"
    models = probe.probe(base, deadline_s=5).models
    launch = parse_argv(found.argv, found.env)
    served = launch.flags.get("served-model-name")
    model = models[0] if models else served if isinstance(served, str) else launch.model
    if model is None:
        raise UsageProblem(
            "tune: the served model's name is unknown; needed: /v1/models that answers, or --served-model-name"
        )
    return LoadTarget(base, model, prompt, output, key_of(found)), source


def _pool(scrape: Scrape) -> int | None:
    """Tokens of one engine's KV cache."""
    told = serving.cache_config(scrape)
    size = told.get("kv_cache_size_tokens", "")
    if size.isdecimal():
        return int(size)
    blocks, block = told.get("num_gpu_blocks", ""), told.get("block_size", "")
    return int(blocks) * int(block) if blocks.isdecimal() and block.isdecimal() else None
