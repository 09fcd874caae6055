"""`vllm-doctor fragmentation`."""

from typing import Annotated

import typer

from vllm_doctor.cli import complete


def fragmentation(
    metrics: Annotated[str | None, typer.Option(help="A saved scrape of /metrics instead of this host.")] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="The systemd unit; the one that is in trouble, or the only one, if left out.",
            autocompletion=complete.units,
        ),
    ] = None,
    vllm_version: Annotated[str | None, typer.Option(help="The vLLM version of a saved scrape.")] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="The longest request of a saved scrape, in tokens.", min=1)
    ] = None,
    output: Annotated[str, typer.Option("--format", help="human or json.")] = "human",
) -> None:
    """Say how the KV blocks are used: used, free, held by a request, lost inside blocks; how many more requests fit."""
    from vllm_doctor.cli.fragmentation_run import Given, run

    raise typer.Exit(run(Given(metrics, unit, vllm_version, max_model_len), output))
