"""`vllm-doctor diagnose`."""

from typing import Annotated

import typer

from vllm_doctor.cli import complete
from vllm_doctor.cli.choices import WORDS, FailOn, MediumName, OutputFormat, metavar

EXAMPLES = """\
Examples:

\b
  vllm-doctor diagnose                            every vLLM of this host
  vllm-doctor diagnose docker:llm                 a container; podman:NAME, pod/NAME, slurm:JOBID, pid:N, http://H:8000
  vllm-doctor diagnose inspect.json server.log    what docker inspect, or kubectl describe pod, printed, and the log
  vllm-doctor diagnose server.log                 a log that somebody sent
  journalctl -u vllm@main | vllm-doctor diagnose
  vllm-doctor diagnose server.log --why --path    all of the answer
  vllm-doctor diagnose --memory                   where the GPU's memory went, measured and planned
  vllm-doctor diagnose server.log --as compose    the change for a compose file
  vllm-doctor diagnose --launch compose.yaml --vllm-version 0.33.0
"""


def diagnose(  # noqa: PLR0917 - one parameter an option, all passed by name
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|PLACE]...",
            help="Logs and descriptions (docker inspect, kubectl describe pod, kubectl get pod -o json); or where it "
            "runs: docker:NAME, podman:NAME, pod/[NAMESPACE/]NAME, slurm:JOBID, pid:N, http://HOST:PORT.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="FILE", help="A log file; `-` is standard input. May be repeated."),
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND|FILE",
            help="The launch: 'vllm serve MODEL --flag …', 'docker run …', or a compose, pod or Python file.",
        ),
    ] = None,
    vllm_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The vLLM version, where the log does not print it.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="The card, as nvidia-smi names it.")] = None,
    gpu_memory_gib: Annotated[float | None, typer.Option(metavar="GIB", help="Memory of one card.", min=0.0)] = None,
    gpus: Annotated[int | None, typer.Option(metavar="N", help="Number of GPUs.", min=0, max=4096)] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="FILE", help="A saved scrape of /metrics; `-` is standard input, as below.")
    ] = None,
    kernel_log: Annotated[
        str | None, typer.Option(metavar="FILE", help="A saved kernel log (journalctl -k, dmesg).")
    ] = None,
    nvidia_smi: Annotated[
        str | None, typer.Option("--nvidia-smi", metavar="FILE", help="Saved output of nvidia-smi.")
    ] = None,
    model_config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The model's config.json, or its folder: sizes of tensors follow from it."),
    ] = None,
    bundle: Annotated[
        str | None, typer.Option("--from", metavar="BUNDLE", help="A bundle that `vllm-doctor bundle` wrote.")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            help="The systemd unit on this host; all vLLM units if left out.",
            autocompletion=complete.units,
        ),
    ] = None,
    canary: Annotated[
        bool | None,
        typer.Option(
            "--canary/--no-canary",
            help="Ask a healthy server for one token, as a client would; default: wherever that can be tried.",
            show_default=False,
        ),
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Also show the other changes, the whole evidence and what was not seen.")
    ] = False,
    path: Annotated[bool, typer.Option("--path", help="Also show the way through the flowchart.")] = False,
    memory: Annotated[
        bool,
        typer.Option("--memory", help="Also show where the GPU's memory went: each term as measured and as planned."),
    ] = False,
    medium: Annotated[
        MediumName | None,
        typer.Option(
            "--as",
            metavar=metavar(WORDS["--as"]),
            help="Write the change for this launcher; default: the one for what starts the server.",
        ),
    ] = None,
    output: Annotated[
        OutputFormat,
        typer.Option("--format", metavar=metavar(WORDS["--format"]), help="The format of the answer."),
    ] = "human",
    target: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to this file instead of the terminal; the file appears complete or not at all.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --output, if it is there.")] = False,
    fail_on: Annotated[
        FailOn,
        typer.Option(metavar=metavar(WORDS["--fail-on"]), help="The mildest severity that makes exit 1."),
    ] = "advice",
    tell: Annotated[
        str | None,
        typer.Option(
            "--notify",
            metavar="FILE",
            help="Send the answer when there is a finding. FILE, which only you may read, holds "
            '{"url": "https://…"} or {"exec": ["/program"]}.',
        ),
    ] = None,
) -> None:
    """Say what is wrong with vLLM, why, and what to change.

    Without a file, a place or a pipe it looks at this host.
    """
    from vllm_doctor.cli.diagnose_run import run
    from vllm_doctor.cli.given import Given

    given = Given(
        logs=(*(log or ()), *(files or ())),
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
        why=why,
        path=path,
        memory=memory,
        medium=medium,
    )
    raise typer.Exit(run(given, output, fail_on, target, force=force, tell=tell))
