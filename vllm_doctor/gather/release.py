"""Which vLLM is installed where the unit starts it from, and what model configuration it loads."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from vllm_doctor.gather import procfs
from vllm_doctor.gather.bounded import all_of, json_value, text_of_start, title, whole_file
from vllm_doctor.records.host import Launch
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown

_DIST = re.compile(r"vllm(?:_cpu)?-(\d.*)\.dist-info")
MAX_CONFIG = 4 << 20
# Of one model in the cache; each is a commit that somebody loaded.
_REVISIONS = 1000
# Tens of thousands of mapped files; a server has some hundreds.
_MAPS = 16 << 20


def version(argv: Sequence[str], main_pid: int | None) -> Reading[str]:
    """The version of the release: of the running process where it may be looked into, else of what the unit starts."""
    for root in [*_running(main_pid), *_roots(argv)]:
        for packages in [root, *sorted(root.glob("lib/python3*/site-packages"))]:
            for folder in sorted(packages.glob("vllm*.dist-info")):
                found = _DIST.fullmatch(folder.name)
                if found:
                    return Known(found[1], str(folder))
    return Unknown("the installed vLLM was not found beside the program of the unit", "give it: --vllm-version X.Y.Z")


def _running(pid: int | None) -> Iterator[Path]:
    """The site-packages that a running process loaded torch from: exact even after `current` was switched."""
    if pid is None:
        return
    found = re.search(r"(/\S{0,1000}/site-packages)/(?:torch|vllm)/", text_of_start(f"/proc/{pid}/maps", _MAPS) or "")
    if found:
        yield Path(found[1])


def _roots(argv: Sequence[str]) -> Iterator[Path]:
    """Virtual environments that the words of the command line point into: …/bin/vllm, …/bin/python."""
    for word in argv[:6]:
        path = Path(word)
        if path.is_absolute() and path.parent.name == "bin":
            yield path.parent.parent


def model_config(launch: Launch, env: Mapping[str, str], user: str | None) -> Reading[dict[str, object]]:
    """config.json of the served model: from its folder, or from the Hugging Face cache of the service."""
    if launch.model is None:
        return Unknown("the launch names no model", "give it: --model-config config.json")
    looked: list[str] = []
    for file in _candidates(launch, env, user):
        looked.append(str(file))
        how = f"run as root, or: sudo -u {shlex.quote(user or 'vllm')} vllm-doctor diagnose"
        read = whole_file(file, MAX_CONFIG, denied=how, reader=user)
        if isinstance(read, Absent):
            continue
        if isinstance(read, Unknown):
            return read
        return _configuration(read.value, str(file), f"python3 -m json.tool {shlex.quote(str(file))}")
    if launch.model.endswith(".gguf"):
        return Absent("a GGUF file carries its configuration inside")
    return Unknown(
        f"no config.json for {launch.model} (looked in {', '.join(looked[:3])})", "give it: --model-config FILE"
    )


def read_model_config(name: str) -> Reading[dict[str, object]]:
    """A config.json that a person gives, or the one in the folder given; `-` is standard input."""
    path = Path(name) / "config.json" if os.path.isdir(name) else Path(name)  # noqa: PTH112 - Path raises for a long name
    data = all_of(str(path), "--model-config", MAX_CONFIG)
    if isinstance(data, Unknown):
        return data
    return _configuration(data, title(str(path)), "give the model's config.json, whole")


def _configuration(data: bytes, name: str, remedy: str) -> Known[dict[str, object]] | Unknown:
    config = json_value(data, name, remedy)
    if isinstance(config, Unknown):
        return config
    if not isinstance(config.value, dict) or not config.value:
        return Unknown(f"{name}: not a model configuration", remedy)
    return Known(config.value, name)


def _candidates(launch: Launch, env: Mapping[str, str], user: str | None) -> Iterator[Path]:
    model = launch.model or ""
    if model.startswith(("/", ".")):
        yield Path(model) / "config.json"
        return
    name = "models--" + model.replace("/", "--")
    for cache in _caches(launch, env, user):
        snapshots = cache / name / "snapshots"
        try:
            revisions = sorted(islice(snapshots.iterdir(), _REVISIONS), key=lambda p: p.stat().st_mtime, reverse=True)
        except PermissionError:
            yield snapshots / "config.json"
            continue
        except OSError:
            continue
        yield from (revision / "config.json" for revision in revisions)


def _caches(launch: Launch, env: Mapping[str, str], user: str | None) -> Iterator[Path]:
    folder = launch.flags.get("download-dir")
    if isinstance(folder, str):
        yield Path(folder)
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ):
        if env.get(name):
            yield Path(env[name]) / below
    if user:
        yield Path(os.path.expanduser(f"~{user}")) / ".cache/huggingface/hub"  # noqa: PTH111 - of another user


def launch_environment(pid: int | None, unit_env: Mapping[str, str]) -> dict[str, str]:
    """The running process's own environment where it may be read, else what the unit sets. Secrets are still in it."""
    own = procfs.environ(pid) if pid is not None else None
    return own if own is not None else dict(unit_env)
