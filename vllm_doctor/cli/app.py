"""The command line. A command is a module that declares its options; its body imports what it needs when it runs."""

import os
from collections.abc import Sequence
from importlib import import_module

import click

from vllm_doctor import __version__
from vllm_doctor.cli.exit_codes import Exit

PROGRAM = "vllm-doctor"
COMPLETION = "_VLLM_DOCTOR_COMPLETE"
_MODULES = {
    "diagnose": "diagnose",
    "bundle": "bundle",
    "fragmentation": "fragmentation",
    "plan": "plan",
    "tune": "tune",
    "explain": "explain",
    "flowchart": "explain",
}


class _Commands(click.Group):
    """Imports a command when it is called by its name."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _MODULES:
            return None
        command = getattr(import_module(f"vllm_doctor.cli.{_MODULES[name]}"), name)
        return command if isinstance(command, click.Command) else None


@click.group(cls=_Commands, context_settings={"show_default": True, "max_content_width": 100})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def app() -> None:
    """Deploy vLLM on GPU hosts, and know why it ran out of memory."""


def run(argv: Sequence[str]) -> int:
    """Parse the words and run the command; its exit code. Raises what the command raises."""
    asked = os.environ.get(COMPLETION)
    if asked:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, PROGRAM, COMPLETION, asked)
    # Not click's main(): that answers Ctrl-C, a closed pipe and errors with exit codes of its own.
    try:
        with app.make_context(PROGRAM, list(argv)) as ctx:
            code = app.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as problem:
        problem.show()
        return Exit.USAGE
    return code if isinstance(code, int) else Exit.OK
