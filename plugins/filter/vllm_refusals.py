"""What is wrong with the services of a host, judged before any host is asked."""

import difflib
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
from vllm_doctor.knowledge import parser, versions  # noqa: E402
from vllm_doctor.knowledge.version import is_release  # noqa: E402
from vllm_doctor.preflight import host_table  # noqa: E402
from vllm_doctor.preflight.locks import nearest_version  # noqa: E402

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
OWN_KEYS = {
    "name",
    "model",
    "model_allow",
    "model_ignore",
    "environment",
    "extra_args",
    "memory_max",
    "unit_template",
    "version",
    "gpus",
    "spans_hosts",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_ca_certs",
}
# Asked of a hub at each start where they name none of its folders, and a service whose model is a folder runs offline.
ALSO_OF_A_HUB = {"tokenizer", "hf-config-path"}
# Words of a variable in other spelling, and what would go past the variables, the plan and the judgement here.
ANOTHER_WAY = {
    "spec-model": "speculative-config",
    "spec-method": "speculative-config",
    "spec-tokens": "speculative-config",
}
OWNED_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "vllm_gpus", "HF_ENDPOINT": "vllm_hub_endpoint"}
# What only a service of several hosts is given. Its processes do not find each other on a loopback address.
SPANNING = (
    "data-parallel-address",
    "data-parallel-external-lb",
    "data-parallel-hybrid-lb",
    "data-parallel-rank",
    "data-parallel-start-rank",
    "headless",
    "master-addr",
    "nnodes",
    "node-rank",
)
ADAPTER_KEYS = {"name", "path", "revision", "base_model_name"}


def problems(
    made: Iterable[Mapping[str, Any]], variables: Mapping[str, Any], locks: Sequence[str], templates: Sequence[str]
) -> list[dict[str, str]]:
    """List what would be refused on the host, as {found, needed, do}.

    `locks` and `templates` are the names that there are.
    """
    found = _of_release(variables["version"], "vllm_version", variables, locks)
    for instance in variables["instances"]:
        if "version" in instance:
            place = f"vllm_instances: version of {instance.get('name', '')}"
            found += _of_release(instance["version"], place, variables, locks)
    for unit, instance in zip(made, variables["instances"], strict=True):
        found += _of_unit(unit, instance, variables, templates)
    return found


def _of_release(
    version: object, place: str, variables: Mapping[str, Any], locks: Sequence[str]
) -> list[dict[str, str]]:
    """Refuse a release that is none, or that has no lock."""
    variables = {**variables, "version": version}
    wanted, builds = f"{version}+{variables['variant']}", _builds(locks)
    do = _with_lock(variables, locks)
    if place != "vllm_version":
        do = f"{place}: {do}"
    if not is_release(str(version)):
        return [_row(f"{place}: {version}", "an exact release, such as 0.32.0", do, host_table.RELEASE)]
    if wanted not in {build for _, build in builds} | {f"{known}+auto" for known, _ in builds}:
        needed = f"a hash lock; there is {', '.join(locks) or 'none'}"
        return [_row(f"vLLM {wanted}", needed, f"{do}, or make the lock with tools/vllm_lock.py", host_table.RELEASE)]
    return []


def _builds(locks: Iterable[str]) -> list[tuple[str, str]]:
    """List (release, release+build) of the locks, which are also named by their architecture."""
    return [(lock.partition("+")[0], lock.rpartition("-")[0]) for lock in locks]


def _with_lock(variables: Mapping[str, Any], locks: Iterable[str]) -> str:
    """Write the line that asks for what has a lock: another build of the release, else the nearest with the build."""
    pairs = [(version, build.partition("+")[2]) for version, build in _builds(locks)]
    builds = [build for version, build in pairs if version == str(variables["version"])]
    if builds:
        return f"vllm_variant: {'auto' if any(build != 'cpu' for build in builds) else builds[-1]}"
    variant = variables["variant"]
    releases = [version for version, build in pairs if build == variant or (variant == "auto" and build != "cpu")]
    nearest = nearest_version(str(variables["version"]), releases or [version for version, _ in pairs])
    return f'vllm_version: "{nearest or "…"}"'


def _of_unit(
    unit: Mapping[str, Any], instance: Mapping[str, Any], variables: Mapping[str, Any], templates: Sequence[str]
) -> list[dict[str, str]]:
    at = f"vllm@{unit['instance']}: "
    known = {*variables["arguments"], *OWN_KEYS}
    found = []
    if not NAME.fullmatch(unit["instance"]):
        needed = "lower-case letters, digits, - _ ."
        found.append(_row(f"an instance named {unit['instance']!r}", needed, "vllm_instances: {name: …} in each entry"))
    for key in instance:
        if key not in known:
            bare = str(key).removeprefix("vllm_")
            near = [bare] if bare in known else difflib.get_close_matches(bare, known, n=1)
            found.append(
                _row(
                    f"{at}unknown key {key}",
                    "a variable of the role without vllm_",
                    f"vllm_instances: write {near[0]}" if near else f"vllm_instances: take {key} out",
                )
            )
    if unit["template"] not in {*templates, "auto"}:
        found.append(
            _row(
                f"{at}vllm_unit_template: {unit['template']}",
                f"one of {', '.join(templates)}",
                f"vllm_unit_template: {_template(str(unit['template']), templates)}",
            )
        )
    found += _of_adapters(at, instance.get("lora_modules", variables["lora_modules"]) or [], unit["arguments"])
    extra = instance.get("extra_args", variables["extra_args"])
    for name, value in extra.items():
        found += _of_extra(unit, str(name), value, variables["arguments"])
    for name in sorted({*OWNED_ENVIRONMENT} & {*instance.get("environment", variables["environment"])}):
        place, owner = setting(unit, "environment"), OWNED_ENVIRONMENT[name]
        found.append(_row(f"{at}{place}: {name}", f"{owner}, which says the same", f"{place}: take {name} out"))
    if is_release(unit["version"]):
        for name, value in unit["arguments"].items():
            shadows = name in extra and _owner(str(name), variables["arguments"])
            if complaint := None if shadows else parser.complaint(str(name), value, unit["version"]):
                where = (
                    f"{setting(unit, 'extra_args')}: {name}" if name in extra else setting(unit, name.replace("-", "_"))
                )
                found.append(_row(f"{at}{complaint.found}", complaint.needed, f"{complaint.do} ({where})"))
    found += _of_hosts(at, unit, instance.get("spans_hosts", variables["spans_hosts"]))
    if unit["listens"] not in LOOPBACK and not variables["api_key"] and not variables["allow_open"]:
        found.append(
            _row(
                f"{at}open to everyone on {unit['listens']}",
                "vllm_api_key",
                "set vllm_api_key, or vllm_host: 127.0.0.1, or vllm_allow_open: true",
            )
        )
    return found


