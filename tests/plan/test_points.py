"""Where a start may run out of memory: what is sure, and what is only likely."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_activation import peak
from tests.plan.test_plan import command, model, plan
from vllm_doctor.plan.advice.under_load import remedy_under_load
from vllm_doctor.plan.prediction.points import StartPoint, doubtful, first_end

__all__ = ["model"]


def point(left: float, outcome: str = "oom-cudagraph", side: float = 1.0) -> StartPoint:
    return StartPoint(outcome=outcome, left=left, below=side, above=side)


@pytest.mark.parametrize(
    ("points", "ends", "odds"),
    [
        ([point(2.0)], None, None),  # there is room wherever in the range the truth lies
        ([point(-2.0)], "oom-cudagraph", None),  # and here there is none
        ([point(0.0)], None, 0.5),
        ([point(-0.2)], "oom-cudagraph", 0.37),
        ([point(2.0), point(0.2, "oom-profile")], None, 0.63),
        ([point(0.2, "kv-too-small"), point(-2.0)], "oom-cudagraph", None),  # it ends later, however this goes
        ([point(-0.2, "kv-too-small"), point(-2.0)], "kv-too-small", None),
        ([point(0.2), point(0.0, "oom-profile")], None, 0.5),  # the least likely one
    ],
)
def test_a_start_ends_where_nothing_is_left_and_is_in_doubt_where_the_range_holds_both(points, ends, odds):
    told = first_end(points)
    assert told[0] == ends
    assert told[1] == (None if odds is None else pytest.approx(odds, abs=0.01))


def test_graphs_of_a_quantized_model_find_their_place_taken(model):
    # 0.25: the second runner does not charge its graphs, so the pool has taken what they need; 0.20's first one does.
    fp8 = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    line = "--max-model-len 8192 --gpu-memory-utilization 0.985"
    told = {v: plan(model(fp8), line, gpu="H100", version=v).predict() for v in ("0.25.0", "0.20.0")}
    assert (told["0.25.0"].verdict, told["0.25.0"].outcome) == ("does-not-start", "oom-cudagraph")
    assert told["0.20.0"].verdict == "starts"


def test_what_is_in_doubt_is_what_is_least_likely():
    assert doubtful([point(0.2), point(0.0, "oom-profile"), point(3.0, "oom-weights")]) == "oom-profile"
    assert doubtful([point(3.0)]) is None


def test_fragmentation_makes_a_wide_step_doubtful_and_decides_nothing(model):
    # A public log of 200000 tokens on 80 GB failed with 6.19 GiB reserved and unallocated: one log is no law.
    config = {**LLAMA_8B, "vocab_size": 32000, "max_position_embeddings": 32768}
    line = "--max-num-batched-tokens 200000 --max-num-seqs 200 --max-model-len 16384"
    told = plan(model(config), line, gpu="H100", version="0.10.1").predict()
    assert (told.outcome, told.verdict, told.doubtful) == ("ok", "uncertain", "oom-under-load")
    grown = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert plan(model(config), line, gpu="H100", version="0.10.1", env=grown).predict().verdict == "starts"
    narrow = line.replace("200000", "32768")
    assert plan(model(config), narrow, gpu="H100", version="0.10.1").predict().verdict == "starts"


def test_the_second_runner_samples_a_whole_batch_once_the_graphs_are_there():
    # Requests of two tokens: as many as sequences, or as a step holds; 14 bytes a logit.
    assert peak(LLAMA_8B, "--max-num-seqs 512", "0.25.0").warm_up == 512 * 128256 * 14
    assert peak(LLAMA_8B, "--max-num-batched-tokens 256", "0.25.0").warm_up == 128 * 128256 * 14
    assert peak(LLAMA_8B, "--runner pooling", "0.25.0").warm_up == 0


@pytest.mark.parametrize(
    ("utilization", "verdict"), [("0.9", "starts"), ("0.97", "uncertain"), ("0.985", "does-not-start")]
)
def test_graphs_and_sampler_need_what_the_budget_leaves_free(model, utilization, verdict):
    line = f"--max-model-len 8192 --gpu-memory-utilization {utilization}"
    told = plan(model(LLAMA_8B), line, gpu="H100", version="0.25.0").predict()
    assert told.verdict == verdict
    assert told.outcome == "oom-cudagraph" or verdict != "does-not-start"


def test_the_first_line_says_what_may_be_missing(model, capsys):
    card = ["--vllm-version", "0.25.0", "--gpu", "H100", "--model-config", model(LLAMA_8B)]
    launch = ["vllm", "serve", "m", "--max-model-len", "8192", "--gpu-memory-utilization", "0.97"]
    assert command(*card, "--", *launch) == 3
    told = capsys.readouterr().out
    assert "may start or not: CUDA graphs, or the sampler's warm-up, may be larger" in told.splitlines()[0]
    assert "least sure" not in told.split("recommended")[0].split("--explain")[0].splitlines()[1]


def test_what_the_first_full_step_lacks_is_told_with_the_value_that_leaves_it_that(model, capsys):
    # 0.6.6 on an L4: a step of 16384 tokens beside the pool; at 0.94 it fits.
    config = {**LLAMA_8B, "vocab_size": 32000}
    line = "--max-model-len 16384 --gpu-memory-utilization 0.99"
    asked = plan(model(config), line, gpu="L4", version="0.6.6")
    told = asked.predict()
    assert (told.outcome, told.verdict) == ("oom-under-load", "fails-under-load")
    assert told.lacking_gib == pytest.approx(1.05, abs=0.01)
    found = remedy_under_load(asked, told)
    assert found is not None
    assert (found.flag, found.value, round(found.pool_gib, 1)) == ("gpu-memory-utilization", "0.94", 5.1)
    card = ["--vllm-version", "0.6.6", "--gpu", "L4", "--model-config", model(config), "--", "vllm", "serve", "m"]
    assert command(*card, *line.split()) == 1
    first = capsys.readouterr().out.splitlines()
    assert first[0].endswith(": starts, and runs out of memory in its first full step")
    assert first[1] == "  lacks    1.05 GiB for a step of 16384 tokens beside the KV cache:"
    assert first[2] == "           --gpu-memory-utilization 0.94 leaves that, with 5.09 GiB of KV cache"


def test_why_a_start_that_ends_later_does_not_show_it_is_explained(model, capsys):
    config = model({**LLAMA_8B, "vocab_size": 32000})
    card = ["--explain", "--vllm-version", "0.6.6", "--gpu", "L4", "--model-config", config]
    line = ["--", "vllm", "serve", "m", "--max-model-len", "16384", "--gpu-memory-utilization"]
    command(*card, *line, "0.99")
    assert "vLLM starts because it fills no step before the first prompts do" in capsys.readouterr().out
    command(*card, *line, "0.8")
    assert "fills no step" not in capsys.readouterr().out


def test_a_pool_of_given_size_is_made_smaller_by_what_a_step_lacks(model):
    config = model({**LLAMA_8B, "vocab_size": 32000})
    line = "--max-model-len 16384 --max-num-batched-tokens 16384 --max-num-seqs 16 --enforce-eager"

    def planned(pool):
        return plan(config, f"{line} --kv-cache-memory-bytes {pool}", gpu="L4", version="0.19.0").predict()

    assert (planned("6G").verdict, planned("6G").lacking_gib) == ("fails-under-load", pytest.approx(0.588, abs=0.001))
    assert planned("6G").smaller_pool == planned("7G").smaller_pool == ("kv-cache-memory-bytes", "5811208192")
    assert planned("5811208192").verdict == "starts"


def test_a_start_without_doubt_lacks_nothing(model):
    told = plan(model(LLAMA_8B), "--max-model-len 8192", gpu="H100", version="0.19.0").predict()
    assert (told.verdict, told.lacking_gib, told.smaller_pool) == ("starts", None, None)
