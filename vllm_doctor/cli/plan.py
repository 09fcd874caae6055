"""`vllm-doctor plan`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_doctor.cli import complete
from vllm_doctor.cli.choices import Form

EXAMPLES = """\
Examples:

\b
  vllm-doctor plan org/model --gpu "NVIDIA L40S"                    the launch to paste, and what it holds
  vllm-doctor plan --gpu L40S -- vllm serve org/model --max-model-len 32768
  vllm-doctor plan org/model --goal context=128k,concurrency=32     which cards, and how many
  vllm-doctor plan org/model --sweep gpus                           every known card
  vllm-doctor plan org/model --gpu H100 --upgrade 0.28.0:0.33.0     what a newer release does to the memory
  vllm-doctor plan org/model --gpu H100 --speed 4000:500            how fast, as aiconfigurator estimates it
  vllm-doctor plan --unit vllm@main --explain                       this host's own launch, every term
"""


def plan(  # noqa: PLR0917
    launch: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL | -- LAUNCH]",
            help="A model by its name on a hub, or the launch line after `--`: [VAR=VALUE …] vllm serve MODEL [flags]",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The card, as nvidia-smi names it; A,B for one in each pipeline stage. Default: this host's.",
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=4096, metavar="N", help="Cards of the host. Default: this host's, else 1.")
    ] = None,
    gpu_memory_gib: Annotated[
        str | None, typer.Option(metavar="GIB", help="Memory of one card in GiB (2^30 bytes), as torch reports it.")
    ] = None,
    host_memory_gib: Annotated[
        str | None,
        typer.Option(
            metavar="GIB", help="Memory of the host in GiB, for what a launch keeps there. Default: this host's."
        ),
    ] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="The release that will run. Default: this host's, else the newest known."),
    ] = None,
    model_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="config.json, or the model's folder. Default: from this host, or from the hub with huggingface_hub. "
            "Several with --sweep models.",
        ),
    ] = None,
    draft_config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="config.json, the folder or the name on the hub of a drafter that is a separate model (a draft model, "
            "EAGLE, DFlash, Medusa). Default: the launch's own, from the hub.",
        ),
    ] = None,
    weights_gib: Annotated[str | None, typer.Option(metavar="GIB", help="Weights of one GPU in GiB, if known.")] = None,
    available_kv_gib: Annotated[
        str | None,
        typer.Option(metavar="GIB", help="KV cache of one GPU in GiB, if known; then only tokens are computed."),
    ] = None,
    profile: Annotated[
        str, typer.Option(metavar="[conservative|balanced|max]", help="conservative, balanced or max.")
    ] = "balanced",
    context: Annotated[
        str | None,
        typer.Option(metavar="TOKENS", help="Longest request of the workload, in tokens: 131072, or 128k."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1 << 20, metavar="N", help="Requests at once of the workload.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="FILE", help="A saved /metrics page: lengths are taken from its histograms.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="gpus|models|NAME,...",
            help="Compare all cards that are known, the models of --model-config, or these cards.",
        ),
    ] = None,
    upgrade: Annotated[
        str | None,
        typer.Option(
            metavar="FROM:TO",
            help="Two releases, FROM:TO (0.28.0:0.33.0): how the later release changes the memory, term by term.",
        ),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="GOAL",
            help="Find GPUs, and their number, for this goal: context=128k,concurrency=32 (--gpus limits the number).",
        ),
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="JSON or YAML of cards and their price an hour. With --goal: these cards, cheapest first. With "
            "--speed: the price of answers.",
        ),
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            metavar="PROMPT:ANSWER",
            help="Tokens of the mean prompt and answer (4000:500): also tell tokens a second, as NVIDIA's "
            "aiconfigurator estimates them.",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT", help="The unit whose launch is planned, on a host.", autocompletion=complete.units
        ),
    ] = None,
    learn: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A start-up log of this very launch (a file, - for standard input, or `journal` for the unit's own): "
            "compare it with the plan and keep its terms for the next one.",
        ),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Draw the memory of one GPU and list every term.")] = False,
    format_: Annotated[
        Form, typer.Option("--format", metavar="[human|json]", help="The format of the answer.")
    ] = "human",
) -> None:
    """Predict the memory of a launch before it runs, and choose the largest safe one."""
    from vllm_doctor.cli.plan_run import PlanOptions, run

    code = run(
        PlanOptions(
            launch=tuple(launch or ()),
            gpu=gpu,
            gpus=gpus,
            gpu_memory_gib=gpu_memory_gib,
            host_memory_gib=host_memory_gib,
            vllm_version=vllm_version,
            model_config=tuple(model_config or ()),
            draft_config=draft_config,
            weights_gib=weights_gib,
            available_kv_gib=available_kv_gib,
            profile=profile,
            context=context,
            concurrency=concurrency,
            metrics=metrics,
            sweep=sweep,
            upgrade=upgrade,
            goal=goal,
            prices=prices,
            speed=speed,
            unit=unit,
            learn=learn,
            explain=explain,
            json=format_ == "json",
        )
    )
    raise typer.Exit(code)
