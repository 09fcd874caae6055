"""InternVL's tower sees tiles: how many an image has, what a profile shows it, and what its attention takes."""

import pytest
from msgspec.structs import replace

from tests.plan.models import arch
from tests.plan.test_which_engine import asked
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.terms import encoder, tiles

QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 151674,
    "max_position_embeddings": 32768,
}
INTERNVL = {
    "architectures": ["InternVLChatModel"],
    "model_type": "internvl_chat",
    "downsample_ratio": 0.5,
    "dynamic_image_size": True,
    "max_dynamic_patch": 12,
    "use_thumbnail": True,
    "torch_dtype": "bfloat16",
    "vision_config": {
        "model_type": "intern_vit_6b",
        "hidden_size": 3200,
        "num_hidden_layers": 45,
        "num_attention_heads": 25,
        "intermediate_size": 12800,
        "image_size": 448,
        "patch_size": 14,
    },
    "llm_config": QWEN2,
}
OLD = asked("vllm serve m --max-model-len 32768", "0.6.6")
NEW = asked("vllm serve m --max-model-len 32768", "0.15.0")


def of(release, **fields):
    return replace(NEW, version=as_version(release), length=32768, **fields)


@pytest.mark.parametrize(
    ("told", "merge", "count"),
    [
        ({}, 2, 13),  # and the whole of it beside them
        ({"use_thumbnail": False}, 2, 12),
        ({"max_dynamic_patch": 1}, 2, 1),
        ({"dynamic_image_size": False}, 2, 1),
        ({"downsample_ratio": 0.25}, 4, 13),
        ({"downsample_ratio": None}, 1, 13),
        ({"downsample_ratio": 0.001}, 1, 13),
        ({"downsample_ratio": 7.0}, 1, 13),
    ],
)
def test_an_image_has_the_most_tiles_and_one_of_all_of_it(told, merge, count):
    v = arch({**INTERNVL, **told}).vision
    assert v is not None
    assert (v.merge, v.tiles) == (merge, count)


def test_other_towers_have_no_tiles():
    other = {**INTERNVL, "vision_config": {**INTERNVL["vision_config"], "model_type": "siglip_vision_model"}}
    assert arch(other).vision.tiles == 0


@pytest.mark.parametrize(
    ("release", "text", "fields", "tokens"),
    [
        ("0.8.5", "qwen2", {}, 3328),
        ("0.9.0", "qwen2", {}, 29440),  # 115 frames, which an image has to fit beside
        ("0.9.0", "qwen2", {"image_limit": 0}, 32768),
        ("0.11.0", "qwen2", {}, 32768),
        ("0.11.0", "qwen2", {"video_limit": 0}, 3328),
        ("0.11.0", "llama", {}, 3328),
        ("0.10.1", "qwen3", {}, 3328),
        ("0.11.0", "qwen3", {}, 32768),
    ],
)
def test_a_video_has_a_frame_for_each_tile_that_the_length_holds(release, text, fields, tokens):
    a = arch({**INTERNVL, "llm_config": {**QWEN2, "model_type": text}})
    assert tiles.item(a.vision, of(release, **fields), a) == tokens


def test_nvlm_takes_no_videos():
    a = arch({**INTERNVL, "architectures": ["NVLM_D_Model"]})
    assert tiles.item(a.vision, of("0.11.0"), a) == 3328


@pytest.mark.parametrize(
    ("ranks", "release", "widths"), [(1, "0.8.5", 0), (5, "0.8.5", 0), (8, "0.8.5", 12), (8, "0.9.0", 10)]
)
def test_attention_whose_heads_do_not_divide_is_whole(ranks, release, widths):
    s = of(release, parallel=replace(Parallel(), tp=ranks))
    assert tiles.attention(arch(INTERNVL).vision, s) == widths


@pytest.mark.parametrize(
    ("release", "batched", "images", "dropped"),
    [
        ("0.7.1", 4096, 2, False),
        ("0.7.2", 4096, 2, True),
        ("0.7.2", 6656, 2, False),
        ("0.7.2", 4096, None, False),
        ("0.8.3", 4096, 2, False),
    ],
)
def test_the_older_engine_dropped_images_beyond_its_step(release, batched, images, dropped):
    s = replace(of(release, batched=batched, image_limit=images), engine="V0")
    assert encoder.text_only(arch(INTERNVL), s) is dropped


@pytest.mark.parametrize(
    ("seqs", "batched", "images", "tokens"),
    [(256, 8192, 16, 53248), (256, 8192, None, 6656), (1, 8192, None, 3328), (256, 100, None, 3328)],
)
def test_the_older_engine_shows_all_images_of_as_many_prompts_as_the_step_holds(seqs, batched, images, tokens):
    a = arch(INTERNVL)
    s = replace(OLD, seqs=seqs, batched=batched, image_limit=images)
    assert encoder.encoder_tokens(a.vision, s, a) == tokens


def test_sixteen_images_take_what_eight_l40s_logged():
    a = arch(INTERNVL)
    s = replace(OLD, batched=8192, image_limit=16, parallel=replace(Parallel(), tp=8))
    found = encoder.encoder(a, a.vision, s)
    peak = next(t.bytes for t in found.terms if t.name == "vision encoder") / 2**30
    assert peak == pytest.approx(15.716, abs=0.001)  # the log says 15.73, with cuBLAS's workspace
    outputs, pixels = 53248 * 8192 * 2, 208 * 3 * 448**2 * 4
    assert found.kept == outputs + pixels
