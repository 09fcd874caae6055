"""Models that come from a hub: which, at which commit, into which folder, and what is wrong with how they are asked."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge import hub as hubs  # noqa: E402
from vllm_doctor.launch import unit_text  # noqa: E402

HUB_TOKENS = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}
SECRET = re.compile(
    r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|API_KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)$|SECRET", re.IGNORECASE
)

# systemd.exec(5), ProtectHome=: with these words the folders are empty for the service; with read-only they are there.
HIDES = {"yes", "true", "on", "1", "tmpfs"}
HOME = re.compile(r"(?<![\w/.-])/(?:home|root|run/user)/[^\s\"'\\,}]+")


def hidden(units: Iterable[Mapping[str, Any]], rendered: Mapping[str, str]) -> list[dict[str, str]]:
    """List what a launch reads below the homes that its own unit hides, as {found, needed, do}."""
    found = []
    for unit in units:
        text = rendered[unit["instance"]]
        path = HOME.search("\n".join(unit_text.read_unit(text).words))
        protected = unit_text.values(text, "ProtectHome")
        if path and protected and protected[-1] in HIDES:
            found.append(
                _row(
                    f"{unit['name']}: {path[0]}, where the service sees nothing: its unit has ProtectHome=yes",
                    "a folder outside of /home, /root and /run/user",
                    f"move it to /srv/models/{Path(path[0]).name}, and correct vllm_model or what names it",
                )
            )
    return found


def models(units: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List what the services of a host take from a hub, each once: services share a folder."""
    first: dict[str, dict[str, Any]] = {}
    for hub in (hub for unit in units for hub in unit["hubs"]):
        first.setdefault(hub["folder"], hub)
    return list(first.values())


def problems(units: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> list[dict[str, str]]:
    """List what is wrong with models and secrets before any host is asked, as {found, needed, do}."""
    found: list[dict[str, str]] = []
    folders: dict[str, tuple[dict[str, Any], str]] = {}
    for unit in units:
        at = f"{unit['name']}: "
        source = "vllm_instances: environment" if "environment" in unit["own"] else "vllm_environment"
        found += [
            _row(
                f"{at}{source}: {name}, which everyone on the host can read in the unit",
                f"a secret in {(place := 'vllm_hub_token' if name in HUB_TOKENS else 'vllm_secrets')}",
                f"{source}: take {name} out, and put it into {place}",
            )
            for name in unit["environment"]
            if SECRET.search(str(name))
        ]
        if not unit["model"]:
            found.append(
                _row(
                    f"{at}no model",
                    "a folder on the host, or a name on a hub with its commit",
                    "vllm_model: /srv/models/NAME, or a name such as org/model and vllm_revision",
                )
            )
        if unit["hub"] and variables["generated_model"]:
            name = unit["hub"]["repo"]
            found.append(_row(f"{at}a generated model named {name}", "a folder", "vllm_model: /srv/models/tiny"))
        for hub in unit["hubs"]:
            found += _of_commit(at, hub, variables["hub_endpoint"])
            first, owner = folders.setdefault(hub["folder"], (hub, unit["name"]))
            if any(first[kind] != hub[kind] for kind in ("allow", "ignore")):
                found.append(
                    _row(
                        f"{at}{hub['repo']} with other files than {owner}",
                        "one choice of files for a folder that services share",
                        "vllm_instances: the same model_allow and model_ignore in both entries",
                    )
                )
    if any(unit["hubs"] for unit in units) or all(unit["offline"] for unit in units):
        found += [
            _row(
                f"vllm_secrets: {name}, in the environment of a service that asks no hub",
                "the token where the download alone reads it",
                f"vllm_secrets: take {name} out, and set vllm_hub_token",
            )
            for name in variables["secret_names"]
            if name in HUB_TOKENS
        ]
    return found


def _of_commit(at: str, hub: Mapping[str, Any], endpoint: str) -> list[dict[str, str]]:
    if hubs.is_commit(hub["revision"]):
        return []
    return [
        _row(
            f"{at}{hub['repo']} at {hub['revision'] or 'no revision'}",
            "an exact commit, 40 hexadecimal digits: a branch is another model tomorrow",
            f"{hub['pin']}: the first column of `git ls-remote {endpoint}/{hub['repo']} {hub['revision'] or 'main'}`",
        )
    ]


def _row(found: str, needed: str, do: str) -> dict[str, str]:
    return {"found": found, "needed": needed, "do": do}


def choice(hub: Mapping[str, Any]) -> list[str]:
    """Write the words of fetch_model.py that say which model, which files and where."""
    words = [hub["folder"], f"--repo={hub['repo']}", f"--revision={hub['revision']}"]
    return words + [f"--{kind}={pattern}" for kind in ("allow", "ignore") for pattern in hub[kind]]


def refused(results: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """List the models that could not be made whole, as {found, needed, do}."""
    return [_why(result) for result in results if result.get("rc")]


def _why(result: Mapping[str, Any]) -> dict[str, str]:
    try:
        row: dict[str, str] = json.loads(result["stdout"].strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = " ".join((result.get("stderr") or "").split())[-300:]
        return {
            "found": f"{result['item']['repo']}: the download ended without an answer: {said}",
            "needed": f"{result['item']['folder']}, whole",
            "do": "run again: it goes on where it ended",
        }
    return row


def told(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Write what would be fetched, a line for each model that is not whole; `results` are of --plan, or skipped."""
    lines = []
    for result in results:
        hub = result["item"]
        what = f"{hub['repo']} at {hub['revision']} into {hub['folder']}"
        if "rc" not in result:
            lines.append(f"{what}: how much is known once the release that asks the hub is there")
        elif result["rc"] == 0 and (answer := json.loads(result["stdout"]))["changed"]:
            lines.append(f"{what}: {answer['files']} files, {answer['bytes'] / 2**30:.2f} GiB")
    return lines


class FilterModule:
    """The filters of models."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name them."""
        return {
            "vllm_hidden": hidden,
            "vllm_models": models,
            "vllm_model_problems": problems,
            "vllm_model_choice": choice,
            "vllm_fetch_refused": refused,
            "vllm_fetch_told": told,
        }