def _of_hosts(at: str, unit: Mapping[str, Any], spans: bool | None) -> list[dict[str, str]]:
    """Refuse what cannot work on a loopback address, and what only the inventory can tell."""
    arguments, place = unit["arguments"], setting(unit, "spans_hosts")
    if spans is True:
        return []
    wide = [
        f"--{name} {arguments[name]}" for name in SPANNING if arguments.get(name) not in {None, False, "", "127.0.0.1"}
    ]
    wide = [one for one in wide if one != "--nnodes 1"]
    wide += [
        f"--{name} ray (Ray's processes listen on the host's address)"
        for name in ("distributed-executor-backend", "data-parallel-backend")
        if arguments.get(name) == "ray"
    ]
    if wide:
        needed = "processes that listen on the network between the hosts, with addresses from vllm_environment"
        return [_row(f"{at}{', '.join(wide)} on a loopback address", needed, f"{place}: true")]
    if spans is None and arguments.get("kv-transfer-config"):
        needed = "whether the server that it shares its KV cache with is on another host"
        return [_row(f"{at}--kv-transfer-config", needed, f"{place}: true, or false where all of it is on this host")]
    return []


def setting(unit: Mapping[str, Any], key: str) -> str:
    """Name what says `key` for this service: its entry, or the variable of the role."""
    return f"vllm_instances: {key} of {unit['instance']}" if key in unit["own"] else f"vllm_{key}"


def _template(wrong: str, templates: Sequence[str]) -> str:
    """Name the template that was meant: the one with the same words, or almost; auto where several may be."""
    words = set(re.split(r"[^a-z0-9]+", wrong.casefold()))
    same = [name for name in templates if words & set(name.split("-"))]
    near = same or difflib.get_close_matches(wrong, templates, n=2, cutoff=0.75)
    return near[0] if len(near) == 1 else "auto"


def _of_adapters(at: str, listed: Iterable[Any], arguments: Mapping[str, Any]) -> list[dict[str, str]]:
    wrong = [one for one in listed if not isinstance(one, dict) or not {"name", "path"} <= set(one) <= ADAPTER_KEYS]
    needed = "name and path (a folder, or a name on the hub with its revision), and base_model_name at will"
    found = [_row(f"{at}vllm_lora_modules: {one}", needed, "vllm_lora_modules: [{name: …, path: …}]") for one in wrong]
    if listed and not arguments.get("enable-lora"):
        # vllm/v1/worker/lora_model_runner_mixin.py ends the start there.
        found.append(_row(f"{at}vllm_lora_modules without vllm_enable_lora", "both", "vllm_enable_lora: true"))
    return found


def _owner(name: str, arguments: Iterable[str]) -> str | None:
    """Name the variable that has this flag, however it is spelled; None for one without."""
    flag = versions.canonical(ANOTHER_WAY.get(name.lstrip("-").replace("_", "-"), name)).removeprefix("no-")
    return f"vllm_{flag.replace('-', '_')}" if flag.replace("-", "_") in {*arguments, "model"} else None


def _of_extra(unit: Mapping[str, Any], name: str, value: object, arguments: Iterable[str]) -> list[dict[str, str]]:
    bare, place = name.lstrip("-").replace("_", "-"), setting(unit, "extra_args")
    found, out = f"{unit['name']}: {place}: {name}", f"{place}: take {name} out"
    if bare in {"api-key", "hf-token"}:
        return [_row(found, "no secret on a command line", f"{out}, and use vllm_api_key or vllm_secrets")]
    if variable := _owner(name, arguments):
        plain = isinstance(value, str | int | float) and not bare.startswith("no-")
        line = f"{variable}: {json.dumps(value)}" if plain else variable
        return [_row(found, f"{variable}, which says the same", f"{out}, and set {line}", host_table.EXTRA_ARGUMENT)]
    if bare == "config":
        needed = "the arguments themselves: what such a file says is neither planned nor judged"
        return [_row(found, needed, f"{out}, and set variables")]
    if unit["offline"] and bare in ALSO_OF_A_HUB and hubs.is_name(str(value)):
        needed = "a folder on the host: the service runs offline"
        return [_row(f"{found}: {value}", needed, f"{place}: {bare}: /srv/models/…")]
    if bare != name:
        return [_row(found, "the long name without dashes in front", f"{place}: write {bare}")]
    return []


def _row(found: str, needed: str, do: str, check: str = "launch") -> dict[str, str]:
    return {"found": found, "needed": needed, "do": do, "check": check}


class FilterModule:
    """The filter of refusals."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name it."""
        return {"vllm_problems": problems}
