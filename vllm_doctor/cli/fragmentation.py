"""`vllm-doctor fragmentation`."""

from typing import Annotated

import typer

from vllm_doctor.cli import complete


def fragmentation(
    metrics: Annotated[str | None, typer.Option(help="A saved scrape of /metrics instead of this host.")] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="The systemd unit. Default: the unit in trouble, or the only unit.",
            autocompletion=complete.units,
        ),
    ] = None,
    vllm_version: Annotated[str | None, typer.Option(help="The vLLM version of a saved scrape.")] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="The longest request of a saved scrape, in tokens.", min=1)
    ] = None,
    output: Annotated[str, typer.Option("--format", help="human or json.")] = "human",
) -> None:
    """Count the KV blocks: used, free, held by requests, lost inside blocks; and how many more requests fit."""
    from vllm_doctor.cli.fragmentation_run import Given, run

    raise typer.Exit(run(Given(metrics, unit, vllm_version, max_model_len), output))
