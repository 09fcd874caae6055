"""The command line. A command is a module that declares its options; its body imports what it needs when it runs."""

from importlib import import_module
from types import ModuleType
from typing import Annotated

import typer

from vllm_doctor import __version__

_MODULES = {
    "diagnose": "diagnose",
    "bundle": "bundle",
    "fragmentation": "fragmentation",
    "plan": "plan",
    "tune": "tune",
    "guard": "guard",
    "recover": "recover",
    "history": "history",
    "debug": "debug",
    "watch": "watch",
    "export": "export",
    "fleet": "fleet",
    "report": "report",
    "explain": "explain",
    "flowchart": "explain",
}
# What fits beside a command's name in 80 columns.
_SHORT = {
    "diagnose": "Say what is wrong, why, and what to change.",
    "bundle": "Write the evidence of this host into one redacted file.",
    "fragmentation": "Measure how much KV cache the blocks waste.",
    "plan": "Predict the memory of a launch before it runs.",
    "tune": "Find the batch sizes that this host serves best.",
    "guard": "Watch the services; restart one where that helps.",
    "recover": "Stop a unit whole, free its GPUs, start it with less.",
    "history": "Say what happened to the units, and when.",
    "debug": "Turn debug logging on for a while.",
    "watch": "Show memory, load and findings as they change.",
    "export": "Write alerts for Prometheus, dashboards for Grafana.",
    "fleet": "Put the answers of many hosts on one page.",
    "report": "Draw the last hours' figures on one page.",
    "explain": "Explain a finding, an option or a metric.",
    "flowchart": "Print the whole flowchart.",
}


def app(word: str) -> typer.Typer:
    """The application with the command of this name; all commands for any other word (help, a typo)."""
    made = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    made.callback()(_doctor)
    for name in (word,) if word in _MODULES else _MODULES:
        module = import_module(f"vllm_doctor.cli.{_MODULES[name]}")
        made.command(name, short_help=_SHORT[name], epilog=_examples(module, name))(getattr(module, name))
    return made


def _examples(module: ModuleType, name: str) -> str:
    """Examples of this very command: a module may declare two."""
    shown: str = getattr(module, f"{name.upper()}_EXAMPLES", "") or module.EXAMPLES
    return shown


def _version(value: bool) -> None:
    if value:
        typer.echo(f"vllm-doctor {__version__}")
        raise typer.Exit


def _doctor(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Diagnose vLLM on GPU hosts: why did it run out of memory, and what to change."""
