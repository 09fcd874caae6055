"""What the shell offers after <Tab>; nothing is imported before it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from click import Context, Parameter
    from click.shell_completion import CompletionItem


def codes(_ctx: Context, _param: Parameter, incomplete: str) -> list[CompletionItem]:
    """The finding codes that begin so, each with its title."""
    from click.shell_completion import CompletionItem

    from vllm_doctor.rules.explain import listing

    wanted = incomplete.upper()
    return [CompletionItem(code, help=title) for code, _, _, title in listing() if code.startswith(wanted)]


def of(*words: str) -> Callable[[Context, Parameter, str], list[str]]:
    """One of these words."""

    def beginning(_ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return beginning


def units(_ctx: Context, _param: Parameter, incomplete: str) -> list[str]:
    """The vLLM units of this host."""
    from vllm_doctor.gather.live import discover
    from vllm_doctor.records.reading import Known

    found = discover(1.0)
    return [name for name in found.value if name.startswith(incomplete)] if isinstance(found, Known) else []
