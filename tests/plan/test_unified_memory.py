"""Where the host's memory is the card's, what the host keeps counts too (utils/mem_utils.py MemorySnapshot)."""

import pytest

from tests.plan.models import HYBRID_LIKE, LLAMA_8B
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.ask import KnownStart, foresee

GB10, H100 = ("NVIDIA GB10", 119.6), ("NVIDIA H100 80GB HBM3", 79.19)


def planned(config, version, card, length, seqs) -> Prediction:
    line = ("vllm", "serve", "m", "--max-model-len", str(length), "--max-num-seqs", str(seqs))
    told = foresee(KnownStart(line, version, config, *card))
    assert told is not None
    return told.now


@pytest.mark.parametrize(
    ("config", "version", "each"),
    [(HYBRID_LIKE, "0.27.1", 5), (LLAMA_8B, "0.10.2", 4), (LLAMA_8B, "0.11.2", 5), (LLAMA_8B, "0.33.0", 4)],
    ids=["first runner", "before marks", "with marks", "second runner"],
)
def test_the_table_of_token_ids_is_as_long_as_requests_may_be(config, version, each):
    """Each request has a row of --max-model-len (v1/worker/gpu_input_batch.py, gpu/states.py)."""
    more = [
        planned(config, version, card, 131072, 256).non_torch_gib
        - planned(config, version, card, 4096, 256).non_torch_gib
        for card in (GB10, H100)
    ]
    assert more == [pytest.approx(256 * (131072 - 4096) * each / (1 << 30), abs=0.01), 0]


def test_before_0_18_the_host_takes_less_in_the_profile():
    early, late = (planned(LLAMA_8B, v, GB10, 4096, 16) for v in ("0.17.0", "0.18.0"))
    assert late.non_torch_gib - early.non_torch_gib == pytest.approx(1.5, abs=0.15)
    widths = [p.margin_gib[1] - p.margin_gib[0] for p in (early, late)]
    assert widths[0] < widths[1] - 2


def test_graphs_are_measured_with_what_the_host_takes_meanwhile():
    shared, own = (planned(HYBRID_LIKE, "0.27.1", card, 4096, 64).cudagraph_gib for card in (GB10, H100))
    assert shared == pytest.approx(1.4 * own, abs=0.01)


def test_two_hosts_of_one_name_show_different_totals_and_the_range_holds_both():
    """GB10: 119.6 GiB in the logs of most hosts, 121.69 in three of later ones."""
    named, told = (planned(LLAMA_8B, "0.17.0", ("NVIDIA GB10", total), 4096, 16) for total in (119.7, 119.6))
    more = [p.margin_gib[1] - p.available_kv_gib for p in (named, told)]
    assert more[0] > more[1] + 1
    assert named.widest.term == "memory of the card"
    assert named.widest.told_by.startswith("free -g")
    assert told.widest.term != "memory of the card"
