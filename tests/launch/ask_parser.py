#!/usr/bin/env python3
"""Write down what a release's own `vllm serve` parser accepts:

    RELEASE/bin/python tests/launch/ask_parser.py > tests/launch/parser_VERSION.json

What tools/release.py reads from a wheel is held against these files. Run it with the Python of an installed release.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version

from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser


def describe(action: argparse.Action) -> dict[str, object]:
    """Say what one option takes: `words` is 0 for a switch, 1, or "+" for one and more."""
    takes_nothing = action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction)
    words: object = 0 if takes_nothing else "+" if action.nargs in ("+", "*") else "?" if action.nargs == "?" else 1
    kind = action.type.__name__ if isinstance(action.type, type) else ""
    known: dict[str, object] = {"words": words}
    if kind in {"int", "float"}:
        known["type"] = kind
    if action.choices:
        known["choices"] = [str(choice) for choice in action.choices]
    return known


def main() -> None:
    """Print one JSON object: version, and option → what it takes."""
    options: dict[str, object] = {}
    serve = ServeSubcommand().subparser_init(FlexibleArgumentParser().add_subparsers())
    for action in serve._actions:
        for name in action.option_strings:
            if name.startswith("--"):
                options[name.removeprefix("--")] = describe(action)
    # One option a line, so that two releases can be compared with diff.
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(options[name])}" for name in sorted(options))
    release = json.dumps(version("vllm").partition("+")[0])
    sys.stdout.write(f'{{"version": {release}, "options": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
