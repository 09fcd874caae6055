"""The Python sources and the metadata of one wheel, or of a folder with one unpacked. Nothing of it runs.

A wheel is a stranger's archive: names that leave its folder, members larger than any source, more of them than any
release has, and sizes that lie are refused before anything is read from them.
"""

from __future__ import annotations

import ast
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path, PurePosixPath

from releases import build
from vllm_doctor.knowledge.version import Version, parse_version

# vLLM 0.33.0 has some 6,000 members, 2,700 of them Python; its largest source has 0.6 MB, all together 40 MB.
_MEMBERS = 60_000
_SOURCE_BYTES = 8 << 20
_ALL_BYTES = 400 << 20
_OLDEST = Version((0, 2))
_NAMED = re.compile(
    r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>\d[A-Za-z0-9_.!+]*)-(?:[^-]+-){2,3}(?P<platform>[^-]+)(?:\.whl)?"
)


class WheelError(Exception):
    """What was given is no wheel of vLLM that can be read."""


@dataclass(frozen=True)
class Wheel:
    """The sources of a release by their path (`vllm/envs.py`), its METADATA, and the cards it has code for."""

    name: str
    version: str
    files: Mapping[str, str]
    metadata: Mapping[str, list[str]]
    code: Mapping[str, str] = field(default_factory=dict)  # compute capability → what code there is for it
    tags: str = ""  # .dist-info/WHEEL, which a folder has too
    project: str = "vllm"

    @cached_property
    def glibc(self) -> str | None:
        """The glibc that the wheel's platform tag asks for; None where there is no such tag."""
        found = _NAMED.fullmatch(self.name)
        tag = found["platform"] if found else self.tags
        new = re.search(r"manylinux_(\d+)_(\d+)_", tag)
        old = re.search(r"manylinux(1|2010|2014)_", tag)
        if new:
            return f"{new[1]}.{new[2]}"
        return {"1": "2.5", "2010": "2.12", "2014": "2.17"}[old[1]] if old else None

    def tree(self, path: str) -> ast.Module:
        """The syntax tree of a source, parsed once. Raises WheelError for what does not parse."""
        if path not in self._trees:
            self._trees[path] = _parsed(self.name, path, self.files[path])
        return self._trees[path]

    @cached_property
    def _trees(self) -> dict[str, ast.Module]:
        return {}

    def paths(self, pattern: str) -> list[str]:
        """The sources whose whole path is of this pattern, in their order."""
        return [path for path in self.files if re.fullmatch(pattern, path)]


def read(place: Path) -> Wheel:
    """Read a .whl file or a folder with one unpacked. Raises WheelError."""
    return of_vllm(place, contents(place, "vllm", re.compile(r"vllm/.*\.py")))


def of_vllm(place: Path, held: Wheel) -> Wheel:
    """The same, where it is a release of vLLM. Raises WheelError."""
    if held.project != "vllm":
        raise WheelError(f"{place}: a wheel of {held.project[:60]!r}; needed: one of vllm")
    if "vllm/engine/arg_utils.py" not in held.files:
        raise WheelError(f"{place}: holds no vllm/engine/arg_utils.py; needed: a vLLM wheel of 0.2.0 or newer")
    return replace(held, version=_release_of(place, held.version))


def contents(place: Path, package: str, wanted: re.Pattern[str]) -> Wheel:
    """The sources of a package whose whole path is `wanted`, of whatever project and release. Raises WheelError."""
    if not place.exists():
        raise WheelError(f"{place}: no such file or folder; needed: a vLLM wheel, or a folder with one unpacked")
    try:
        # A wheel and the same wheel unpacked are read in one order.
        of_folder = place.is_dir()
        texts = dict(sorted(_of_folder(place, package, wanted) if of_folder else _of_archive(place, wanted)))
        code = build.of_wheel(place)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as problem:
        raise WheelError(f"{place}: {problem or type(problem).__name__}; needed: a whole vLLM wheel") from None
    except UnicodeDecodeError as problem:
        raise WheelError(f"{place}: a source is not UTF-8 ({problem.reason}); needed: a vLLM wheel") from None
    headers = [path for path in texts if path.endswith(".dist-info/METADATA")]
    if len(headers) != 1:
        raise WheelError(f"{place}: {len(headers)} METADATA files; needed: a vLLM wheel, which has one")
    parsed = HeaderParser().parsestr(texts.pop(headers[0]))
    tags = "".join(texts.pop(path) for path in list(texts) if path.endswith(".dist-info/WHEEL"))
    metadata: dict[str, list[str]] = {}
    for key, value in parsed.items():
        metadata.setdefault(key, []).append(str(value))
    project = (metadata.get("Name") or ["nothing"])[0]
    return Wheel(place.name, (metadata.get("Version") or [""])[0], texts, metadata, code, tags, project)


