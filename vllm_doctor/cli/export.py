"""`vllm-doctor export`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """\
Examples:

\b
  vllm-doctor export monitoring --vllm-version 0.32.0
  vllm-doctor export monitoring --vllm-version 0.32.0 --vllm-version 0.31.0 --number kv_high=0.85
  vllm-doctor export monitoring --vllm-version 0.32.0 --without VllmNoRequests --job my-vllm --force
"""


def export(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The folder to write into; the command makes a missing folder.")
    ],
    *,
    vllm_version: Annotated[
        list[str],
        typer.Option(metavar="VERSION", help="A vLLM release that runs; may be repeated.", show_default=False),
    ],
    number: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Change a limit of the alerts, NAME=VALUE (kv_high=0.85); a wrong name lists all names. "
            "May be repeated.",
            show_default=False,
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="ALERT", help="Leave this alert out.", show_default=False)
    ] = None,
    job: Annotated[
        str, typer.Option(metavar="JOB", help="The job under which Prometheus scrapes the servers.")
    ] = "vllm",
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write alert rules for Prometheus and dashboards for Grafana, under the names that the releases give metrics."""
    from vllm_doctor.cli.export_run import run

    raise typer.Exit(run(folder, vllm_version, number or [], without or [], job=job, force=force))
