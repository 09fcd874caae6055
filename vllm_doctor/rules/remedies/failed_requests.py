"""Requests that failed without a traceback: what the front end wrote of them in one line, or their answers alone.

The server's own word for an error of its code is 500: no request can be at fault for it. Others (400) may be, so they
count only where the server says beside them what it refuses.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vllm_doctor.knowledge.answers import applies
from vllm_doctor.knowledge.layers import layer_of
from vllm_doctor.log.match import Hit, read, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.layer import first_of_each
from vllm_doctor.rules.say import set_flag, thing

# One request may be at fault itself, and the log may end before the next one. Where nothing but answers tells, three;
# one less of each where the log has no answer and no token, so that these are all the requests that there were.
_REQUESTS = 2
_ANSWERS_ALONE = 3
_OWN_ERROR = "500"
_STACK = "log-error-stack"
# A server of models has this one; a list without it was cut.
_API = "/v1/models"
_ROUTES = (
    "curl -s http://HOST:PORT/openapi.json | python3 -c 'import json, sys; print(*json.load(sys.stdin)[\"paths\"])'"
)
_NAMES = "curl -s http://HOST:PORT/v1/models"
_BY_HAND = "curl -s http://HOST:PORT/v1/chat/completions -H 'Content-Type: application/json' -d @request.json"
_SERIOUS = frozenset({"ERROR", "CRITICAL"})
_OF_REQUESTS = "requests"


class FailedRequests(NamedTuple):
    """The line that tells of it, the problem, what was said, and what to do."""

    line: int
    title: str
    said: str
    changes: tuple[Change, ...]


def failed_requests(case: Case) -> FailedRequests | None:
    """None where the last requests were answered, fewer failed, or nothing says what was wrong with them."""
    run = case.run
    if run is None or run.root is not None or run.deaths or run.stopped is not None or run.client is not None:
        return None
    answered = max((hit.index for hit in run.all("request-ok")), default=-1)
    if (astray := _astray(case, answered)) is not None:
        return astray
    if (absent := _without_route(run, answered)) is not None:
        return absent
    if (left := _outside_grammar(case, run)) is not None:
        return left
    own = [hit for hit in run.all("request-failed") if hit.index > answered]
    failed = sorted(hit.index for hit in (*own, *run.all("request-refused")) if hit.index > answered)
    only = answered < 0 and not any(stats.generation for stats in run.stats)
    if only and not failed and not run.miles and not run.stats:
        return _told(case, run, answered, len(run.lines))  # a line that somebody quotes alone
    if len(failed) < _REQUESTS - only or _served(run, failed[0]):
        return None
    if (told := _told(case, run, answered, failed[-1])) is not None:
        return told
    if len(own) < _ANSWERS_ALONE - only or any(hit.fields["status"] != _OWN_ERROR for hit in own):
        return _all_refused(run, answered, failed)
    why = "the server then writes the calls of each error that it answers: judge that log"
    stack = set_flag(case, _STACK, True, Direction.ADD, why) if case.has_flag(_STACK) is not None else None
    return FailedRequests(
        own[-1].index,
        "The last requests were answered with 500, an error of the server's own",
        "",
        (stack,) if stack is not None else (),
    )


def _astray(case: Case, after: int) -> FailedRequests | None:
    """Requests for an address that is one of the server's but for a part that stands in it twice (/v1//models)."""
    hits = case.run.all("request-address-doubled") if case.run is not None else ()
    asked = [hit for hit in hits if hit.index > after]
    if len(asked) < _REQUESTS:
        return None
    why = (
        f"it asks for {asked[-1].fields['path']}: its base URL ends with a slash, or names /v1 that the client adds; "
        "vLLM's is http://HOST:PORT/v1, without a slash behind it"
    )
    change = thing(ChangeKind.OS, "client-address", Direction.CHANGE, why, command="curl -s http://HOST:PORT/v1/models")
    return FailedRequests(asked[-1].index, "A client asks for an address that the server does not have", "", (change,))


