"""`vllm-doctor bundle`."""

from typing import Annotated

import typer

EXAMPLES = """\
Examples:

\b
  vllm-doctor bundle                                every vLLM of this host, in one file
  vllm-doctor bundle --unit vllm@main -o case.tar.gz
  vllm-doctor diagnose --from case.tar.gz           elsewhere
"""


def bundle(
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write; by default named after the time."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="The systemd unit; all vLLM units if left out.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file, if it is there.")] = False,
) -> None:
    """Write the evidence of this host into one redacted file, which `diagnose --from FILE` judges elsewhere."""
    from collections import Counter
    from datetime import UTC, datetime

    from vllm_doctor.cli.command_line import STDIN
    from vllm_doctor.cli.errors import UsageProblem
    from vllm_doctor.cli.output import settle, unwritten
    from vllm_doctor.cli.streams import say
    from vllm_doctor.gather.bundle import write_bundle
    from vllm_doctor.gather.live import gather_all
    from vllm_doctor.redact.visible import visible
    from vllm_doctor.render.file import replaceable
    from vllm_doctor.rules.engine import diagnose

    if output is not None and not replaceable(output):
        raise UsageProblem(f"--output {output}: it is a device or a pipe; name a file, which bundle then writes")
    if output == STDIN:
        raise UsageProblem("--output -: a bundle is for its owner alone: name a file")
    target = output or f"vllm-doctor-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz"
    place = settle(target, force=force)
    snapshots = gather_all(unit=unit)
    diagnoses = [diagnose(snapshot) for snapshot in snapshots]
    try:
        ledger = write_bundle(snapshots, place, diagnoses)
    except OSError as problem:
        raise unwritten(target, problem) from None
    units = ", ".join(d.subject.unit or d.verdict.value for d in diagnoses)
    say(visible(f"{target}  ({units})") + "\n")
    taken: Counter[str] = Counter()
    for entry in ledger:
        taken[entry.why] += entry.count
    for why, count in sorted(taken.items()):
        say(f"  taken out: {count} x {why}\n")
    say(
        "Only you can read this file. Read its ledger.json before you send it: it lists the removed parts, their "
        "places, and the parts that stayed.\n"
    )
