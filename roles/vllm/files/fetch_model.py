#!/usr/bin/env python3
"""Bring one commit of a model from a hub into a folder, and leave a marker that says which files make it whole.

Runs on the host with the Python of a vLLM release, whose huggingface_hub speaks with the hub; HF_ENDPOINT names the
hub and the credential hub-token, if there is one, opens it. With a whole folder nobody is asked: the marker has every
file's size, time and hash, and only a file whose size or time is another is read again.

The library itself starts anew what was killed (since 2.0 every process writes to a name of its own), so partial files
are kept here under the hash of their content, and go on from there with its http_get. Files beyond what a hub serves by
HTTP (50 GB) come by its Xet client, which the library starts, and those begin anew.

Standard output is one JSON object. Exit status 0: the folder is whole, or with --plan, what is missing is said; 1: not,
with {found, needed, do}.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

MARKER, PARTIAL = ".complete.json", ".partial"
WORKERS = 4
GIB = 2**30
# huggingface_hub.constants.MAX_HTTP_DOWNLOAD_SIZE: what lies behind the hub serves no larger file in one answer
# (huggingface_hub#3868, xet-core#592: status 400).
HTTP_LIMIT = 50 * 10**9
# Weights in other formats: left out where the same folder has them as safetensors, which vLLM takes first.
DUPLICATES = {".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"}


class RefusedError(Exception):
    """The model cannot be made whole; for people."""

    def __init__(self, found: str, needed: str, do: str) -> None:
        super().__init__(found)
        self.row = {"found": found, "needed": needed, "do": do}


@dataclass(frozen=True)
class File:
    """A file as the hub states it; `digest` is sha256:… of large files, and git's blob name (git:…) of small ones."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Request:
    """What is wanted, and where."""

    folder: Path
    repo: str
    revision: str
    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def same(self, marker: Mapping[str, object]) -> bool:
        """Whether a marker speaks of this."""
        told = (marker.get("repo"), marker.get("revision"), marker.get("allow"), marker.get("ignore"))
        return told == (self.repo, self.revision, list(self.allow), list(self.ignore))


class Marker:
    """What was verified, one file after another; whole only when all are. Written in one step each time."""

    def __init__(self, request: Request) -> None:
        self._request, self._path, self._lock = request, request.folder / MARKER, threading.Lock()
        self.files: dict[str, dict[str, object]] = {}
        self.complete = False
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if isinstance(known, dict) and request.same(known) and isinstance(known.get("files"), dict):
            self.files, self.complete = known["files"], known.get("complete") is True

    def holds(self, file: File, *, read: bool = False) -> bool:
        """Whether the folder has this file as it should be; it is read only if it changed since, or if `read`."""
        path, known = self._request.folder / file.name, self.files.get(file.name)
        try:
            stat = path.stat()
        except OSError:
            return False
        if stat.st_size != file.size:
            return False
        told = known and (known.get("digest"), known.get("mtime_ns")) == (file.digest, stat.st_mtime_ns)
        if told and not read:
            return True
        if digest(path, file.digest) != file.digest:
            return False
        if not told:
            self.verified(file)
        return True

    def verified(self, file: File) -> None:
        """Keep in mind that this file is right."""
        mtime = (self._request.folder / file.name).stat().st_mtime_ns
        with self._lock:
            self.files[file.name] = {"size": file.size, "digest": file.digest, "mtime_ns": mtime}

    def write(self, *, complete: bool) -> None:
        """Put it on disk."""
        asked = self._request
        with self._lock:
            content = {
                "repo": asked.repo,
                "revision": asked.revision,
                "allow": asked.allow,
                "ignore": asked.ignore,
                "complete": complete,
                "files": dict(sorted(self.files.items())),
            }
            beside = self._path.with_name(f"{MARKER}.new")
            beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            beside.chmod(0o644)
            beside.replace(self._path)


def digest(path: Path, like: str) -> str:
    """The hash of a file, of the kind that `like` is."""
    kind = like.partition(":")[0]
    made = hashlib.sha256() if kind == "sha256" else hashlib.sha1(usedforsecurity=False)
    if kind == "git":
        made.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            made.update(block)
    return f"{kind}:{made.hexdigest()}"


def chosen(files: Iterable[File], allow: tuple[str, ...], ignore: tuple[str, ...]) -> list[File]:
    """Those that are wanted. Without `allow`, weights that are there twice are taken once, as safetensors."""

    def matches(file: File, patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(file.name, pattern) for pattern in patterns)

    kept = [file for file in files if (not allow or matches(file, allow)) and not matches(file, ignore)]
    safe = {str(PurePosixPath(file.name).parent) for file in kept if file.name.endswith(".safetensors")}
    return [file for file in kept if allow or not _twice(PurePosixPath(file.name), safe)]


