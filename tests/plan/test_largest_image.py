"""How large an image a checkpoint takes, where its own preprocessor is known."""

import json

import pytest

from tests.plan.models import arch
from tests.plan.test_activation import QWEN2_VL
from vllm_doctor.cli.main import run
from vllm_doctor.plan.model.largest_image import FILE, most_pixels, with_largest_image

LARGEST = 12_845_056  # 16384 tokens of 28 × 28 pixels


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    (tmp_path / "config.json").write_text(json.dumps(QWEN2_VL))

    def asked(model, *flags, preprocessor=None):
        file = tmp_path / FILE
        file.unlink(missing_ok=True)
        if preprocessor is not None:
            file.write_text(preprocessor)
        line = ["plan", "--gpu", "A100-SXM4-80GB", "--vllm-version", "0.23.0", "--model-config", str(tmp_path)]
        run([*line, "--format", "json", "--", "vllm", "serve", model, "--max-model-len", "8192", *flags])
        told = json.loads(capsys.readouterr().out)
        low, high = told["margin"]["available_kv_gib"]
        kv = told["predicted"]["available_kv_gib"]
        return told["predicted"]["activation_gib"], round(kv - low, 2), round(high - kv, 2)

    return asked


def test_the_file_beside_the_config_says_it(plan):
    unknown, _, wide = plan("someone/tuned")
    small, below, above = plan("someone/tuned", preprocessor='{"max_pixels": 2116800}')
    assert (round(small, 1), round(unknown, 1)) == (1.0, 2.0)
    assert below < 1
    assert above < 1 < wide


def test_the_launch_says_more_than_the_file(plan):
    flag = ("--mm-processor-kwargs", '{"max_pixels": 2116800}')
    assert plan("m", *flag, preprocessor=json.dumps({"max_pixels": LARGEST})) == plan("m", *flag)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"size": 3}', '{"max_pixels": "many"}', '{"max_pixels": true}'])
def test_a_file_that_says_nothing_is_as_none(plan, text):
    assert plan("m", preprocessor=text) == plan("m")


def test_a_maker_s_own_name_has_the_maker_s_preprocessor(plan):
    own, tuned = plan("Qwen/Qwen2-VL-7B-Instruct"), plan("someone/Qwen2-VL-7B-Instruct")
    assert own[:2] == tuned[:2]
    assert own[2] < 1 < tuned[2] - 0.5


@pytest.mark.parametrize(
    ("values", "pixels"),
    [
        ({"max_pixels": 784}, 784),
        ({"size": {"longest_edge": 16_777_216, "shortest_edge": 65_536}}, 16_777_216),
        ({"max_pixels": 784, "size": {"longest_edge": 1568}}, 784),
        ({"size": {"height": 448}}, None),
        ({"max_pixels": 0}, None),
        (None, None),
    ],
)
def test_both_ways_to_write_it(values, pixels):
    assert most_pixels(values) == pixels


def test_a_model_without_images_is_left_as_it_is(tmp_path):
    (tmp_path / FILE).write_text('{"max_pixels": 784}')
    text = arch({k: v for k, v in QWEN2_VL.items() if k != "vision_config"} | {"model_type": "qwen2"})
    assert with_largest_image(text, tmp_path, "Qwen/Qwen2-7B") is text


def test_both_places_hold(tmp_path):
    seen = arch(QWEN2_VL)
    assert with_largest_image(seen, tmp_path, "m").vision.pixels is None
    assert with_largest_image(seen, tmp_path, "Qwen/Qwen2-VL-7B-Instruct").vision.pixels == LARGEST
    (tmp_path / FILE).write_text('{"max_pixels": 784}')
    assert with_largest_image(seen, tmp_path / "config.json", "Qwen/Qwen2-VL-7B-Instruct").vision.pixels == 784
