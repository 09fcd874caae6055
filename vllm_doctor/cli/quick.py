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


def diagnose(words: Sequence[str]) -> int | None:
    """The exit code of `vllm-doctor diagnose WORDS…`, or None where the full command line has to look."""
    logs: list[str] = []
    files: list[str] = []
    switched: set[str] = set()
    texts: dict[str, str] = {}
    size: float | None = None
    count: int | None = None
    index = 0
    while index < len(words):
        word = words[index]
        name, equals, value = word.partition("=")
        index += 1
        if not word.startswith("-") or word == "-":
            files.append(word)
            continue
        if word in SWITCHES:
            switched.add(word)
            continue
        if name not in OPTIONS or name in SWITCHES:
            return None
        if not equals:
            if index >= len(words) or words[index].startswith("--"):
                return None
            value = words[index]
            index += 1
        if name == "--log":
            logs.append(value)
        elif name in TEXTS:
            if value not in WORDS.get(name, (value,)):
                return None
            texts[name] = value
        else:
            try:
                size, count = (float(value), count) if name == "--gpu-memory-gib" else (size, int(value))
            except ValueError:
                return None
    if not 0 <= (size or 0) < 1 << 20 or not 0 <= (count or 0) <= 4096:
        return None
    gc.disable()  # one bounded answer and the process ends: collecting would take a tenth of its time
    from vllm_doctor.cli.diagnose_run import run
    from vllm_doctor.cli.given import Given

    given = Given(
        logs=(*logs, *files),
        launch=texts.get("--launch"),
        version=texts.get("--vllm-version"),
        gpu=texts.get("--gpu"),
        gpu_gib=size,
        gpus=count,
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