def _twice(name: PurePosixPath, safe: set[str]) -> bool:
    plain = name.with_suffix("") if name.name.endswith(".index.json") else name
    return str(name.parent) in safe and plain.with_name(plain.name.removesuffix(".index")).suffix in DUPLICATES


def listing(request: Request, token: str | None) -> list[File]:
    """Ask the hub for the files of the commit."""
    from huggingface_hub import HfApi

    info = HfApi(token=token or False).model_info(request.repo, revision=request.revision, files_metadata=True)
    files = []
    for entry in info.siblings or []:
        name = PurePosixPath(entry.rfilename)
        if name.is_absolute() or ".." in name.parts or name.parts[0] in {MARKER, PARTIAL}:
            raise RefusedError(
                f"the hub lists a file named {entry.rfilename}",
                "names inside the model's folder",
                "use another hub: this one is broken or hostile",
            )
        large = entry.lfs.sha256 if entry.lfs else None
        files.append(File(str(name), int(entry.size or 0), f"sha256:{large}" if large else f"git:{entry.blob_id}"))
    wanted = chosen(files, request.allow, request.ignore)
    for file in wanted:
        if file.size > HTTP_LIMIT and not _has_xet(request, file, token):
            raise RefusedError(
                f"{file.name} of {request.repo} has {file.size / GIB:.0f} GiB, and this hub offers no Xet for it",
                f"files up to {HTTP_LIMIT / GIB:.0f} GiB: larger ones come by Xet alone",
                "set vllm_hub_endpoint to one that does, or bring the model into a folder and set vllm_model to it",
            )
    if not wanted:
        raise RefusedError(
            f"{request.repo} has {len(files)} files and none is wanted",
            "at least one",
            "correct vllm_model_allow and vllm_model_ignore",
        )
    return wanted


def missing_bytes(request: Request, missing: Iterable[File]) -> int:
    """What has still to come, in bytes: partial files count as far as they go."""
    return sum(max(0, file.size - _size(_partial(request, file))) for file in missing)


def judge_room(request: Request, needed: int, count: int) -> None:
    """Refuse what the file system cannot hold."""
    free = shutil.disk_usage(request.folder).free
    if free < needed:
        raise RefusedError(
            f"{free / GIB:.2f} GiB free for {request.folder}",
            f"{needed / GIB:.2f} GiB: {count} files of {request.repo} that are not there yet",
            "free the space, or set vllm_models_dir to a larger file system",
        )


def fetch(request: Request, file: File, token: str | None) -> None:
    """Bring one file, and put it in place once its hash is right."""
    target = request.folder / file.name
    for attempt in (1, 2):
        came = (_by_xet if file.size > HTTP_LIMIT else _by_http)(request, file, token)
        found = digest(came, file.digest)
        if found == file.digest:
            target.parent.mkdir(parents=True, exist_ok=True)
            came.chmod(0o644)
            came.replace(target)
            return
        came.unlink()
        print(f"{file.name}: {found}, the hub states {file.digest} (attempt {attempt})", file=sys.stderr)
    raise RefusedError(
        f"{file.name} of {request.repo} came twice with another content: {found}",
        f"{file.digest}, as the hub states",
        "look at the hub or mirror, and at proxies in between (vllm_hub_endpoint)",
    )


def _by_http(request: Request, file: File, token: str | None) -> Path:
    """From where the partial file ends."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    partial = _partial(request, file)
    begin = _size(partial)
    if begin > file.size:
        partial.unlink()
        begin = 0
    with partial.open("ab") as stream:
        http_get(
            hf_hub_url(request.repo, file.name, revision=request.revision),
            stream,
            resume_size=begin,
            # A compressed answer cannot be taken up in the middle.
            headers={**build_hf_headers(token=token or False), "Accept-Encoding": "identity"},
            expected_size=file.size,
            displayed_filename=file.name,
        )
        stream.flush()
        os.fsync(stream.fileno())
    return partial


def _has_xet(request: Request, file: File, token: str | None) -> bool:
    """Whether the hub offers this file by Xet, and the release can take it."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import is_xet_available

    url = hf_hub_url(request.repo, file.name, revision=request.revision)
    return is_xet_available() and get_hf_file_metadata(url, token=token or False).xet_file_data is not None


def _by_xet(request: Request, file: File, token: str | None) -> Path:
    """By the library, which takes Xet where the hub offers it."""
    from huggingface_hub import hf_hub_download

    folder, asked = _partial(request, file), token or False
    return Path(hf_hub_download(request.repo, file.name, revision=request.revision, local_dir=folder, token=asked))


