"""vllm_variant: auto on the controller: the build that the host's driver runs, out of those that have a hash lock."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge.compat import table  # noqa: E402
from vllm_doctor.preflight import intent as wants  # noqa: E402
from vllm_doctor.preflight import locks  # noqa: E402
from vllm_doctor.preflight.judged import HostToJudge  # noqa: E402
from vllm_doctor.preflight.release import variant_answer  # noqa: E402


def choice(
    values: Mapping[str, Any], folder: str, facts: Mapping[str, Any], *, driver_left_out: bool = False
) -> dict[str, str]:
    """Choose by the inventory's words, the locks in a folder and preflight's facts of the host.

    {variant, because}, or {found, needed, do} where no build runs. `driver_left_out`: the inventory wants a driver, and
    the run installs none.
    """
    wanted = replace(wants.intent(values, table()), locks=locks.read(Path(folder)), driver_left_out=driver_left_out)
    return variant_answer(HostToJudge(wanted, wants.host(facts), table(), datetime.now(UTC).date()))


def choices(
    values: Mapping[str, Any],
    versions: Iterable[str],
    folder: str,
    facts: Mapping[str, Any],
    driver_left_out: bool = False,
) -> dict[str, dict[str, str]]:
    """Choose for each of these releases."""
    return {
        version: choice({**values, "vllm_version": version}, folder, facts, driver_left_out=driver_left_out)
        for version in versions
    }


class FilterModule:
    """The filter of the variant."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name it."""
        return {"vllm_variant_choices": choices}
