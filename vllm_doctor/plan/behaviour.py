"""What a release does where releases differ, as far as memory is concerned: the reader of behaviours.json.

A row has the first release that does it and the first that no longer does; nothing stands for "always did" and "still
does". Its source is the file of vLLM in which it was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What one release does; behaviours.json says each in words."""

    chunks_long_prompts: bool
    awq_in_eight_parts: bool
    gptq_by_marlin: bool
    awq_by_marlin: bool
    asks_card_of_schemes: bool
    packed_from_ampere: bool
    floats_from_ampere: bool
    multimodal_step_floor: bool
    wide_chunks: bool
    counts_used_memory: bool
    counts_contexts: bool
    v0_samples: bool
    v0_samples_on_one_card: bool
    flashinfer_where_installed: bool
    caches_latents: bool
    pads_latent_heads_to_256: bool
    caps_step_by_sequences: bool
    v1_keeps_weights: bool
    v2_keeps_weights: bool
    drops_items_beyond_step: bool
    drops_tiles_beyond_step: bool
    norms_tower_heads_in_float32: bool
    films_tiles: bool
    films_tiles_of_qwen3: bool
    rest_to_last_stage: bool
    groups_kinds: bool
    need_in_bytes: bool
    checks_free_at_start: bool
    many_items: bool
    captures_by_sequences: bool
    captures_whole_drafts: bool
    captures_more_on_ten: bool
    nccl_before_snapshot: bool
    captures_by_sixteen: bool
    full_decode_graphs: bool
    mla_block_64: bool
    video_beside_image: bool
    trims_unseen: bool
    own_format_first: bool
    masks_images: bool
    dots_turns_in_float32: bool
    turns_each_in_float32: bool
    turns_both_in_float32: bool
    orders_before_turning: bool
    copies_encoder_outputs: bool
    asks_map_of_adapted_experts: bool
    adapts_experts: bool
    mxfp4_for_triton: bool
    undoes_double_quantization: bool
    keeps_fp8_workspace: bool
    keeps_moe_workspace: bool
    frees_experts_workspace: bool
    joins_experts_caches: bool
    own_fp4_experts: bool
    chunks_experts_at_32768: bool
    chunks_experts_at_16384: bool
    pads_within_quarter: bool
    pads_within_half: bool
    refuses_draft_models: bool
    direct_fp8_experts: bool
    schedules_ahead: bool
    checks_all_stages: bool
    refuses_deprecated_methods: bool
    connector_ends_groups: bool
    events_end_groups: bool
    groups_may_be_asked: bool
    checks_connector_groups: bool
    triton_sampler: bool
    keeps_both_while_quantizing: bool
    packs_sparse_latents: bool
    packs_asked_latents: bool
    strands_mxfp4: bool
    can_estimate_graphs: bool
    state_page_by_kernel_block: bool
    direct_gptq_experts: bool
    estimates_graphs: bool
    tries_graphs_first: bool
    tries_no_more_than_sequences: bool
    charges_passing_memory: bool
    flashinfer_sampler: bool
    tokens_by_concurrency: bool
    splits_large_blocks: bool
    direct_integer_experts: bool
    direct_packed_experts: bool
    refuses_experts_of_dense: bool
    checks_prefill_threshold: bool
    benchmarks_kernels: bool
    makes_no_stages: bool
    refuses_items_of_text: bool
    bits_by_packed_modules: bool
    keeps_gemma_from_float16: bool
    checks_balanced_experts: bool
    checks_context_ranks: bool
    checks_state_block: bool
    checks_capture_sizes: bool
    asks_connector_role: bool
    checks_asked_backend: bool
    nemotron_state_as_named: bool
    drafts_widen_mamba2: bool
    nemotron_state_float32: bool
    names_unknown_methods: bool
    drafts_ahead_by_some: bool
    draft_models_ahead: bool
    ahead_in_one_stage: bool
    ahead_without_drafts: bool
    ahead_not_in_process: bool
    ahead_without_ray: bool
    takes_several_steps: bool
    several_steps_unchunked: bool
    adapters_unchunked: bool
    drafts_unchunked: bool
    drafts_ask_block_manager: bool
    drafts_ask_lookup: bool
    names_hidden_targets: bool
    pooling_unchunked: bool
    parts_need_chunks: bool
    windows_keep_no_prefixes: bool
    v2_qwen3: bool
    plans_by_overridden_blocks: bool
    refuses_nvfp4_latents: bool
    v2_llama: bool
    v2_listed_experts: bool
    v2_dense: bool
    checks_expert_groups: bool
    dflash_in_own_type: bool
    marks_token_ids: bool
    caches_recurrent_prefixes: bool
    counts_batches_in_flight: bool
    measures_consumed: bool
    plain_integer_methods: bool
    names_gguf_types: bool
    gguf_by_plugin: bool
    offloads_unasked: bool
    offloads_by_bytes: bool
    lmcache_outside: bool
    offloads_to_shared_file: bool
    checks_shared_room: bool
    registers_in_chunks: bool
    asks_native_fp8_cache: bool
    asks_native_fp8_latents: bool
    nvfp4_cache_on_ten: bool
    nvfp4_cache_by_fa2: bool
    refines_expert_blocks: bool
    splits_mimo_blocks: bool
    splits_mimo_heads: bool
    chunks_no_images: bool
    chunks_on_cuda_alone: bool
    chunks_no_latents: bool
    charges_graphs_elsewhere: bool
    v2_charges_graphs: bool
    v2_all: bool
    glm_sparse_in_fp8: bool
    reserves_null_block: bool
    shares_keys_without_weights: bool
    refuses_activation_order: bool
    drafts_widen_convolutions: bool
    aligns_latent_hybrids: bool
    scales_indexer_workspace: bool
    allocates_by_torch_2_13: bool
    keeps_profile_whole: bool
    checkpoints_mamba2: bool
    v2_sampler_warm_up: bool
    asks_block_for_each_sequence: bool
    rejects_other_float_cache: bool
    checkpoints_delta_nets: bool
    v2_drafts_ahead: bool
    checks_sleep_of_connectors: bool
    reserves_drafts: bool
    caps_by_flashinfer: bool
    xformers_refuses_caps: bool
    marlin_alone_packs: bool
    packed_by_choice: bool
    has_exllama: bool
    has_allspark: bool
    exllama_wants_groups: bool
    marlin_on_turing: bool
    knows_modelopt_by_producer: bool
    adapts_to_pooling: bool
    falls_back_to_transformers: bool
    drafts_in_one_stage: bool
    triton_reads_fp8_cache: bool
    cache_of_its_own_type: bool
    fp8_cache_by_flashinfer: bool
    flashinfer_sinks_on_ten: bool
    flashinfer_sinks_on_blackwell: bool
    flashinfer_wide_heads: bool
    flashinfer_from_ampere: bool
    drafter_has_stages: bool
    auto_round_as_inc: bool
    refuses_e5m2_of_scales: bool
    refuses_e5m2_of_packed: bool
    refuses_ordered_groups: bool
    refuses_sparse_checkpoints: bool
    triton_tiles_of_32: bool
    v0_refuses_beside_encoders: bool
    step_holds_drafts_of_adapters: bool
    names_bart_plugin: bool
    takes_stored_dtype: bool
    four_bit_experts_on_ten_alone: bool
    checks_data_parallel_options: bool
    refuses_external_ranks_of_dense: bool
    bounds_data_parallel_rank: bool
    refuses_growing_segments: bool
    packs_other_integers: bool
    packs_symmetric_experts: bool
    turns_on_one_card: bool
    takes_cache_of_modelopt: bool
    takes_cache_scheme: bool
    cache_scheme_over_option: bool
    latents_in_16_bits: bool
    plain_latents_by_triton: bool
    gates_of_experts_asked: bool
    streams_from_buckets: bool
    streams_from_all: bool
    parts_pooling_types: bool
    renamed_normalize: bool
    drops_scales_of_qwen2_experts: bool
    joins_projections_of_states: bool
    kimi_linear_misses_a_part: bool
    packed_experts_by_wna16: bool
    asks_limits_of_towers: bool
    skips_unused_towers: bool
    asks_for_marlin_experts: bool
    triton_experts_of_any_card: bool
    keeps_items_whole: bool
    raises_step_to_items: bool
    keeps_expert_buffer: bool
    balances_text_models: bool
    balances_by_nixl: bool
    selects_by_block: bool
    marlin_takes_all_of_awq: bool
    marlin_pads_floats: bool
    ray_on_one_host: bool
    keeps_prefixes_of_nothing: bool
    drafts_on_one_rank: bool
    batches_of_one_size: bool
    aligns_latents: bool
    multiplies_latent_weights: bool
    keeps_decode_graphs: bool
    adds_words: bool
    names_drafters_by_model: bool
    shares_context_of_one_kind: bool
    refuses_turboquant_of_recurrent: bool
    v1_misses_turboquant: bool
    sizes_windows_unpacked: bool
    floats_by_triton: bool
    windows_share_no_context: bool
    pads_online_blocks: bool
    v2_towers_on_first_stage: bool
    v2_profiles_encoders: bool
    keeps_moonvit_whole: bool
    prefill_ranks_share_cache: bool
    loads_bits: bool
    splits_no_stored_bits: bool
    bits_by_two_options: bool
    packs_experts_in_bits: bool
    loads_no_stored_experts: bool
    aligns_states: bool
    keeps_states_of_all_blocks: bool
    aligns_chunked_alone: bool
    fills_step_with_blocks: bool
    adapts_experts_at_once: bool
    splits_no_quantized_mamba: bool
    splits_quantized_groups: bool
    adapts_no_experts_of_ranks: bool
    eagle3_has_layers: bool
    eagle3_names_its_layers: bool
    shares_heads_by_shape: bool
    dflash_has_windows: bool
    keeps_turboquant_buffers: bool
    reserves_turboquant_workspace: bool
    latents_keep_type_by_number: bool
    shares_chosen_tokens: bool
    drafts_share_chosen_tokens: bool
    gathers_into_latents_space: bool
    drafter_in_mxfp4: bool
    asks_for_heads_of_classes: bool
    routes_ungrouped_by_groups: bool
    rounds_graphs_to_drafts: bool
    indexer_in_four_bits_on_ten: bool
    one_ptxas: bool
    converts_what_generates: bool
    names_each_expert_of_gguf: bool
    loads_gguf_in_parts: bool
    ungated_experts_of_modelopt: bool
    ungated_experts_in_fp8_alone: bool
    profiles_rejection: bool
    reserves_indexer_scores: bool
    packs_pages_by_size: bool
    overlays_groups: bool
    charges_block_bytes: bool
    asks_backends_for_both_ways: bool
    no_integers_on_blackwell: bool
    v1_by_flash_attention_alone: bool
    v1_blocks_of_16: bool
    sleep_refuses_growing_segments: bool
    marlin_experts_on_one_rank: bool
    quantization_of_the_whole: bool
    towers_follow_variable: bool
    rounds_drafts_to_ranks: bool
    gptq_by_bitblas: bool
    drafts_on_one_card: bool
    packed_bits_by_option: bool
    reads_no_stored_method: bool
    offload_keeps_one_block: bool
    flashinfer_of_one_window: bool
    gguf_words_unpadded: bool
    hands_chunks_to_attention: bool
    has_dual_chunk_backend: bool
    takes_chunked_layers_in_v0: bool
    makes_uneven_joined_blocks: bool


