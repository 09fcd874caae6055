"""Which releases of a package two specifiers leave (`>=4.56,<5`; PEP 440)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


def is_specifier(text: str) -> bool:
    """Is a text a specifier or a release? `==VERSION` and `==$(pip show …)` are neither: the reader fills them in."""
    from packaging.specifiers import InvalidSpecifier

    try:
        return bool(_read(text))
    except InvalidSpecifier:
        return False


def both_take(one: str, other: str) -> bool:
    """Is there a release that both take? One that is written without a sign is that release.

    Raises `packaging.specifiers.InvalidSpecifier` on anything else.
    """
    return not (_read(one) & _read(other)).is_unsatisfiable()


def below_the_ends_of(one: str, other: str) -> str:
    """`one` with those upper ends of `other` that it goes past: pip takes the newest, which `other` may leave out."""
    past = {"<": ">=", "<=": ">"}
    ends = [end for end in _read(other) if end.operator in past]
    return ",".join([one, *(str(end) for end in ends if both_take(one, f"{past[end.operator]}{end.version}"))])


def upper_end(text: str) -> str:
    """The parts of a specifier that end it above (`<5` of `<5,>=4.56.0`); empty for none."""
    return ",".join(str(part) for part in _read(text) if part.operator in {"<", "<="})


def is_closed(text: str) -> bool:
    """Does a specifier leave out what is newer than it names?"""
    return any(part.operator not in {">", ">=", "!="} for part in _read(text))


def _read(text: str) -> "SpecifierSet":
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(f"=={text}" if text[:1].isdecimal() else text)
