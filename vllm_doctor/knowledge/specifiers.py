"""Which releases of a package two specifiers leave (`>=4.56,<5`; PEP 440, by the numbers alone)."""

from collections.abc import Iterator

from vllm_doctor.knowledge.compat import Numbers, numbers

# Longer signs first: `<` begins `<=`.
_SIGNS = ("===", "==", "!=", ">=", "<=", "~=", ">", "<")
_LARGE = 9999


def is_specifier(text: str) -> bool:
    """Does a text begin as a specifier or a release does?"""
    return text[:1] in set("<>=!~") or text[:1].isdecimal()


def both_take(one: str, other: str) -> bool:
    """Is there a release that both take? One that is written without a sign is that release."""
    clauses = [*_clauses(one), *_clauses(other)]
    return any(all(_takes(sign, bound, at) for sign, bound in clauses) for at in _near(clauses))


def _clauses(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        clause = part.strip()
        if clause:
            sign = next((s for s in _SIGNS if clause.startswith(s)), "")
            yield sign or "==", clause[len(sign) :].strip()


def _near(clauses: list[tuple[str, str]]) -> Iterator[Numbers]:
    """Each bound, and the releases just above and just below it: between two bounds nothing changes."""
    for _, bound in clauses:
        major, minor, patch = (*numbers(bound), 0, 0, 0)[:3]
        yield major, minor, patch
        yield major, minor, patch + 1
        yield major, minor + 1, 0
        yield major + 1, 0, 0
        yield major, minor, max(0, patch - 1)
        yield major, max(0, minor - 1), _LARGE
        yield max(0, major - 1), _LARGE, _LARGE


def _takes(sign: str, bound: str, at: Numbers) -> bool:
    told = numbers(bound)
    if sign == "~=":
        return at >= _padded(told) and at[: len(told) - 1] == told[:-1]
    if sign in {"==", "==="}:
        return at[: len(told)] == told if bound.endswith("*") else at == _padded(told)
    if sign == "!=":
        return not (at[: len(told)] == told if bound.endswith("*") else at == _padded(told))
    edge = _padded(told)
    return {">=": at >= edge, "<=": at <= edge, ">": at > edge, "<": at < edge}[sign]


def _padded(told: Numbers) -> Numbers:
    return (*told, 0, 0, 0)[:3]
