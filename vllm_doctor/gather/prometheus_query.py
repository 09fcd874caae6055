"""A query of a Prometheus' HTTP API, bounded in time and size: its series, or why there are none."""

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from vllm_doctor.gather.http import NO_PASS, Login, NoResponse, Pass, Response, get
from vllm_doctor.records import excerpt


class Series(msgspec.Struct):
    """One series of an answer: `value` of a query at a moment, `values` of one over a range; (seconds, number)."""

    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "")
    values: list[tuple[float, str]] = []


class Silent(msgspec.Struct, frozen=True):
    """Nobody answered; `why` names the address without the query."""

    why: str


class Strange(msgspec.Struct, frozen=True):
    """What answered with this HTTP status is no Prometheus."""

    status: int
    why: str


class QueryRefused(msgspec.Struct, frozen=True):
    """Prometheus did not run the query; `why` is its own word."""

    why: str


class _Data(msgspec.Struct):
    result: list[Series] = []


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


def ask(
    address: str,
    words: Mapping[str, object],
    *,
    deadline_s: float,
    max_bytes: int,
    given: Pass | Login = NO_PASS,
) -> list[Series] | Silent | Strange | QueryRefused:
    """`address` is that of the API's call, /api/v1/query or query_range, and `words` are its parameters."""
    query = urlencode(words)
    told = get(f"{address}?{query}", deadline_s=deadline_s, max_bytes=max_bytes, given=given)
    if isinstance(told, NoResponse):
        return Silent(told.reason.replace(f"?{query}", ""))
    try:
        answer = msgspec.json.decode(told.body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        return Strange(told.status, _own_words(told) or excerpt.said(str(wrong)))
    if answer.status != "success":
        return QueryRefused(excerpt.said(answer.error))
    return answer.data.result if answer.data is not None else []


def _own_words(told: Response) -> str:
    """What a refusal says in plain text, and of a TLS listener what to do."""
    if told.status == 400 and b"HTTPS" in told.body[:2000]:  # Go's server and nginx
        return "it speaks TLS: write https://"
    plain = told.status >= 400 and told.content_type.partition(";")[0] in {"", "text/plain"}
    return excerpt.said(told.body.decode("utf-8", "replace").partition("\n")[0].strip()) if plain else ""
