#!/usr/bin/env python3
"""make test: lint, Python tests, every Molecule scenario, the sandbox, the site; installs what a fresh machine lacks.

Jobs run side by side as far as memory and processors allow, scenarios each with its own hosts. Those that take long
start early, by the first line of their molecule.yml ("# about 10 minutes"), so that none is left alone at the end.
`tools/run_tests.py NAME...` runs only what has NAME in its name.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import machine
import up
from host_image import ensure_image
from podman import REPO, TOOLS, HostError

LOGS = REPO / ".cache" / "test"
BIN = REPO / ".venv" / "bin"
DISK_GIB, MEMORY_GIB = 16, 5
# Two jobs have services of the real vLLM, three in all and 2.6 GiB each; no other job has more than 1 GiB.
JOB_GIB = 3.5
WAITING = 3  # so many more jobs than processors: each waits now and then, for a start, a drain, a deadline, an archive
# Rooms that one process takes: those that read the same scenarios and compile the same patterns, and those that play
# tools and playbooks in processes of their own and wait for them.
OF_LOGS = ("approved", "fuzz", "knowledge", "log", "meta", "records", "redact", "render", "rules", "scenarios")
OF_PLAYS = ("monitor", "tools")


class Job(NamedTuple):
    """One thing to run; folder is where."""

    name: str
    command: list[str]
    folder: Path


class Result(NamedTuple):
    """How a job ended, and how many tests it counts for; seconds of processors that it and its hosts took."""

    passed: int
    failed: int
    skipped: int
    processors: float = 0.0


def python_tests() -> list[Job]:
    """Tests that need no host, in three processes that know nothing of each other.

    Workers of pytest-xdist each collect every test, and hand each report to a third process: more than twice what the
    31,000 small tests take by themselves.
    """
    pytest = [str(BIN / "python"), "-m", "pytest", "--quiet", "-p", "tests.dearest"]
    of_logs, of_plays = ([f"tests/{room}" for room in rooms] for rooms in (OF_LOGS, OF_PLAYS))
    # The last has every room that the others have not, one that is new as well.
    others = ["tests", *(f"--ignore={room}" for room in (*of_logs, *of_plays, "tests/sandbox", "tests/site"))]
    jobs = {"of plays": of_plays, "of logs": of_logs, "": others}
    return [Job(f"python tests {name}".rstrip(), [*pytest, *words], REPO) for name, words in jobs.items()]


def minutes(scenario: Path) -> int:
    """What a molecule.yml says that it takes; 0 if it says nothing."""
    said = re.match(r"# about (\d+) minutes", scenario.read_text())
    return int(said[1]) if said else 0


def scenarios() -> list[Job]:
    """Every role's Molecule scenarios, the longest first."""
    found = sorted(REPO.glob("roles/*/molecule/*/molecule.yml"))
    found.sort(key=minutes, reverse=True)
    hosttest = str(TOOLS / "hosttest")
    return [
        Job(f"molecule {role.name} {path.parent.name}", [hosttest, "molecule", "test", "-s", path.parent.name], role)
        for path in found
        for role in [path.parents[2]]
    ]


def on_hosts_of_their_own() -> list[Job]:
    """Tests that boot hosts and play on them: site.yml on GPU hosts, the longest; the sandbox, broken and whole."""
    words = [str(TOOLS / "hosttest"), str(BIN / "python"), "-m", "pytest", "--verbose"]
    # Each test of the site goes on from the one before: without it the others say nothing.
    site = Job("site", [*words, "--exitfirst", "tests/site"], REPO)
    return [site, Job("sandbox", [*words, "tests/sandbox"], REPO)]


