"""A person's yes before something is changed."""

import sys

from vllm_doctor.cli.errors import UsageProblem


def agreed(command: str) -> bool:
    """Ask; True for a yes. Raises UsageProblem where nobody is there to be asked."""
    if not sys.stdin.isatty():
        raise UsageProblem(f"{command}: there is no terminal to ask at; needed: --yes, or --dry-run to see the plan")
    sys.stdout.write("Do it? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
