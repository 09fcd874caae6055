"""The command line. A command is a module that declares its options; its body imports what it needs when it runs."""

from typing import Annotated

import typer

from vllm_doctor import __version__
from vllm_doctor.cli import bundle, diagnose, explain, fragmentation, plan, tune

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(diagnose.diagnose)
app.command()(bundle.bundle)
app.command()(fragmentation.fragmentation)
app.command()(plan.plan)
app.command()(tune.tune)
app.command()(explain.explain)
app.command()(explain.flowchart)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"vllm-doctor {__version__}")
        raise typer.Exit


@app.callback()
def doctor(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Deploy vLLM on GPU hosts, and know why it ran out of memory."""
