"""What a shell keeps of a line or a script for itself: the prompt, redirections, comments, where a command ends."""

import re
from collections.abc import Iterator, Sequence

_PROMPTS = ("$ ", "# ", "> ")
# Characters of a prompt at most.
_PROMPT = 80
# Quoted text and a place to fill in (`<model>`) stay; a redirection and a comment go; an operator ends the
# command, and in a script the line's end does.
_PARTS = re.compile(
    r"""(?P<kept> '[^']*+' | "(?:[^"\\]|\\.)*+" | \\. | <\w[^<>\n]{0,80}+> )
    | (?P<gone> (?:(?<!\S)\d{1,3}|&)? [<>][<>&|]{0,2} [ \t]*+
        (?: [<>]?\([^()]{0,300}+\) | '[^']*+' | "(?:[^"\\]|\\.)*+" | \\. | [^\s\\'"<>|;&()] )*+
      | (?<!\S)\#[^\n]*+ )
    | (?P<end> [;|&] )
    | (?P<line> \n )""",
    re.VERBOSE | re.DOTALL,
)


def first_command(text: str) -> str:
    """The first command of a line, in one line, without its redirections and comments; quotes stay as they are."""
    kept: list[str] = []
    at = 0
    for part in _PARTS.finditer(text):
        if part["kept"] is not None or part["line"] is not None:
            continue
        kept.append(text[at : part.start()])
        at = part.end()
        if part["end"] is not None:
            at = len(text)
            break
    return "".join((*kept, text[at:])).replace("\\\n", " ").rstrip()


def commands(script: str) -> Iterator[str]:
    """Each command of a script, without redirections and comments; quotes stay as they are."""
    text = script.replace("\\\n", " ")
    kept: list[str] = []
    at = 0
    for part in _PARTS.finditer(text):
        if part["kept"] is not None:
            continue
        kept.append(text[at : part.start()])
        at = part.end()
        if part["gone"] is None:
            yield "".join(kept).strip()
            kept = []
    yield "".join((*kept, text[at:])).strip()


def without_prompts(text: str, begins: Sequence[str], marks: Sequence[str]) -> str:
    """The line without the shell's prompt before it, and without those before its further lines.

    A prompt stands before the program, so before any of `marks`, which name one; what `begins` as a command has none,
    but for a path, which may be a prompt's own (`/data # `).
    """
    first = text.split("\n", 1)[0]
    until = min((at for mark in marks if (at := first.find(mark)) >= 0), default=len(first))
    found = [at for prompt in _PROMPTS if (at := first.find(prompt, 0, min(until, _PROMPT))) >= 0]
    if not found or first.startswith(tuple(one for one in begins if one != "/")):
        return text
    command, *further = text[min(found) + 2 :].split("\n")
    if further and all(line.lstrip().startswith(">") for line in further):
        further = [line.lstrip()[1:] for line in further]
    return "\n".join((command, *further)).lstrip()
