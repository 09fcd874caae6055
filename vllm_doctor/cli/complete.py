"""What the shell offers after <Tab>; nothing is imported before it is asked."""

from collections.abc import Iterator


def codes(incomplete: str) -> Iterator[tuple[str, str]]:
    """The finding codes that begin so, each with its title."""
    from vllm_doctor.rules.explain import listing

    # zsh drops a plain apostrophe.
    return (
        (code, title.replace("'", "\u2019")) for code, _, _, title in listing() if code.startswith(incomplete.upper())
    )


def units(incomplete: str) -> list[str]:
    """The vLLM units of this host."""
    from vllm_doctor.gather.live import discover
    from vllm_doctor.records.reading import Known

    found = discover(1.0)
    return [name for name in found.value if name.startswith(incomplete)] if isinstance(found, Known) else []
