"""Mutated logs: lines lost, doubled, cut, spliced, bytes made noise. A failure whose line still stands is never ok.

`make mutations`: every scenario's log, seeds fixed, in this process. LOGS=folder takes its logs, too.
"""

import argparse
import collections
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.scenarios.loading import log_file, with_a_log
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose
from vllm_doctor.rules.order import INTERNAL

KINDS = ("mutations", "finding to ok", "followed by another start or by service", "wrong ok", "a rule broke")
Lines = list[bytes]
Mutation = Callable[[Lines, random.Random], Lines]


def dropped(lines: Lines, chance: random.Random) -> Lines:
    share = chance.choice([0.01, 0.05, 0.2])
    return [line for line in lines if chance.random() > share]


def doubled(lines: Lines, chance: random.Random) -> Lines:
    return [line for line in lines for _ in range(1 + (chance.random() < 0.05))]


def block_again(lines: Lines, chance: random.Random) -> Lines:
    begin, to = _range(lines, chance)
    at = chance.randrange(len(lines) + 1)
    return [*lines[:at], *lines[begin:to], *lines[at:]]


def truncated(lines: Lines, chance: random.Random) -> Lines:
    cut = chance.randrange(1, len(lines) + 1)
    return lines[:cut] if chance.random() < 0.5 else lines[-cut:]


def block_lost(lines: Lines, chance: random.Random) -> Lines:
    begin, to = _range(lines, chance)
    return [*lines[:begin], *lines[to:]]


def noise(lines: Lines, chance: random.Random) -> Lines:
    text = bytearray(b"\n".join(lines))
    for _ in range(max(1, len(text) // chance.choice([50, 500, 5000]))):
        text[chance.randrange(len(text))] = chance.randrange(256)
    return bytes(text).split(b"\n")


def swapped(lines: Lines, chance: random.Random) -> Lines:
    found = list(lines)
    for _ in range(max(1, len(lines) // 50)):
        at = chance.randrange(len(found))
        found.insert(max(0, at - chance.randrange(4)), found.pop(at))
    return found


# After the evidence another server starts, or serves: what a splice put there is judged.
AGAIN = re.compile(
    rb'API server version|non-default args|LLM engine \(v|startup complete|Avg generation|"POST .* 200 OK'
)
MUTATIONS: tuple[Mutation, ...] = (dropped, doubled, block_again, truncated, block_lost, noise, swapped)


def _range(lines: Lines, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(lines))
    return begin, min(len(lines), begin + 1 + chance.randrange(max(1, len(lines) // 4)))


def judged(path: Path, text: bytes) -> Diagnosis:
    path.write_bytes(text)
    return diagnose(Snapshot(taken_at="2026-01-03T00:00:00+00:00", log=read_logs([str(path)])))


def _fails(found: Diagnosis) -> bool:
    """Did something fail, which one line tells? Pressure (VD3..) is a sum of many, and every one of them counts."""
    return found.verdict is Verdict.FINDING and not found.findings[0].code.startswith("VD3")


def evidence(lines: Lines, found: Diagnosis) -> set[bytes]:
    """The lines of the text on which its first finding stands."""
    shown = {e.locator for e in found.findings[0].evidence}
    return {line for number, line in enumerate(lines, 1) if f"line {number}" in shown and line.strip()}


def main() -> int:
    """Exit 1 where a failure whose evidence still stands is called ok, or a rule broke."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=9, help="mutations of each kind and log")
    asked.add_argument("--logs", type=Path, help="a folder whose *.log are mutated, too")
    asked.add_argument("--cpu-s", type=float, default=900.0, help="processor time after which it ends")
    given = asked.parse_args()
    sources = {name: log_file(name) for name in sorted(with_a_log())}
    if given.logs is not None:
        sources |= {path.stem: path for path in sorted(given.logs.glob("*.log"))}
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        whole = {name: source.read_bytes() for name, source in sources.items()}
        for turn in range(given.rounds):
            for name, text in whole.items():
                if time.process_time() > given.cpu_s:
                    print(f"ended after {given.cpu_s:.0f} s of processor time, in turn {turn + 1}")
                    return _told(counts)
                lines = text.rstrip(b"\n").split(b"\n")
                found = judged(path, text)
                stands = evidence(lines, found) if _fails(found) else set()
                for mutation in MUTATIONS:
                    _one(counts, path, (name, mutation, turn), lines, stands)
    return _told(counts)


def _one(
    counts: collections.Counter[str], path: Path, which: tuple[str, Mutation, int], lines: Lines, stands: set[bytes]
) -> None:
    name, mutation, turn = which
    changed = mutation(lines, random.Random(f"{name} {mutation.__name__} {turn}"))
    now = judged(path, b"\n".join(changed) + b"\n")
    counts["mutations"] += 1
    if any(f.code == INTERNAL for f in now.findings):
        counts["a rule broke"] += 1
        print(json.dumps([name, mutation.__name__, turn, "a rule broke"]))
    if not stands or now.verdict is not Verdict.OK:
        return
    counts["finding to ok"] += 1
    last = max((i for i, line in enumerate(changed) if line in stands), default=-1)
    if stands <= set(changed) and any(AGAIN.search(line) for line in changed[last + 1 :]):
        counts["followed by another start or by service"] += 1
    elif stands <= set(changed):
        counts["wrong ok"] += 1
        print(json.dumps([name, mutation.__name__, turn, "wrong ok"]))


def _told(counts: collections.Counter[str]) -> int:
    print(", ".join(f"{what}: {counts[what]}" for what in KINDS))
    return 1 if counts["wrong ok"] or counts["a rule broke"] else 0


if __name__ == "__main__":
    sys.exit(main())
