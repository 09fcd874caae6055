"""What the guard costs beside eight services, and what its records cost `diagnose`.

    python benches/bench_guard.py

Targets: at most 1 % of one processor and 60 MiB with eight services at the usual pace; a month of records of eight
cards in at most 100 MiB, read in at most a second. Eight pages of /metrics of 600 lines are served by threads of this
program, systemctl and the GPUs are told by small programs; the guard is a process of its own, its children's time is
counted.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.nvml_sim.build import build
from vllm_doctor.operate.history.past import past
from vllm_doctor.operate.history.store import Store
from vllm_doctor.records.sample import CardUse, Counters, Look

SERVICES = 8
SECONDS = int(os.environ.get("BENCH_SECONDS", "60"))
GIB = 1 << 30
REPO = Path(__file__).resolve().parents[1]
_MAIN = (
    "import sys; from vllm_doctor.gather import processes; processes.PATH = sys.argv.pop(1) + ':' + processes.PATH; "
    "from vllm_doctor.cli.main import entry; entry()"
)


class Page(BaseHTTPRequestHandler):
    """/health and a page of metrics as long as a real one."""

    asked = 0

    def do_GET(self) -> None:
        """Answer."""
        Page.asked += 1
        body = b"" if self.path == "/health" else page(Page.asked).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def page(asked: int) -> str:
    """Counters that move, and 600 lines of histograms."""
    label = '{engine="0",model_name="m"}'
    figures = {"num_requests_running": 4, "num_requests_waiting": 0, "kv_cache_usage_perc": 0.4}
    counted = {"prompt_tokens_total": asked * 9, "generation_tokens_total": asked * 7, "num_preemptions_total": 0}
    lines = [f"vllm:{name}{label} {value}" for name, value in {**figures, **counted}.items()]
    lines += [f'vllm:e2e_request_latency_seconds_bucket{{engine="0",le="{n}",model_name="m"}} {n}' for n in range(600)]
    return "\n".join(lines) + "\n"


def host(folder: Path, ports: list[int]) -> None:
    """A systemctl that tells of eight services, and a journalctl that has nothing to say."""
    blocks = [
        f"Id=vllm@{n}.service\nLoadState=loaded\nActiveState=active\nSubState=running\nInvocationID={n:032x}\n"
        f"MainPID={os.getpid()}\nControlGroup=\nNRestarts=0\nResult=success\n"
        f"ExecStart={{ path=/opt/vllm ; argv[]=/opt/vllm serve /srv/m --port {port} ; ignore_errors=no ; }}\n"
        for n, port in enumerate(ports)
    ]
    (folder / "units").write_text("\n".join(blocks))
    (folder / "systemctl").write_text(f"#!/bin/sh\ncase $1 in show) cat {folder}/units;; esac\n")
    (folder / "journalctl").write_text("#!/bin/sh\n")
    for name in ("systemctl", "journalctl"):
        (folder / name).chmod(0o755)


def watched(folder: Path) -> tuple[float, float]:
    """Part of a processor, and MiB at the end, of a guard that runs for a while; its start is not counted."""
    ports = []
    for _ in range(SERVICES):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports.append(server.server_address[1])
    host(folder, ports)
    (folder / "policy").write_text(json.dumps({"canary_every_s": 0}))
    guard = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _MAIN,
            str(folder),
            "guard",
            "--policy",
            str(folder / "policy"),
            "--store",
            str(folder / "s"),
        ],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "LD_LIBRARY_PATH": str(cards(folder))},
    )
    time.sleep(15)
    before, began = used(guard.pid), time.monotonic()
    time.sleep(SECONDS)
    spent, passed = used(guard.pid) - before, time.monotonic() - began
    status = Path(f"/proc/{guard.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
    guard.terminate()
    guard.wait()
    return spent / passed, resident


def cards(folder: Path) -> Path:
    """A simulated driver with eight GPUs; the library's folder."""
    library = build(folder).parent
    lines = ["driver = 580.105.08", "nvml = 13.580", "cuda = 13000"]
    for n in range(SERVICES):
        lines += [f"gpu.{n}.name = NVIDIA H100 80GB HBM3", f"gpu.{n}.uuid = GPU-{n}", f"gpu.{n}.total = {80 * GIB}"]
        lines += [f"gpu.{n}.free = {9 * GIB}", f"gpu.{n}.process.0 = compute {os.getpid()} {70 * GIB}"]
    (library / "nvml-sim").write_text("\n".join(lines) + "\n")
    return library


def used(pid: int) -> float:
    """Processor seconds of the process and its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(f) for f in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def month(folder: Path) -> tuple[float, float]:
    """MiB of a month of records of eight services with a card each; seconds to read a past with them."""
    os.environ["VLLM_DOCTOR_STATE"] = str(folder)
    store = Store(folder / "history.sqlite", keep_mib=200)
    now = time.time()
    minutes = 30 * 1440
    base = store._base  # noqa: SLF001 - a month at a record a transaction would take a quarter of an hour
    assert base is not None
    for n in range(SERVICES):
        base.execute("INSERT INTO unit (name) VALUES (?)", (f"vllm@{n}.service",))
    base.execute("BEGIN")
    for m in range(minutes):
        at = int(now) - 60 * (minutes - m)
        for n in range(1, SERVICES + 1):
            base.execute(
                "INSERT INTO minute VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (at, n, "active", 200, 4, 1, 4211, m * 900, m * 700, m * 9, m, 20 * GIB + m * 4096 * 7, 512 * GIB),
            )
            base.execute(
                "INSERT INTO card VALUES (?,?,?,?,?,?,?)",
                (at, n, f"GPU-{n:08d}-1111-2222-3333-444444444444", 71 * GIB + m * 4096, 0, 80 * GIB, 8 * GIB),
            )
    base.execute("COMMIT")
    look = Look("vllm@0.service", now, 0, 0, counters=Counters(running=1), cards=(CardUse("GPU-1", 1, 1, 2, 1),))
    store.keep(look)
    size = sum(p.stat().st_size for p in folder.glob("history.sqlite*")) / (1 << 20)
    store.close()
    began = time.perf_counter()
    told = past("vllm@3.service", now)
    took = time.perf_counter() - began
    assert "known" in type(told).__name__.lower(), told
    return size, took


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        size, took = month(Path(folder))
        print(
            f"a month of {SERVICES} services with a card each: {size:.1f} MiB; a past is read in {took * 1000:.0f} ms"
        )
    with tempfile.TemporaryDirectory(dir=REPO / ".cache") as folder:  # a library is not loaded from where others write
        part, resident = watched(Path(folder))
        print(f"guard beside {SERVICES} services: {part:.2%} of a processor, {resident:.1f} MiB ({SECONDS} s)")


if __name__ == "__main__":
    main()
