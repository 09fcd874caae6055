#!/usr/bin/env python3
"""Say what a release's own `vllm serve` does with launch lines, one a line of standard input:

    RELEASE/bin/python tools/vllm_lines.py [MODEL] < LINES

`refuses` is said of what its parser refuses and of what its classes of arguments refuse right behind it. Where a folder
MODEL with a config.json is given, `later` is said of what is refused when the configuration for that model is made.
Lines as in tests/launch/lines.txt: a word before a tab, and lines that begin with #, are left out.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shlex
import sys
import warnings

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser


def does(line: str, model: str, serve: ServeSubcommand, parser: FlexibleArgumentParser) -> str:
    """`accepts`, or `refuses` or `later` with the last line of what was said."""
    said = io.StringIO()
    words = shlex.split(line)
    sys.argv = words  # the parser looks there for what was typed
    verdict = "refuses"
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            arguments = parser.parse_args(words[1:])
            serve.validate(arguments)
            arguments.model = model or arguments.model
            made = AsyncEngineArgs.from_cli_args(arguments)
            verdict = "later"
            if model:
                made.create_engine_config()
    except (SystemExit, Exception) as refused:  # noqa: BLE001 (whatever it raises is its answer)
        told = said.getvalue().strip().splitlines()
        why = told[-1] if isinstance(refused, SystemExit) and told else f"{type(refused).__name__}: {refused}"
        return f"{verdict}\t{line}\t{' '.join(why.split())[:160]}"
    return f"accepts\t{line}"


def main() -> None:
    """Answer each line."""
    logging.disable()
    warnings.simplefilter("ignore")
    serve = ServeSubcommand()
    parser = FlexibleArgumentParser(prog="vllm")
    serve.subparser_init(parser.add_subparsers())
    model = "".join(sys.argv[1:2])
    for row in sys.stdin:
        line = row.rstrip("\n").split("\t")[-1 if row.count("\t") < 2 else 1]
        if line and not line.startswith("#"):
            sys.stdout.flush()
            # A process for each: what a line sets in the release's classes and variables is not there for the next one.
            if (child := os.fork()) == 0:
                sys.stdout.write(f"{does(line, model, serve, parser)}\n")
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
