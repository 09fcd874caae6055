"""The planner's small functions on figures of which no two give the same: bounds from both sides."""

import dataclasses
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tests.plan.models import LLAMA_8B, arch
from tests.plan.test_which_engine import asked
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.advice import set_ups
from vllm_doctor.plan.advice.formats import FormatOptions
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch import spread
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Vision
from vllm_doctor.plan.model.named import Exceptions
from vllm_doctor.plan.prediction import state_blocks
from vllm_doctor.plan.question import ask
from vllm_doctor.plan.question.goal import Goal
from vllm_doctor.plan.support import card
from vllm_doctor.plan.terms import activation, encoder

ARCH = arch(LLAMA_8B)
L4 = next(one for one in (find("L4"),) if one is not None)
OLD, NEW = asked("vllm serve m", "0.8.5"), asked("vllm serve m", "0.15.0")
QWEN2 = Vision(
    layers=2, hidden=8, width=16, heads=2, patch=14, gated=False, positions=0, merge=2, out=8, image_size=448,
    kind="qwen2_vl",
)  # fmt: skip
SIGLIP = replace(QWEN2, kind="siglip_vision_model")
# Of each kind of behaviour some release has it, and some has not.
VERSIONS = [as_version(v) for v in ("0.15.0", "0.12.0", "0.11.0", "0.10.0", "0.9.0", "0.8.5", "0.8.0", "0.6.0")]
FIVE = 5 * 28 * 28  # pixels of an image of five tokens


def of_release(s: Settings, name: str, *, does: bool) -> Settings:
    """The settings in the first of those releases that does it, or does not."""
    return replace(s, version=next(v for v in VERSIONS if getattr(behaviour(v), name) is does))


@pytest.mark.parametrize(
    ("pixels", "tokens"),
    [(None, 16384), (FIVE, 5), (FIVE - 1, 4), (783, 1), (16385 * 784, 16384), (784 * 16383, 16383)],
)
def test_an_image_has_a_token_for_each_merged_patch(pixels: int | None, tokens: int) -> None:
    assert encoder._image_tokens(QWEN2, replace(NEW, image_pixels=pixels)) == tokens


@pytest.mark.parametrize(
    ("batched", "images", "videos", "items"),
    [
        (100, None, None, (5, 40)),  # eight pairs of frames at most
        (44, None, None, (5, 35)),
        (45, None, None, (5, 40)),
        (30, None, 2, (5, 20)),
        (30, 3, None, (15, 15)),
        (30, 0, None, (0, 30)),
        (5, None, None, (5, 5)),
        (100, None, 0, (5, 0)),
    ],
)
def test_a_video_has_the_pairs_for_which_there_is_room_beside_the_images(
    batched: int, images: int | None, videos: int | None, items: tuple[int, int]
) -> None:
    s = replace(NEW, image_pixels=FIVE, batched=batched, image_limit=images, video_limit=videos)
    assert encoder._v0_items(QWEN2, s) == items


@pytest.mark.parametrize(
    ("vision", "seqs", "batched", "rows"),
    [(QWEN2, 256, 100, 2), (QWEN2, 1, 100, 1), (QWEN2, 256, 9, 1), (QWEN2, 256, 135, 3), (SIGLIP, 256, 100, 100)],
)
def test_the_older_engine_profiles_as_many_prompts_as_the_step_holds(
    vision: Vision, seqs: int, batched: int, rows: int
) -> None:
    assert encoder.v0_rows(vision, replace(NEW, image_pixels=FIVE, seqs=seqs, batched=batched)) == rows


@pytest.mark.parametrize(
    ("length", "old", "new"), [(4, 0, 0), (5, 0, 5), (33, 25, 30), (34, 25, 30), (35, 30, 35), (1000, 40, 35)]
)
def test_a_video_has_the_pairs_that_the_length_holds(length: int, old: int, new: int) -> None:
    for beside, tokens in ((True, old), (False, new)):
        s = of_release(replace(NEW, image_pixels=FIVE, length=length), "video_beside_image", does=beside)
        assert encoder._qwen2_video(QWEN2, s) == tokens


