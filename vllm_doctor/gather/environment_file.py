"""The files behind a unit's EnvironmentFile=, which systemd reads as root and never shows."""

import re
from collections.abc import Iterator

from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.records.reading import Known

_MOST_BYTES = 1 << 16
_SHOWN = re.compile(r" \(ignore_errors=(?:yes|no)\)$")
# The grammar of systemd's src/basic/env-file.c: a value is quoted pieces and then what is left of the line; a backslash
# before the line's end joins the next one.
_COMMENT = re.compile(r"\s*[#;](?:[^\\\n]++|\\.)*+", re.DOTALL)
_NAME = re.compile(r"\s*([^=\n]*)(=?)")
_QUOTED = re.compile(r"""[ \t]*(?:'([^']*)(?:'|\Z)|"((?:[^"\\]++|\\.)*+)(?:"|\Z))""", re.DOTALL)
_REST = re.compile(r"[ \t]*((?:[^\\\n]++|\\.)*+)", re.DOTALL)


def assigned(text: str) -> dict[str, str]:
    """What the text of such a file assigns."""
    return dict(_assignments(text.replace("\r", "\n")))


def paths(shown: str) -> list[str]:
    """The files in `systemctl show`'s EnvironmentFiles, one a line."""
    return [_SHOWN.sub("", entry.strip()) for entry in shown.splitlines()]


def environment_files(shown: str) -> dict[str, str]:
    """What the files in `systemctl show`'s EnvironmentFiles (one a line) assign, the last one winning; a file that may
    not be read assigns nothing."""
    found: dict[str, str] = {}
    for path in paths(shown):
        read = whole_file(path, _MOST_BYTES)
        if isinstance(read, Known):
            found.update(assigned(read.value.decode(errors="replace")))
    return found


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        if (comment := _COMMENT.match(text, at)) is not None:
            at = comment.end()
            continue
        name = _NAME.match(text, at)
        if name is None:
            return
        at = name.end()  # it takes a character at least: a blank, a letter or the sign
        if not name[2]:
            continue
        pieces: list[str] = []
        while (quoted := _QUOTED.match(text, at)) is not None:
            # Between double quotes a backslash escapes what a shell would, and stays before anything else.
            pieces.append(quoted[1] if quoted[1] is not None else re.sub(r'\\(["\\`$])|\\\n', r"\1", quoted[2]))
            at = quoted.end()
        rest = _REST.match(text, at)
        if rest is not None:
            pieces.append(re.sub(r"\\(?:\n|(.))", r"\1", rest[1].rstrip()))
            at = rest.end()
        if name[1].strip().isidentifier():
            yield name[1].strip(), "".join(pieces)