def _outside_grammar(case: Case, run: AnalysedRun) -> FailedRequests | None:
    """Answers that the grammar of their request does not allow. Others are answered meanwhile, and these themselves
    with 200: the front end began them before. From 0.14 on one of them has a line of each kind."""
    kinds = (run.all("grammar-left"), run.all("grammar-rejected"))
    if max(map(len, kinds)) < _REQUESTS:
        return None
    left = max((hit for kind in kinds for hit in kind), key=lambda hit: hit.index)
    said = run.lines[left.index].text.strip()
    part = layer_of((said,), ())
    answers = part.answers if part is not None else ()
    title = next((a.title for a in answers if a.title and a.said and applies(a, said)), "")
    return FailedRequests(left.index, title, excerpt.said(said), changes_of(case, answers, said)) if title else None


def _without_route(run: AnalysedRun, after: int) -> FailedRequests | None:
    """Requests for an address that is not among those that the server listed when it came up."""
    listed = {told["path"] for line in run.lines if (told := read("route-of-a-line", line.text)) is not None}
    asked = [hit for hit in run.all("request-without-route") if hit.index > after and hit.fields["path"] not in listed]
    if not asked:
        return None
    path = asked[-1].fields["path"]
    if _API not in listed:
        return _unknown_to_it(run, after, asked) if not listed else None
    why = (
        f"the release, the kind of the model and the options decide which addresses there are, and the server's list "
        f"lacks {path}: ask one that it has, or serve with a release or model that brings this one"
    )
    change = thing(ChangeKind.OS, "client-address", Direction.CHANGE, why, command=_ROUTES)
    return FailedRequests(asked[-1].index, excerpt.title(f"This server has no address {path}"), "", (change,))


def _unknown_to_it(run: AnalysedRun, after: int, asked: Sequence[Hit]) -> FailedRequests | None:
    """Not one request was answered, and all that is seen of them is 404: of a model's name, or of the address."""
    if after >= 0 or len(asked) < _ANSWERS_ALONE or any(stats.generation for stats in run.stats):
        return None
    why = (
        "404 is the answer to a model's name that is not served, and to a call that this server or kind of model does "
        "not have: compare with both lists (`python -m vllm.entrypoints.api_server` has /generate alone; `vllm serve` "
        "has OpenAI's calls)"
    )
    change = thing(ChangeKind.OS, "client-address", Direction.CHANGE, why, command=f"{_NAMES}; {_ROUTES}")
    title = excerpt.title(f"Each request to {asked[-1].fields['path']} is answered with 404")
    return FailedRequests(asked[-1].index, title, "", (change,))


def _all_refused(run: AnalysedRun, answered: int, failed: Sequence[int]) -> FailedRequests | None:
    """Not one request was answered, and the front end says of none why it refused it: the answer's body does."""
    refused = {hit.index for hit in run.all("request-refused")}
    made = any(stats.generation for stats in run.stats)
    said = run.first("request-too-long") is not None
    if len(failed) < _REQUESTS or answered >= 0 or made or said or not refused.issuperset(failed):
        return None
    why = "vLLM writes why it refuses a request into the answer, and not into the log: send the same body by hand"
    change = thing(ChangeKind.OS, "client-input", Direction.REPAIR, why, command=_BY_HAND)
    return FailedRequests(failed[-1], "Each request is refused with 400; its answer says why", "", (change,))


def _told(case: Case, run: AnalysedRun, after: int, until: int) -> FailedRequests | None:
    """The last line of the front end's level ERROR about a request, whose words name what is wrong with it. That it is
    too long is VD307's matter: anybody tries the limit once."""
    too_long = {hit.index for hit in run.all("request-too-long")}
    for index in reversed(range(after + 1, until)):
        line = run.lines[index]
        if index in too_long or line.level not in _SERIOUS or line.module is None:
            continue
        part = layer_of((line.text,), ())
        # the first releases checked a request in the server's own file, whose other lines are about the start
        if not says(line.module, "module-of-requests") and (part is None or part.id != _OF_REQUESTS):
            continue
        answers = part.answers if part is not None else ()
        title = next((a.title for a in answers if a.title and a.said and applies(a, line.text)), "")
        if title:
            changes = first_of_each(changes_of(case, answers, line.text))
            return FailedRequests(index, title, excerpt.said(line.text.strip()), changes)
    return None


def _served(run: AnalysedRun, after: int) -> bool:
    """Do statistics behind the first of them show that others were? The first ones tell of the time before, too."""
    told = (hit.fields for hit in run.all("stats") if hit.index > after)
    return sum(any(float(fields[f]) for f in ("prompt", "generation")) for fields in told) > 1
