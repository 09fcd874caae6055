"""How long a person waits for the doctor, against a Python that does nothing, in the same run.

    python benches/bench_cli.py

Target: `--version` within 0.15 s, `plan` within 0.3 s, `diagnose` of a small log within 1 s, on a machine at rest. The
ratio of processor time to the bare interpreter's is what a slow or a busy machine leaves comparable.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 9
# An installed doctor has its modules compiled; where this is set they would be compiled anew in every run.
ENV = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
MODEL = Path(__file__).parents[1] / "tests" / "approved" / "models" / "llama-8b.json"
LOG = "INFO 03-14 09:00:00 [api_server.py:1] vLLM API server version 0.20.0\n"


def best(*command: str) -> tuple[float, float]:
    """Wall and processor seconds, each of the quickest of some runs."""
    wall, work = [], []
    for _ in range(RUNS):
        used, started = busy(), time.perf_counter()
        subprocess.run(command, capture_output=True, check=False, env=ENV)
        wall.append(time.perf_counter() - started)
        work.append(busy() - used)
    return min(wall), min(work)


def busy() -> float:
    """Processor seconds of all children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    cli = shutil.which("vllm-doctor", path=str(Path(sys.executable).parent)) or "vllm-doctor"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        log.write_text(LOG)
        asked = ("--vllm-version", "0.32.0", "--model-config", str(MODEL), "--", "vllm", "serve", "example/8b")
        rows = {
            "python -c pass": (best(sys.executable, "-c", "pass"), None),
            "vllm-doctor --version": (best(cli, "--version"), 0.15),
            "vllm-doctor plan": (best(cli, "plan", "--gpu", "NVIDIA H100 80GB HBM3", *asked), 0.3),
            "vllm-doctor plan, cannot fit": (best(cli, "plan", "--gpu", "Tesla T4", *asked), 0.3),
            "vllm-doctor plan --goal": (best(cli, "plan", "--goal", "context=128k,concurrency=5000", *asked[:4]), 2.0),
            "vllm-doctor diagnose --log": (best(cli, "diagnose", "--log", str(log)), 1.0),
        }
    bare = rows["python -c pass"][0][1]
    for name, ((wall, work), target) in rows.items():
        aim = f", aim {target:g} s" if target else ""
        print(f"{name}: {wall:.3f} s, processor {work:.3f} s, {work / bare:.1f} x the bare interpreter{aim}")
    return 0 if all(target is None or wall <= target for (wall, _), target in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
