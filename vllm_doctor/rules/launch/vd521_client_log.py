"""VD521: a client's log was given: it shows that requests failed, and only the server's own log can say why."""

from vllm_doctor.log.client import Client, Saw
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

# Where to look, by what the client saw. The server writes the cause of the first three, never of the fourth.
_LOOK = {
    Saw.REFUSED_CONNECTION: "the unit's state and log since its start: it ended, still starts, or listens elsewhere",
    Saw.CUT: "the server's log at this moment: its engine ended, it was stopped, or a proxy cuts long answers",
    Saw.SERVER_ERROR: "the server's log at this moment, which holds the traceback of each answer with 500",
    Saw.LATE: "the server's statistics (Running, Waiting, KV cache usage): a queue, or too short a time-out;"
    " wrk's is 2 s unless --timeout says otherwise",
    Saw.REFUSED_REQUEST: "the answer's own text, which names what the server refuses: model's name, length, key, field",
}

_REACH = thing(
    ChangeKind.OS,
    "server-address",
    Direction.REPAIR,
    "nothing listens at the address that this client asks: start the server and wait until it has loaded its model; "
    "the client needs the host and the port as seen from its own host or container",
    command="curl -sS -m 5 http://HOST:PORT/health; ss -ltnp   # from the client's host",
)
_PATHS = (
    "the server at this address has no such path: the base URL of an OpenAI client ends in /v1, once; a client of "
    "another server's paths needs that server"
)
# A trainer's client asks for paths that its own way of starting vLLM brings.
_OF_TRAINER = {
    "TRL's trainer": "TRL's trainer asks paths that `vllm serve` does not have: start the server with `trl vllm-serve`,"
    " of the same release of TRL as the trainer",
}
_ROUTES = "curl -s http://HOST:PORT/openapi.json | grep -o '\"/[a-z0-9/_]*\"'   # the paths that it has"
_MODELS = "curl -sS -m 5 http://HOST:PORT/v1/models   # from the client's host"
# What the client itself does wrong, so that no log of the server knows of it.
_OWN = {
    Saw.NO_ADDRESS: (
        "server-address",
        "write the base URL whole, http://HOST:PORT/v1: without a scheme, or with a part missing, nothing is sent",
        _MODELS,
    ),
    Saw.NO_KEY: (
        "client-key",
        "give the client a key: the server's own where it has one (--api-key), else any word, such as EMPTY",
        "export OPENAI_API_KEY=EMPTY   # or api_key in the client's settings",
    ),
    Saw.PLAIN_HTTP: (
        "server-address",
        "write http:// for a server without a certificate (--ssl-certfile), or the proxy's address that speaks https",
        _MODELS,
    ),
    Saw.NO_NAME: (
        "server-address",
        "name the server as the client's host knows it: a container's name counts within its own network alone",
        "getent hosts HOST   # where the client runs",
    ),
}
_LOG = "journalctl -u UNIT --since -1h > server.log && vllm-doctor diagnose server.log"


def judge(case: Case) -> Outcome:
    """Did a client write this, and did requests of it fail?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    told = run.client
    if told is None:
        return NotHere("this is not a client's log")
    if not _failed(told, ended=run.root is not None):
        return Clear(f"this is a client's log: {told.answers}")
    saw = [kind for kind, _, _ in told.saw]
    lines = [first for _, first, _ in told.saw[:3]] or [told.counted if told.counted is not None else told.mark]
    what = saw[0].value if saw else "requests failed, and the log does not say why"
    return finding(
        RULE,
        title=f"A client's log ({told.name}), not the server's: {what}",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=tuple(case.line(i) for i in sorted({told.mark, *lines})),
        arithmetic=tuple(
            Arithmetic(name, count, "", "as the client counts", run.log.source)
            for name, count in (("answered", told.succeeded), ("failed", told.failed))
            if count is not None
        ),
        changes=_changes(told.name, saw),
        refute="the server's log of the same minutes shows these requests answered",
    )


def _changes(client: str, saw: list[Saw]) -> tuple[Change, ...]:
    """A client that sends nothing is set right, a server that is not reached is reached first; what a server did, its
    own log tells."""
    if saw and saw[0] is Saw.NO_PATH:
        why = _OF_TRAINER.get(client, _PATHS)
        return (thing(ChangeKind.OS, "server-address", Direction.REPAIR, why, command=_ROUTES),)
    if saw and saw[0] in _OWN:
        name, why, command = _OWN[saw[0]]
        return (thing(ChangeKind.OS, name, Direction.REPAIR, why, command=command),)
    why = f"give {_LOOK[saw[0]]}" if saw else "give the server's log of the same minutes"
    log = thing(ChangeKind.OS, "server-log", Direction.CHANGE, why, command=_LOG)
    return (_REACH, log) if saw[:1] == [Saw.REFUSED_CONNECTION] else (log,)


def _failed(told: Client, *, ended: bool) -> bool:
    """A server that was waited for, and then answered, did not fail; neither did one of which none is counted."""
    if told.failed or ended:
        return True
    if told.failed == 0:
        return False
    waited = {kind for kind, _, _ in told.saw} <= {Saw.REFUSED_CONNECTION} and bool(told.succeeded)
    return bool(told.saw or told.counted is not None) and not waited


RULE = rule("VD521", reads=frozenset({Signal.LOG}), judge=judge)
