"""What a hub says of a model: its config.json and, where it has them, the index of its weights and its preprocessor.

huggingface_hub fetches them, where it is installed (the extra `hub`): into its own cache, from
$HF_ENDPOINT, with the user's own token, and from the cache alone where $HF_HUB_OFFLINE is set.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vllm_doctor.gather.concurrently import Task
from vllm_doctor.gather.extras import brings
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Known, Unknown

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
PREPROCESSOR = "preprocessor_config.json"
_SEES = b'"vision_config"'  # in the config of a model that takes images
_GIVEN = "--model-config config.json"
_ELSEWHERE = f"HF_ENDPOINT names another hub, HTTPS_PROXY the way to it; or {_GIVEN}"
_SECONDS, _PATIENCE_S = 5.0, 12.0
_REACHED_S = 4.0  # to a connection; a hub that takes one is given more time to answer
_MOST = 32 << 20  # bytes; as of any config.json (plan/model/config_json.py)


def config(model: str, revision: str | None) -> Known[Path] | Unknown:
    """The file config.json of a model's revision (None: its main one), in the hub's cache on this host; the index of
    the weights and, of a model that takes images, its preprocessor lie beside it where the model has them."""
    if (address := _no_address()) is not None:
        return Unknown(
            f"HF_ENDPOINT is {excerpt.value(address)}, no address of a hub",
            f"http:// or https:// with a host; or {_GIVEN}",
        )
    try:
        from huggingface_hub import errors, hf_hub_download
    except ImportError:
        return Unknown(
            f"{model} is not on this host, and huggingface_hub, which would fetch its config.json, is not installed",
            f"{brings('hub')}, or {_GIVEN}",
        )
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells each of its retries
    refused = (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)

    # One that cannot be reached is asked again and again by the library, for longer than a user waits.
    away = not _reached()

    def fetched(name: str) -> Path | None:
        found = hf_hub_download(model, name, revision=revision, etag_timeout=_SECONDS, local_files_only=away)
        return Path(found)

    try:
        with _no_larger():
            # A hub that sends a byte now and then keeps each of the library's own time limits.
            file = Task(lambda: fetched(CONFIG)).within(_PATIENCE_S, None)
            if file is None:
                return Unknown(f"{_hub()} did not send config.json of {model} within {_PATIENCE_S:g} s", _ELSEWHERE)
    except refused as problem:
        return _refusal(model, revision, problem)
    except (OSError, ValueError, errors.HFValidationError) as problem:
        return Unknown(f"config.json of {model} was not fetched: {_first(problem)}", _GIVEN)
    if file.stat().st_size > _MOST:
        return Unknown(f"{file}: larger than any config.json", _GIVEN)
    # Of one file, or of another format: the weights follow from the configuration.
    with suppress(*refused, OSError, ValueError), _no_larger():
        Task(lambda: fetched(INDEX)).within(_PATIENCE_S, None)
    # How large an image may be decides what the profile of an encoder takes.
    with suppress(*refused, OSError, ValueError), _no_larger():
        if _SEES in file.read_bytes():
            Task(lambda: fetched(PREPROCESSOR)).within(_PATIENCE_S, None)
    return Known(file, str(file))


def _no_address() -> str | None:
    """What HF_ENDPOINT says, without a user's name and password, where that is no address; asked before the library is
    imported, which reads it then and raises."""
    from urllib.parse import urlsplit

    told = os.environ.get("HF_ENDPOINT", "")
    try:
        parts = urlsplit(told)
        good = parts.scheme in {"http", "https"} and parts.hostname is not None and (parts.port or 1) > 0
    except ValueError:  # of the port, or of brackets
        good = False
    return None if good or not told else told.rpartition("@")[2]


def _hub() -> str:
    """The hub that is asked, without a user's name and password."""
    from urllib.parse import urlsplit

    from huggingface_hub import constants

    told = urlsplit(constants.ENDPOINT)
    return f"{told.scheme}://{told.netloc.rpartition('@')[2]}"


