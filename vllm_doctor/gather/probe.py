"""Asks the server itself: does /health answer, which models does it name, does a completion come back."""

import json
from collections.abc import Mapping

from msgspec.structs import replace

from vllm_doctor.gather.http import NO_PASS, NoResponse, Pass, get, get_keyed
from vllm_doctor.gather.metrics import scrape_few
from vllm_doctor.knowledge import serving
from vllm_doctor.launch.port import port_of
from vllm_doctor.records import excerpt
from vllm_doctor.records.host import Launch, Probe
from vllm_doctor.records.reading import Unknown

# What completes as /v1 does, and vLLM's own key leaves open.
BESIDE = "/invocations"
# What a working engine counts up, whoever asked for it.
_WORK = ("prompt_tokens", "generation_tokens", "request_success")
_WORK_S = 5.0
# A server in order answers one question within the first; one that is silent for the second is called so; an answer
# of a token may take the third.
HTTP_S, SILENCE_S, CANARY_S = 1.0, 4.0, 15.0


def base_url(flags: Mapping[str, str | bool]) -> str | None:
    """Where this launch listens, seen from the host; None when it listens on a Unix socket only."""
    if isinstance(flags.get("uds"), str):
        return None
    host = flags.get("host")
    host = host if isinstance(host, str) and host not in {"0.0.0.0", "::", "*", "[::]"} else "127.0.0.1"  # noqa: S104
    scheme = "https" if isinstance(flags.get("ssl-certfile") or flags.get("ssl-keyfile"), str) else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port_of(flags)}"


def certificate_of(flags: Mapping[str, str | bool]) -> str | None:
    """The file of the certificate that this launch serves with."""
    named = flags.get("ssl-certfile")
    return named if isinstance(named, str) else None


def probe(base: str, *, deadline_s: float, given: Pass = NO_PASS) -> Probe:
    """/health, and the models and the doors as somebody without a key finds them."""
    health = get_keyed(f"{base}/health", given, deadline_s=deadline_s, max_bytes=1 << 16)
    if isinstance(health, NoResponse):
        return Probe(health_error=health.reason)
    models = get(f"{base}/v1/models", deadline_s=deadline_s, max_bytes=1 << 20)
    status = None if isinstance(models, NoResponse) else models.status
    named = _models(models.body) if not isinstance(models, NoResponse) and models.status == 200 else ()
    beside = _beside(base, deadline_s) if status in {401, 403} else None
    return Probe(
        health_status=health.status, models=named, server=health.server or None, keyless=status, keyless_beside=beside
    )


def _beside(base: str, deadline_s: float) -> int | None:
    """What a request without a key gets on the path that completes as /v1 does and that vLLM's own key leaves open.

    OPTIONS is safe by definition, and vLLM has no such route: an open path answers 405 and does nothing.
    """
    answer = get(f"{base}{BESIDE}", deadline_s=deadline_s, max_bytes=1 << 16, method="OPTIONS")
    return None if isinstance(answer, NoResponse) else answer.status


# What stands before the engine, or the server itself, serves no completion now, whoever asks: that is a trial.
_TURNED_AWAY = "it is full, scales or closes, or sends clients elsewhere"


def canary(base: str, launch: Launch, found: Probe, *, deadline_s: float, given: Pass = NO_PASS) -> Probe:
    """`found`, and whether one token really comes back. Costs the server one decode step."""
    named = found.models or (served(base, deadline_s=deadline_s, given=given) if given.key else ())
    model = named[0] if named else launch.model
    if model is None:
        return replace(found, completion_unknown="no model is known to ask for a completion")
    before = _work(base, given)
    came, why = completion(base, model, deadline_s=deadline_s, given=given)
    if came is None:
        return replace(found, completion_unknown=why, turned_away=why.endswith(_TURNED_AWAY))
    after = _work(base, given) if came is False and why and before is not None else None
    return replace(
        found, completion=came, advanced=after > before if after is not None and before is not None else None
    )


def _work(base: str, given: Pass) -> float | None:
    """Tokens read and made, and requests ended, since the server began; None where its /metrics do not tell."""
    told = scrape_few(base, _WORK, deadline_s=_WORK_S, given=given)
    if isinstance(told, Unknown):
        return None
    counts = [serving.total(told, names) for names in (serving.PROMPT_TOKENS, serving.GENERATED, serving.FINISHED)]
    return sum(one for one in counts if one is not None) if any(one is not None for one in counts) else None


def completion(base: str, model: str, *, deadline_s: float, given: Pass = NO_PASS) -> tuple[bool | None, str]:
    """Does one token come back? None, and why, where the server refuses to be asked: that proves nothing. False with a
    reason where no answer came.

    A dead engine answers with 500, or not at all; 503 is said by a server that is full, scales or closes.
    """
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0}).encode()
    answer = get(f"{base}/v1/completions", deadline_s=deadline_s, body=body, max_bytes=1 << 20, given=given)
    if isinstance(answer, NoResponse):
        return False, answer.reason
    if answer.status == 200:
        return _completes(answer.body), ""
    if answer.status >= 500 and answer.status != 503:
        return False, ""
    if answer.status in {401, 403}:
        whose = (
            "another key than the unit's" if given.key else "a key, and this user cannot read the key; run this as root"
        )
        return None, f"the server answers a completion with {answer.status}: it wants {whose}"
    if answer.status == 404:
        return None, f"the server has no model {excerpt.name(model)}, or no /v1/completions"
    if answer.status == 503 or answer.status in range(300, 400):
        return None, f"the server answers a completion with {answer.status}: {_TURNED_AWAY}"
    return None, f"the server answers a completion with {answer.status}: it refuses this one, or has no room for it"


def _completes(body: bytes) -> bool:
    """Is a token in it? A proxy's page, an error that came with 200 and an aborted request are none
    (vllm/entrypoints/openai: CompletionResponse; finish_reason is stop, length, abort or error)."""
    try:
        told = json.loads(body)
        first = told["choices"][0]
        made = told.get("usage", {}).get("completion_tokens", 1)
        return first.get("finish_reason") not in {"abort", "error"} and (bool(first.get("text")) or made >= 1)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return False


def one_token(
    base: str, launch: Launch, found: Probe, *, asked: bool, deadline_s: float, given: Pass = NO_PASS
) -> Probe:
    """As `canary`; where nobody asked for a completion, one that cannot be tried is no fault and leaves the rest."""
    tried = canary(base, launch, found, deadline_s=deadline_s, given=given)
    if asked or not tried.completion_unknown or tried.turned_away:
        return tried
    return replace(tried, completion_unknown="", untried=tried.completion_unknown)


def served(base: str, *, deadline_s: float, given: Pass = NO_PASS) -> tuple[str, ...]:
    """The models by the names that the server answers to, asked with the key where that is needed; () where it does
    not say."""
    answer = get_keyed(f"{base}/v1/models", given, deadline_s=deadline_s, max_bytes=1 << 20)
    return _models(answer.body) if not isinstance(answer, NoResponse) and answer.status == 200 else ()


def _models(body: bytes) -> tuple[str, ...]:
    try:
        listed = json.loads(body)["data"]
        return tuple(excerpt.name(str(row["id"])) for row in listed)[:20]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
