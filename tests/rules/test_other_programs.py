"""Programs around vLLM that fail in their own code, on their own packages, or on what they hand to vLLM.

Composed of calls as Python prints them, with names and figures of our own.
"""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.verdict import Direction

SITE = "/opt/v/lib/python3.12/site-packages"


def _crash(raised: str, *calls: tuple[str, str, str]) -> str:
    lines = ["Traceback (most recent call last):"]
    for file, function, code in calls:
        lines += [f'  File "{file}", line 41, in {function}', f"    {code}"]
    return "\n".join((*lines, raised))


def _first(text: str) -> Finding:
    found = judged_text(text).findings
    assert found, text
    return found[0]


@pytest.mark.parametrize("name", ["LLM", "SamplingParams"])
def test_a_library_that_hides_why_it_has_no_vllm(name: str) -> None:
    raised = f"NameError: name '{name}' is not defined"
    found = _first(_crash(raised, (f"{SITE}/harness/models/vllm_model.py", "__init__", f"self.a = {name}(x)")))
    assert found.title == "The program could not import vLLM, and went on without it"
    assert found.changes[0].command == "python -c 'import vllm'"


def test_a_cell_that_forgot_its_import_is_not_told_to_install_anything() -> None:
    text = _crash("NameError: name 'LLM' is not defined", ("/srv/notes/cell.py", "<module>", "llm = LLM('m')"))
    assert "could not import vLLM" not in "".join(f.title for f in judged_text(text).findings)


def test_the_package_that_asks_for_a_name_gives_way_where_vllm_pins_the_other() -> None:
    raised = "ImportError: cannot import name 'Widget' from 'transformers.integrations'"
    found = _first(
        "vllm==0.15.1\n" + _crash(raised, (f"{SITE}/peft/tuners/x.py", "<module>", "from transformers import"))
    )
    assert found.title == "peft and the installed transformers do not fit each other"
    assert [change.name for change in found.changes] == ["peft", "transformers"]


def test_a_program_in_its_own_folder_is_named_by_what_its_files_share() -> None:
    raised = "AttributeError: 'Model' object has no attribute 'kind'"
    calls = (
        ("/usr/local/bin/my-eval", "<module>", "sys.exit(main())"),
        ("/home/a/my-eval-0.4/my_eval/run.py", "main", "vllm_model.score()"),
        ("/home/a/my-eval-0.4/my_eval/api/model.py", "score", "return self.kind"),
    )
    found = _first("vllm==0.15.1\n" + _crash(raised, *calls))
    assert (found.title, found.changes[0].after) == ("The code reads .kind, which Model lacks", "my-eval")


def test_a_sentence_that_says_what_to_install_is_followed() -> None:
    raised = "RuntimeError: the kernel cannot be compiled\nFix options:\n  1. Install ninja: pip install ninja"
    found = _first(_crash(raised, (f"{SITE}/unsloth_zoo/vllm_utils.py", "load_vllm", "raise RuntimeError(")))
    assert found.changes[0].name == "ninja"


ENGINE = f"{SITE}/vllm/v1/engine/core.py"


def test_an_executor_that_gives_no_future_is_another_programs() -> None:
    raised = "AttributeError: 'NoneType' object has no attribute 'result'"
    found = _first(
        _crash(raised, (ENGINE, "run_busy_loop", "self.step_fn()"), (ENGINE, "step", "out = future.result()"))
    )
    assert found.title == "The executor is of a program that does not fit this vLLM's engine"


def test_who_waits_for_a_server_is_told_to_reach_it_first() -> None:
    line = "INFO - trl.extras.vllm_client - Server is not up yet. Retrying in 2.0 seconds..."
    found = _first("\n".join([line] * 4))
    assert [change.name for change in found.changes] == ["server-address", "server-log"]


LOADER = f"{SITE}/vllm/model_executor/models/example.py"
TRAINER = "/srv/run/trainer/sync.py"


def test_a_file_with_an_adapters_tensors_is_to_be_merged() -> None:
    raised = "KeyError: 'base_model.model.layers.3.mlp.up_proj.lora_A.weight'"
    found = _first(_crash(raised, (LOADER, "load_weights", "param = params_dict[name]")))
    assert found.title == "The weights are those of an adapter that was not merged"
    assert "merge_and_unload" in (found.changes[0].command or "")


