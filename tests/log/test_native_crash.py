"""What a process that crashed in native code wrote of its calls."""

from vllm_doctor.log.match import scan
from vllm_doctor.log.native_crash import NATIVE, native_crash
from vllm_doctor.log.traceback import Crash
from vllm_doctor.records.log import LogLine


def crash(text: str, *, process: str | None = None) -> Crash | None:
    """The calls of the first crash in these lines."""
    lines = [LogLine(n, line, process=process) for n, line in enumerate(text.splitlines(), 1)]
    hit = next(h for h in scan(lines) if h.id in NATIVE)
    return native_crash(lines, hit)


def called(text: str) -> list[str]:
    """The functions, outermost first."""
    found = crash(text)
    return [frame.function for frame in found.root.frames] if found is not None else []


def test_pythons_dump_is_read_from_the_innermost_call_outwards() -> None:
    dump = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f00 (most recent call first):\n"
        '  File "/v/vllm/a.py", line 2 in inner\n  File "/v/vllm/b.py", line 9 in outer'
    )
    assert called(dump) == ["outer", "inner"]


def test_of_several_threads_only_the_one_that_crashed_counts() -> None:
    dump = (
        "Fatal Python error: Segmentation fault\n\nThread 0x00007f01 (most recent call first):\n"
        '  File "/v/threading.py", line 3 in wait\n\nCurrent thread 0x00007f00 (most recent call first):\n'
        '  File "/v/vllm/a.py", line 2 in inner\n\nThread 0x00007f02 (most recent call first):\n'
        '  File "/v/queue.py", line 4 in get'
    )
    assert called(dump) == ["inner"]


def test_torchs_and_abseils_symbols_are_calls_and_what_has_no_name_is_none() -> None:
    torch = (
        '!!!!!!! Segfault encountered !!!!!!!\n  File "<unknown>", line 0, in ncclFoo(int, int)\n'
        '  File "<unknown>", line 0, in _start\n  File "<unknown>", line 0, in 0xffffffffffffffff'
    )
    assert called(torch) == ["ncclFoo(int, int)"]
    abseil = (
        "*** SIGSEGV received at time=1717171717 on cpu 3 ***\nPC: @     0x7f00aabb  (unknown)  ncclBar()\n"
        "    @     0x7f11aabb       1744  (unknown)"
    )
    assert called(abseil) == ["ncclBar()"]


def test_the_kernels_line_names_the_library_alone() -> None:
    found = crash("VLLM::Worker[42]: segfault at 18 ip 0000 sp 0000 error 4 in libnccl.so.2[7f11+8f]")
    assert found is not None
    assert [frame.file for frame in found.root.frames] == ["libnccl.so.2"]


def test_a_crash_without_calls_is_none() -> None:
    assert crash("Segmentation fault (core dumped)") is None
