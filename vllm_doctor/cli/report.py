"""`vllm-doctor report`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_doctor.cli import complete

EXAMPLES = """\
Examples:

\b
  vllm-doctor report --output today.html                        this host, from the guard's records
  vllm-doctor report --unit vllm@main --since 7d -o week.html
  vllm-doctor report --prometheus http://127.0.0.1:9090 -o fleet.html
  vllm-doctor report --prometheus https://watch.example.net:9090 --http-config client.yml -o fleet.html
"""


def report(
    *,
    since: Annotated[str, typer.Option(metavar="SPAN", help="How far back: 90m, 24h, 7d.")] = "24h",
    unit: Annotated[
        str | None,
        typer.Option(metavar="UNIT", help="One unit alone, of the guard's records.", autocompletion=complete.units),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="A Prometheus that scrapes vLLM, instead of the guard's records.", show_default=False
        ),
    ] = None,
    http_config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Password and CA for --prometheus, as Prometheus' http_config has them (basic_auth, tls_config).",
            show_default=False,
        ),
    ] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="The vLLM release that Prometheus scrapes. Default: the newest known.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write. Default: standard output.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Draw KV cache, requests, tokens, latencies and GPU memory of the last hours on one page; no Grafana is needed."""
    from vllm_doctor.cli.report_run import PrometheusOptions, run

    asked = PrometheusOptions(prometheus, http_config, vllm_version)
    raise typer.Exit(run(since, unit, asked, output=None if output == "-" else output, force=force))
