"""What an option takes that is one word of a few; the command line checks it, shows it in --help and completes it."""

from typing import Literal, TypeAlias, get_args

Form: TypeAlias = Literal["human", "json"]
OutputFormat: TypeAlias = Literal["human", "json", "html", "markdown", "junit", "prometheus"]
FailOn: TypeAlias = Literal["blocks-start", "will-fail-under-load", "degraded", "advice"]
MediumName: TypeAlias = Literal["command", "unit", "docker", "compose", "pod", "slurm", "python", "inventory"]

# The words of the options of `diagnose`, for its way without the command line's library.
WORDS: dict[str, tuple[str, ...]] = {
    "--format": get_args(OutputFormat),
    "--fail-on": get_args(FailOn),
    "--as": get_args(MediumName),
}


def metavar(words: tuple[str, ...]) -> str:
    """The words as --help shows them."""
    return f"[{'|'.join(words)}]"
