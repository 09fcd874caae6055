"""What a launch, its release and its model decide about compiling."""

import pytest

from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.compiled import Timed, captures_nothing, times_kernels
from vllm_doctor.plan.launch.flags import Flags

LLAMA, SPARSE = "LlamaForCausalLM", "DeepseekV32ForCausalLM"


def _asked(line, version, env=None, architecture=LLAMA):
    v = as_version(version)
    flags = Flags(parse_launch(["vllm", "serve", "m", *line.split()], v))
    return captures_nothing(flags, env or {}, v), times_kernels(flags, env or {}, architecture, v)


@pytest.mark.parametrize(
    ("line", "version", "captures", "timed"),
    [
        ("", "0.33.0", True, Timed.FIRST),
        ("", "0.11.0", True, Timed.NEVER),
        ("--enforce-eager", "0.33.0", False, Timed.NEVER),
        ("-O0", "0.33.0", False, Timed.NEVER),
        ("-cc.cudagraph_mode=NONE", "0.33.0", False, Timed.FIRST),
        ("-cc.cudagraph_mode=none", "0.33.0", False, Timed.FIRST),
        ("-cc.mode=0", "0.29.0", False, Timed.NEVER),
        ("-cc.mode=NONE", "0.29.0", False, Timed.NEVER),
        ("-cc.mode=0", "0.30.0", True, Timed.NEVER),
        ("-cc.mode=0 -cc.cudagraph_mode=FULL_DECODE_ONLY", "0.29.0", True, Timed.NEVER),
        ("-cc.mode=VLLM_COMPILE", "0.33.0", True, Timed.FIRST),
        ("-cc.backend=eager", "0.33.0", True, Timed.NEVER),
        ("-cc.backend=eager", "0.29.0", True, Timed.NEVER),
        ("-cc.backend=inductor", "0.33.0", True, Timed.FIRST),
        ("-cc.inductor_compile_config.combo_kernels=false", "0.33.0", True, Timed.NEVER),
        ("-cc.inductor_compile_config.benchmark_combo_kernel=true", "0.33.0", True, Timed.NEVER),
        ("-cc.inductor_compile_config.max_autotune=true", "0.33.0", True, Timed.FIRST),
    ],
)
def test_the_launch_decides_whether_graphs_are_captured_and_kernels_timed(line, version, captures, timed):
    assert _asked(line, version) == (not captures, timed)


@pytest.mark.parametrize(
    ("architecture", "version", "env", "timed"),
    [
        (LLAMA, "0.33.0", {"TORCH_COMPILE_DISABLE": "1"}, Timed.NEVER),
        (LLAMA, "0.33.0", {"VLLM_DISABLE_COMPILE_CACHE": "1"}, Timed.EVERY),
        (LLAMA, "0.33.0", {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}, Timed.NEVER),
        (SPARSE, "0.28.0", {}, Timed.FIRST),
        (SPARSE, "0.29.0", {}, Timed.NEVER),
        ("KimiLinearForCausalLM", "0.27.1", {}, Timed.NEVER),
        (SPARSE, "0.29.0", {"VLLM_USE_BREAKABLE_CUDAGRAPH": "0"}, Timed.FIRST),
    ],
)
def test_so_do_variables_and_the_release_for_some_models(architecture, version, env, timed):
    assert _asked("", version, env, architecture)[1] is timed
