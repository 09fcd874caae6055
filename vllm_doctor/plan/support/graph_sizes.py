"""Graphs of drafts: a batch that is captured holds whole requests, each of one token and its drafts."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.outside_torch import takes_flashinfer


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """Not one request fits below the largest captured size (config/compilation.py
    adjust_cudagraph_sizes_for_spec_decode: "No valid cudagraph sizes after rounding"). With drafts FlashInfer captures
    no whole batches, and a graph of any kind of batch (cudagraph_mode FULL) is not rounded."""
    whole = s.does.full_decode_graphs and s.full_graphs and not s.mixed_graphs and not a.encoder_decoder
    captured = s.engine == "V1" and whole and not s.eager and not s.pooling and not takes_flashinfer(a, s, gpu)
    each, largest = 1 + s.draft_tokens, s.capture_sizes or min(512, s.batched)
    ranks = s.parallel.tp
    if s.speculative is not None and s.does.rounds_drafts_to_ranks and captured and max(each, ranks) % min(each, ranks):
        yield Refusal(
            "--speculative-config",
            f"num_speculative_tokens {s.draft_tokens}",
            f"a number that makes, with one more, a divisor or a multiple of --tensor-parallel-size, {ranks}: "
            f"{s.version} captures batches that are multiples of both; or vLLM 0.11.2",
        )
        return
    if s.speculative is not None and s.does.rounds_graphs_to_drafts and captured and each > largest:
        yield Refusal(
            "--max-cudagraph-capture-size",
            str(largest),
            f"at least {each}: graphs hold whole requests, each of a token and {s.draft_tokens} drafts",
        )
