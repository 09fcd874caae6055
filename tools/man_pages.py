#!/usr/bin/env python3
"""Write build/man/vllm-doctor.1, and a page for each command, from the commands themselves."""

import datetime
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import typer.main

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from vllm_doctor import __version__  # noqa: E402 - the checkout's own, whatever is installed
from vllm_doctor.cli.app import app  # noqa: E402

OUT = REPO / "build" / "man"
EXITS = (
    (0, "nothing found"),
    (1, "findings"),
    (2, "the command line or a file is wrong"),
    (3, "something that the question needs could not be read"),
    (4, "a defect of vllm-doctor"),
    (130, "interrupted"),
)


def pages() -> dict[str, str]:
    """The name of each page and its roff."""
    made: Any = typer.main.get_command(app(""))  # typer's own copy of click has no public types
    context = typer.Context(made, info_name="vllm-doctor")
    commands = {name: command for name in made.list_commands(context) if (command := made.get_command(context, name))}
    found = {"vllm-doctor.1": "\n".join(_overview(made, commands)) + "\n"}
    for name, command in commands.items():
        under = typer.Context(command, info_name=f"vllm-doctor {name}")
        found[f"vllm-doctor-{name}.1"] = "\n".join(_command(name, command, under)) + "\n"
    return found


def _head(name: str, what: str) -> Iterator[str]:
    day = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), tz=datetime.UTC)
    dated = day.strftime("%Y-%m-%d") if day.year > 1970 else ""
    yield f'.TH "{roff(name.upper())}" 1 "{dated}" "vllm-doctor {__version__}" "vllm-doctor"'
    yield ".SH NAME"
    yield f"{roff(name)} \\- {roff(what.rstrip('.'))}"


def _overview(made: Any, commands: dict[str, Any]) -> Iterator[str]:
    yield from _head("vllm-doctor", made.help or "")
    yield from (".SH SYNOPSIS", ".B vllm\\-doctor", "COMMAND [OPTIONS]")
    yield ".SH COMMANDS"
    for name, command in commands.items():
        yield from (".TP", f".BR vllm\\-doctor\\-{roff(name)} (1)", roff(command.get_short_help_str(200)))
    yield ".SH EXIT STATUS"
    for code, meaning in EXITS:
        yield from (".TP", f".B {code}", roff(meaning))


def _command(name: str, command: Any, context: typer.Context) -> Iterator[str]:
    text = (command.help or "").split("\n\n")
    yield from _head(f"vllm-doctor-{name}", text[0].replace("\n", " "))
    yield ".SH SYNOPSIS"
    words = " ".join(command.collect_usage_pieces(context))
    yield f".B vllm\\-doctor {roff(name)}\n{roff(words)}"
    yield ".SH DESCRIPTION"
    for paragraph in text:
        yield from (".PP", roff(paragraph.replace("\b\n", "").replace("\n", " ")))
    yield ".SH OPTIONS"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {roff(record[0])}", roff(" ".join(record[1].split())))
    if command.epilog:
        yield ".SH EXAMPLES"
        yield from (
            ".nf",
            *(roff(line) for line in command.epilog.splitlines()[1:] if line.strip() not in {"", "\b"}),
            ".fi",
        )
    yield from (".SH SEE ALSO", ".BR vllm\\-doctor (1)")


def roff(text: str) -> str:
    """A text as roff takes it: no sign of it is a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in {".", "'"} else line for line in text.split("\n"))


def main() -> None:
    """Write them."""
    OUT.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (OUT / name).write_text(text, encoding="utf-8")
    print(f"wrote {len(pages())} pages into {OUT.relative_to(REPO)}; completion: vllm-doctor --install-completion")


if __name__ == "__main__":
    main()