def _release_of(place: Path, said: str) -> str:
    version = parse_version(said)
    if version is None or not re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?(\+[\w.]+)?", said):
        raise WheelError(
            f"{place}: version {said[:40]!r} is no release; needed: X.Y.Z, no pre-release and no commit's build"
        )
    if version < _OLDEST:
        raise WheelError(f"{place}: vLLM {version} is older than what this reads; needed: {_OLDEST} or newer")
    named = _NAMED.fullmatch(place.name)
    if named is not None and parse_version(named["version"]) != version:
        raise WheelError(f"{place}: named {named['version']}, but its METADATA says {said}; needed: one version")
    return said.partition("+")[0]


def _of_archive(place: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(place) as archive:
        members = archive.infolist()
        if len(members) > _MEMBERS:
            raise WheelError(f"{place}: {len(members)} members; needed: at most {_MEMBERS}, as a vLLM wheel has")
        seen: set[str] = set()
        for member in members:
            path = PurePosixPath(member.filename)
            if path.is_absolute() or ".." in path.parts or "\\" in member.filename or "\0" in member.orig_filename:
                raise WheelError(f"{place}: member {member.filename[:80]!r} leaves the wheel; needed: an honest wheel")
            if member.filename in seen:
                raise WheelError(f"{place}: member {member.filename[:80]!r} stands twice; needed: an honest wheel")
            seen.add(member.filename)
        left = _ALL_BYTES
        for member in members:
            header = re.fullmatch(r"[^/]+\.dist-info/(METADATA|WHEEL)", member.filename)
            if header is None and wanted.fullmatch(member.filename) is None:
                continue
            if stat.S_ISLNK(member.external_attr >> 16):
                raise WheelError(f"{place}: member {member.filename[:80]!r} is a link; needed: an honest wheel")
            with archive.open(member) as file:
                content = _bounded(place, member.filename, file.read)
            left = _less(place, left, len(content))
            yield member.filename, content.decode("utf-8")


def _of_folder(place: Path, package: str, wanted: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    left = _ALL_BYTES
    sources = (
        file for file in place.glob(f"{package}/**/*.py") if wanted.fullmatch(file.relative_to(place).as_posix())
    )
    files = sorted([*sources, *place.glob("*.dist-info/METADATA"), *place.glob("*.dist-info/WHEEL")])
    if len(files) > _MEMBERS:
        raise WheelError(f"{place}: more than {_MEMBERS} sources; needed: a folder with one vLLM wheel unpacked")
    for file in files:
        if file.is_symlink() or not file.resolve().is_relative_to(place.resolve()):
            raise WheelError(f"{place}: {file.name} is a link; needed: a folder with one vLLM wheel unpacked")
        with file.open("rb") as opened:
            content = _bounded(place, file.name, opened.read)
        left = _less(place, left, len(content))
        yield file.relative_to(place).as_posix(), content.decode("utf-8")


def _bounded(place: Path, name: str, take: Callable[[int], bytes]) -> bytes:
    content = take(_SOURCE_BYTES + 1)
    if len(content) > _SOURCE_BYTES:
        raise WheelError(
            f"{place}: member {name[:80]!r} is larger than {_SOURCE_BYTES >> 20} MiB; needed: an honest wheel"
        )
    return content


def _less(place: Path, left: int, size: int) -> int:
    if size > left:
        raise WheelError(f"{place}: sources of more than {_ALL_BYTES >> 20} MiB; needed: an honest wheel")
    return left - size


def _parsed(name: str, path: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        where = f" line {problem.lineno}" if isinstance(problem, SyntaxError) else ""
        raise WheelError(
            f"{name}: {path}{where} is not Python that this interpreter reads ({problem}); run this with a newer Python"
        ) from None
