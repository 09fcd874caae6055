"""Models of a hub: how their names look, and in which folder of a host a commit lies."""

from vllm_doctor.knowledge.pattern import Pattern

_NAME = Pattern(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
_COMMIT = Pattern(r"[0-9a-f]{40}")


def is_name(model: str) -> bool:
    """Whether this is a name on a hub: everything else is a folder, or a place that vLLM streams from (s3://…)."""
    return bool(_NAME.fullmatch(model))


def is_commit(revision: str) -> bool:
    """Whether this names one state of a model for ever, as a branch or a tag does not."""
    return bool(_COMMIT.fullmatch(revision))


def folder(store: str, name: str, revision: str) -> str:
    """Where a commit lies in a host's store, one folder for each."""
    return f"{store}/{name.replace('/', '--')}/{revision}"