@pytest.mark.parametrize(
    ("batched", "length", "seqs", "limit", "tokens"),
    [
        (100, 1000, 1, None, 256),  # an item is larger than the step
        (256, 1000, 1, None, 256),
        (1000, 1000, 1, None, 768),  # three whole ones
        (1000, 767, 1, None, 512),  # the length brings two
        (1000, 768, 1, None, 768),
        (1000, 100, 1, None, 256),
        (1000, 767, 2, None, 768),
        (1000, 1000, 1, 1, 256),
        (1000, 1000, 1, 2, 512),
        (1000, 1000, 1, 0, 768),
    ],
)
def test_the_profile_has_what_the_step_holds_and_the_sequences_bring(
    batched: int, length: int, seqs: int, limit: int | None, tokens: int
) -> None:
    s = replace(NEW, batched=batched, length=length, seqs=seqs, image_limit=limit)
    many, one = (of_release(s, "many_items", does=does) for does in (True, False))
    assert encoder.encoder_tokens(SIGLIP, many, ARCH) == tokens
    assert encoder.encoder_tokens(SIGLIP, replace(many, engine="V0"), ARCH) == max(batched, 256)
    if limit is None:
        assert encoder.encoder_tokens(SIGLIP, one, ARCH) == (256 if batched > 256 and seqs == 1 else min(tokens, 512))


@pytest.mark.parametrize(
    ("kind", "length", "videos", "copies", "room"),
    [
        ("qwen3_vl", 16385, None, True, 153_600), ("qwen3_vl_moe", 16385, 1, True, 153_600),
        ("qwen3_vl", 16384, None, True, 0),
        ("qwen3_vl", 16385, 0, True, 0), ("qwen3_vl", 16385, None, False, 0), ("qwen2_vl", 16385, None, True, 0),
    ],
)  # fmt: skip
def test_outputs_were_copied_into_room_for_a_video(
    kind: str, length: int, videos: int | None, room: int, *, copies: bool
) -> None:
    s = of_release(replace(NEW, length=length, video_limit=videos), "copies_encoder_outputs", does=copies)
    assert encoder._room(replace(QWEN2, kind=kind), s) == room


@pytest.mark.parametrize(
    ("name", "images", "videos", "text"),
    [
        ("Qwen2VLForConditionalGeneration", 0, 0, True), ("Qwen2VLForConditionalGeneration", 0, None, False),
        ("Qwen2VLForConditionalGeneration", 0, 1, False), ("Qwen2VLForConditionalGeneration", None, 0, False),
        ("Qwen2VLForConditionalGeneration", 1, 0, False), ("Gemma3ForConditionalGeneration", 0, None, True),
        ("Gemma3ForConditionalGeneration", 1, None, False), ("LlavaOnevisionForConditionalGeneration", 0, None, False),
    ],
)  # fmt: skip
def test_nothing_is_profiled_where_no_item_may_come(name: str, images: int, videos: int | None, *, text: bool) -> None:
    a = replace(ARCH, vision=SIGLIP, name=name)
    s = replace(NEW, image_limit=images, video_limit=videos)
    assert encoder.text_only(a, s) is text
    assert encoder.without_tower(a, s) is text  # 0.15.0 makes no tower then
    assert encoder.without_tower(a, replace(s, language_only=True))
    # The first engine makes it always; a sound encoder has a limit of its own; and without a tower there is none.
    assert not any(
        encoder.without_tower(*told) is not False
        for told in ((a, replace(s, engine="V0")), (replace(a, audio_weights=1), s), (replace(a, vision=None), s))
    )


@pytest.mark.parametrize(
    ("name", "version", "made"),
    [
        ("Gemma3ForConditionalGeneration", "0.14.1", True), ("Gemma3ForConditionalGeneration", "0.15.0", False),
        ("Llama4ForConditionalGeneration", "0.14.1", False), ("Llama4ForConditionalGeneration", "0.10.0", True),
    ],
)  # fmt: skip
def test_some_classes_asked_for_the_limits_before_the_release_did(name: str, version: str, *, made: bool) -> None:
    s = replace(NEW, version=as_version(version), image_limit=0, video_limit=0)
    assert encoder.without_tower(replace(ARCH, vision=SIGLIP, name=name), s) is not made


