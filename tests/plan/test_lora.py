"""Room for LoRA adapters is taken when the model is loaded, and "Model loading took" counts it."""

import pytest

from tests.plan.models import LLAMA_8B, arch
from tests.plan.test_launch import resolved
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.question.ask import KnownStart, foresee
from vllm_doctor.plan.terms.lora import _each, lora_bytes
from vllm_doctor.plan.terms.matrices import Matrix

MISTRAL_7B = {
    **LLAMA_8B, "model_type": "mistral", "vocab_size": 32000, "max_position_embeddings": 32768, "rope_scaling": None,
}  # fmt: skip
EXPERTS = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
    "num_experts": 128, "num_experts_per_tok": 8, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip


GIB = 1 << 30


def weights(config, *words: str, version: str) -> float:
    """GiB that one GPU logs as its model's."""
    start = KnownStart(("vllm", "serve", "m", *words), version, config, "NVIDIA H100 80GB HBM3", 79.19)
    told = foresee(start)
    assert told is not None
    return told.now.weights_gib


def room(config, *words: str, version: str = "0.33.0") -> float:
    """GiB that the options add to the weights of one GPU."""
    return weights(config, *words, version=version) - weights(config, version=version)


def test_a_mistral_7b_loads_with_the_room_that_a_start_logged():
    # 0.14.0 on an L40S with LoRA at its default rank of 16 logged 13.58 GiB; without it the model takes 13.50.
    assert weights(MISTRAL_7B, "--enable-lora", version="0.14.0") == pytest.approx(13.58, abs=0.005)


def test_the_room_grows_with_adapters_and_rank_whatever_is_loaded_later():
    one = room(LLAMA_8B, "--enable-lora")
    assert one == pytest.approx(room(LLAMA_8B, "--enable-lora", "--max-loras", "8", "--max-lora-rank", "64") / 32)
    assert room(LLAMA_8B, "--max-loras", "8") == 0


def test_every_expert_has_its_room_since_0_11_1():
    each = 16 * 2 * (2 * (2048 + 768) + 768 + 2048)  # rank, bytes, gate and up and down
    before, since = (room(EXPERTS, "--enable-lora", version=version) for version in ("0.11.0", "0.11.1"))
    assert since - before == pytest.approx(48 * 128 * each / GIB, rel=1e-3)


def words(architecture: str, version: str, *flags: str) -> float:
    """How many matrices as long as the vocabulary are adapted, of a model with one short layer."""
    config = {
        **LLAMA_8B, "architectures": [architecture], "num_hidden_layers": 1, "hidden_size": 1024, "head_dim": 64,
        "num_attention_heads": 16, "intermediate_size": 1024, "vocab_size": 250000,
    }  # fmt: skip
    added = room(config, "--enable-lora", "--max-lora-rank", "64", *flags, version=version)
    return added * GIB / (64 * 2 * 251024)


@pytest.mark.parametrize(
    ("architecture", "version", "found"),
    [
        ("LlamaForCausalLM", "0.33.0", 2),  # embedding and head
        ("Qwen3ForCausalLM", "0.15.1", 0),
        ("Qwen3ForCausalLM", "0.16.0", 2),
        ("CohereForCausalLM", "0.33.0", 1),  # its embedding alone
        ("Phi3ForCausalLM", "0.33.0", 2),  # as Llama's class, on which it stands
        ("MistralForCausalLM", "0.33.0", 0),  # stands on it too, and says otherwise
        ("Qwen2ForCausalLM", "0.33.0", 0),
    ],
)
def test_a_class_says_whether_its_embedding_and_its_head_are_adapted(architecture, version, found):
    assert words(architecture, version) == pytest.approx(found, abs=0.12)  # the layer's own


@pytest.mark.parametrize(
    ("flags", "found"),
    [((), 2), (("--lora-target-modules", "lm_head"), 1), (("--lora-target-modules", "o_proj", "down_proj"), 0)],
)
def test_modules_that_are_not_named_have_no_room(flags, found):
    assert words("LlamaForCausalLM", "0.33.0", *flags) == pytest.approx(found, abs=0.12)


@pytest.mark.parametrize(
    ("named", "widths"),
    [
        ("o_proj", 2048 + 4096),
        ("q_proj", 4096 + 2048 + 2 * (512 + 2048)),  # fused, and adapted as one
        ("qkv_proj", 4096 + 2048 + 2 * (512 + 2048)),
        ("experts", 128 * 3 * (2048 + 768)),
        ("gate_proj", 0),  # of the experts only as one
    ],
)
def test_what_is_fused_is_adapted_as_one(named, widths):
    found = room(EXPERTS, "--enable-lora", "--lora-target-modules", named, version="0.33.0")
    assert found * GIB == pytest.approx(48 * 16 * 2 * widths, rel=0.01, abs=2**20)


@pytest.mark.parametrize(("tp", "less"), [(1, 0), (2, 14336)])
def test_fully_sharded_ranks_share_what_each_had_whole(tp, less):
    """Of a layer two ranks have 55296 values each of a rank-1 adapter, or half of its 81920 (column_parallel_linear.py:
    5 x 4096 inputs before what is split by outputs, row_parallel_linear.py: 2 x 4096 outputs behind the rest)."""
    a, split = arch(LLAMA_8B), f"-tp {tp} --enable-lora"
    plain, shared = (lora_bytes(a, resolved(f"{split} {more}", gpus=tp), 0) for more in ("", "--fully-sharded-loras"))
    assert plain - shared == 16 * 2 * 32 * less


def test_fully_sharded_experts_share_by_all_ranks_of_their_width():
    """fused_moe.py: of w13 the part behind 2048 inputs, of w2 the part before 2048 outputs, by moe_parallel_config's
    tensor parallel size."""
    held = Matrix("experts.0.up_proj", 384, 2048, 128, expert=True, tensor="w13")
    down = Matrix("experts.0.down_proj", 2048, 384, 128, expert=True)
    par = Parallel(tp=1, dp=2)
    whole = Matrix("experts.0.up_proj", 768, 2048, 128, expert=True, tensor="w13")
    assert _each(held, whole, par, shared=True) == 384 + 1024
    assert _each(down, Matrix("experts.0.down_proj", 2048, 768, 128, expert=True), par, shared=True) == 1024 + 384
    assert _each(held, whole, par, shared=False) == 384 + 2048
