"""What a client sent, where vLLM's own check refused it: the check's name tells what it judged."""

from vllm_doctor.knowledge.layers import Layer
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.library import innermost, raised_by_hand
from vllm_doctor.rules.remedies.refusal import refused_by_vllm
from vllm_doctor.rules.say import thing

# Parts that judge what a client sends.
JUDGED = frozenset({"requests", "sampling", "multimodal", "tool-parser", "structured-output"})
# What code raises about a value; the others tell of its own state.
_OF_VALUES = frozenset({"ValueError", "VLLMValidationError", "ValidationError"})
# A sentence names its field before it quotes anything.
_READ = 120
_WHY = "the server works: the message says which field or value of the request it does not take"
_FIELDS = "curl -s http://HOST:PORT/openapi.json   # the fields of each request"


def other_input() -> Change:
    """The request, as the server's own description of its fields has it."""
    return thing(ChangeKind.OS, "client-input", Direction.REPAIR, _WHY, command=_FIELDS)


def refused_field(case: Case, fault: Fault) -> str:
    """The field of a request that vLLM's own sentence is about. Its name is of a closed list, and no client's text; the
    sentence itself may quote one, and is hidden."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or root.kind not in _OF_VALUES or not raised_by_hand(fault) or not refused_by_vllm(case, fault):
        return ""
    found = read("request-field", root.message[:_READ])
    return next(iter(found.values()), "") if found is not None else ""


def check_of_request(case: Case, fault: Fault, part: Layer | None) -> str:
    """The function of vLLM that refused a request with a sentence of its own; empty where none did."""
    if part is None or part.id not in JUDGED or not raised_by_hand(fault) or not refused_by_vllm(case, fault):
        return ""
    inner = innermost(fault)
    if inner is None or fault.crash is None or fault.crash.root.kind not in _OF_VALUES:
        return ""
    own = inner.function.isidentifier() and inner.function != "__init__"
    return inner.function.strip("_") if own else ""
