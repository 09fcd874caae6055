"""What vLLM answered a client in its own words: which field it refuses, and until which release it does."""

from vllm_doctor.knowledge import versions
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import thing, upgrade

_FIELDS = "curl -s http://HOST:PORT/openapi.json   # the fields of each request"
# An answer quotes what was sent behind its sentence.
_READ = 2000


def of_answer(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """The field that vLLM's own sentence is about, with the sentence; and a newer release, where none of those says it.
    () where the answer holds no sentence of vLLM's."""
    from vllm_doctor.knowledge.said_by import last_release_to_say

    told = read("answer-in-words", fault.crash.root.message[:_READ]) if fault.crash is not None else None
    last = last_release_to_say(told["said"]) if told is not None else None
    if told is None or last is None:
        return ()
    found = read("request-field", told["said"])
    field = next(iter(found.values()), "") if found is not None else ""
    about = f"set `{field}` as the server takes it" if field else "send what the server takes"
    change = thing(ChangeKind.OS, "client-input", Direction.REPAIR, f"{about}: {told['said']}", command=_FIELDS)
    if last >= versions.newest_known() or (case.version is not None and case.version > last):
        return (change,)
    return (change, upgrade(case, f"{last} is the last of the releases read that refuses it in these words"))
