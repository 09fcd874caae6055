"""`make hostile`: every part with a limit of its own, one after another. Exit 1 where one fails or is not done in time.

The limits are four times what each took on an idle machine with two cores of 2 GHz, so that a busy one ends them, too.
"""

import os
import signal
import subprocess
import sys
import time

_TESTS = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
# What, its command, and after how many minutes it is ended.
PARTS = (
    ("arguments, isolation, edges, roles", (*_TESTS, "tests/hostile", "--deselect", "tests/hostile/test_inputs.py",
                                            "--deselect", "tests/hostile/test_linear.py"), 15),
    ("inputs at their full sizes", (*_TESTS, "tests/hostile/test_inputs.py"), 20),
    ("every pattern against its adversaries", (*_TESTS, "tests/hostile/test_linear.py"), 60),
    ("every text in every place", (sys.executable, "-m", "tests.hostile.sweep", "--minutes", "74"), 75),
)  # fmt: skip


def ended(words: tuple[str, ...], minutes: float) -> str:
    """How a part ended, in words; it and all that it started are killed after `minutes`."""
    environment = os.environ | {"VLLM_DOCTOR_HOSTILE_LONG": "1"}
    with subprocess.Popen(words, env=environment, start_new_session=True) as part:
        try:
            code = part.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            os.killpg(part.pid, signal.SIGKILL)
            return f"not ended after {minutes:g} min"
        except KeyboardInterrupt:
            os.killpg(part.pid, signal.SIGKILL)
            raise
    return "" if code == 0 else f"failed, exit {code}"


def main() -> int:
    """Run the parts and say how each ended."""
    print(f"{len(PARTS)} parts; ends after {sum(minutes for _, _, minutes in PARTS)} min at the latest", flush=True)
    told = []
    for number, (what, words, minutes) in enumerate(PARTS, 1):
        print(f"== {number} of {len(PARTS)}: {what} (at most {minutes} min)", flush=True)
        began = time.monotonic()
        told.append((what, ended(words, minutes), (time.monotonic() - began) / 60))
    print("== hostile")
    for what, wrong, took in told:
        print(f"{wrong or 'passed':<24} {took:5.1f} min  {what}")
    return 1 if any(wrong for _, wrong, _ in told) else 0


if __name__ == "__main__":
    sys.exit(main())
