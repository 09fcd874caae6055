"""Fuzz one target by hand: `python -m tests.fuzz.run TARGET [options of libFuzzer]`, for instance -max_total_time=600.

What is new is kept under .cache/fuzz/TARGET and used again by the next run; a failing input is written there as
crash-…. Once it is mended, its file goes to tests/fuzz/seeds/TARGET, where every test run tries it.
TARGET may be `all`: one after another, and the status is 1 if one of them fails.
"""

import json
import os
import random
import re
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["vllm_doctor"]):
    from tests.fuzz.targets import TARGETS
    from tests.scenarios.loading import log_text, names, scenario, with_a_log
    from vllm_doctor.cli import app, diagnose_run, plan_run
    from vllm_doctor.rules.registry import rules

    LOADED = (app, diagnose_run, plan_run, rules())  # what is imported late would else not be watched

HERE = Path(__file__).parent
SEEDS = HERE / "seeds"
KEPT = HERE.parents[1] / ".cache" / "fuzz"


def from_scenarios(target: str, folder: Path) -> None:
    """Write what the scenarios give to this target, as a start that reaches every rule."""
    for name in names():
        given = scenario(name).get("given", {})
        text = given.get("launch" if target == "plan" else target)
        if target in {"log", "long_log", "written"} and name in with_a_log():
            text = log_text(name)
        if target == "unit" and name in with_a_log():
            text = "NRestarts=2\n----\nHF_HOME=/m\nAPI='a b'\n----\n" + log_text(name)
        if target == "config" and isinstance(given.get("model_config"), dict):
            text = json.dumps(given["model_config"])
        if text:
            kept = text if isinstance(text, str) else "----\n".join(text)
            (folder / f"scenario-{name}").write_text(kept, encoding="utf-8")


_NUMBER = re.compile(rb"-?\d[\d.,]*")
_ODD = (
    b"0", b"-1", b"0.0", b"1.2.3", b"1,,2", b"-", b".", b"nan", b"inf", b"1e999", b"9" * 30, b"9" * 400, b"9" * 5000,
    b"-" + b"9" * 30, b"0." + b"0" * 400 + b"1", "\u0663".encode(), "\u00b2".encode(), b"18446744073709551616", b"",
)  # fmt: skip


def mutated(data: bytes, limit: int, seed: int) -> bytes:
    """Half of the time a number of the text becomes an odd one, which libFuzzer's own changes seldom come upon."""
    dice = random.Random(seed)
    numbers = list(_NUMBER.finditer(data)) if dice.random() < 0.5 else []
    if not numbers:
        return bytes(atheris.Mutate(data, limit))
    chosen = dice.choice(numbers)
    return (data[: chosen.start()] + dice.choice(_ODD) + data[chosen.end() :])[:limit]


def main(words: list[str]) -> None:
    """Run libFuzzer until its limit or the first failure. `--kept FOLDER` keeps elsewhere, and starts from the seeds
    alone."""
    target, *options = words or [""]
    if target == "all":
        sys.exit(each(options))
    if target not in TARGETS:
        sys.exit(f"needed is one of {', '.join(TARGETS)}, or all")
    kept = KEPT / target
    if options[:1] == ["--kept"]:
        kept, options = Path(options[1], target), options[2:]
    kept.mkdir(parents=True, exist_ok=True)
    if kept == KEPT / target:
        from_scenarios(target, kept)
    read = [str(folder) for folder in (kept, SEEDS / target) if folder.is_dir()]
    mutator = {} if target == "snapshot" else {"custom_mutator": mutated}
    atheris.Setup(
        [sys.argv[0], "-max_len=16384", "-timeout=30", f"-artifact_prefix={kept}/", *options, *read],
        TARGETS[target],
        **mutator,
    )
    atheris.Fuzz()


def each(options: list[str]) -> int:
    """Run every target in a process of its own, which has the watched code from this one: that costs 5 s to make."""
    failed = []
    for target in TARGETS:
        child = os.fork()
        if child == 0:
            main([target, *options])  # libFuzzer ends the process
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            failed.append(target)
    print(f"ran: {' '.join(TARGETS)}; failed: {' '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    main(sys.argv[1:])
