"""`vllm-doctor tune`: the wiring of options; no logic."""

from typing import Any

import click

from vllm_doctor.cli import complete
from vllm_doctor.cli.errors import UsageProblem

_COUNT = click.IntRange(min=1)
_LIMIT = click.FloatRange(min=1)


@click.command()
@click.option(
    "--unit",
    required=True,
    shell_complete=complete.units,
    help="The unit to tune, such as vllm@main. It is restarted for every step.",
)
@click.option("--yes", is_flag=True, help="Consent: restart the service, again and again.")
@click.option("--dry-run", is_flag=True, help="Show what would be tried; touch nothing.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.1),
    default=30,
    help="Time for the whole ramp, the way back not counted.",
)
@click.option("--step-seconds", "step_s", type=_LIMIT, default=30, help="Time of load for a step.")
@click.option("--ready-seconds", "ready_s", type=_LIMIT, default=900, help="Time a start may take.")
@click.option("--from-seqs", type=_COUNT, help="Begin with this max_num_seqs, not the unit's own.")
@click.option("--from-tokens", type=_COUNT, help="Begin with this max_num_batched_tokens, not the unit's own.")
@click.option("--most-seqs", type=_COUNT, help="Never try more sequences.")
@click.option(
    "--prompt-tokens",
    type=_COUNT,
    help="Prompt length of the load. Default: the mean measured, else 512.",
)
@click.option("--output-tokens", type=_COUNT, help="Output length of the load. Default: the mean measured, else 128.")
@click.option("--kv-use", type=click.FloatRange(0.05, 1), default=0.90, help="Share of the KV pool where growth ends.")
@click.option("--slowdown", type=_LIMIT, default=2.0, help="Most times the first row's p99 between tokens.")
@click.option("--ttft-ms", type=_LIMIT, help="Limit of the p99 to the first token.")
@click.option("--itl-ms", type=_LIMIT, help="Limit of the p99 between tokens.")
@click.option("--load", default="auto", help="auto, vllm-bench (the release's own benchmark) or own.")
@click.option("--without-plan", is_flag=True, help="Go on where no plan can be made: the KV pool bounds the ramp.")
@click.option("--busy", is_flag=True, help="Begin although requests are being served; they are lost.")
@click.option("--fresh", is_flag=True, help="Forget the rows of an earlier ramp.")
@click.option("--format", "output", default="human", help="human or json.")
def tune(unit: str, minutes: float, load: str, output: str, **given: Any) -> int:
    """Find the largest safe max_num_seqs and max_num_batched_tokens under load, and put back what served before."""
    from vllm_doctor.cli.tune_options import Options
    from vllm_doctor.cli.tune_run import run

    if output not in {"human", "json"}:
        raise UsageProblem(f"--format: found {output!r}; needed: human or json")
    if load == "guidellm":
        raise UsageProblem(
            "--load guidellm: its options and its report change from release to release, and none was tried here; "
            "needed: auto, vllm-bench or own"
        )
    if load not in {"auto", "vllm-bench", "own"}:
        raise UsageProblem(f"--load: found {load!r}; needed: auto, vllm-bench or own")
    name = unit if unit.endswith(".service") else f"{unit}.service"
    return run(Options(unit=name, budget_s=minutes * 60, load=load, json=output == "json", **given))
