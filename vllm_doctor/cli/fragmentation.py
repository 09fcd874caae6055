"""`vllm-doctor fragmentation`."""

from typing import Any

import click

from vllm_doctor.cli import complete


@click.command()
@click.option("--metrics", help="A saved scrape of /metrics instead of this host.")
@click.option(
    "--unit",
    shell_complete=complete.units,
    help="The systemd unit; the one that is in trouble, or the only one, if left out.",
)
@click.option("--vllm-version", "version", help="The vLLM version of a saved scrape.")
@click.option("--max-model-len", type=click.IntRange(min=1), help="The longest request of a saved scrape, in tokens.")
@click.option("--format", "output", default="human", help="human or json.")
def fragmentation(output: str, **given: Any) -> int:
    """Say how the KV blocks are used: used, free, held by a request, lost inside blocks; how many more requests fit."""
    from vllm_doctor.cli.fragmentation_run import Given, run

    return run(Given(**given), output)
