"""The process's edge: runs the app, turns every ending into an exit code, never shows a traceback."""

import errno
import gc
import os
import signal
import sys

from vllm_doctor.cli import streams
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.limits import BYTES, OutOfTimeError, hold

# What a write to standard output ends with; a file that was named is answered for where it is named.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def run(argv: list[str]) -> int:
    """Run `vllm-doctor` with `argv` (without the program's name) and return its exit code."""
    if argv == ["--version"]:  # monitoring asks this often, and there is nothing in it to hide
        return _ended(argv)
    with streams.guarded():
        return _ended(argv)


def _ended(argv: list[str]) -> int:
    try:
        code = _answered(argv)
        streams.say("")
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except UsageProblem as problem:
        return _refused(str(problem))
    except BrokenPipeError:
        streams.drop()  # the reader went away (`| head`); what it saw was all it wanted
        return Exit.OK
    except OutOfTimeError as spent:
        return _too_much(str(spent))
    except MemoryError as full:
        full.__traceback__ = None  # its frames hold what is too much, and saying so takes memory too
        return _too_much(f"{BYTES >> 20} MiB of memory")
    except Exception as bug:
        if isinstance(bug, OSError) and bug.errno in _NO_ROOM and bug.filename is None:
            streams.drop()
            if bug.errno == errno.EBADF:
                return _refused("standard output is closed: the answer went nowhere; send it to a file or a program")
            return _refused(f"standard output: {bug.strerror}: make room, or send the answer elsewhere")
        if os.environ.get("VLLM_DOCTOR_TRACEBACK"):
            raise
        _complain(
            f"VD0001 internal error: {type(bug).__name__}: {bug}\n"
            "This is a bug in vllm-doctor, not in your service. Run again with VLLM_DOCTOR_TRACEBACK=1 and report it."
        )
        return Exit.INTERNAL
    return code


def _answered(argv: list[str]) -> int:
    if argv == ["--version"]:  # monitoring asks this often; it need not wait for the command line's imports
        from vllm_doctor import __version__

        print(f"vllm-doctor {__version__}")
        return Exit.OK
    from vllm_doctor.cli import namesake
    from vllm_doctor.cli.command_line import refuse_empty, refuse_unparted, refuse_versions

    refuse_empty(argv)
    refuse_unparted(argv)
    refuse_versions(argv)
    namesake.warn()
    if argv[:1] == ["diagnose"]:
        from vllm_doctor.cli import quick

        code = quick.diagnose(argv[1:])
        if code is not None:
            return code
    from vllm_doctor.cli.app import app

    try:
        app(argv[0] if argv else "")(argv, prog_name="vllm-doctor")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.OK
    return Exit.OK


def _too_much(of_what: str) -> int:
    """Nothing was judged to its end, so nothing is said of the service."""
    _complain(
        f"not judged: the input takes more than {of_what}, which no usual log, bundle or model needs: give less "
        "(a log's last part: tail -n 20000), and report what you gave"
    )
    return Exit.INCOMPLETE


def _refused(why: str) -> int:
    _complain(why)
    return Exit.USAGE


def _complain(text: str) -> None:
    from vllm_doctor.redact.visible import visible

    print("vllm-doctor:", "\n".join(map(visible, text.splitlines())), file=sys.stderr)


def entry() -> None:
    """Console script."""
    # One bounded answer and the process ends: looking for garbage at the usual pace would take a tenth of its time.
    gc.set_threshold(100_000)
    streams.mend()
    hold(sys.argv[1:])
    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said
    sys.stderr.flush()
    os._exit(code)  # nothing waits to be put away, and taking the interpreter apart takes as long as some answers