@pytest.mark.parametrize(("batched", "text"), [(45, False), (44, False), (9, True), (10, False)])
def test_items_beyond_the_older_engine_s_step_are_dropped(batched: int, *, text: bool) -> None:
    a = replace(ARCH, vision=QWEN2)
    s = of_release(replace(OLD, engine="V0", image_pixels=FIVE, batched=batched), "drops_items_beyond_step", does=True)
    assert encoder.text_only(a, s) is text
    assert not encoder.text_only(a, replace(s, engine="V1"))


def _row(**over: object) -> set_ups.SetUp:
    fields: dict[str, object] = {
        "card": L4,
        "count": 2,
        "format": SimpleNamespace(options={}),
        "planner": SimpleNamespace(total_gib=22.5),
        "predicted": SimpleNamespace(verdict="starts", outcome="starts"),
        "holds": None,
        "missing_gib": 0.0,
    }
    return set_ups.SetUp(**{**fields, **over})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "missing", "reaches"),
    [("starts", 0.0, True), ("starts", 0.01, False), ("starts", -1.0, True), ("may not start", 0.0, False)],
)
def test_a_set_up_reaches_its_goal_where_it_starts_and_lacks_nothing(
    verdict: str, missing: float, *, reaches: bool
) -> None:
    assert _row(predicted=SimpleNamespace(verdict=verdict), missing_gib=missing).reaches is reaches


def test_set_ups_stand_by_price_then_memory_then_count_then_what_they_change() -> None:
    assert _row().memory_gib == 45.0
    assert _row(planner=SimpleNamespace(total_gib=None)).memory_gib == 0.0
    assert set_ups._cost(_row()) == (0.0, 45.0, 2, 0, L4.name)
    assert set_ups._cost(_row(price=1.5, format=SimpleNamespace(options={"a": "b"})))[:4] == (1.5, 45.0, 2, 1)


@pytest.mark.parametrize(("outcome", "first"), [("rejected", 0), ("unknown", 1), ("oom-weights", 2), ("starts", 2)])
def test_what_vllm_would_run_is_nearer_than_what_it_refuses(outcome: str, first: int) -> None:
    row = _row(predicted=SimpleNamespace(outcome=outcome), missing_gib=1.5, count=4)
    assert set_ups._nearness(row) == (first, -6.0)


@pytest.mark.parametrize(
    ("most", "part", "counts"),
    [(1, False, [1]), (2, False, [1, 2]), (3, False, [1, 2, 3]), (64, False, [1, 2, 4, 8, 16, 32, 64]), (8, True, [1])],
)
def test_powers_of_two_of_a_card_are_tried_and_all_there_are(most: int, counts: list[int], *, part: bool) -> None:
    assert set_ups._counts(SimpleNamespace(gpus=most), SimpleNamespace(slice=part, alone=False)) == counts  # type: ignore[arg-type]


def _quantized(**config: object) -> object:
    return arch({**LLAMA_8B, "quantization_config": config})


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, card._METHODS["awq"]),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, card._METHODS["gptq"]),
        ({"quant_method": "fp8"}, ("fp8",)),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, ("modelopt",)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("modelopt_fp4",)),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, ("modelopt_mxfp8",)),
        ({"quant_method": "modelopt"}, card._METHODS["modelopt"]),
    ],
)
def test_a_checkpoint_s_method_is_one_of_those_that_vllm_may_call_it(config: dict[str, object], names: object) -> None:
    assert card.methods(_quantized(**config), NEW) == names  # type: ignore[arg-type]
    assert card.methods(ARCH, NEW) == ()
    assert card.methods(ARCH, replace(NEW, quantization="fp8")) == ("fp8",)


def test_a_card_below_every_build_is_told_the_least() -> None:
    (told,) = card._build(NEW, dataclasses.replace(L4, capability=6.9), 6.9)
    assert told.flag == "--gpu"
    assert "compute capability 6.9" in told.found
    assert told.needed == "7.0 or higher, which every release asks for"
    assert not list(card._build(NEW, L4, 8.9))
    for version, refused in (("0.19.0", False), ("0.20.0", True)):
        every = list(card._build(replace(NEW, version=as_version(version)), L4, 7.0))
        assert bool(every) is refused


