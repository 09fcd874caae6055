"""What the command line names: no value is empty, a version is one, and a file that is not there is told from one that
was read."""

import os
from collections.abc import Iterable, Sequence

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.records import excerpt

STDIN = "-"
VERSION = "--vllm-version"

# How a launch begins that somebody types after `plan`.
_LAUNCHES = frozenset({("vllm", "serve"), ("docker", "run"), ("podman", "run"), ("python", "-m"), ("python3", "-m")})


def refuse_empty(words: Sequence[str]) -> None:
    """Raise UsageProblem for an empty value: mostly a shell variable that is not set, and never what was meant.

    What stands after `--` is another program's command line and is not looked at.
    """
    before = ""
    for word in words:
        if word == "--":
            return
        name, equals, value = word.partition("=")
        if not word.strip():
            where = before if before.startswith("-") else "an argument"
        elif word.startswith("-") and equals and not value.strip():
            where = name
        else:
            before = word
            continue
        raise UsageProblem(f"{where}: its value is empty (a variable that is not set?); give a value, or leave it out")


def refuse_unparted(words: Sequence[str]) -> None:
    """Raise UsageProblem for `plan vllm serve MODEL --flags` without the `--` that parts the launch from plan's own
    options; a launch without options needs none."""
    if words[:1] != ["plan"] or "--" in words:
        return
    begin = next((at for at, word in enumerate(words) if at and tuple(words[at : at + 2]) in _LAUNCHES), None)
    if begin is not None and any(word.startswith("-") for word in words[begin + 2 :]):
        start = f"{words[begin]} {words[begin + 1]}"
        raise UsageProblem(
            f"plan: found {start} among plan's own options; needed: `--` before the launch, as in vllm-doctor plan … "
            f"-- {start} …"
        )


def refuse_versions(words: Sequence[str]) -> None:
    """Raise UsageProblem for a `--vllm-version` with anything but a version in it, whichever command it is given to."""
    before = ""
    for word in words:
        if word == "--":
            return
        name, equals, value = word.partition("=")
        text = value if name == VERSION and equals else word if before == VERSION else None
        before = word
        if text is not None:
            from vllm_doctor.knowledge.version import is_written

            if not is_written(text):
                raise UsageProblem(
                    f"{VERSION} {excerpt.value(text)}: needed: a version such as 0.32.0, 0.33.0rc1, 0.33.0+cpu"
                )


def missing(named: Iterable[tuple[str, str | None]]) -> tuple[str, ...]:
    """Of (option, file) those whose file does not exist, as `--option FILE`."""
    return tuple(f"{option} {name}" for option, name in named if name not in {None, STDIN} and _gone(str(name)))


def _gone(name: str) -> bool:
    try:
        os.stat(name)  # noqa: PTH116 - one call, which says why
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def refuse_missing(gone: Sequence[str]) -> None:
    """Raise UsageProblem where a named file does not exist."""
    if gone:
        raise UsageProblem(f"{'; '.join(f'{one}: no such file' for one in gone)}: check the path")
