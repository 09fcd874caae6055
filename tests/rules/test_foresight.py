"""What a change leads to is planned where release, card, launch and model are known; what would not help is not
offered."""

import msgspec
import pytest

from tests.plan.models import LLAMA_8B
from tests.scenarios.loading import snapshot
from vllm_doctor.knowledge import versions
from vllm_doctor.launch.command import parse_line
from vllm_doctor.plan.question.ask import KnownStart, foresee
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Applicability, Cause, ChangeKind, Confidence, Direction, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import diagnose
from vllm_doctor.rules.foresight import REMEDIES, foreseen

GIB = 1 << 30
CARD = (Gpu(0, "NVIDIA A10G", total_bytes=round(22.06 * GIB)),)
STOP = Change(ChangeKind.OS, "other-gpu-processes", None, None, Direction.STOP, Applicability.MANUAL)


def told(name: str) -> Snapshot:
    """A scenario on a known card with a known model."""
    return msgspec.structs.replace(
        snapshot(name),
        gpus=Known((Gpu(0, "NVIDIA H100 80GB HBM3", total_bytes=round(79.19 * GIB)),), "test"),
        model_config=Known(LLAMA_8B, "test"),
    )


def case_of(launch: str, version: str = "0.11.0") -> Case:
    return Case(
        Snapshot(
            taken_at="",
            launch=Known(parse_line(launch), "test"),
            version=Known(version, "test"),
            gpus=Known(CARD, "test"),
            model_config=Known(LLAMA_8B, "test"),
        )
    )


def finding(*changes: Change) -> Finding:
    return Finding(
        "VD121", Cause.KV_TOO_SMALL, Phase.STARTUP_KV_CACHE, "t", Severity.BLOCKS_START, Confidence.CONFIRMED,
        (Evidence("s", "l", "e"),), "r", changes=changes,
    )  # fmt: skip


def remedy(name: str, before: object, after: object, direction: Direction) -> Change:
    return msgspec.convert(
        {"kind": "flag", "name": name, "from": before, "to": after, "direction": direction,
         "applicability": "needs-review"}, Change,
    )  # fmt: skip


def test_the_pool_that_the_start_logged_counts_and_the_plan_tells_the_difference() -> None:
    change = diagnose(told("vd121-kv-small-fires-0331")).findings[0].changes[0]
    assert (change.name, change.after) == ("max-model-len", 43472)
    assert change.predicted["available_kv_gib"] == 5.31
    assert change.predicted["kv_tokens"] == pytest.approx(43472, abs=16)
    assert change.predicted["outcome"] == "ok"


def test_without_the_model_the_simple_figures_stay() -> None:
    change = diagnose(snapshot("vd121-kv-small-fires-0331")).findings[0].changes[0]
    assert change.predicted == {"max_model_len": 43472.0}


def test_a_value_that_does_not_fit_gives_way_to_the_nearest_that_does() -> None:
    case = case_of("vllm serve m --max-model-len 131072")
    (planned,) = foreseen(case, [finding(remedy("max-model-len", 131072, 120000, Direction.LOWER))])
    (change,) = planned.changes
    assert isinstance(change.after, int)
    assert change.after < 120000
    assert change.predicted["outcome"] == "ok"
    assert "120000" in change.why
    start = KnownStart(("vllm", "serve", "m"), "0.11.0", LLAMA_8B, "NVIDIA A10G", 22.06)
    foresight = foresee(start)
    assert foresight is not None
    seen = foresight.outlook({"max-model-len": str(change.after)})
    assert seen is not None
    assert seen.outcome == "ok"


def test_what_would_not_help_is_left_out_beside_what_may() -> None:
    case = case_of("vllm serve m --max-model-len 16384")
    hopeless = remedy("gpu-memory-utilization", None, 0.4, Direction.LOWER)
    (planned,) = foreseen(case, [finding(STOP, hopeless)])
    assert [c.name for c in planned.changes] == ["other-gpu-processes"]


def test_what_is_not_enough_alone_says_so_where_nothing_else_is_offered() -> None:
    case = case_of("vllm serve m --max-model-len 131072")
    (planned,) = foreseen(case, [finding(remedy("max-num-seqs", 256, 64, Direction.LOWER))])
    (change,) = planned.changes
    assert "alone it is not enough" in change.why
    assert change.predicted["outcome"] == "kv-too-small"


def test_a_plan_that_did_not_see_the_failure_coming_promises_nothing() -> None:
    case = case_of("vllm serve m --max-model-len 8192")
    (planned,) = foreseen(case, [finding(remedy("max-num-seqs", 256, 64, Direction.LOWER))])
    (change,) = planned.changes
    assert "outcome" not in change.predicted
    assert change.predicted["available_kv_gib"] > 0


@pytest.mark.parametrize(
    "start",
    [
        KnownStart(("vllm", "serve", "m"), "no version", LLAMA_8B, total_gib=22.0),
        KnownStart(("vllm", "serve", "m"), "0.32.0+cpu", LLAMA_8B, total_gib=22.0),
        KnownStart(("vllm", "serve", "m"), "0.32.0", LLAMA_8B),
        KnownStart(("vllm", "serve", "m"), "0.32.0", {"hidden_size": "wide"}, total_gib=22.0),
        KnownStart(("nginx",), "0.32.0", LLAMA_8B, total_gib=22.0),
        KnownStart(("vllm", "serve", "m", "--max-num-seqs=many"), "0.32.0", LLAMA_8B, total_gib=22.0),
        KnownStart(("vllm", "serve", "m"), "0.32.0", LLAMA_8B, "NVIDIA A10G", 500.0),
    ],
)
def test_where_a_fact_is_missing_nothing_is_foreseen(start: KnownStart) -> None:
    assert foresee(start) is None


def test_weights_that_were_logged_count_until_a_change_moves_them() -> None:
    start = KnownStart(("vllm", "serve", "m"), "0.11.0", LLAMA_8B, "NVIDIA A10G", 22.06, gpus=2)
    bare, logged = foresee(start), foresee(msgspec.structs.replace(start, weights_gib=10.0))
    assert bare is not None
    assert logged is not None
    kept, moved = {"max-num-seqs": "64"}, {"tensor-parallel-size": "2"}
    assert _pool(logged, kept) > _pool(bare, kept) + 4
    assert _pool(logged, moved) == _pool(bare, moved)


def _pool(foresight, changes) -> float:
    seen = foresight.outlook(changes)
    assert seen is not None
    return seen.pool_gib


def test_a_fraction_that_vllm_would_refuse_is_refused_whatever_pool_was_logged() -> None:
    foresight = foresee(KnownStart(("vllm", "serve", "m"), "0.11.0", LLAMA_8B, "NVIDIA A10G", 22.06, pool_gib=3.5))
    assert foresight is not None
    seen = foresight.outlook({"gpu-memory-utilization": "0.99"})
    assert seen is not None
    assert (seen.outcome, seen.hopeless) == ("rejected", True)


def test_every_lever_is_an_option_of_vllm() -> None:
    assert set(versions.flag_names(versions.newest_known())) >= REMEDIES


def test_on_a_host_the_planned_pool_stands_beside_the_logged_one() -> None:
    live = diagnose(msgspec.structs.replace(told("vd121-kv-small-fires-0331"), live=True)).facts
    assert isinstance(live["planned_kv_gib"], float)
    assert live["available_kv_gib"] == pytest.approx(5.31, abs=0.1)
    assert "planned_kv_gib" not in diagnose(told("vd121-kv-small-fires-0331")).facts
