"""Prefixes of recurrent layers cached at the ends of blocks: what a release asks of the launch."""

import pytest

from tests.plan.models import HYBRID_LIKE, LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge
from vllm_doctor.plan.terms.pages import specs

CACHED = "--enable-prefix-caching"


def told(config, flags, version):
    a, s, gpu = settings(config, flags, version)
    return [(r.flag, r.needed) for r in (*s.refusals, *judge(a, s, gpu).refusals)]


def block(flags, version):
    a, s, gpu = settings(HYBRID_LIKE, flags, version)
    return next(one.block for one in specs(a, s, gpu, range(len(a.layers))) if one.kind == "mamba")


def test_a_step_holds_a_block():
    length = block(CACHED, "0.17.1")
    ((flag, needed),) = told(HYBRID_LIKE, f"{CACHED} --max-num-batched-tokens {length - 1}", "0.17.1")
    assert (flag, needed.split(",")[0]) == ("--max-num-batched-tokens", f"at least {length} tokens")
    assert told(HYBRID_LIKE, f"{CACHED} --max-num-batched-tokens {length}", "0.17.1") == []


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        (CACHED, "0.28.0"),  # states are kept within blocks too
        ("--no-enable-prefix-caching", "0.17.1"),
        ("", "0.17.1"),  # not cached unasked before 0.26
    ],
)
def test_or_need_not(flags, version):
    words = f"{flags} --max-num-batched-tokens {block(flags, version) - 1}"
    assert told(HYBRID_LIKE, words, version) == []


@pytest.mark.parametrize(
    ("flags", "version", "flag"),
    [
        (f"{CACHED} --no-enable-chunked-prefill --max-model-len 8192", "0.19.1", "--no-enable-chunked-prefill"),
        ("--no-enable-chunked-prefill --max-model-len 8192", "0.33.0", "--no-enable-chunked-prefill"),
    ],
)
def test_prompts_are_cut_into_steps(flags, version, flag):
    assert flag in [found for found, _ in told(HYBRID_LIKE, flags, version)]
    assert told(LLAMA_8B, flags, version) == []