@pytest.mark.parametrize(
    ("count", "data", "added"),
    [
        (1, False, {"max-num-seqs": "9"}),
        (2, False, {"max-num-seqs": "9", "tensor-parallel-size": "2"}),
        (2, True, {"max-num-seqs": "5", "data-parallel-size": "2", "enable-expert-parallel": True}),
        (4, True, {"max-num-seqs": "3", "data-parallel-size": "4", "enable-expert-parallel": True}),
    ],
)
def test_a_launch_is_spread_over_the_cards_and_nothing_of_another_spread_is_left(
    count: int, added: dict[str, object], *, data: bool
) -> None:
    typed = "vllm serve m -pp 8 -tp 8 --data-parallel-size 8 --seed 1"
    line = parse_launch(typed.split(), as_version("0.15.0"))
    told = set_ups._with(line, Goal(4096, 9), count, FormatOptions("as it is", cache="fp8"), data=data)
    assert told.flags == {"seed": "1", "max-model-len": "4096", "kv-cache-dtype": "fp8", **added}


@pytest.mark.parametrize(
    ("flag", "value", "rises", "tried"),
    [
        ("tensor-parallel-size", 2, True, [4, 8]),  # as many as there are GPUs, no more
        ("tensor-parallel-size", 8, True, []),
        ("tensor-parallel-size", 2, False, []),
        ("max-model-len", 10000, False, [7424, 5376, 4096, 3163, 2372, 1779, 1334, 1000, 750, 562]),
        ("max-num-seqs", 5, False, [3, 2, 1]),
    ],
)
def test_values_farther_away_are_tried_within_bounds(flag: str, value: float, rises: bool, tried: list[int]) -> None:
    assert list(ask._farther(flag, value, rises=rises, gpus=8)) == tried


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("--data-parallel-size 4096", 4096),
        ("--data-parallel-size 8 --nnodes 4096", 1),
        ("--data-parallel-size 8 --data-parallel-size-local 4096", 4096),
        ("--data-parallel-size 8 --nnodes 1", 8),
    ],
)
def test_ranks_of_this_host_at_the_ends_of_what_is_read(words: str, ranks: int) -> None:
    line = parse_launch(["vllm", "serve", "m", *words.split()], as_version("0.19.0"))
    assert spread.local_ranks(Flags(line)) == ranks


@pytest.mark.parametrize("key", [r"^language_model\.model\..*up", r"^model\.language_model\..*up"])
def test_an_expression_need_match_one_spelling_of_a_module(key: str) -> None:
    assert Exceptions([r"^other\..*", key]).of("model.language_model.layers.0.mlp.up_proj") == key


@pytest.mark.parametrize(("blocks", "left"), [(9, 1.0), (8, 1.0), (5, -3.0)])
def test_blocks_that_the_launch_names_are_counted_without_a_range(
    monkeypatch: pytest.MonkeyPatch, blocks: int, left: float
) -> None:
    monkeypatch.setattr(state_blocks, "needed_gib", lambda *_a: 1.0)
    s = replace(NEW, seqs=8, blocks_override=blocks)
    found = state_blocks.state_point(s, None, SimpleNamespace(), 2.0, (1.0, 3.0))  # type: ignore[arg-type]
    assert found is not None
    assert (found.left, found.below, found.above) == (left, 0.0, 0.0)


@pytest.mark.parametrize(
    ("over", "rows"),
    [
        ({"batched": 9000}, 200),  # as many prompts with all their items as the step holds
        ({"batched": 9}, 1),  # and no prompt's: nothing is profiled, and one sequence alone
        ({"batched": 9, "language_only": True}, 9),
        ({"batched": 9, "image_limit": 0, "video_limit": 0}, 9),
        ({"batched": 9, "engine": "V1"}, 9),
    ],
)
def test_the_older_engine_s_pass_has_as_many_sequences_as_prompts_with_all_items(over, rows: int) -> None:
    a = replace(ARCH, vision=QWEN2)
    s = replace(OLD, **{"engine": "V0", "image_pixels": FIVE, "batched": 45, "seqs": 256, **over})
    s = of_release(s, "drops_items_beyond_step", does=True)
    assert activation.profiled_rows(a, s) == rows
