"""From the inventory's variables to the services of a host."""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge import hub as hubs  # noqa: E402
from vllm_doctor.knowledge import parser, templates  # noqa: E402
from vllm_doctor.knowledge.version import is_release  # noqa: E402
from vllm_doctor.knowledge.versions import default_port  # noqa: E402
from vllm_doctor.preflight import host_table  # noqa: E402
from vllm_doctor.preflight.judged import Checked, Result  # noqa: E402

Said = Callable[[str], Any]  # a key's value for one service: its entry's, or the variable's
# Our variables, and the names under which systemd hands their files over.
TLS = {"ssl_certfile": "tls-certificate", "ssl_keyfile": "tls-key", "ssl_ca_certs": "tls-ca"}


def units(variables: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compose one mapping for each service: what the unit's template and the role's tasks read.

    `variables` are the role's, without their prefix; `settings` those of them that are arguments, in order. A word of
    an instance goes before the variable, and that before the plan.
    """
    return [_unit(variables, settings, instance) for instance in variables["instances"]]


def _unit(variables: Mapping[str, Any], settings: Mapping[str, Any], instance: Mapping[str, Any]) -> dict[str, Any]:
    def said(key: str) -> Any:
        return instance.get(key, variables[key])

    version = str(said("version"))
    release = variables["release"]
    # One that has a version of its own is started from that release, whatever the host's current one is.
    home = ""
    if "version" in instance:
        # The host's own release has its name without being one of several, as where the host followed its canary.
        named = {str(variables["version"]): release, **(variables.get("releases") or {})}
        release = named.get(version, version)
        home = f"{variables['root']}/releases/{release}"
    knows = parser.knows(version) if is_release(version) else frozenset()
    plan = variables["plan"] or {}
    arguments = {
        name.replace("_", "-"): instance.get(name, value)
        for name, value in settings.items()
        if instance.get(name, value) is not None
    }
    if "shutdown-timeout" not in knows:
        arguments.pop("shutdown-timeout", None)
    # A folder has no revision, and clients ask for the model by the name that the inventory has.
    hub = _hub(str(said("model")), str(arguments.pop("revision", "")), "vllm_revision", variables, said)
    if hub:
        hub["allow"] = list(said("model_allow"))
        arguments.setdefault("served-model-name", hub["repo"])
    beside = _draft(arguments, hub, variables, said) + _adapters(arguments, variables, said)
    name = str(instance.get("name", ""))
    tls, credentials = _tls(name, variables, said)
    merged = {**(plan.get("launch") or {}), **arguments, **said("extra_args"), **tls}
    if tls and not credentials and "enable-ssl-refresh" in knows:
        merged.setdefault("enable-ssl-refresh", True)
    port = merged.get("port", default_port())
    environment = {**(plan.get("env") or {}), **said("environment")}
    guard = _guard(variables, environment)
    drain = int(arguments.get("shutdown-timeout", 0))
    ready, pause, burst = (int(variables[key]) for key in ("ready_timeout", "restart_sec", "start_limit_burst"))
    return {
        "instance": name,
        "name": f"vllm@{name}",
        "template": _template(said("unit_template"), variables["variant"]),
        "version": version,
        "user": variables["user"],
        "group": variables["group"],
        "state_directory": f"vllm/{name}",
        "home": home,
        "executable": f"{home or variables['root'] + '/current'}/bin/vllm",
        "model": hub["folder"] if hub else said("model"),
        "offline": bool(hub) or str(said("model")).startswith("/"),
        "hub": hub,
        "hubs": [one for one in (hub, *beside) if one],
        "own": sorted(map(str, instance)),
        "release": release,
        "gpus": _cards(name, said("gpus")),
        "cuda_home": variables["cuda_home"],
        "cuda_compat": variables["cuda_compat"],
        "numa_nodes": [],  # known when the host has said it (tasks/prepare.yml)
        "arguments": merged,
        "environment": environment,
        "loopback": said("spans_hosts") is not True,
        "secrets_file": f"/etc/vllm/{name}.secrets" if variables["api_key"] or variables["secrets"] else "",
        "guard": guard,
        "accepted_open": bool(variables["allow_open"] and not variables["api_key"]),
        "credentials": credentials,
        "tls": {key: said(key) for key in TLS if said(key)},
        "restart_sec": pause,
        "timeout_stop_sec": drain + 30,
        "start_limit_burst": burst,
        "start_limit_interval": burst * (ready + pause + drain + 30),
        "memory_max": said("memory_max"),
        "url": f"http{'s' if tls else ''}://{_reachable(merged.get('host'))}:{port}",
        "listens": str(merged.get("host") or "0.0.0.0"),  # noqa: S104 (what vLLM does without --host)
        "port": port,
    }


def _tls(name: str, variables: Mapping[str, Any], said: Said) -> tuple[dict[str, str], dict[str, str]]:
    """Give the arguments of TLS, and the credentials that carry their files into the service."""
    files = {key: str(said(key)) for key in TLS if said(key)}
    if not variables["ssl_credentials"]:
        return {key.replace("_", "-"): path for key, path in files.items()}, {}
    folder = f"/run/credentials/vllm@{name}.service"
    arguments = {key.replace("_", "-"): f"{folder}/{TLS[key]}" for key in files}
    return arguments, {TLS[key]: path for key, path in files.items()}


def _guard(variables: Mapping[str, Any], environment: dict[str, Any]) -> dict[str, Any] | None:
    """Give what stands in front of the server; takes the folder of the user's own modules out of `environment`."""
    if not variables["api_key"] and not variables["metrics_networks"]:
        return None
    own = environment.pop("PYTHONPATH", "")
    return {
        "folder": variables["guard"],
        "python_path": f"{variables['guard']}:{own}" if own else variables["guard"],
        "open": list(variables["open_routes"]),
        "metrics_from": list(map(str, variables["metrics_networks"])),
    }


def _cards(instance: str, gpus: Any) -> Sequence[Any]:
    if isinstance(gpus, list | tuple) and not any(isinstance(card, list | tuple | dict) for card in gpus):
        return gpus
    raise AnsibleFilterError(f"vllm@{instance}: gpus: {gpus!r} is no list of UUIDs: write [GPU-…]")


def _hub(name: str, revision: str, pin: str, variables: Mapping[str, Any], said: Said) -> dict[str, Any] | None:
    """Say where a model of a hub lies on the host; None for one that is there. `pin` is what says its commit."""
    if not hubs.is_name(name):
        return None
    return {
        "repo": name,
        "revision": revision,
        "pin": pin,
        "allow": [],
        "ignore": list(said("model_ignore")),
        "folder": hubs.folder(variables["models_dir"], name, revision),
    }


def _draft(
    arguments: dict[str, Any], target: dict[str, Any] | None, variables: Mapping[str, Any], said: Said
) -> list[dict[str, Any]]:
    """Name the folder of a draft model instead of its name on the hub; one without an owner is a method (ngram)."""
    config = arguments.get("speculative-config")
    if not isinstance(config, dict) or "/" not in (name := str(config.get("model", ""))):
        return []
    hub = _hub(name, str(config.get("revision", "")), "vllm_speculative_config: revision", variables, said)
    if hub is None:
        return []
    if target and target["repo"] == name and hub["revision"] in {"", target["revision"]}:
        hub = target  # the weights of a multi-token prediction lie among the model's own
    left = {key: value for key, value in config.items() if key != "revision"}
    arguments["speculative-config"] = {**left, "model": hub["folder"]}
    return [] if hub is target else [hub]


def _adapters(arguments: dict[str, Any], variables: Mapping[str, Any], said: Said) -> list[dict[str, Any]]:
    """Name the folders of adapters, as `--lora-modules` takes them: name=folder, or JSON where there is more to say."""
    listed = arguments.pop("lora-modules", None) or []
    found, words = [], []
    for one in (item for item in listed if isinstance(item, dict)):
        name, path = str(one.get("name", "")), str(one.get("path", ""))
        hub = None
        if "/" in path:
            pin = f"vllm_lora_modules: revision of {name}"
            hub = _hub(path, str(one.get("revision", "")), pin, variables, said)
        found += [hub] if hub else []
        place = hub["folder"] if hub else path
        base = one.get("base_model_name")
        words.append(json.dumps({"name": name, "path": place, "base_model_name": base}) if base else f"{name}={place}")
    if words:
        arguments["lora-modules"] = words
    return found


def _template(wanted: Any, variant: str) -> Any:
    """Without a card there is nothing to find out; with one, the plan tells (tasks/plan.yml)."""
    return "cpu" if wanted == "auto" and variant == "cpu" else wanted


def known(unit: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a unit what its template alone reads: what the release knows, how many cards it takes, its file."""
    template = "generic" if unit["template"] == "auto" else unit["template"]
    cards, tensor = counted(unit)
    return {
        **unit,
        "template": templates.behaviour(template),
        "knows": sorted(parser.knows(unit["version"])),
        "repeated": sorted(filter(parser.is_repeated, unit["arguments"])),
        "cards": cards,
        "tensor_cards": tensor,
    }


def counted(unit: Mapping[str, Any]) -> tuple[int, int]:
    """Count (cards, those of them that share each tensor): by the launch, else as many as are listed.

    vLLM takes one card for each rank, however many the host has.
    """
    listed = len(unit["gpus"])
    tensor, stages, copies = (
        _count(unit["arguments"].get(f"{kind}-parallel-size")) for kind in ("tensor", "pipeline", "data")
    )
    ranks = (tensor or 1) * (stages or 1) * (copies or 1)
    return max(listed, ranks), tensor or (listed if ranks == 1 else 1) or 1


def placed(units: Iterable[Mapping[str, Any]], host: Mapping[str, Any], bound: Collection[str]) -> list[dict[str, Any]]:
    """Add the NUMA node of each card that a service sees; none where the host has one node, or one is not known.

    `host` is what vllm_host says; `bound` names the services that the inventory binds to one node (host_settings).
    """
    return [{**unit, "numa_nodes": [] if unit["instance"] in bound else _nodes(unit, host)} for unit in units]


def _nodes(unit: Mapping[str, Any], host: Mapping[str, Any]) -> list[int]:
    cards = host.get("cards") or []
    by_name = {name: card["node"] for index, card in enumerate(cards) for name in (card["uuid"], str(index)) if name}
    nodes = [by_name.get(str(name), -1) for name in unit["gpus"]] if unit["gpus"] else [card["node"] for card in cards]
    return nodes if host.get("nodes", 1) > 1 and min(nodes, default=-1) >= 0 else []


def _count(value: object) -> int:
    """Read a size; what is none is refused elsewhere."""
    return int(str(value)) if str(value).isdigit() else 0


def _reachable(host: object) -> str:
    address = str(host or "127.0.0.1")
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104
    return f"[{address}]" if ":" in address else address


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write problems as preflight's table: hosts that share one share its row.

    `rows` are {host, found, needed, do}, and at will {check} and {in}: the file and line that say it.
    """
    told: dict[str, list[Checked]] = {}
    for row in rows:
        action = f"{row['in']}: {row['do']}" if row.get("in") else row["do"]
        line = Checked(row.get("check", "launch"), Result.FAIL, str(row["found"]), str(row["needed"]), action)
        told.setdefault(row["host"], []).append(line)
    return host_table.table(told)


def digest(*texts: object) -> str:
    """Name a configuration by its contents."""
    return hashlib.sha256("\0".join(map(str, texts)).encode()).hexdigest()


def work(
    made: Iterable[Mapping[str, Any]],
    rendered: Mapping[str, str],
    release: str,
    values: Mapping[str, Any],
    services: Iterable[Mapping[str, Any]],
) -> dict[str, list[str]]:
    """Say which services a run touches, and which of these it starts anew, by their instances.

    Anew is what did not answer as it is wanted, or does not run or start at boot. Touched is also a service whose unit
    or secrets are no longer as they were when it answered. `services` is what vllm_host says of the host.
    """
    here = {one["instance"]: one for one in services}
    anew, touched = [], []
    for unit in made:
        is_here = here.get(unit["instance"], {})
        wanted = digest(unit["home"] or release, rendered[unit["instance"]], values)
        if wanted != (is_here.get("now") or {}).get("digest") or not (is_here["active"] and is_here["enabled"]):
            anew.append(unit["instance"])
        if unit["instance"] in anew or is_here["drifted"]:
            touched.append(unit["instance"])
    return {"anew": anew, "touched": touched}


def secrets(values: Mapping[str, Any]) -> str:
    """Write an EnvironmentFile=; systemd takes double quotes and backslashes away. Line breaks are refused."""
    lines = []
    for name, value in values.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)) or "\n" in str(value):
            raise AnsibleFilterError(f"secret {name}: a name of letters, digits and _, and a value of one line")
        quoted = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`").replace("$", "\\$")
        lines.append(f'{name}="{quoted}"\n')
    return "".join(lines)


def release_line(instance: str, instances: Iterable[Mapping[str, Any]], version: str) -> dict[str, str]:
    """Name the inventory's line that decides the release of a service: {variable, says}.

    A canary goes by its own entry; vllm_version would take the other services of the host along.
    """
    own = next((one["version"] for one in instances if one.get("name") == instance and "version" in one), None)
    if own is None:
        return {"variable": "vllm_version", "says": f"vllm_version: {version}"}
    return {"variable": "vllm_instances", "says": f"version: {own} of {instance} in vllm_instances"}


class FilterModule:
    """The filters of role vllm."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name them."""
        return {
            "vllm_units": units,
            "vllm_known": known,
            "vllm_placed": placed,
            "vllm_release_line": release_line,
            "vllm_templates": lambda files: sorted({*files, *templates.cards()}),
            "vllm_table": table,
            "vllm_digest": digest,
            "vllm_work": work,
            "vllm_secrets": secrets,
        }