def _partial(request: Request, file: File) -> Path:
    return request.folder / PARTIAL / file.digest.replace(":", "-")


def _size(path: Path) -> int:
    """Of a file, or of all in a folder; 0 where there is nothing."""
    return sum(one.stat().st_size for one in (path, *path.rglob("*")) if one.is_file())


def bring(request: Request, token: str | None, *, plan: bool, verify: bool) -> dict[str, object]:
    """Make the folder whole, or with `plan` say what that takes; raises RefusedError, and OSError where it ends."""
    marker = Marker(request)
    before = dict(marker.files)
    known = [File(name, int(str(one["size"])), str(one["digest"])) for name, one in before.items()]
    if marker.complete and all(marker.holds(file, read=verify) for file in known):
        if marker.files != before and not plan:  # a file was put there anew, as it was
            marker.write(complete=True)
        return {"changed": False, "files": len(known), "bytes": 0}
    wanted = listing(request, token)
    missing = [file for file in wanted if not marker.holds(file, read=verify)]
    needed = missing_bytes(request, missing)
    place = request.folder
    while not place.exists():
        place = place.parent
    judge_room(Request(place, request.repo, request.revision), needed, len(missing))
    answer: dict[str, object] = {"changed": True, "files": len(missing), "bytes": needed}
    if plan:
        return answer
    (request.folder / PARTIAL).mkdir(parents=True, exist_ok=True)
    marker.write(complete=False)

    def one(file: File) -> None:
        fetch(request, file, token)
        marker.verified(file)
        marker.write(complete=False)

    with ThreadPoolExecutor(WORKERS) as workers:
        try:
            list(workers.map(one, missing))
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise
    marker.files = {file.name: marker.files[file.name] for file in wanted}
    shutil.rmtree(request.folder / PARTIAL, ignore_errors=True)
    marker.write(complete=True)
    return answer


def refusal(request: Request, error: Exception, *, token: bool) -> dict[str, str] | None:
    """Say what an error of the hub or of the disk means; None for what is a fault of this program."""
    if isinstance(error, RefusedError):
        return error.row
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return {
            "found": f"the file system of {request.folder} filled up",
            "needed": "room for the whole model",
            "do": "free the space and run again: it goes on where it ended",
        }
    from huggingface_hub import errors

    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    what = f"{request.repo} at {request.revision}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return {
            "found": f"{request.repo} is gated, and {'this token may not read it' if token else 'no token was given'}",
            "needed": "a token whose owner has accepted the model's terms",
            "do": f"accept them at {hub}/{request.repo}, then set vllm_hub_token",
        }
    if isinstance(error, errors.RevisionNotFoundError):
        return {
            "found": f"{request.repo} has no commit {request.revision}",
            "needed": "a commit of that model",
            "do": f"its revision: the first column of `git ls-remote {hub}/{request.repo} main`",
        }
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return {
            "found": f"{hub} shows no model {request.repo}{' to this token' if token else ''}",
            "needed": "a model that is there",
            "do": f"correct its name, or {'give another' if token else 'set'} vllm_hub_token if it is private",
        }
    if isinstance(error, (errors.HTTPError, OSError)):
        return {
            "found": f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
            "needed": f"a hub that answers at {hub}",
            "do": "look at it (vllm_hub_endpoint, proxy, certificates) and run again: it goes on where it ended",
        }
    return None


def credential(name: str) -> str | None:
    """What systemd loaded for this service by this name; None where it was to load nothing."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if folder is None:
        return None
    try:
        return (Path(folder) / name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise RefusedError(
            f"systemd did not hand over the credential {name}",
            "mounts that propagate: systemd brings a credential to a service by a mount",
            "`mount --make-rshared /` on the host: it is a container whose mounts are private",
        ) from None


def main(argv: list[str]) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repo", required=True)
    parser.add_argument("--revision", required=True, help="the full commit")
    parser.add_argument("--allow", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--ignore", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--plan", action="store_true", help="change nothing, say what is missing")
    parser.add_argument("--verify", action="store_true", help="read every file again")
    options = parser.parse_args(argv)
    request = Request(options.folder, options.repo, options.revision, tuple(options.allow), tuple(options.ignore))
    token = None
    try:
        token = credential("hub-token")
        answer = bring(request, token, plan=options.plan, verify=options.verify)
    except Exception as error:
        row = refusal(request, error, token=bool(token))
        if row is None:
            raise
        print(json.dumps(row))
        return 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
