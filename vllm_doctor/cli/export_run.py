"""What `export` does with its options."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.output import settle
from vllm_doctor.cli.streams import say
from vllm_doctor.knowledge.version import Version
from vllm_doctor.knowledge.versions import newest_known, parse_version
from vllm_doctor.monitor import rules
from vllm_doctor.monitor.dashboards import dashboards
from vllm_doctor.monitor.metric_names import NoCommonNameError
from vllm_doctor.records import excerpt
from vllm_doctor.render.file import put

_JOB = re.compile(r"[A-Za-z0-9_./-]{1,100}")


def run(
    folder: str, releases: Sequence[str], numbers: Sequence[str], without: Sequence[str], *, job: str, force: bool
) -> int:
    """Write the files and name them; the exit code."""
    if not _JOB.fullmatch(job):
        raise UsageProblem(f"--job {excerpt.value(job)}: needed: a word of letters, digits and _ . / -")
    at = [_release(r) for r in releases]
    newest = newest_known()
    for one in sorted({one for one in at if one > newest}):
        told = f"vLLM {one} is newer than {newest}, the newest release that is known here"
        print(f"vllm-doctor: export: {told}: the files have {newest}'s names", file=sys.stderr)
    try:
        files = {"rules/vllm.rules.yml": rules.text(at, numbers=_numbers(numbers), without=without, job=job)}
    except NoCommonNameError as problem:
        raise UsageProblem(f"--vllm-version: {problem}: export each of them into a separate folder") from None
    except rules.PolicyError as problem:
        raise UsageProblem(f"export: {problem}") from None
    files |= {f"dashboards/{name}": text for name, text in dashboards(at, job).items()}
    targets = {Path(folder) / name: text for name, text in files.items()}
    try:
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
        places = {settle(str(target), force=force): text for target, text in targets.items()}
        for place, text in places.items():
            put(place, text, mode=0o644)
    except OSError as problem:
        raise UsageProblem(f"{folder}: {problem.strerror}: name a folder that you may write") from None
    say("".join(f"{target}\n" for target in targets))
    return Exit.OK


def _release(text: str) -> Version:
    at = parse_version(text)
    if at is None:
        raise UsageProblem(f"--vllm-version {excerpt.value(text)}: needed: a version such as 0.32.0")
    return at


def _numbers(pairs: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise UsageProblem(f"--number {excerpt.value(pair)}: needed: NAME=VALUE, such as kv_high=0.85") from None
    return found
