"""Time and memory of a diagnosis of very large logs, against the host's own command of old, in the same run.

    python benches/bench_log.py [--gib 1 10] [--folder /var/tmp]

Target: a 1 GiB log in at most a quarter of grep's time, 10 GiB within 1.2 × of that, and less than 150 MiB at the peak.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GREP = r'grep -i "oom\|memory\|cuda" {log} | tail -50'
RUNS = 5
PID = 4242


SITE = "/opt/vllm/lib/python3.12/site-packages/vllm/v1"
API = "(APIServer pid=4100)"
ENGINE = f"(EngineCore pid={PID})"


def head(version: str) -> str:
    lines = (
        f"{API} INFO 03-14 09:00:00 [api_server.py:1] vLLM API server version {version}",
        f"{API} INFO 03-14 09:00:00 [utils.py:253] non-default args: {{'model': 'example', 'max_model_len': 8192}}",
        f"{ENGINE} INFO 03-14 09:00:09 [core.py:93] Initializing a V1 LLM engine (v{version}) with config: model='e'",
        f"{ENGINE} INFO 03-14 09:00:20 [gpu_worker.py:375] Available KV cache memory: 50.10 GiB",
        f"{API} INFO:     Application startup complete.",
    )
    return "\n".join(lines) + "\n"


def body() -> str:
    stats = (
        f"{API} INFO 03-14 10:00:00 [loggers.py:248] Engine 000: Avg prompt throughput: 812.0 tokens/s, "
        "Avg generation throughput: 331.2 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 37.1%, "
        "Prefix cache hit rate: 44.1%\n"
    )
    access = f'{API} INFO:     10.0.0.7:50123 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    return (access * 12 + stats) * 400


def end() -> str:
    error = f"{ENGINE} ERROR 03-14 23:00:00 [core.py:900]"
    lines = (
        f"{error} EngineCore encountered a fatal error.",
        f"{error} Traceback (most recent call last):",
        f'{error}   File "{SITE}/engine/core.py", line 800, in run_busy_loop',
        f'{error}   File "{SITE}/worker/gpu_model_runner.py", line 3000, in execute_model',
        (
            f"{error} torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
            "capacity of 79.19 GiB of which 1.10 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB "
            "memory in use. Of the allocated memory 70.10 GiB is allocated by PyTorch, and 300.00 MiB is reserved by "
            "PyTorch but unallocated."
        ),
        f"{API} vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    )
    return "\n".join(lines) + "\n"


def write(path: Path, size: int) -> None:
    """A first life that ended well, then one life that fills the file and dies."""
    block = body().encode()
    big = block * max(1, (8 << 20) // len(block))
    with path.open("wb") as file:
        file.write(head("0.19.0").replace("pid=4100", "pid=999").replace(f"pid={PID}", "pid=1000").encode())
        file.write(body().replace("pid=4100", "pid=999").encode())
        file.write(head("0.20.0").encode())
        while file.tell() < size - len(end()) - len(big):
            file.write(big)
        file.write(end().encode())
        file.flush()
        os.fsync(file.fileno())  # or the disk is still busy with it while the first command is timed


def timed(command: str) -> tuple[float, float]:
    """(wall seconds, peak MiB) of a shell command; the best of some runs, as others use this machine too."""
    seconds, peak = [], 0.0
    for _ in range(RUNS):
        started = time.perf_counter()
        done = subprocess.Popen(command, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S602
        _, _, used = os.wait4(done.pid, 0)
        seconds.append(time.perf_counter() - started)
        peak = max(peak, used.ru_maxrss / 1024)
    return min(seconds), peak


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--gib", type=float, nargs="+", default=[1.0, 10.0])
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = options.parse_args()
    cli = shutil.which("vllm-doctor", path=str(Path(sys.executable).parent)) or "vllm-doctor"
    package = Path(__file__).parent.parent / "vllm_doctor"
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(package)], check=True)  # as an installation does
    rows = []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for size in given.gib:
            log = Path(folder) / "vllm.log"
            write(log, int(size * (1 << 30)))
            ours, peak = timed(f"exec {cli} diagnose --log {log} --format json")
            grep, _ = timed(GREP.format(log=log))
            answer = subprocess.run(
                [cli, "diagnose", "--log", str(log), "--format", "json"], capture_output=True, check=False
            )
            found = json.loads(answer.stdout)
            assert found["findings"][0]["code"] == "VD201", found["findings"]
            assert found["facts"]["vllm_version"] == "0.20.0"
            rows.append((size, ours, grep, peak))
            ratio = ours / grep
            print(f"{size:g} GiB: vllm-doctor {ours:.3f} s, grep {grep:.3f} s, ratio {ratio:.2f}, peak {peak:.0f} MiB")
            log.unlink()
    first, last = rows[0], rows[-1]
    growth = last[1] / first[1]
    print(f"{last[0]:g} GiB / {first[0]:g} GiB: {growth:.2f}")
    print(f"own peak of this benchmark: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return 0 if first[1] <= first[2] / 4 and growth <= 1.2 and all(r[3] < 150 for r in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
