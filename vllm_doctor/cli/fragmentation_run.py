"""Gathers the metrics of one unit (or a saved scrape) and prints how its KV blocks are used."""

import re
from datetime import UTC, datetime

import msgspec

from vllm_doctor.cli.command_line import missing, refuse_missing
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.streams import say
from vllm_doctor.plan.usage.allocator import allocator
from vllm_doctor.plan.usage.kv_use import kv_use
from vllm_doctor.records.reading import Absent, Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.render import fragmentation


class FragmentationOptions(msgspec.Struct, frozen=True):
    """The options of the command, as typed."""

    metrics: str | None
    unit: str | None
    version: str | None
    max_model_len: int | None


def run(given: FragmentationOptions, output: str) -> int:
    """The whole command: 0, or 3 where the metrics could not be read."""
    refuse_missing(missing([("--metrics", given.metrics)]))
    snapshot = _snapshot(given)
    metrics = snapshot.metrics
    if not isinstance(metrics, Known):
        say(fragmentation.unseen(metrics, output))
        return Exit.INCOMPLETE if isinstance(metrics, Unknown) else Exit.OK
    use = kv_use(metrics.value, max_model_len=_longest(given, snapshot), version=_version(given, snapshot))
    say(fragmentation.report(use, allocator(snapshot), output, snapshot.subject))
    return Exit.OK


def _snapshot(given: FragmentationOptions) -> Snapshot:
    if given.metrics is None:
        from vllm_doctor.gather.live import gather_live

        return gather_live(given.unit)
    if given.unit is not None:
        raise UsageProblem("--unit reads this host and --metrics a file: give one or the other")
    from vllm_doctor.gather.metrics import read_file

    absent = Absent("a saved scrape does not contain it")
    return Snapshot(
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        metrics=read_file(given.metrics),
        gpus=absent,
        log=absent,
    )


def _longest(given: FragmentationOptions, snapshot: Snapshot) -> int | None:
    if given.max_model_len is not None:
        return given.max_model_len
    text = snapshot.launch.value.flags.get("max-model-len") if isinstance(snapshot.launch, Known) else None
    return int(text) if isinstance(text, str) and re.fullmatch("[0-9]{1,12}", text) else None


def _version(given: FragmentationOptions, snapshot: Snapshot) -> str | None:
    if given.version is not None:
        return given.version
    return snapshot.version.value if isinstance(snapshot.version, Known) else None