def _reached() -> bool:
    """Does the hub, or the proxy on the way to it, take a connection? Where the hub is not to be asked, yes."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    from huggingface_hub import constants

    told = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE or told.hostname is None:
        return True
    proxy = None if proxy_bypass(told.hostname) else getproxies().get(told.scheme)
    try:
        way = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else told
        port = way.port or (443 if way.scheme == "https" else 80)
    except ValueError:  # the proxy's is no address
        return False

    def connected() -> bool:
        with suppress(OSError), socket.create_connection((way.hostname or "", port), timeout=_REACHED_S):
            return True
        return False

    # The name's own look-up has no time limit but the resolver's.
    return Task(connected).within(_REACHED_S, late=False)


def _refusal(model: str, revision: str | None, problem: Exception) -> Unknown:
    """Why the hub does not give it, and what to do."""
    from huggingface_hub import constants, errors

    if isinstance(problem, errors.GatedRepoError):
        return Unknown(
            f"{model} is gated on {_hub()}: its owner gives access to users who accepted the terms",
            f"accept them on {_hub()}/{model}, then `hf auth login`, or set HF_TOKEN; or {_GIVEN}",
        )
    if isinstance(problem, errors.RevisionNotFoundError):
        return Unknown(f"{_hub()} has {model}, but no revision {revision}", f"give one that is there; or {_GIVEN}")
    if isinstance(problem, errors.RepositoryNotFoundError):
        return Unknown(
            f"{_hub()} has no model {model}, or shows it only with its owner's permission",
            f"correct the name; where it is private, `hf auth login` or HF_TOKEN; or {_GIVEN}",
        )
    if isinstance(problem, errors.LocalEntryNotFoundError) and constants.HF_HUB_OFFLINE:
        return Unknown(
            f"HF_HUB_OFFLINE is set, and the hub's cache here ({constants.HF_HUB_CACHE}) has no config.json of {model}",
            f"unset it once, or copy the cache from a host that has the model; or {_GIVEN}",
        )
    if isinstance(problem, errors.LocalEntryNotFoundError):
        return Unknown(f"{_hub()} could not be reached, and no cache here has config.json of {model}", _ELSEWHERE)
    if isinstance(problem, errors.EntryNotFoundError):
        return _without_config(model, revision)
    return Unknown(f"{_hub()} refuses config.json of {model}: {_first(problem)}", _GIVEN)


def _without_config(model: str, revision: str | None) -> Unknown:
    """What the model has in the place of a config.json."""
    from huggingface_hub import HfApi, errors

    names: list[str] = []
    with suppress(errors.HfHubHTTPError, OSError, ValueError):
        asked = Task(lambda: HfApi().list_repo_files(model, revision=revision)).within(_PATIENCE_S, None)
        names = asked or []
    if "adapter_config.json" in names:
        return Unknown(
            f"{model} is an adapter (adapter_config.json, no config.json)",
            "plan the model that it adapts, with --enable-lora",
        )
    if any(name.endswith(".gguf") for name in names):
        return Unknown(
            f"{model} holds GGUF files and no config.json",
            "give the config.json of the model that it was made of: --model-config FILE -- vllm serve FILE.gguf",
        )
    if "params.json" in names:
        return Unknown(f"{model} has Mistral's params.json and no config.json, which plan reads", _GIVEN)
    more = f" ({', '.join(sorted(names)[:3])} …)" if names else ""
    return Unknown(f"{_hub()} has {model}, but no config.json in it{more}", _GIVEN)


@contextmanager
def _no_larger() -> Iterator[None]:
    """Let no file of this process grow beyond what a config.json has: a stranger's may be as large as the disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = _MOST if before[0] == resource.RLIM_INFINITY else min(_MOST, before[0])
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _first(problem: Exception) -> str:
    text = next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
    return excerpt.said(text)
