"""`vllm serve MODEL …` as the release parses it: by the table that the doctor has of its options."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

TABLE = Path(__file__).with_name("options.json")


def release() -> str:
    """The version without its build."""
    return version("vllm").partition("+")[0]


def serve_parser() -> argparse.ArgumentParser:
    """Every option of the release, each with the words, the type and the values that it allows."""
    parser = argparse.ArgumentParser(
        prog="vllm", usage="vllm serve [model_tag] [options]", allow_abbrev=False, add_help=False
    )
    parser.add_argument("model_tag", nargs="?")
    for name, known in json.loads(TABLE.read_text())["options"].items():
        kind = {"int": int, "float": float}.get(known.get("type", ""), str)
        common = {"dest": name.removeprefix("no-").replace("-", "_"), "default": None}
        if known["words"] == 0:
            constant = not name.startswith("no-")
            parser.add_argument(f"--{name}", action="store_const", const=constant, **common)
        elif known["words"] in {"+", "?"}:
            parser.add_argument(f"--{name}", nargs=known["words"], type=kind, **common)
        else:
            several = {"action": "append"} if name == "middleware" else {}
            parser.add_argument(f"--{name}", type=kind, choices=choices(known, kind), **several, **common)
    return parser


def choices(known: dict[str, object], kind: type) -> list[object] | None:
    """The allowed values, in the option's type."""
    listed = known.get("choices")
    return [kind(value) for value in listed] if isinstance(listed, list) else None


def dashes(word: str) -> str:
    """vLLM takes --max_model_len for --max-model-len."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def main() -> None:
    """Serve, or say the version."""
    words = [dashes(word) for word in sys.argv[1:]]
    if words in (["--version"], ["-v"]):
        print(release())
        return
    if words[:1] != ["serve"]:
        sys.exit(f"vllm: this stand-in knows serve and --version, not {words[:1]}")
    options = serve_parser().parse_args(words[1:])
    from vllm.server import serve

    serve(options)


if __name__ == "__main__":
    main()
