"""`vllm-doctor plan`: the wiring of options; no logic."""

from typing import Any

import click

from vllm_doctor.cli import complete
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit


@click.command()
@click.argument("launch", nargs=-1)
@click.option("--gpu", help="The card, as nvidia-smi names it. Default: this host's.")
@click.option("--gpus", type=int, help="Cards of the host. Default: this host's, else 1.")
@click.option("--gpu-memory-gib", help="Memory of one card in GiB (2^30 bytes), as torch reports it.")
@click.option("--vllm-version", help="The release that will run. Default: this host's.")
@click.option("--model-config", multiple=True, help="config.json, or the model's folder. Several with --sweep models.")
@click.option("--weights-gib", help="Weights of one GPU in GiB, if known.")
@click.option("--available-kv-gib", help="KV pool of one GPU in GiB, if known: the token arithmetic alone.")
@click.option("--profile", default="balanced", help="conservative, balanced or max.")
@click.option("--context", type=click.IntRange(min=1), help="Longest request of the workload, in tokens.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Requests at once of the workload.")
@click.option("--metrics", help="A saved /metrics page: lengths are taken from its histograms.")
@click.option("--sweep", help="Compare: `gpus`, `models`, or names of cards separated by commas.")
@click.option("--unit", shell_complete=complete.units, help="The unit whose launch is planned, on a host.")
@click.option(
    "--learn",
    help="A start-up log of this very launch (a file, - for standard input, or `journal` for the unit's own): "
    "compare it with the plan and keep its terms for the next one.",
)
@click.option("--explain", is_flag=True, help="Draw the memory of one GPU and list every term.")
@click.option("--format", "output", default="human", help="human or json.")
def plan(output: str, **given: Any) -> int:
    """Predict the memory of a launch before it runs, and choose the largest safe one.

    LAUNCH is the launch line, after `--`: [VAR=VALUE …] vllm serve MODEL [flags]
    """
    from vllm_doctor.cli.plan_run import Options, run

    if output not in {"human", "json"}:
        raise UsageProblem(f"--format: found {output!r}; needed: human or json")
    return Exit.OK if run(Options(json=output == "json", **given)) else Exit.FINDINGS
