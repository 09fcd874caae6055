"""Inputs that once broke something, or that somebody hostile would write.

The long search is by hand: `make fuzz`, or `python -m tests.fuzz.run TARGET -max_total_time=600` for one target.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import targets

SEEDS = Path(__file__).with_name("seeds")
KEPT = sorted(path for path in SEEDS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("seed", KEPT, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_kept_input_is_answered_in_every_format(seed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "EVERY_FORMAT", True)
    targets.TARGETS[seed.parent.name](seed.read_bytes())


def test_every_folder_of_seeds_is_a_target_s() -> None:
    assert {path.parent.name for path in KEPT} <= set(targets.TARGETS)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this platform")
def test_the_fuzzer_starts_and_finds_nothing_in_what_is_kept(tmp_path: Path) -> None:
    """No search here: libFuzzer's inputs differ from run to run, so it belongs to `make fuzz`."""
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.fuzz.run",
            "all",
            "--kept",
            str(tmp_path),
            "-runs=0",
            "-verbosity=0",
            "-timeout=600",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=SEEDS.parents[2],
        timeout=1200,
    )
    assert ran.returncode == 0, ran.stdout[-300:] + ran.stderr[-2000:]
    assert ran.stdout.splitlines()[-1] == f"ran: {' '.join(targets.TARGETS)}; failed: none"
