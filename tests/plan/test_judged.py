"""What vLLM 0.33.0's own Python says of launches, on a platform that claims a card: judged.json.

Its EngineArgs made each configuration and its loader built two layers of the model on the meta device, as one rank
would hold them; compiled code was stood in for. So it refuses what the configuration, the layers and the choice of
kernels refuse; what a worker refuses later is no part of it. gpt-oss with a turboquant cache is left out: the two
layers that were built are the first two, which keep the model's type; so are 8-bit integers with their inputs on 12.0,
whose kernel refuses them where it is compiled code.
"""

import json
from pathlib import Path

import pytest

from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.support import judge

JUDGED = json.loads(Path(__file__).with_name("judged.json").read_text())
CARDS = {7.5: "T4", 8.0: "A100-SXM4-80GB", 8.9: "L40S", 9.0: "H200", 10.0: "B200", 12.0: "RTX PRO 6000"}
VERSION = as_version("0.33.0")


@pytest.mark.parametrize("row", JUDGED["answers"], ids=lambda row: "-".join(map(str, row[:4])))
def test_the_plan_refuses_what_the_release_refuses_and_nothing_else(row):
    model, form, capability, flags, taken = row
    config = dict(JUDGED["models"][model])
    if form != "none":
        config["quantization_config"] = JUDGED["formats"][form]
    gpu, arch = find(CARDS[capability]), describe(Section(config))
    line = parse_launch(["vllm", "serve", "m", "--max-model-len", "4096", *flags.split()], VERSION)
    settings = resolve(line, VERSION, arch, gpu, gpu.total_gib, 16)
    refusals = (*settings.refusals, *judge(arch, settings, gpu).refusals)
    assert bool(refusals) is not taken, refusals


def test_both_answers_are_among_those_that_are_held():
    taken = [row[4] for row in JUDGED["answers"]]
    assert (taken.count(True), taken.count(False)) == (283, 155)