def test_a_trainer_that_sends_an_adapters_names_is_told_to_merge_before() -> None:
    raised = "KeyError: 'layers.3.mlp.up_proj.base_layer.weight'"
    calls = ((TRAINER, "sync", "model.load_weights(pairs)"), (LOADER, "load_weights", "param = params_dict[name]"))
    found = _first(_crash(raised, *calls))
    assert found.title == "The weights are those of an adapter that was not merged"
    assert "before it sends" in found.changes[0].why


def test_a_tensor_that_is_smaller_than_its_layer_is_the_checkpoints() -> None:
    raised = "RuntimeError: start (0) + length (1024) exceeds dimension size (512)."
    code = "loaded_weight = loaded_weight.narrow(dim, start, size)"
    at_load = _first(_crash(raised, (LOADER, "load_weights", "load(x)"), (LOADER, "weight_loader", code)))
    in_a_step = _first(_crash(raised, (LOADER, "forward", "x = x.narrow(0, start, size)")))
    assert (at_load.code, in_a_step.code) == ("VD523", "VD518")


NIXL = f"{SITE}/vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py"


@pytest.mark.parametrize(
    ("function", "title"),
    [
        ("register_kv_caches", "NIXL has no transport for the KV cache's memory on this side"),
        ("_read_blocks", "The KV connector does not reach the other side, or they do not fit"),
    ],
)
def test_nixls_word_is_about_this_side_where_the_cache_is_registered(function: str, title: str) -> None:
    raised = "nixl._bindings.nixlNotFoundError: NIXL_ERR_NOT_FOUND"
    found = _first(
        _crash(raised, (NIXL, function, "h = self.w.prep_xfer_dlist("), (f"{SITE}/nixl/_api.py", "p", "x()"))
    )
    assert found.title == title


def test_a_model_that_takes_no_adapter_is_merged_with_it() -> None:
    found = _first(
        "vllm serve m --enable-lora\nValueError: Model ExampleForCausalLM does not support LoRA, but LoRA is enabled."
    )
    assert {"adapter", "enable-lora"} <= {change.name for change in found.changes}
    assert found.changes[0].name == "adapter"


def test_a_message_ends_where_somebody_typed_a_launch() -> None:
    raised = (
        "ValueError: While loading /a, expected target modules in {'q_proj'} but received ['model.unembed_tokens']."
    )
    typed = """vllm serve m --enable-lora --lora-modules '{"name": "a", "path": "/a", "base_model_name": "m"}'"""
    assert _first(f"{raised}\n\n{typed}").changes[0].name == "adapter"


def test_a_kernel_whose_source_the_compiler_refuses_needs_no_other_tools() -> None:
    source = f"{SITE}/flashinfer/data/include/flashinfer/attention/x.cuh(71)"
    raised = (
        "RuntimeError: Ninja build failed. Ninja output:\n[1/5] nvcc -c x.cu -o x.o\nFAILED: [code=2] x.o\n"
        f'{source}: error: static assertion failed with "A must equal B"\nninja: build stopped: subcommand failed.'
    )
    found = _first(_crash(raised, (f"{SITE}/flashinfer/jit/cpp_ext.py", "run_ninja", "raise RuntimeError(msg) from e")))
    assert found.title == "A kernel of flashinfer-python does not compile for this launch"


@pytest.mark.parametrize(("version", "newer"), [("0.11.0", True), ("0.13.0", False)])
def test_a_module_that_later_wheels_bring_is_a_matter_of_the_release(version: str, newer: bool) -> None:
    raised = "ModuleNotFoundError: No module named 'triton_kernels'"
    text = f"INFO 03-14 09:11:58 [api_server.py:1] vLLM API server version {version}\n"
    changes = _first(text + _crash(raised, (LOADER, "load", "from triton_kernels.x import y"))).changes
    assert any("has its own copy" in change.why for change in changes) == newer


def test_the_build_refuses_a_system_by_its_own_sentence() -> None:
    raised = "AssertionError: vLLM only supports Linux platform (including WSL)."
    assert _first(_crash(raised, ("<string>", "<module>", ""))).title == "This release of vLLM is built on Linux alone"


