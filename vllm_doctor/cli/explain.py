"""`vllm-doctor explain` and `vllm-doctor flowchart`."""

from typing import Annotated, Literal

import typer

from vllm_doctor.cli import complete, terminal
from vllm_doctor.cli.streams import say
from vllm_doctor.cli.terminal import told
from vllm_doctor.records import excerpt

EXAMPLES = """\
Examples:

\b
  vllm-doctor explain VD121
  vllm-doctor explain swap-space --vllm-version 0.33.0
  vllm-doctor explain vllm:num_preemptions_total
  vllm-doctor explain VllmDown
  vllm-doctor explain --list
"""
FLOWCHART_EXAMPLES = """\
Examples:

\b
  vllm-doctor flowchart | less
  vllm-doctor flowchart --format mermaid > flowchart.mmd
"""


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A finding's code (VD121), an alert (VllmDown), an option, variable or metric of vLLM (swap-space).",
            show_default=False,
            autocompletion=complete.codes,
        ),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--list", help="List every code with its cause and title.")] = False,
    vllm_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Say what is true of this release.", show_default=False)
    ] = None,
) -> None:
    """Say what a finding means, how it is recognised, what to do, and which common advice is wrong."""
    from vllm_doctor.cli.errors import UsageProblem
    from vllm_doctor.knowledge.versions import parse_version
    from vllm_doctor.monitor.alert_page import page
    from vllm_doctor.rules.explain import about, explained_rule, listing, nearest_option
    from vllm_doctor.rules.order import by_code

    if every:
        told("".join(f"{number}  {title}\n" for number, _, _, title in listing()))
        return
    if code is None:
        raise UsageProblem("explain needs a code (vllm-doctor explain VD121), or --list for all codes")
    at = parse_version(vllm_version) if vllm_version is not None else None
    if vllm_version is not None and at is None:
        raise UsageProblem(f"--vllm-version {excerpt.value(vllm_version)}: needed: a version such as 0.11.0")
    wanted = code.strip()
    rule = by_code().get(wanted.upper())
    text = explained_rule(rule, at) if rule is not None else page(wanted, at) or about(wanted, at)
    if text is None:
        near = nearest_option(wanted)
        hint = f"; --{near} is near" if near is not None else ""
        raise UsageProblem(
            f"explain: there is no {excerpt.value(wanted)}{hint}; vllm-doctor explain --list shows every code, "
            "and options, variables and metrics go by the names that vLLM gives them"
        )
    _rendered(text)


def _rendered(text: str) -> None:
    """The page laid out for a terminal; a pipe or a file gets the Markdown."""
    if not terminal.colored():
        told(f"{text}\n")
        return
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    out = io.StringIO()
    Console(file=out, width=terminal.width(), force_terminal=True, color_system="standard").print(Markdown(text))
    say(out.getvalue())


def flowchart(
    output: Annotated[
        Literal["text", "mermaid"],
        typer.Option("--format", metavar="[text|mermaid]", help="The format of the chart."),
    ] = "text",
) -> None:
    """Print the whole flowchart of the diagnosis."""
    from vllm_doctor.rules.explain import chart, mermaid

    if output == "text":
        told(chart())
    else:
        say(mermaid())
