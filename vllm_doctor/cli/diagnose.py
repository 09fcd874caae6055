"""`vllm-doctor diagnose`."""

from typing import Any

import click

from vllm_doctor.cli import complete
from vllm_doctor.records.verdict import Severity

FORMATS = ("human", "json", "html", "prometheus")


@click.command()
@click.option("--log", "logs", multiple=True, help="A log file; `-` is standard input. May be repeated.")
@click.option("--launch", help="The launch, as one text: 'vllm serve MODEL --flag …'.")
@click.option("--vllm-version", "version", help="The vLLM version, where the log does not print it.")
@click.option("--gpu", help="The card, as nvidia-smi names it.")
@click.option("--gpu-memory-gib", "gpu_gib", type=click.FloatRange(min=0), help="Memory of one card in GiB.")
@click.option("--gpus", type=click.IntRange(min=0), help="How many cards.")
@click.option("--metrics", help="A saved scrape of /metrics; `-` is standard input, here and below.")
@click.option("--kernel-log", help="A saved kernel log (journalctl -k, dmesg).")
@click.option("--nvidia-smi", help="Saved output of nvidia-smi.")
@click.option("--model-config", help="The model's config.json, or its folder: sizes of tensors follow from it.")
@click.option("--from", "bundle", help="A bundle that `vllm-doctor bundle` wrote.")
@click.option("--unit", shell_complete=complete.units, help="The unit on this host; all vLLM units if left out.")
@click.option("--canary", is_flag=True, help="Also ask the server for one token, as a client would.")
@click.option(
    "--format", "output", default="human", shell_complete=complete.of(*FORMATS), help=f"{', '.join(FORMATS)}."
)
@click.option("--output", "-o", "target", help="Write to this file instead of the terminal, at once.")
@click.option(
    "--fail-on",
    default="advice",
    shell_complete=complete.of(*Severity),
    help=f"The mildest severity that makes exit 1: {', '.join(Severity)}.",
)
def diagnose(output: str, target: str | None, fail_on: str, **given: Any) -> int:
    """Say why vLLM ran out of memory, or what else it is, with the evidence and the exact change."""
    from vllm_doctor.cli.diagnose_run import Given, run

    return run(Given(**given), output, fail_on, target)
