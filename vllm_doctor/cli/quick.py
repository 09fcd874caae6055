"""`diagnose` without the command line's library, whose import takes longer than reading a log.

Only a plain, complete and valid line is taken; anything else (help, an unknown option, a value that does not parse) is
None, and the full command line answers it. A test proves that both know the same options.
"""

import gc
from collections.abc import Sequence

from vllm_doctor.cli.choices import WORDS

TEXTS = (
    "--launch",
    "--vllm-version",
    "--gpu",
    "--metrics",
    "--kernel-log",
    "--nvidia-smi",
    "--model-config",
    "--from",
    "--unit",
    "--as",
    "--format",
    "--fail-on",
    "--output",
    "-o",
)
NUMBERS = ("--gpu-memory-gib", "--gpus")
SWITCHES = ("--why", "--path", "--canary", "--no-canary", "--force")
OPTIONS = ("--log", *TEXTS, *NUMBERS, *SWITCHES)
_MOST_GIB, _MOST_GPUS = 1 << 20, 4096


class _Typed:
    """What was typed, by the kind of the option; an option that is given twice has its last value."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.logs: list[str] = []
        self.switches: set[str] = set()
        self.texts: dict[str, str] = {}
        self.size: float | None = None
        self.count: int | None = None

    def takes(self, name: str, value: str) -> bool:
        """Is it a value that this option has? It is kept then."""
        if name == "--log":
            self.logs.append(value)
        elif name in TEXTS:
            self.texts[name] = value
            return value in WORDS.get(name, (value,))
        else:
            return self._takes_number(name, value)
        return True

    def _takes_number(self, name: str, value: str) -> bool:
        try:
            if name == "--gpu-memory-gib":
                self.size = float(value)
                return 0 <= self.size < _MOST_GIB
            self.count = int(value)
        except ValueError:
            return False
        return 0 <= self.count <= _MOST_GPUS


def _typed(words: Sequence[str]) -> _Typed | None:
    """The words by what they are; None where one is of no plain and valid line."""
    found = _Typed()
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            found.files.append(word)
        elif word in SWITCHES:
            found.switches.add(word)
        elif name not in OPTIONS or name in SWITCHES:
            return None
        else:
            value = value if equals else next(rest, "--")
            if (not equals and value.startswith("--")) or not found.takes(name, value):
                return None
    return found


def diagnose(words: Sequence[str]) -> int | None:
    """The exit code of `vllm-doctor diagnose WORDS…`, or None where the full command line has to look."""
    typed = _typed(words)
    if typed is None:
        return None
    gc.disable()  # one bounded answer and the process ends: collecting would take a tenth of its time
    from vllm_doctor.cli.diagnose_run import run
    from vllm_doctor.cli.given import Given

    texts, switched = typed.texts, typed.switches
    given = Given(
        logs=(*typed.logs, *typed.files),
        launch=texts.get("--launch"),
        version=texts.get("--vllm-version"),
        gpu=texts.get("--gpu"),
        gpu_gib=typed.size,
        gpus=typed.count,
        metrics=texts.get("--metrics"),
        kernel_log=texts.get("--kernel-log"),
        nvidia_smi=texts.get("--nvidia-smi"),
        model_config=texts.get("--model-config"),
        bundle=texts.get("--from"),
        unit=texts.get("--unit"),
        canary=True if "--canary" in switched else False if "--no-canary" in switched else None,
        why="--why" in switched,
        path="--path" in switched,
        medium=texts.get("--as"),
    )
    target = texts.get("--output", texts.get("-o"))
    return run(
        given, texts.get("--format", "human"), texts.get("--fail-on", "advice"), target, force="--force" in switched
    )
