"""The doctor as a process of its own, on a host whose programs are told by scripts.

The doctor looks programs up on a fixed path, so a script on PATH is not found; this puts a folder before that path.
"""

import sys

_MAIN = (
    "import sys; from pathlib import Path; from vllm_doctor.gather import processes, procfs; "
    "processes.PATH = sys.argv.pop(1) + ':' + processes.PATH; procfs.PROC = Path(sys.argv.pop(1)); "
    "from vllm_doctor.cli.main import entry; entry()"
)


def command(programs: object, *words: str, proc: object = "/proc") -> list[str]:
    """The command line of `vllm-doctor WORDS…` that finds its programs in the folder `programs` first, and the host's
    processes in `proc`."""
    return [sys.executable, "-c", _MAIN, str(programs), str(proc), *words]
