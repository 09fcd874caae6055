"""The launches that an inventory asks for: the role vllm's variables as the command lines that `plan` understands."""

import json
from collections.abc import Iterator, Mapping

from vllm_doctor.knowledge import hub, parser
from vllm_doctor.preflight.judged import Instance

# Nothing of these is memory; a key or an address need not reach the plan.
_ASIDE = {"model", "host", "port", "served-model-name", "shutdown-timeout", "max-num-queued-reqs", "lora-modules"}


def place_on_host(model: str, revision: str, store: str) -> str:
    """Where the model lies on the host: a commit of a hub in the store, anything else where it says itself."""
    return hub.folder(store, model, revision) if hub.is_name(model) and hub.is_commit(revision) else model


def launches(values: Mapping[str, object], variables: Mapping[str, str], store: str) -> tuple[Instance, ...]:
    """One launch for each instance that names a model. `variables` is flag to inventory variable.

    A word of an instance goes before the variable, and that before vllm_plan; what nobody says is not there.
    """
    plan = _mapping(_mapping(values.get("vllm_plan")).get("launch"))
    made = []
    for instance in _instances(values):
        model = instance.get("model", values.get("vllm_model"))
        if not model:
            continue
        said: dict[str, object] = dict(plan)
        for flag, variable in variables.items():
            value = instance.get(variable.removeprefix("vllm_"), values.get(variable))
            if flag not in _ASIDE and value is not None:
                said[flag] = value
        said |= _mapping(instance.get("extra_args", values.get("vllm_extra_args")))
        environment = _mapping(instance.get("environment", values.get("vllm_environment")))
        gpus = instance.get("gpus", values.get("vllm_gpus"))
        made.append(
            Instance(
                name=f"vllm@{instance.get('name', 'main')}",
                model=str(model),
                folder=place_on_host(str(model), str(instance.get("revision", values.get("vllm_revision"))), store),
                words=tuple(word for flag, value in said.items() for word in _words(flag, value)),
                environment=tuple(f"{name}={value}" for name, value in environment.items() if name.startswith("VLLM_")),
                gpus=tuple(map(str, gpus)) if isinstance(gpus, list | tuple) else (),
            )
        )
    return tuple(made)


def _instances(values: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    listed = values.get("vllm_instances")
    yield from (item for item in listed if isinstance(item, Mapping)) if isinstance(listed, list) and listed else ({},)


def _words(flag: str, value: object) -> list[str]:
    if value is None or value is False:
        return [] if value is None else [f"--no-{flag}"]
    if value is True:
        return [f"--{flag}"]
    if isinstance(value, Mapping):
        return [f"--{flag}", json.dumps(dict(value))]
    if not isinstance(value, list | tuple):
        return [f"--{flag}", str(value)]
    if parser.is_repeated(flag):
        return [word for item in value for word in (f"--{flag}", str(item))]
    return [f"--{flag}", *map(str, value)]


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
