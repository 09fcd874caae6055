"""The container that a rule asks about: is there one, and what its runtime said of it, as evidence."""

from collections.abc import Iterator

from vllm_doctor.log.match import read
from vllm_doctor.records import excerpt
from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.reading import Unknown
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import NotHere, Unseen


def none(case: Case) -> NotHere | Unseen:
    """Could it not be read, or is there none?"""
    if isinstance(case.reading(Signal.CONTAINER), Unknown):
        return Unseen(frozenset({Signal.CONTAINER}))
    return NotHere("vLLM runs in no container that the doctor read")


def source(container: Container) -> str:
    """Who told of the container's state."""
    if container.is_job:
        return "scontrol show job"
    return "pod" if container.is_pod else f"{container.runtime} inspect"


def state_messages(container: Container) -> Iterator[Evidence]:
    """The state's own words, then the events, the newest first."""
    if container.error:
        yield Evidence(source(container), container.name, container.error, container.started_at)
    for other in container.beside:
        if other.error and not container.started:
            yield Evidence(source(container), f"{container.name.rpartition('/')[0]}/{other.name}", other.error)
    for event in reversed(container.events):
        times = f" ({event.count} times)" if event.count > 1 else ""
        yield Evidence("event", f"{event.reason}{times}", event.text, event.at)


def first_of_container(container: Container, *ids: str) -> tuple[str, dict[str, str], Evidence] | None:
    """The first of what was said that is one of these messages: its id, its fields and where it stands."""
    for item in state_messages(container):
        for one in ids:
            if (fields := read(one, item.excerpt)) is not None:
                return one, fields, item
    return None


def state(container: Container) -> Evidence:
    """How the container stands, in one line."""
    end = container.end
    told = [container.state, container.reason]
    if end is not None:
        told += [end.reason, f"exit code {end.exit_code}" if end.exit_code is not None else ""]
    if container.restarts:
        told.append(f"{container.restarts} restart{'s' * (container.restarts > 1)}")
    at = end.finished_at if end is not None else container.started_at
    return Evidence(source(container), container.name, ", ".join(dict.fromkeys(filter(None, told))), at)


def describe_command(container: Container) -> str:
    """The command that shows all of a pod."""
    space, _, rest = container.name.partition("/")
    return f"kubectl describe pod -n {shell_word(space)} {shell_word(rest.partition('/')[0])}"


def shell_word(text: str) -> str:
    """A name as a word of a shell: what no name has is left out."""
    return excerpt.name("".join(sign for sign in text if sign.isalnum() or sign in "./:@_-"))
