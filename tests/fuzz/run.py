"""Fuzz one target by hand: `python -m tests.fuzz.run TARGET [options of libFuzzer]`, for instance -max_total_time=600.

What is new is kept under .cache/fuzz/TARGET and used again by the next run; a failing input is written there as
crash-…. Once it is mended, its file goes to tests/fuzz/seeds/TARGET, where every test run tries it.
"""

import random
import re
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["vllm_doctor"]):
    from tests.fuzz.targets import TARGETS
    from tests.scenarios.loading import folders, scenario
    from vllm_doctor.cli import app, diagnose_run, plan_run
    from vllm_doctor.rules.registry import rules

    LOADED = (app, diagnose_run, plan_run, rules())  # what is imported late would else not be watched

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / ".cache" / "fuzz"


def corpus(target: str) -> list[str]:
    """The folders that libFuzzer reads: its own first, into which it writes, and our seeds."""
    own = KEPT / target
    own.mkdir(parents=True, exist_ok=True)
    seeds = HERE / "seeds" / target
    if target in {"log", "long_log", "written"}:
        for folder in folders():
            if (folder / "log.txt").exists():
                (own / f"scenario-{folder.name}").write_bytes((folder / "log.txt").read_bytes())
    if target in {"metrics", "launch"}:
        for folder in folders():
            given = scenario(folder).get("given", {}).get(target)
            if given:
                text = given if isinstance(given, str) else "----\n".join(given)
                (own / f"scenario-{folder.name}").write_text(text, encoding="utf-8")
    return [str(own), *([str(seeds)] if seeds.is_dir() else [])]


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


def main() -> None:
    """Run libFuzzer until its limit or the first failure."""
    if sys.argv[1:2] == [] or sys.argv[1] not in TARGETS:
        sys.exit(f"needed is one of {', '.join(TARGETS)}")
    target = sys.argv.pop(1)
    mutator = {} if target == "snapshot" else {"custom_mutator": mutated}
    options = ["-max_len=16384", *sys.argv[1:], f"-artifact_prefix={KEPT / target}/"]
    atheris.Setup([sys.argv[0], *options, *corpus(target)], TARGETS[target], **mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