def test_torchs_older_words_for_an_error_of_nccl_are_read() -> None:
    raised = "Unhandled exception: St13runtime_error. what(): NCCL Error 5: invalid usage"
    found = _first(f"ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n{raised}")
    assert (found.code, found.title) == ("VD803", "NCCL is used in a way that it does not allow")


def test_a_compiler_that_stops_in_torchs_headers_is_of_another_cuda() -> None:
    header = f"{SITE}/torch/include/c10/util/x.h(15)"
    raised = (
        "RuntimeError: Ninja build failed. Ninja output:\n"
        f'FAILED: [code=2] x.o\n{header}: error: identifier "_x" is undefined\nninja: build stopped: subcommand failed.'
    )
    found = _first(_crash(raised, (f"{SITE}/flashinfer/jit/cpp_ext.py", "run_ninja", "raise RuntimeError(msg) from e")))
    assert found.detail == "it needs the CUDA toolkit that torch was built with (CUDA_HOME)"


def test_a_trainer_whose_call_to_its_server_broke_is_a_client() -> None:
    raised = "requests.exceptions.ConnectionError: ('Aborted.', RemoteDisconnected('Remote end closed connection'))"
    found = _first(
        _crash(raised, (f"{SITE}/trl/extras/vllm_client.py", "update_named_param", "r = self.session.post(u)"))
    )
    assert found.code == "VD521"


def test_an_exception_that_its_carrier_cannot_build_again_stands_in_another_log() -> None:
    raised = "TypeError: wrap_exception.<locals>.__init__() takes 1 positional argument but 4 were given"
    found = _first(
        f"vllm==0.8.5\n{_crash(raised, (f'{SITE}/xoscar/backends/message.py', 'as_instanceof_cause', 'x()'))}"
    )
    assert found.title == "The exception of the model's process could not be passed on"


def test_rays_word_above_a_creations_calls_is_no_exception_of_its_own() -> None:
    told = "The actor died because of an error raised in its creation task, ray::W.__init__()"
    head = f"ray.exceptions.ActorDiedError: {told}"
    calls = f'  File "{SITE}/vllm/worker/cache_engine.py", line 45, in __init__\n    if kind.startswith("fp8"):'
    found = _first(f"{head}\n{calls}\nAttributeError: 'Kind' object has no attribute 'startswith'")
    assert found.detail == "'Kind' object has no attribute 'startswith'"


def test_a_field_that_a_release_does_not_know_is_the_clients() -> None:
    message = "1 validation error for ChatCompletionRequest\\nfunctions\\n  Extra inputs are not permitted"
    error = f'"code": 400,\n      "message": "{message}",\n      "object": "error",\n      "type": "BadRequestError"'
    text = f'{{\n  "output": [\n    {{\n      {error}\n    }}\n  ],\n  "status": "COMPLETED"\n}}'
    assert _first(text).changes[0].name == "client-input"


def test_a_package_without_what_it_always_had_may_be_a_folder() -> None:
    raised = "AttributeError: module 'triton' has no attribute 'jit'"
    found = _first(_crash(raised, (f"{SITE}/vllm/utils/__init__.py", "find", "return triton.jit")))
    assert "hiding-file" in [change.name for change in found.changes]


def test_what_a_program_has_no_case_for_is_upgraded_and_no_setting_is_sought() -> None:
    raise_ = 'raise ValueError(f"Architectures {name} are not supported for now.")'
    calls = (("/srv/verl/verl/workers/loaders.py", "_loader", raise_),)
    found = _first(_crash("ValueError: Architectures AcmeForCausalLM are not supported for now.", *calls))
    assert found.title == "verl has no case for what its own check names"
    assert (found.changes[0].direction, found.changes[0].after) == (Direction.UPGRADE, "verl")


def test_a_debuggers_own_exception_is_not_the_root_of_what_is_chained_to_it() -> None:
    text = (
        _crash("KeyError:", ("_pydevd_sys_monitoring/_pydevd_cython.pyx", "_line_info", "x"))
        + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + _crash("torch._dynamo.exc.Unsupported: generator", (f"{SITE}/torch/_dynamo/exc.py", "f", "raise Unsupported"))
    )
    assert _first(text).title == "torch.compile fails on this model's code"
