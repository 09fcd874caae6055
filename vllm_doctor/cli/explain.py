"""`vllm-doctor explain` and `vllm-doctor flowchart`."""

import click

from vllm_doctor.cli import complete


@click.command()
@click.argument("code", required=False, shell_complete=complete.codes)
@click.option("--list", "every", is_flag=True, help="List every code with its cause and title.")
@click.option("--vllm-version", help="Say what is true of this release.")
def explain(code: str | None, *, every: bool, vllm_version: str | None) -> None:
    """Say what a finding means, how it is recognised, what to do, and which common advice is wrong.

    CODE is a finding's code (VD121), or an option, variable or metric of vLLM (swap-space).
    """
    from vllm_doctor.cli.errors import UsageProblem
    from vllm_doctor.knowledge.versions import parse_version
    from vllm_doctor.rules.explain import about, explained, listing, nearest
    from vllm_doctor.rules.registry import by_code

    if every:
        for number, cause, phase, title in listing():
            click.echo(f"{number}  {cause:38} {phase:30} {title}")
        return
    if code is None:
        raise UsageProblem("explain: needed is a code (vllm-doctor explain VD121), or --list for all of them")
    at = parse_version(vllm_version) if vllm_version is not None else None
    if vllm_version is not None and at is None:
        raise UsageProblem(f"--vllm-version {vllm_version[:40]!r}: needed is a version such as 0.11.0")
    wanted = code.strip()
    rule = by_code().get(wanted.upper())
    text = explained(rule, at) if rule is not None else about(wanted, at)
    if text is None:
        near = nearest(wanted)
        hint = f"; --{near} is near" if near is not None else ""
        raise UsageProblem(
            f"explain: there is no {wanted[:40]!r}{hint}; vllm-doctor explain --list shows every code, "
            "and options, variables and metrics go by the names that vLLM gives them"
        )
    click.echo(text)


@click.command()
@click.option(
    "--format", "output", default="text", shell_complete=complete.of("text", "mermaid"), help="text or mermaid."
)
def flowchart(output: str) -> None:
    """Print the whole flowchart, from the registry."""
    from vllm_doctor.cli.errors import UsageProblem
    from vllm_doctor.rules.explain import chart, mermaid

    if output not in {"text", "mermaid"}:
        raise UsageProblem(f"--format {output}: needed is text or mermaid")
    click.echo(chart() if output == "text" else mermaid(), nl=False)
