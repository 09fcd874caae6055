"""What a release's compiled code refuses in a sentence: the checks of its C++ and CUDA sources, and where they stand.

vLLM's sources are in its source distribution (csrc/), not in its wheel; FlashInfer's are in its wheel, as it builds its
kernels where they run. No compiler reads them here: a check is a call of one of a few macros, whose arguments are a
condition and what is printed, or into which it is streamed (`<<`).
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from releases import texts
from releases.raised import Raised
from releases.wheel import Wheel, WheelError
from vllm_doctor.knowledge.said_by import COMPILED

# c10/util/Exception.h and torch/csrc/Exceptions.h: which class of Python's a failed check becomes. What native code
# throws itself reaches Python as RuntimeError, through torch's dispatcher as through tvm_ffi, which knows the classes
# of Python alone (tvm_ffi/error.py).
_CHECKS = {
    "": "RuntimeError",
    "_NOT_IMPLEMENTED": "NotImplementedError",
    "_VALUE": "ValueError",
    "_TYPE": "TypeError",
    "_INDEX": "IndexError",
}
_KINDS = frozenset({"ValueError", "TypeError", "AttributeError", "KeyError", "IndexError", "AssertionError"})
_CALL = re.compile(
    r"\b(?:(?:STD_)?TORCH_CHECK(?P<check>|_NOT_IMPLEMENTED|_VALUE|_TYPE|_INDEX)"
    r"|(?P<thrown>throw std::\w+|FLASHINFER_ERROR|TLLM_THROW)|(?P<joined>FLASHINFER_CHECK)"
    r"|(?P<asserted>TLLM_CHECK(?:_WITH_INFO)?)"
    r"|TVM_FFI_(?P<streamed>I?CHECK|(?:LOG_AND_)?THROW)(?:_(?P<compares>EQ|NE|LT|LE|GT|GE))?)\s*\("
)
_SIGNS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NO_FUNCTION = r"(?!#|\s|namespace|template|using|typedef|return|static_assert)"
_FUNCTION = re.compile(rf"^{_NO_FUNCTION}[\w:<>*&,\s]*?\b(?P<name>\w+)\s*\(", re.MULTILINE)
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SOURCE = re.compile(r"(?:[^/]+/)?(csrc/.+\.(?:cuh?|cpp|hpp|h|inl))")
_NAMED = re.compile(r"vllm-(?P<version>\d+(?:\.\d+)*(?:\.post\d+)?)(?:\.tar\.gz)?")
_MEMBERS, _BYTES = 60_000, 8 << 20
_OPENS, _CLOSES = "([{", ")]}"


def is_source(place: Path) -> bool:
    """Is it a source distribution, packed, or a folder with the csrc of one?"""
    return place.name.endswith(".tar.gz") or (place / "csrc").is_dir()


def read(place: Path) -> Wheel:
    """The C++ and CUDA sources of `vllm-VERSION.tar.gz`, or of a folder of that name. Raises WheelError."""
    named = _NAMED.fullmatch(place.name)
    files = dict(_packed(place) if place.is_file() else _unpacked(place))
    if named is None or not files:
        raise WheelError(f"{place}: {len(files)} sources in csrc/; needed: vllm-VERSION.tar.gz, as PyPI has it")
    return Wheel(place.name, named["version"], files, {}, project=COMPILED)


def _packed(place: Path) -> Iterator[tuple[str, str]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(place.read_bytes()), mode="r:gz") as held:
            for number, member in enumerate(held):
                if number > _MEMBERS:
                    raise WheelError(f"{place}: more than {_MEMBERS} members")
                found = _SOURCE.fullmatch(member.name)
                source = held.extractfile(member) if found and member.isfile() and member.size <= _BYTES else None
                if found and source is not None:
                    yield f"vllm/{found[1]}", source.read(_BYTES).decode(errors="replace")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise WheelError(f"{place}: {error}") from error


def _unpacked(place: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(place.rglob("*")):
        found = _SOURCE.fullmatch(file.relative_to(place).as_posix())
        if found and file.is_file():
            yield f"vllm/{found[1]}", file.read_text(encoding="utf-8", errors="replace")


def checks(source: str) -> Iterator[Raised]:
    """Each check with a sentence, in the order of the source; a value in it is a hole. One without words is printed
    with its condition."""
    code = _COMMENT.sub(lambda m: " " if "\n" not in m[0] else "\n", source)
    functions = [(m.start(), m["name"]) for m in _FUNCTION.finditer(code)]
    for call in _CALL.finditer(code):
        kind, text = _said(call, code)
        function = next((name for start, name in reversed(functions) if start < call.start()), "")
        if text.strip(texts.HOLE + " "):
            yield Raised(function, function, kind, text)


def _said(call: re.Match[str], code: str) -> tuple[str, str]:
    """The class that a failed check becomes, and its sentence."""
    arguments, end = _arguments(code, call.end())
    condition = " ".join(arguments[0].split()) if arguments else ""
    if call["streamed"]:
        return _streamed(call, [" ".join(one.split()) for one in arguments], _stream(code, end))
    if call["joined"]:  # flashinfer/exception.h writes a space between what it is given
        return "RuntimeError", " ".join(map(_printed, arguments[1:])) or f"Check failed: {condition}"
    if call["asserted"]:  # tensorrt_llm/common/assert.h, as printf; what it is called with are values
        return "RuntimeError", f"Assertion failed: {_formatted(arguments[1:2]) or condition}"
    if call["thrown"]:
        told = _formatted(arguments[:1]) if call["thrown"] == "TLLM_THROW" else "".join(map(_printed, arguments))
        return "RuntimeError", told
    text = "".join(map(_printed, arguments[1:]))
    return _CHECKS[call["check"]], text if arguments[1:] else f"Expected {condition} to be true, but got false."


def _streamed(call: re.Match[str], arguments: list[str], said: str) -> tuple[str, str]:
    """tvm/ffi/error.h: what is checked stands before what was streamed in."""
    compares = _SIGNS.get(call["compares"] or "")
    kind = arguments[-1] if arguments and arguments[-1] in _KINDS else "RuntimeError"
    if call["streamed"].endswith("THROW"):
        return kind, said
    if compares and len(arguments) > 1:
        hole = texts.HOLE
        return kind, f"Check failed: {arguments[0]} {compares} {arguments[1]} ({hole} vs. {hole}) : {said}"
    return kind, f"Check failed: ({', '.join(arguments[:1])}) is false: {said}"


def _stream(code: str, at: int) -> str:
    """What a statement streams into the check before it."""
    statement, _ = _arguments(code, at, ends=";")
    parts = statement[0].split("<<") if statement and statement[0].startswith("<<") else []
    return "".join(_printed(" ".join(part.replace("\\\n", " ").split())) for part in parts[1:])


def _formatted(said: list[str]) -> str:
    """A format of printf's, with a hole for each value."""
    return texts.SLOTS.sub(texts.HOLE, "".join(map(_printed, said)))


