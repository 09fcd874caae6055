"""One value as a medium reads it back: as a shell's word, in YAML, and where `$` begins a reference. Each stays on its
line: what is printed may be indented, and an indented second line is another value."""

import re
import shlex
from collections.abc import Iterable


def word(value: str) -> str:
    """A word of a shell. One with line ends and other control characters is written as bash, zsh, ksh and POSIX.1-2024
    read it: `$'a\\nb'`."""
    if value.isprintable():
        return shlex.quote(value)
    return "$'" + "".join(map(_escaped, value)) + "'"


# References as people write them in scripts; nothing else of a text by others is left to a shell to fill in. What
# follows in `$NAME` are signs that stand for themselves as well: read in one way, a long word is no slower for a byte.
_REFERENCES = re.compile(r"(?:[\w./:=,@%+-]|\$[A-Za-z_]|\$\{[A-Za-z_]\w{0,60}\}|\$\(pwd\))+", re.ASCII)


def for_a_shell(value: str) -> str:
    """A word that stood in a shell's text, for a shell again: `~/`, `$HOME` and `$(pwd)` stay what they are there."""
    if "$" in value and _REFERENCES.fullmatch(value):
        return f'"{value}"'
    return f"~/{word(value[2:])}" if value.startswith("~/") and value[2:] else word(value)


def words(values: Iterable[str]) -> str:
    """`shlex.join`, on one line."""
    return " ".join(map(word, values))


def _escaped(sign: str) -> str:
    if sign in "\\'":
        return f"\\{sign}"
    if sign.isprintable():
        return sign
    return "\\n" if sign == "\n" else "".join(f"\\x{byte:02x}" for byte in sign.encode(errors="surrogateescape"))


def doubled(value: str) -> str:
    """A value in which Compose and the kubelet fill in nothing: `$` of its own is `$$` in either's file.

    Sources: https://docs.docker.com/reference/compose-file/interpolation/ and
    https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/
    """
    return value.replace("$", "$$")


def undoubled(value: str) -> str:
    """What such a file says with `$$`; a reference, as `${NAME}`, stays as it is."""
    return value.replace("$$", "$")


def yaml(value: object, *, flow: bool = False) -> str:
    """YAML in which each text stands on one line."""
    import yaml as library

    class OneLine(library.SafeDumper):
        """Quotes a text of several lines with escapes."""

    def text(dumper: library.SafeDumper, value: str) -> library.ScalarNode:
        style = None if value.isprintable() else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    OneLine.add_representer(str, text)
    written: str = library.dump(
        value, Dumper=OneLine, sort_keys=False, width=float("inf"), allow_unicode=True, default_flow_style=flow
    )
    return written.rstrip("\n")
