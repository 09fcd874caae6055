"""What a process that crashed in native code wrote of its calls, as a traceback: who was called last, and from where.

Five writers: Python's faulthandler (`File "f", line 1 in g`), torch's handler (`File "<unknown>", line 0, in symbol`),
Abseil's, which Ray installs (`@ 0x7f.. 80 symbol()`), glibc or gdb (`#3 0x7f.. in symbol () from /lib/x.so`), and UCX
(` 3  /lib/x.so(symbol+0x8a) [0x7f..]`). All
write the innermost call first; what has no name says nothing and is left out.
"""

from collections.abc import Sequence

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import Hit
from vllm_doctor.log.traceback import Crash, Frame, Link, path_of
from vllm_doctor.records.log import LogLine

# Ids of the catalogue by which a process says, or is said, to have crashed in native code.
NATIVE = frozenset(
    {"native-crash", "native-dump", "fatal-python", "signal-received", "core-abort", "kernel-segfault", "ucx-signal"}
)
# Lines of a dump that are read, and of its own process that may stand between the crash and its calls.
_DUMP, _BETWEEN = 160, 12

_PYTHON = Pattern(r'\s{0,20}File "([^"]{1,1000})", line (\d{1,9}),? in (\S{1,400})')
_ABSEIL = Pattern(
    r"(?:.{0,120}: )?(?:PC: )?\s{0,20}@\s{1,20}0x[0-9a-f]{1,16}\s{1,20}(?:\(unknown\)|\d{1,20})\s{1,20}(\S.{0,400})"
)
_GDB = Pattern(r"\s{0,20}#\d{1,4}\s{1,8}(?:0x[0-9a-f]{1,16} in )?([\w:~<>]{2,400}) ?\(.{0,400}?(?:from (\S{1,400}))?$")
_OBJECT = Pattern(r"\s{0,20}(?:\[\w{1,8}\] |\d{1,3} {1,4})?(/\S{1,300}\.so[.\d]{0,20})\((\w{0,200})\+0x")
# Who caught the signal, and where the kernel entered it, are not who failed.
_HANDLER = Pattern(r"/libucs\b|/libc\.so")
# Python dumps every thread; only one of them crashed.
_THREAD = Pattern(r"\s{0,20}(Current thread|Thread) 0x[0-9a-f]{1,20}\b")
_NAMELESS = frozenset({"(unknown)", "<unknown>", "0xffffffffffffffff", "_start", "??"})


def native_crash(lines: Sequence[LogLine], hit: Hit) -> Crash | None:
    """The calls of the dump at this line, outermost first; None where nothing names any."""
    head = lines[hit.index]
    speaker = (head.process, head.pid)
    inner: list[Frame] = []
    last, silent, skipped = hit.index, 0, False
    for at in range(hit.index, min(len(lines), hit.index + _DUMP)):
        line = lines[at]
        if (line.process, line.pid) != speaker:
            continue
        thread = _THREAD.match(line.text)
        if thread is not None:
            if thread[1] == "Thread" and inner:
                break
            skipped = thread[1] == "Thread"
            continue
        frame = _frame(line.text) if not skipped else None
        if frame is not None:
            inner.append(frame)
            last, silent = at, 0
        elif inner and line.text.strip():
            silent += 1
            if silent > _BETWEEN:
                break
    if library := hit.fields.get("library"):
        inner.append(Frame(library, 0, ""))
    if not inner:
        return None
    native = "\n".join(f.function for f in inner if not f.file.endswith(".py"))
    link = Link("NativeCrash", native, tuple(inner[::-1]), hit.index)
    return Crash((link,), head.process, head.pid, hit.index, last, head.level)


def _frame(text: str) -> Frame | None:
    if (python := _PYTHON.match(text)) is not None:
        function = text.rsplit(" in ", 1)[-1].strip() if python[1] == "<unknown>" else python[3]
        return None if function in _NAMELESS else Frame(path_of(python[1]), int(python[2]), function)
    if (abseil := _ABSEIL.match(text)) is not None:
        name = abseil[1].strip()
        return None if name in _NAMELESS else Frame("", 0, name)
    if (gdb := _GDB.match(text)) is not None:
        return Frame(gdb[2] or "", 0, gdb[1])
    if (shared := _OBJECT.match(text)) is not None and not _HANDLER.search(shared[1]):
        return Frame(shared[1], 0, shared[2])
    return None
