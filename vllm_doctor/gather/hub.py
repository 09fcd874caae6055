"""What a hub says of a model: its config.json and, where it has one, the index of its weights.

huggingface_hub fetches them, where it is installed (`pip install 'vllm-host-doctor[hub]'`): into its own cache, from
$HF_ENDPOINT, with the user's own token, and from the cache alone where $HF_HUB_OFFLINE is set.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vllm_doctor.gather.together import Task
from vllm_doctor.records.reading import Known, Unknown

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
_GIVEN = "give it: --model-config config.json"
_SECONDS, _PATIENCE_S = 5.0, 12.0
_MOST = 32 << 20  # bytes; as of any config.json (plan/model/reading.py)


def config(model: str, revision: str | None) -> Known[Path] | Unknown:
    """The file config.json of a model's revision (None: its main one), in the hub's cache on this host; the index of
    the weights lies beside it where the model has one."""
    try:
        from huggingface_hub import errors, hf_hub_download
    except ImportError:
        return Unknown(
            f"{model} is not on this host, and huggingface_hub, which would fetch its config.json, is not installed",
            f"pip install 'vllm-host-doctor[hub]', or {_GIVEN}",
        )
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells each of its retries
    refused = (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)

    def fetched(name: str) -> Path | None:
        return Path(hf_hub_download(model, name, revision=revision, etag_timeout=_SECONDS))

    try:
        with _no_larger():
            # A hub that sends a byte now and then keeps each of the library's own time limits.
            file = Task(lambda: fetched(CONFIG)).within(_PATIENCE_S, None)
            if file is None:
                return Unknown(f"the hub did not send config.json of {model} within {_PATIENCE_S:g} s", _GIVEN)
    except refused as problem:
        return Unknown(f"the hub has no config.json of {model} for us: {_first(problem)}", _GIVEN)
    except (OSError, ValueError, errors.HFValidationError) as problem:
        return Unknown(f"config.json of {model} was not fetched: {_first(problem)}", _GIVEN)
    if file.stat().st_size > _MOST:
        return Unknown(f"{file}: larger than any config.json", _GIVEN)
    # Of one file, or of another format: the weights follow from the configuration.
    with suppress(*refused, OSError, ValueError), _no_larger():
        Task(lambda: fetched(INDEX)).within(_PATIENCE_S, None)
    return Known(file, str(file))


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
    return text[:200]
