"""The kubectl command that makes a change of a pod, by the workload that made the pod."""

import json
import shlex
from collections.abc import Mapping

from vllm_doctor.records.container import Container
from vllm_doctor.rules.gates.container import shell_word

# What lets its pods' template be changed; a bare pod and a Job are made anew.
_CHANGEABLE = ("deployment/", "statefulset/", "daemonset/")


def patch(
    container: Container,
    fields: Mapping[str, object],
    beside: Mapping[str, object] | None = None,
    *,
    of: str = "",
    kind: str = "containers",
) -> str | None:
    """The container's `fields` in the template, and what stands `beside` its containers; None where nothing tells what
    made the pod. kubectl merges containers by their names, and what is null goes. `of` is another container."""
    if not container.owner.startswith(_CHANGEABLE):
        return None
    space, _, rest = container.name.partition("/")
    own = of or rest.partition("/")[2]
    told = {"spec": {"template": {"spec": {**(beside or {}), kind: [{"name": own, **fields}]}}}}
    return f"kubectl patch -n {shell_word(space)} {shell_word(container.owner)} -p {shlex.quote(json.dumps(told))}"


def limits(container: Container, name: str, value: str) -> str | None:
    """A limit of the container itself."""
    return patch(container, {"resources": {"limits": {name: value}}})
