"""Everything that a release refuses of a launch, each flag told of once where two tests see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_doctor.launch.parse import LaunchLine, Refusal
from vllm_doctor.launch.together import of_a_step
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch import ahead, chunks, drafted, drafting, encoder_decoder, exclusive, joint, keyed, traits
from vllm_doctor.plan.launch.cache_types import cache_type
from vllm_doctor.plan.launch.decisions import Decided
from vllm_doctor.plan.launch.item_limits import takes_no_items
from vllm_doctor.plan.launch.of_launch import LaunchGiven
from vllm_doctor.plan.launch.refused import refusals_of_launch
from vllm_doctor.plan.model.architecture import Architecture


def of_the_line(line: LaunchLine, arch: Architecture, does: Behaviour) -> list[Refusal]:
    """What is refused of the line alone, but for a name of --quantization that the checkpoint's own method replaces,
    whichever it is."""
    stored = arch.quantization.text("quant_method") if arch.quantization is not None else ""
    replaced = stored == "auto-round" and does.auto_round_as_inc
    return [one for one in line.refusals if not (replaced and one.flag == "--quantization")]


def untold(found: Iterable[Refusal], told: Iterable[Refusal]) -> list[Refusal]:
    """Of what was found, what concerns no flag that was told of."""
    flags = {one.flag for one in told}
    return [one for one in found if one.flag not in flags]


def refuse(given: LaunchGiven, d: Decided, told: list[Refusal]) -> None:
    """Adds to what is told of already. Raises SettingError for a value that is not of its kind."""
    flags, arch, does, par = given.flags, given.arch, given.does, d.parallel
    told.extend(
        traits.refused(flags, arch, par, given.version, does, method=d.method, quantization=d.quantization or d.stored)
    )
    told.extend(_slices(given, d))
    # Not what the release's own checks have told, which its wheel shows since 0.30.
    told.extend(untold(refusals_of_launch(flags, arch, par, d.length, does), told))
    whole_prompts = not d.chunked and "max-num-batched-tokens" in flags.values and not d.auto_length
    small = of_a_step(d.batch.tokens, seqs=d.batch.seqs, length=d.length if whole_prompts else None)
    told.extend(one for one in small if one not in told)  # the launch alone may have said it
    told.extend(_drafts(given, d))
    told.extend(_of_the_model(given, d, {one.flag for one in told}))
    told.extend(_together(given, d, {one.flag for one in told}))


def _slices(given: LaunchGiven, d: Decided) -> Iterator[Refusal]:
    par, gpu = d.parallel, given.gpu
    if gpu is not None and gpu.slice and par.tp * par.pp > 1:
        yield Refusal(
            "--tensor-parallel-size" if par.tp > 1 else "--pipeline-parallel-size",
            str(max(par.tp, par.pp)),
            f"1: NCCL does not join MIG slices ({gpu.name}); a larger slice, or whole cards",
        )


def _drafts(given: LaunchGiven, d: Decided) -> Iterable[Refusal]:
    return drafting.refused(
        given.flags,
        given.arch,
        d.method,
        d.draft_tokens,
        d.batch.tokens,
        given.version,
        given.does,
        engine=d.engine,
        stages=d.parallel.pp,
        ranks=d.parallel.tp,
        v2=d.v2,
        seqs=d.batch.seqs,
        drafter=given.draft_model,
    )


def _of_the_model(given: LaunchGiven, d: Decided, told: set[str]) -> Iterator[Refusal]:
    """Of flags that nothing was told of."""
    flags, env, arch, does = given.flags, given.env, given.arch, given.does
    yield from encoder_decoder.refused(flags, arch, d.parallel, d.method, does, engine=d.engine, already=told)
    for each in (
        exclusive.refusals(flags, env, arch, d.parallel, does),
        ahead.refusals(flags, env, d.method, d.parallel.pp, does),
        drafted.refusals(flags, arch, d.method, given.version, does),
        chunks.refusals(flags, arch, d.engine, does, chunked=d.chunked, pooling=d.pooling),
        keyed.refusals(flags, env, given.line.model or "", arch, d.length, does),
    ):
        yield from (one for one in each if one.flag not in told)


def _together(given: LaunchGiven, d: Decided, told: set[str]) -> Iterable[Refusal]:
    """The tests that a release's own configuration makes of several values at once."""
    flags, arch, par = given.flags, given.arch, d.parallel
    facts = {
        "parallel.tensor_parallel_size": par.tp,
        "parallel.pipeline_parallel_size": par.pp,
        "parallel.data_parallel_size": par.dp,
        "parallel.world_size": par.tp * par.pp * par.prefill,
        "scheduler.max_num_seqs": d.batch.seqs,
        "scheduler.max_num_batched_tokens": d.batch.tokens,
        "scheduler.async_scheduling": flags.on("async-scheduling", default=False),
        "cache.cache_dtype": cache_type(flags, arch, given.does),
        "speculative.method": d.method,
        "model.dtype": d.dtype,
        **({} if arch.encoder_decoder else {"model.enforce_eager": flags.on("enforce-eager", default=False)}),
        "model.max_model_len": d.length,
        "model.runner_type": "pooling" if d.pooling else "generate",
        "envs.VLLM_USE_V1": d.v1,
        **joint.of_model(arch, d.quantization, no_items=takes_no_items(flags)),
        "model.on_first_runner": not d.v2,
        **joint.of_environment(given.env),
    }
    return joint.refusals(flags.values, given.version, facts, env=given.env, gpu=given.gpu, told=told)
