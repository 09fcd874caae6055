"""Where an inventory's models lie on a host, which hosts are to be without what, and how many change at once."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.preflight.launches import place_on_host  # noqa: E402


def model_folders(instances: Iterable[Any], model: str, revision: str, store: str) -> list[str]:
    """List the folders of all services' models, each once; `store` is where models of a hub lie."""
    asked = [item for item in instances if isinstance(item, dict)] or [{}]
    found = [place_on_host(str(item.get("model", model)), str(item.get("revision", revision)), store) for item in asked]
    return list(dict.fromkeys(folder for folder in found if folder.startswith("/")))


def absent(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], *variables: str) -> list[str]:
    """List those of `hosts` for which one of the variables says absent; site_state where none is named."""
    return [
        host
        for host in hosts
        if any(str(hostvars[host].get(name, "present")) == "absent" for name in variables or ("site_state",))
    ]


PACE = "site_serial_"


def pace_group(pace: str) -> str:
    """Name the group that keeps how many hosts change at once: a play's own keywords see groups, and no inventory."""
    return PACE + pace.replace("%", "_percent")


def pace(groups: Iterable[str]) -> str:
    """How many hosts change at once, by that group; a quarter where there is none."""
    kept = next((name for name in groups if name.startswith(PACE)), pace_group("25%"))
    return kept.removeprefix(PACE).replace("_percent", "%")


class FilterModule:
    """The filters of preflight."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name them."""
        return {
            "preflight_absent": absent,
            "preflight_model_folders": model_folders,
            "preflight_pace": pace,
            "preflight_pace_group": pace_group,
        }
