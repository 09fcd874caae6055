"""Asks aiconfigurator, in a process of its own: what it imports is large, and what it is given is a stranger's file.

Reads {"config": …, "asked": …} from standard input and writes the figures as JSON. An exception is its refusal: the
last line of the traceback is what the caller shows.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

# The keys of its result that are figures, as its CSV names them (aiconfigurator.cli.api, EstimateResult).
_FIGURES = {"tokens_per_s": "tokens/s", "requests_per_s": "seq/s", "requests": "concurrency"}


def main() -> None:
    """Answer one question."""
    given = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out, tempfile.TemporaryDirectory() as folder:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - what the library prints
            os.dup2(nowhere.fileno(), 1)
        (Path(folder) / "config.json").write_text(json.dumps(given["config"]), encoding="utf-8")
        os.environ["HOME"] = os.environ["MPLCONFIGDIR"] = folder  # it imports libraries that keep caches there
        logging.disable(logging.CRITICAL)
        # By name: it is installed where somebody asks for it, and not where this is checked.
        result = import_module("aiconfigurator.cli.api").cli_estimate(folder, **given["asked"])
        told = {name: float(result.raw[key]) for name, key in _FIGURES.items()}
        told |= {"first_token_ms": float(result.ttft), "per_token_ms": float(result.tpot)}
        json.dump({**told, "measured_with": str(result.backend_version)}, out)


if __name__ == "__main__":
    main()
