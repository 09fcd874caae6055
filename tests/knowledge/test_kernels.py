"""What a release's log says of the kernels that it chose, and which ones it lets one choose."""

import pytest

from vllm_doctor.knowledge import kernels
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.log import chosen_kernels
from vllm_doctor.log.chosen_kernels import Chosen


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        (
            "Using FLASHINFER attention backend out of potential backends: ['FLASHINFER', 'TRITON_ATTN'].",
            Chosen("FLASHINFER", ("FLASHINFER", "TRITON_ATTN")),
        ),
        (
            "Using FLASH_ATTN attention backend out of potential backends: ('FLASH_ATTN', 'FLEX_ATTENTION')",
            Chosen("FLASH_ATTN", ("FLASH_ATTN", "FLEX_ATTENTION")),
        ),
        ("Using AttentionBackendEnum.FLASHINFER backend.", Chosen("FLASHINFER")),
        ("Using Flash Attention backend on V1 engine.", Chosen("FLASH_ATTN")),
        ("Using FlexAttenion backend on V1 engine.", Chosen("FLEX_ATTENTION")),
        ("Using FlexAttention backend for head_size=72 on V1 engine.", Chosen("FLEX_ATTENTION")),
        ("Using XFormers backend.", Chosen("XFORMERS")),
        ("Using Triton backend on V1 engine.", Chosen("TRITON_ATTN")),
        ("world_size=4 rank=0 backend=nccl", None),
        ("Using triton Mamba SSU backend.", None),
        ("Using TRITON Unquantized MoE backend out of potential backends: ['TRITON'].", None),
    ],
)
def test_the_attention_backend_is_read_in_each_release_s_words(line: str, chosen: Chosen | None) -> None:
    assert chosen_kernels.attention([line]) == chosen


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        (
            "Using FlashInfer CUTLASS Unquantized MoE backend out of potential backends: ['TRITON'].",
            Chosen("FLASHINFER_CUTLASS", kind="Unquantized"),
        ),
        ("Using 'MARLIN' WNA16 MoE backend.", Chosen("MARLIN", kind="WNA16")),
        ("Using TRITON Unquantized MoE backend out of potential backends: []", Chosen("TRITON", kind="Unquantized")),
    ],
)
def test_the_experts_kernels_are_read_with_the_kind_of_their_weights(line: str, chosen: Chosen) -> None:
    assert chosen_kernels.moe([line]) == chosen


def test_fusions_are_named_as_the_release_s_own_switches() -> None:
    own = "Enabled custom fusions: norm_quant, allreduce_rms"
    assert chosen_kernels.enabled_passes([own]) == ("fuse_norm_quant", "fuse_allreduce_rms")
    printed = "config: 'pass_config': {'enable_noop': True, 'enable_fi_allreduce_fusion': True, 'enable_fusion': False}"
    assert chosen_kernels.enabled_passes([printed]) == ("enable_fi_allreduce_fusion",)


def test_the_ways_of_an_all_reduce_between_the_ranks_of_one_model_are_read() -> None:
    line = (
        "Using ['CUSTOM', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0' out of potential backends"
    )
    assert chosen_kernels.all_reduce([line.replace("'tp:0'", "'ep:0'"), line]) == ("CUSTOM", "PYNCCL")
    assert chosen_kernels.linear(["Using MacheteLinearKernel for CompressedTensorsWNA16"]) == "MacheteLinearKernel"


@pytest.mark.parametrize(
    ("table", "name", "version", "known"),
    [
        ("pass_config", "fuse_allreduce_rms", "0.33.0", True),
        ("pass_config", "fuse_allreduce_rms", "0.11.0", False),
        ("pass_config", "enable_fi_allreduce_fusion", "0.11.0", True),
        ("attention", "TRITON_ATTN", "0.10.2", False),
        ("attention", "TRITON_ATTN_VLLM_V1", "0.10.2", True),
        ("attention", "TRITON_ATTN", "0.23.1", True),  # between two samples that have it
        ("moe", "triton", "0.16.0", False),
        ("moe", "triton", "0.40.0", True),  # newer than any sample: as the newest
        ("compilation", "mode", "0.8.5", False),  # older than any sample: not known
    ],
)
def test_a_name_counts_only_where_the_release_has_it(
    table: kernels.KernelTable, name: str, version: str, *, known: bool
) -> None:
    assert kernels.has(table, name, as_version(version)) is known