def run(job: Job) -> Result:
    """Run one job, its output in a file; show one line, and the end of the output if it failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{job.name.replace(' ', '-')}.log"
    hosts = log.with_suffix(".hosts")
    hosts.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "SANDBOX": "test",
        "PORT": str(free_port()),  # beside a sandbox that somebody works with
        "NO_COLOR": "1",
        "PY_COLORS": "0",
        "COMPILED_TEMPLATES": str(REPO / ".cache" / "templates"),  # as tools/hosttest does
        "HOSTS_CPU": str(hosts),  # tools/host.py writes there what a host took
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    # Where it is set, each play would compile this package anew for every task with one of our filters.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    print(f"      {job.name} …", flush=True)
    began = time.monotonic()
    with log.open("w") as output:
        done = subprocess.Popen(
            job.command,
            cwd=job.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(done.pid, 0)
        done.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text(errors="replace")
    seconds = time.monotonic() - began
    on_hosts = sum(map(float, hosts.read_text().split())) if hosts.exists() else 0.0
    processors = used.ru_utime + used.ru_stime + on_hosts
    result = counted(job.name, text, done.returncode)._replace(processors=processors)
    detail = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped, {seconds:.0f} s"
    detail += f"; processors {processors:.0f} s" + (f", {on_hosts:.0f} s of it on its hosts" if on_hosts else "")
    print(f"{'pass' if done.returncode == 0 else 'FAIL'}  {job.name} ({detail})", flush=True)
    for line in re.findall(r"^SKIPPED .*", text, re.MULTILINE):
        print(f"      not run: {line.removeprefix('SKIPPED ')}")
    if done.returncode != 0:
        print(last_failure(text), flush=True)
        print("\n".join(text.splitlines()[-80:]), f"\n      all of it: {log}", flush=True)
    return result


def last_failure(text: str) -> str:
    """The last task of a play that failed, in case what is shown of a log ends before it; nothing without one."""
    tasks = [task for task in text.split("\nTASK [") if re.search(r"^(?:fatal|failed): ", task, re.MULTILINE)]
    return "\n".join(f"TASK [{tasks[-1]}".splitlines()[:40]) if tasks else ""


def counted(name: str, text: str, code: int) -> Result:
    """Count tests by pytest's closing line; lint checks and scenarios count for themselves."""
    if name == "lint":
        return Result(
            text.count("\npass ") + text.startswith("pass "), len(re.findall("^FAIL ", text, re.MULTILINE)), 0
        )
    found = dict.fromkeys(("passed", "failed", "error", "errors", "skipped"), 0)
    for line in re.findall(r"^.*\b(?:passed|failed|errors?|skipped)\b.* in [\d.]+s.*$", text, re.MULTILINE):
        for count, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", line):
            found[word] += int(count)
    bad = found["failed"] + found["error"] + found["errors"]
    return Result(found["passed"], bad or int(code != 0), found["skipped"])


def free_port() -> int:
    """Choose a port that nobody listens on, below those that the kernel gives to connections at any moment."""
    for port in random.sample(range(20000, 32768), k=100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise SystemExit("make test: a hundred ports between 20000 and 32768 are all in use")


def workers() -> int:
    """How many jobs run at once, where memory allows."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            by_memory = int(int(line.split()[1]) * 1024 / machine.GIB / JOB_GIB)
            return max(1, min(by_memory, (os.cpu_count() or 1) + WAITING))
    return 1


def run_all(here: list[Job], on_hosts: list[Job]) -> list[Result]:
    """Run jobs side by side in this order; the host image is built while the first ones run."""
    with ThreadPoolExecutor(max_workers=workers()) as pool:
        try:
            under_way = [pool.submit(run, job) for job in here]
            if on_hosts:
                ensure_image("12")
                under_way += [pool.submit(run, job) for job in on_hosts]
            return [job.result() for job in under_way]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)  # what runs was interrupted with us
            raise


def main(names: list[str]) -> int:
    """Run everything, or what was named."""
    began = time.monotonic()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # tests/conftest.py says why
        signal.signal(signal.SIGINT, signal.default_int_handler)
    up.prepare(disk_gib=DISK_GIB, memory_gib=MEMORY_GIB, port=None)
    lint = Job("lint", [str(BIN / "python"), "tools/lint.py"], REPO)
    here = [job for job in (lint, *python_tests()) if not names or any(name in job.name for name in names)]
    hosted = [*on_hosts_of_their_own(), *scenarios()]
    on_hosts = [job for job in hosted if not names or any(name in job.name for name in names)]
    try:
        results = run_all(here, on_hosts)
    except HostError as error:
        print(f"make test: {error}", file=sys.stderr)
        return 1
    passed, failed, skipped, processors = (
        (sum(column) for column in zip(*results, strict=True)) if results else (0, 0, 0, 0)
    )
    words = f"{passed} passed, {failed} failed, {skipped} skipped in {time.monotonic() - began:.0f} s"
    words += f", processors {processors:.0f} s"
    print(f"{f' {words} ':=^100}")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted: make test starts anew; `tools/host.py down` removes its hosts", file=sys.stderr)
        sys.exit(130)
