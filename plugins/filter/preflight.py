"""Where the models that an inventory names lie on a host."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.preflight.launches import place  # noqa: E402


def model_folders(instances: Iterable[Any], model: str, revision: str, store: str) -> list[str]:
    """List the folders of all services' models, each once; `store` is where models of a hub lie."""
    asked = [item for item in instances if isinstance(item, dict)] or [{}]
    found = [place(str(item.get("model", model)), str(item.get("revision", revision)), store) for item in asked]
    return list(dict.fromkeys(folder for folder in found if folder.startswith("/")))


class FilterModule:
    """The filters of preflight."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name them."""
        return {"preflight_model_folders": model_folders}
