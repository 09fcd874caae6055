#!/usr/bin/env python3
"""Say what a release's own `vllm serve` parser does with launch lines, one a line of standard input:

    RELEASE/bin/python tools/vllm_lines.py < LINES

Lines as in tests/launch/lines.txt: a word before a tab, and lines that begin with #, are left out.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys

from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser


def does(line: str) -> str:
    """`accepts`, or `refuses` with the last line of what the parser said."""
    parser = FlexibleArgumentParser(prog="vllm")
    ServeSubcommand().subparser_init(parser.add_subparsers())
    said = io.StringIO()
    words = shlex.split(line)
    sys.argv = words  # the parser looks there for what was typed
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            parser.parse_args(words[1:])
    except (SystemExit, Exception) as refused:  # noqa: BLE001 (whatever it raises is its answer)
        told = said.getvalue().strip().splitlines() or [f"{type(refused).__name__}: {refused}"]
        return f"refuses\t{line}\t{told[-1][:160]}"
    return f"accepts\t{line}"


def main() -> None:
    """Answer each line."""
    for row in sys.stdin:
        line = row.rstrip("\n").rpartition("\t")[2]
        if line and not line.startswith("#"):
            print(does(line))


if __name__ == "__main__":
    main()