class BehaviourRow(msgspec.Struct, frozen=True):
    """A line of behaviours.json: what is done from one release to before another."""

    name: str
    since: str | None
    until: str | None
    what: str
    source: str

    def at(self, version: Version) -> bool:
        """Does this release do it?"""
        begun = self.since is None or version >= as_version(self.since)
        return begun and (self.until is None or version < as_version(self.until))


@cache
def rows() -> tuple[BehaviourRow, ...]:
    """The table, in the order of the releases."""
    told = json.loads(Path(__file__).with_name("behaviours.json").read_text(encoding="utf-8"))
    return tuple(msgspec.convert(told, list[BehaviourRow]))


# What is taken the other way round, while somebody asks what it changes.
_OTHERWISE: ContextVar[str | None] = ContextVar("otherwise", default=None)


def behaviour(version: Version) -> Behaviour:
    """What this release does."""
    return _of(version, _OTHERWISE.get())


@cache
def _of(version: Version, otherwise: str | None) -> Behaviour:
    return Behaviour(**{row.name: row.at(version) != (row.name == otherwise) for row in rows()})


@contextmanager
def otherwise(name: str) -> Iterator[None]:
    """Within it every release does this one thing the other way round: what comes out differently depends on it."""
    token = _OTHERWISE.set(name)
    try:
        yield
    finally:
        _OTHERWISE.reset(token)
