"""The process's edge: runs the app, turns every ending into an exit code, never shows a traceback."""

import gc
import os
import sys

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit


def run(argv: list[str]) -> int:
    """Run `vllm-doctor` with `argv` (without the program's name) and return its exit code."""
    if argv == ["--version"]:  # monitoring asks this often; it need not wait for the command line's imports
        from vllm_doctor import __version__

        print(f"vllm-doctor {__version__}")
        return Exit.OK
    try:
        if argv[:1] == ["diagnose"]:
            from vllm_doctor.cli import quick

            code = quick.diagnose(argv[1:])
            if code is not None:
                return code
        from vllm_doctor.cli.app import app

        app(argv[0] if argv else "")(argv, prog_name="vllm-doctor")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.OK
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except UsageProblem as problem:
        from vllm_doctor.render.text import visible

        print("vllm-doctor:", "\n".join(map(visible, str(problem).splitlines())), file=sys.stderr)
        return Exit.USAGE
    except BrokenPipeError:
        # The reader went away (`| head`); what it saw was all it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as bug:
        if os.environ.get("VLLM_DOCTOR_TRACEBACK"):
            raise
        print(
            f"vllm-doctor: VD0001 internal error: {type(bug).__name__}: {bug}\n"
            "This is a bug in vllm-doctor, not in your service. Run again with VLLM_DOCTOR_TRACEBACK=1 and report it.",
            file=sys.stderr,
        )
        return Exit.INTERNAL
    return Exit.OK


def entry() -> None:
    """Console script."""
    # One bounded answer and the process ends: looking for garbage at the usual pace would take a tenth of its time.
    gc.set_threshold(100_000)
    sys.exit(run(sys.argv[1:]))
