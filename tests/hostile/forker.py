"""Runs the doctor's command again and again, each time in a copy of this process, which has its modules already.

`python -I forker.py ORDERS ANSWERS`, two descriptors. An order is a line of JSON: the words of a command (hex), its
folder, the files of its standard streams and after how many seconds it is killed; the answer its status, the most
memory in KiB, the processor time in seconds, and whether it was killed. What starting Python costs is left out of
that: it was four fifths of a sweep's time.
"""

import json
import os
import select
import signal
import sys
from importlib import import_module
from typing import Any

LOADED = ("app", "quick", "diagnose_run", "plan_run", "explain", "fragmentation_run", "bundle")


def main() -> None:
    """Serve orders until there are no more; a copy never comes back from `entry`."""
    from vllm_doctor.cli.main import entry
    from vllm_doctor.rules.registry import rules

    rules()
    for name in LOADED:
        import_module(f"vllm_doctor.cli.{name}")
    orders, answers = (int(word) for word in sys.argv[1:])
    with os.fdopen(orders) as lines, os.fdopen(answers, "w") as told:
        for line in lines:
            order = json.loads(line)
            child = os.fork()
            if child == 0:
                os.close(orders)
                os.close(answers)
                become(order)
                entry()
            print(json.dumps(waited(child, order["seconds"])), file=told, flush=True)


def become(order: dict[str, Any]) -> None:
    """The folder, the streams and the words of an order."""
    os.chdir(order["folder"])
    for number, (path, flags) in enumerate(order["streams"]):
        if path is None:
            reading, writing = os.pipe()
            os.close(reading)
        else:
            writing = os.open(path, flags)
        os.dup2(writing, number)
        os.close(writing)
    sys.argv[1:] = [os.fsdecode(bytes.fromhex(word)) for word in order["words"]]
    os.environ.update(order["environment"])


def waited(child: int, seconds: float) -> tuple[int, int, float, bool]:
    """How it ended, what it took, and whether it had to be killed."""
    watched = os.pidfd_open(child)
    hung = not select.select([watched], [], [], seconds)[0]
    if hung:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    os.close(watched)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss, used.ru_utime + used.ru_stime, hung


if __name__ == "__main__":
    main()
