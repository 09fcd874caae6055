"""Kernels and switches of the compilation that a vLLM release lets one choose; of a release before the first that was
read nothing is known."""

from typing import Literal

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import Version

KernelTable = Literal["attention", "moe", "linear", "pass_config", "compilation"]


def has(table: KernelTable, name: str, at: Version) -> bool:
    """Is it certain that this release has the name? A release next to `at` that lacks it makes it uncertain."""
    return history("kernels", table).exists(name, at) is True