def _printed(argument: str) -> str:
    """What one argument prints: literals that stand side by side are one, what `+` joins to them is a value, and so is
    anything else."""
    between, words = _LITERAL.split(argument)[::2], _LITERAL.findall(argument)
    if not words or ("+" not in argument and any(one.strip() for one in between)):
        return texts.HOLE
    told = [texts.HOLE if "+" in one else "" for one in between]
    words = [one.replace("\\n", "\n").replace('\\"', '"') for one in words]
    return told[0] + "".join(f"{word}{value}" for word, value in zip(words, told[1:], strict=True))


def _arguments(code: str, at: int, ends: str = _CLOSES) -> tuple[list[str], int]:
    """The arguments of a call, from behind its parenthesis to the one that closes it, and where that is; `ends`: of a
    statement, which has one."""
    found: list[str] = []
    start, depth = at, 0
    while at < len(code):
        letter = code[at]
        if letter == '"':
            literal = _LITERAL.match(code, at)
            at = literal.end() if literal else len(code)
            continue
        if not depth and letter in ends:
            break
        if letter in _OPENS:
            depth += 1
        elif letter in _CLOSES:
            depth -= 1
        elif letter == "," and not depth and ends == _CLOSES:
            found.append(code[start:at].strip())
            start = at + 1
        at += 1
    last = code[start:at].strip() if at < len(code) else ""
    return [*found, last] if last else found, at + 1
