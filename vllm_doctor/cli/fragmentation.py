"""`vllm-doctor fragmentation`."""

from typing import Annotated

import typer

from vllm_doctor.cli import complete
from vllm_doctor.cli.choices import Form

EXAMPLES = """\
Examples:

\b
  vllm-doctor fragmentation --unit vllm@main
  curl -s http://gpu04:8000/metrics > page.txt && vllm-doctor fragmentation --metrics page.txt --vllm-version 0.33.0
"""


def fragmentation(
    metrics: Annotated[
        str | None, typer.Option(metavar="FILE", help="A saved scrape of /metrics instead of this host.")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            help="The systemd unit. Default: the unit in trouble, or the only unit.",
            autocompletion=complete.units,
        ),
    ] = None,
    vllm_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The vLLM version of a saved scrape.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="The longest request of a saved scrape, in tokens.", min=1)
    ] = None,
    output: Annotated[
        Form, typer.Option("--format", metavar="[human|json]", help="The format of the answer.")
    ] = "human",
) -> None:
    """Count the KV blocks: used, free, held by requests, lost inside blocks; and how many more requests fit."""
    from vllm_doctor.cli.fragmentation_run import FragmentationOptions, run

    raise typer.Exit(run(FragmentationOptions(metrics, unit, vllm_version, max_model_len), output))
