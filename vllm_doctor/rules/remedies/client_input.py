"""What a client sent, where vLLM's own check refused it: the check's name tells what it judged."""

from vllm_doctor.knowledge.layers import Layer
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.redact.raised import reads_requests
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.decided import guard_of, of_front_end
from vllm_doctor.rules.remedies.library import innermost, raised_by_hand
from vllm_doctor.rules.remedies.refusal import refused_by_vllm
from vllm_doctor.rules.say import thing

# Parts that judge what a client sends.
JUDGED = frozenset({"requests", "sampling", "multimodal", "tool-parser", "structured-output"})
# Parts whose code runs at the start too; with a request in hand they judge what it holds.
JUDGED_WHILE_UP = frozenset({"model-code", "tokenizer"})
# vLLM's own class for what a request must not be (vllm/exceptions.py, from 0.14).
_OF_A_REQUEST = "VLLMValidationError"
# A parser reads the model's answer there; elsewhere it reads the request's tools.
_CHECKS = "validate_"
_ANSWERS = ("extract", "stream", "parse")
# What code raises about a value; the others tell of its own state.
_OF_VALUES = frozenset({"ValueError", "VLLMValidationError", "ValidationError"})
# Those that Python raises too, which by hand tell what is wrong in so many words.
_WITH_WORDS, _FEWEST = frozenset({"TypeError", "KeyError", "NotImplementedError"}), 3
# A sentence names its field before it quotes anything.
_READ = 120
# What stands for a client's words.
_LEFT_OUT = "…"
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


def own_sentence(case: Case, fault: Fault) -> str:
    """vLLM's own sentence where FastAPI refused a request for it, without what it quotes of the request."""
    found = guard_of(case, fault) if of_front_end(fault) else None
    return _LEFT_OUT.join(found.pieces) if found is not None else ""


def check_of_request(case: Case, fault: Fault, part: Layer | None) -> str:
    """The function of vLLM that refused a request with a sentence of its own; empty where none did."""
    serving = case.run is not None and case.run.up_at(fault)
    judges = part is not None and (part.id in JUDGED or (serving and part.id in JUDGED_WHILE_UP))
    if not judges and serving and case.run is not None and fault is case.run.refused:
        # code between the front end and the engine that has a request in its hands
        judges = fault.crash is not None and reads_requests(fault.crash) and guard_of(case, fault) is not None
    if not judges or not raised_by_hand(fault) or not refused_by_vllm(case, fault):
        return ""
    inner = innermost(fault)
    root = fault.crash.root if fault.crash is not None else None
    if inner is None or root is None:
        return ""
    of_input = part is not None and part.id in JUDGED
    told = of_input and root.kind in _WITH_WORDS and len(root.message.split()) >= _FEWEST
    return inner.function.strip("_") if (root.kind in _OF_VALUES or told) and inner.function.isidentifier() else ""


def refuses_the_request(fault: Fault, part: Layer | None) -> bool:
    """Does the exception itself say that the request is wrong, and no part of the server?"""
    kind = fault.crash.root.kind if fault.crash is not None else ""
    if kind == _OF_A_REQUEST or of_front_end(fault):
        return True
    if part is not None and part.id == "structured-output" and raised_by_hand(fault):
        return any(name.startswith(_CHECKS) for name in fault.functions[-2:])
    of_parser = part is not None and part.id == "tool-parser" and kind == "ValueError" and raised_by_hand(fault)
    return of_parser and not any(word in name for name in fault.functions for word in _ANSWERS)
