"""A page of the server (GET /metrics) that fails each time it is asked for, while requests are answered."""

from collections.abc import Sequence

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read
from vllm_doctor.records.log import LogLine

# uvicorn writes the answer, and then the traceback under a heading of its own.
_ABOVE = 3
_FAILED = "500"


def page_fails(lines: Sequence[LogLine], fault: Fault) -> bool:
    """Does the page's answer 500 stand above this traceback, and no answer 200 of the same page below it?"""
    above = [told for line in lines[max(0, fault.index - _ABOVE) : fault.index] if (told := _page(line)) is not None]
    if not above or above[-1]["status"] != _FAILED:
        return False
    path = above[-1]["path"]
    below = (told for line in lines[fault.last :] if (told := _page(line)) is not None)
    return all(told["status"] == _FAILED for told in below if told["path"] == path)


def _page(line: LogLine) -> dict[str, str] | None:
    return read("page-answered", line.text)
