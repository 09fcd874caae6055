"""A checkpoint with code of its own ends a start that does not trust it, where nobody else has its type."""

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.support import own_code


def told(model_type, version, flags="", *, names_code=True):
    config = {**LLAMA_8B, "model_type": model_type}
    if names_code:
        config["auto_map"] = {"AutoConfig": f"configuration_{model_type}.Config"}
    gpu, arch, at = find("H100"), describe(Section(config)), as_version(version)
    settings = resolve(parse_launch(["vllm", "serve", "m", *flags.split()], at), at, arch, gpu, gpu.total_gib, 1)
    refused = [(r.flag, r.beside) for r in own_code.refusals(arch, settings)]
    return [*refused, *(d.detail.split(maxsplit=1)[0].rstrip(",") for d in own_code.depends(arch, settings))]


REFUSED = [("--trust-remote-code", "trust-remote-code")]


@pytest.mark.parametrize(
    ("model_type", "version", "says"),
    [
        ("baichuan", "0.8.5", REFUSED),  # no Transformers has it
        ("qwen2", "0.8.5", []),  # each has
        ("chatglm", "0.5.5", REFUSED),  # a class of the release's own, for which Transformers is asked first
        ("chatglm", "0.6.3", []),
        ("deepseek_v2", "0.8.5", ["4.54.0"]),  # 0.8.5 takes Transformers 4.51.1 and all later ones
        ("deepseek_v2", "0.10.2", []),  # which asks for 4.55.2
        ("glm_moe_dsa", "0.15.0", REFUSED),  # Transformers 5.2 has it, which 0.15.0 does not take
    ],
)
def test_whose_code_a_model_type_is(model_type, version, says):
    assert told(model_type, version) == says
    assert told(model_type, version, "--trust-remote-code") == []


@pytest.mark.parametrize(
    ("model_type", "version", "says"),
    [
        ("qwen2", "0.8.5", []),
        ("mistral", "0.2.0", ["4.34.0"]),
        ("mistral", "0.2.1.post1", []),
        ("qwen2_moe", "0.4.0.post1", ["4.40.0"]),
        ("qwen2_5_vl", "0.7.2", ["4.49.0"]),  # 11 days younger than the release
        ("qwen2_5_vl", "0.7.3", []),  # 0.7.3 takes 4.48.2 too, and 4.49.0 was out
        ("qwen3_vl", "0.11.0", []),
        ("gemma4", "0.18.1", ["5.5.0"]),  # which asks for one before 5
        ("chatglm", "0.6.3", []),  # a class of the release's own
        ("baichuan", "0.8.5", []),  # no Transformers has it: whether a description forgets auto_map is not known
    ],
)
def test_a_type_younger_than_the_release_depends_on_transformers(model_type, version, says):
    assert told(model_type, version, names_code=False) == says
    assert told(model_type, version, "--trust-remote-code", names_code=False) == says
