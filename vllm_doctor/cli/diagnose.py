"""`vllm-doctor diagnose`."""

from typing import Annotated

import typer

from vllm_doctor.cli import complete


def diagnose(  # noqa: PLR0917 - one parameter an option, all passed by name
    log: Annotated[
        list[str] | None, typer.Option("--log", help="A log file; `-` is standard input. May be repeated.")
    ] = None,
    launch: Annotated[str | None, typer.Option(help="The launch, as one text: 'vllm serve MODEL --flag …'.")] = None,
    vllm_version: Annotated[str | None, typer.Option(help="The vLLM version, where the log does not print it.")] = None,
    gpu: Annotated[str | None, typer.Option(help="The card, as nvidia-smi names it.")] = None,
    gpu_memory_gib: Annotated[float | None, typer.Option(help="Memory of one card in GiB.", min=0.0)] = None,
    gpus: Annotated[int | None, typer.Option(help="How many cards.", min=0, max=4096)] = None,
    metrics: Annotated[
        str | None, typer.Option(help="A saved scrape of /metrics; `-` is standard input, here and below.")
    ] = None,
    kernel_log: Annotated[str | None, typer.Option(help="A saved kernel log (journalctl -k, dmesg).")] = None,
    nvidia_smi: Annotated[str | None, typer.Option("--nvidia-smi", help="Saved output of nvidia-smi.")] = None,
    model_config: Annotated[
        str | None, typer.Option(help="The model's config.json, or its folder: sizes of tensors follow from it.")
    ] = None,
    bundle: Annotated[str | None, typer.Option("--from", help="A bundle that `vllm-doctor bundle` wrote.")] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="The systemd unit on this host; all vLLM units if left out.", autocompletion=complete.units),
    ] = None,
    canary: Annotated[
        bool, typer.Option("--canary", help="Also ask the server for one token, as a client would.")
    ] = False,
    output: Annotated[
        str,
        typer.Option(
            "--format",
            help="human, json, html or prometheus.",
            autocompletion=complete.of("human", "json", "html", "prometheus"),
        ),
    ] = "human",
    target: Annotated[
        str | None, typer.Option("--output", "-o", help="Write to this file instead of the terminal, at once.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --output, if it is there.")] = False,
    fail_on: Annotated[
        str,
        typer.Option(
            help="The mildest severity that makes exit 1: blocks-start, will-fail-under-load, degraded or advice.",
            autocompletion=complete.of("blocks-start", "will-fail-under-load", "degraded", "advice"),
        ),
    ] = "advice",
) -> None:
    """Say why vLLM ran out of memory, or what else it is, with the evidence and the exact change."""
    from vllm_doctor.cli.diagnose_run import Given, run

    given = Given(
        logs=tuple(log or ()),
        launch=launch,
        version=vllm_version,
        gpu=gpu,
        gpu_gib=gpu_memory_gib,
        gpus=gpus,
        metrics=metrics,
        kernel_log=kernel_log,
        nvidia_smi=nvidia_smi,
        model_config=model_config,
        bundle=bundle,
        unit=unit,
        canary=canary,
    )
    raise typer.Exit(run(given, output, fail_on, target, force=force))
