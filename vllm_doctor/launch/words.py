"""One option's text on a command line that no release's table is needed for."""

from collections.abc import Sequence


def option_text(argv: Sequence[str], name: str) -> str | None:
    """The text of `--name TEXT` or `--name=TEXT`, underscores too, where it stands first; None where it is not given,
    "" where nothing follows it."""
    for at, word in enumerate(argv):
        option, _, text = word.partition("=")
        if option.startswith("--") and option[2:].replace("_", "-") == name:
            return text or next(iter(argv[at + 1 : at + 2]), "")
    return None
