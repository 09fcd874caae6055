"""A text as `diagnose FILE` reads it, judged."""

from vllm_doctor.log.read.assemble import cut, parse_lines
from vllm_doctor.log.read.pieces import NotText, stream
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose


def judged_text(text: str) -> Diagnosis:
    """What the doctor says of this text alone."""
    read = stream(iter([text.encode()]))
    assert not isinstance(read, NotText)
    return diagnose(Snapshot(taken_at="", log=Known(cut(parse_lines(read), "log"), "log")))
