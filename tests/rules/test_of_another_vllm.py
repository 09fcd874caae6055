"""A program that takes from vLLM what this release has not is told which releases have it."""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import NOT_GIVEN, Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose


def diagnosed(text: str, version: str = "") -> Diagnosis:
    log = Known(log_of_lines(text.splitlines(), "log"), "log")
    return diagnose(Snapshot(taken_at="", log=log, version=Known(version, "given") if version else NOT_GIVEN))


TRAINER = (
    "Traceback (most recent call last):\n"
    '  File "/opt/v/lib/python3.12/site-packages/trl/trainer/online.py", line 212, in train\n'
    "    found = self.llm.generate(prompt_token_ids=rows)\n"
)
OWN = (
    "Traceback (most recent call last):\n"
    '  File "/opt/v/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 212, in load_model\n'
    "    self.model_runner.load_model(eep_scale_up=scale)\n"
)


@pytest.mark.parametrize(
    ("said", "code", "title", "to"),
    [
        (
            "TypeError: LLM.generate() got an unexpected keyword argument 'prompt_token_ids'",
            "VD527", "LLM.generate(prompt_token_ids=…) is of vLLM 0.2.0 to 0.10.1.1", "0.10.1.1",
        ),
        (
            "AttributeError: 'SamplingParams' object has no attribute 'best_of'",
            "VD527", "SamplingParams.best_of is of vLLM 0.2.0 to 0.11.2", "0.11.2",
        ),
        (
            "ImportError: cannot import name 'make_async' from 'vllm.utils' (/opt/v/vllm/utils/__init__.py)",
            "VD514", "make_async in vllm.utils is of vLLM 0.3.0 to 0.11.0", "0.11.0",
        ),
        (
            "ModuleNotFoundError: No module named 'vllm.v1.worker.gpu_model_runner'",
            "VD514", "vllm.v1.worker.gpu_model_runner is of vLLM 0.6.4 and later", "0.6.4",
        ),
    ],
)  # fmt: skip
def test_the_releases_that_have_it_are_named(said: str, code: str, title: str, to: str) -> None:
    told = diagnosed(said).findings[0]
    assert (told.code, told.title) == (code, title)
    assert (told.changes[0].name, told.changes[0].after) == ("vllm-version", to)


def test_the_line_above_names_the_class_that_python_3_9_does_not() -> None:
    said = (
        "    self.model = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(**settings))\n"
        "TypeError: __init__() got an unexpected keyword argument 'limit_mm_per_prompt'"
    )
    told = diagnosed(said, version="0.5.0").findings[0]
    assert told.title == "AsyncEngineArgs(limit_mm_per_prompt=…) is of vLLM 0.5.5 and later"
    assert (told.changes[0].name, told.changes[0].after) == ("vllm-version", "0.5.5")


def test_a_name_that_moved_is_told_with_its_place() -> None:
    told = diagnosed("ImportError: cannot import name 'make_async' from 'vllm.utils' (/v/vllm/utils/__init__.py)")
    assert "later releases have it in vllm.utils.async_utils" in told.findings[0].changes[0].why


def test_a_name_that_this_release_has_elsewhere_is_told_with_its_place_there() -> None:
    said = (
        "Traceback (most recent call last):\n"
        '  File "/srv/app/rows.py", line 9, in <module>\n'
        "    from vllm.entrypoints.openai.serving_engine import LoRAModulePath\n"
        "ImportError: cannot import name 'LoRAModulePath' from 'vllm.entrypoints.openai.serving_engine' (/v/vllm/x.py)"
    )
    first, second = diagnosed(said, version="0.7.1").findings[0].changes
    assert (first.name, first.after) == ("program-code", "rows.py")
    assert first.why.endswith("vLLM 0.7.1 has what it asks for in vllm.entrypoints.openai.serving_models")
    assert (second.name, second.after) == ("vllm-version", "0.6.6.post1")


def test_the_programs_own_release_comes_first_where_it_is_known() -> None:
    told = diagnosed(f"{TRAINER}TypeError: LLM.generate() got an unexpected keyword argument 'prompt_token_ids'")
    assert [c.after for c in told.findings[0].changes] == ["trl", "0.10.1.1"]


@pytest.mark.parametrize(
    "said",
    [
        f"{OWN}TypeError: GPUModelRunner.load_model() got an unexpected keyword argument 'eep_scale_up'",
        "TypeError: LLM.generate() got an unexpected keyword argument 'no_release_has_this'",
    ],
)
def test_of_vllms_own_call_and_of_what_no_release_has_nothing_is_said(said: str) -> None:
    assert "is of vLLM" not in diagnosed(said).findings[0].title


def _of(file: str, function: str, code: str, last: str, caller: str = "") -> str:
    above = f'  File "{caller}", line 5, in drive\n    self.llm.start()\n' if caller else ""
    return f'Traceback (most recent call last):\n{above}  File "{file}", line 9, in {function}\n    {code}\n{last}'


PACKAGES = "/opt/v/lib/python3.12/site-packages"
SERVER = f"{PACKAGES}/huggingfaceserver/vllm/vllm_model.py"


def test_an_argument_that_a_newer_release_asks_for_names_the_release_before() -> None:
    last = "TypeError: OpenAIServingChat.__init__() missing 1 required keyword-only argument: 'online_renderer'"
    told = diagnosed(_of(SERVER, "start", "chat = OpenAIServingChat(", last), version="0.25.0").findings[0]
    assert told.detail == "OpenAIServingChat needs the argument online_renderer since vLLM 0.25.0"
    assert [c.after for c in told.changes[:2]] == ["huggingfaceserver", "0.24.0"]


@pytest.mark.parametrize(
    "words", ["with abstract method apply_lora_full_linear",
              "without an implementation for abstract method 'apply_lora_full_linear'"],
)  # fmt: skip
def test_a_plugins_class_without_a_method_that_vllm_asks_for(words: str) -> None:
    last = f"TypeError: Can't instantiate abstract class PunicaWrapperNPU {words}"
    own = f"{PACKAGES}/vllm/lora/punica_wrapper/punica_selector.py"
    told = diagnosed(_of(own, "get_punica_wrapper", "return made(*args)", last), version="0.33.0").findings[0]
    assert told.title == "PunicaWrapperNPU lacks the method apply_lora_full_linear"
    assert told.detail == "which vLLM has since 0.31.0"
    newer, older = told.changes
    assert newer.after == "the package that has PunicaWrapperNPU"
    assert older.name == "vllm-version"


def test_an_attribute_of_the_v0_engine_alone_names_the_variable_while_there_is_one() -> None:
    said = "AttributeError: 'LLMEngine' object has no attribute 'scheduler_config'"
    told = diagnosed(said, version="0.8.5").findings[0]
    assert (told.title, told.changes[0].name, told.changes[0].after) == (
        "LLMEngine.scheduler_config is of the V0 engine alone", "VLLM_USE_V1", "0",
    )  # fmt: skip
    assert not any(c.name == "VLLM_USE_V1" for f in diagnosed(said, version="0.20.0").findings for c in f.changes)


def test_a_method_called_by_its_name_is_the_programs_own() -> None:
    last = "AttributeError: 'Worker' object has no attribute 'init_process_group'"
    caller = f"{PACKAGES}/openrlhf/trainer/ray/vllm_engine.py"
    said = _of(f"{PACKAGES}/vllm/utils.py", "run_method", "func = getattr(obj, method)", last, caller)
    told = diagnosed(said, version="0.8.2").findings[0]
    assert told.title == "Worker has no method init_process_group"
    assert told.detail == "which a program calls by name on vLLM's workers"
    assert told.changes[0].name == "openrlhf"


def test_a_class_of_a_plugins_own_in_the_place_of_vllms() -> None:
    last = "AttributeError: 'LRUCacheWorkerLoRAManager' object has no attribute 'get_dummy_lora_warmup_rank'"
    own, caller = f"{PACKAGES}/vllm/v1/worker/lora_model_runner_mixin.py", f"{PACKAGES}/unsloth_zoo/vllm_utils.py"
    said = _of(own, "warm", "self.lora_manager.get_dummy_lora_warmup_rank(", last, caller)
    told = diagnosed(said, version="0.22.0").findings[0]
    assert told.title == "This LRUCacheWorkerLoRAManager is not vLLM's own"
    assert [c.name for c in told.changes] == ["unsloth_zoo", "vllm"]
    alone = _of(own, "warm", "self.lora_manager.get_dummy_lora_warmup_rank(", last)
    assert "is not vLLM's own" not in diagnosed(alone, version="0.22.0").findings[0].title


def test_vllms_own_call_with_what_its_own_function_lacks_is_of_two_releases() -> None:
    own = f"{PACKAGES}/vllm/attention/backends/flash_attn.py"
    last = "TypeError: FlashAttentionMetadata.__init__() got an unexpected keyword argument 'is_prompt'"
    told = diagnosed(_of(own, "meta", "held = FlashAttentionMetadata(", last), version="0.5.3").findings[0]
    assert told.title == "vLLM's own call does not fit vLLM's own FlashAttentionMetadata"
    assert (told.changes[0].name, told.changes[0].after) == ("vllm", "0.5.3")
    dynamic = _of(own, "meta", "held = made(*args, **kwargs)", last)
    assert "does not fit vLLM's own" not in diagnosed(dynamic, version="0.5.3").findings[0].title


def test_what_llm_hands_on_is_the_callers() -> None:
    last = "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'worker_use_ray'"
    caller = f"{PACKAGES}/lm_eval/models/vllm_causallms.py"
    said = _of(f"{PACKAGES}/vllm/entrypoints/llm.py", "__init__", "engine_args = EngineArgs(", last, caller)
    told = diagnosed(said, version="0.7.2").findings[0]
    assert told.detail == ""
    assert [c.after for c in told.changes] == ["0.6.6.post1", "lm_eval"]


ENGINE = f"{PACKAGES}/vllm/entrypoints/llm.py"


def test_an_argument_that_the_installed_release_takes_shows_that_another_one_runs() -> None:
    last = "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'num_scheduler_steps'"
    said = _of(ENGINE, "__init__", "engine_args = EngineArgs(", last, "/srv/app/rows.py")
    told = diagnosed(said, version="0.6.3").findings[0]
    assert (told.title, told.detail) == (
        "Another vLLM than 0.6.3 runs",
        "that one takes the argument num_scheduler_steps",
    )
    assert (told.changes[0].name, told.changes[0].after) == ("vllm", "0.6.3")


def test_a_field_is_told_from_a_property_of_its_name() -> None:
    last = "TypeError: AsyncEngineArgs.__init__() got an unexpected keyword argument 'disable_log_requests'"
    said = _of("/srv/app/rows.py", "main", "made = AsyncEngineArgs(model=m, disable_log_requests=True)", last)
    told = diagnosed(said, version="0.10.1").findings[0]
    assert [c.after for c in told.changes if c.name == "vllm-version"] == ["0.10.0"]


def test_a_record_that_names_no_class_is_told_by_the_line_that_makes_it() -> None:
    said = _of("/srv/app/rows.py", "main", "params = SamplingParams(**held)",
               "TypeError: Unexpected keyword argument 'use_beam_search'")  # fmt: skip
    told = diagnosed(said, version="0.6.3").findings[0]
    assert told.detail == "SamplingParams(use_beam_search=…) is of vLLM 0.2.0 to 0.6.2"
    assert "0.6.2" in [c.after for c in told.changes]


@pytest.mark.parametrize("words", ["missing 1 required positional argument: 'rows'",
                                   "takes 2 positional arguments but 3 were given"])  # fmt: skip
def test_a_plugins_method_that_vllm_calls_otherwise_is_the_plugins(words: str) -> None:
    own, caller = f"{PACKAGES}/vllm/v1/worker/gpu_worker.py", f"{PACKAGES}/vllm_ascend/worker/worker_v1.py"
    said = _of(own, "load", "self.model_runner.load_model(scale)", f"TypeError: NPURunner.load_model() {words}", caller)
    told = diagnosed(said, version="0.11.0").findings[0]
    assert told.title == "NPURunner.load_model takes other arguments than this vLLM gives"
    assert [c.name for c in told.changes] == ["vllm_ascend"]
    of_vllm = said.replace("NPURunner", "GPUModelRunner")
    assert "takes other arguments" not in diagnosed(of_vllm, version="0.11.0").findings[0].title


def test_an_argument_that_vllm_passes_to_a_plugins_method_names_the_release_before() -> None:
    own, caller = f"{PACKAGES}/vllm/v1/worker/gpu_worker.py", f"{PACKAGES}/vllm_ascend/worker/worker_v1.py"
    last = "TypeError: NPURunner.load_model() got an unexpected keyword argument 'eep_scale_up'"
    told = diagnosed(_of(own, "load", "runner.load_model(eep_scale_up=s)", last, caller), version="0.10.2").findings[0]
    assert told.title == "NPURunner lacks the argument eep_scale_up of load_model"
    assert (told.detail, told.changes[1].after) == ("which vLLM has since 0.10.0", "0.9.2")


def test_what_a_call_by_place_gives_too_much_is_told_by_what_went_last() -> None:
    said = _of("/srv/app/rows.py", "main", "llm.generate(a, b, c, d, e)",
               "TypeError: LLM.generate() takes from 2 to 3 positional arguments but 6 were given")  # fmt: skip
    told = diagnosed(said, version="0.10.2").findings[0]
    assert "LLM.generate takes no argument prompt_token_ids since vLLM 0.10.2" in (told.title, told.detail)


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("AttributeError: 'AcmeRequest' object has no attribute 'rows'", "AcmeRequest has no rows"),
        (
            "TypeError: AcmeModelConfig.__init__() got an unexpected keyword argument 'rows'",
            "AcmeModelConfig has no rows",
        ),
    ],
)
def test_a_class_that_is_not_vllms_is_looked_for_where_it_is(said: str, title: str) -> None:
    told = diagnosed(f"INFO 04-07 11:39:13 engine.py:404] Added request 1.\n{said}").findings[0]
    assert (told.title, told.changes[0].name) == (title, "foreign-package")
    assert "class Acme" in (told.changes[0].command or "")


def test_the_files_of_the_calls_bound_the_release_where_none_is_told() -> None:
    said = (
        "Traceback (most recent call last):\n"
        '  File "/v/site-packages/vllm/worker/multi_step_model_runner.py", line 585, in execute_model\n'
        "    assert isinstance(model_input, StatefulModelInput)\n"
        "AssertionError"
    )
    bound, open_ = (
        diagnosed(text).findings[0].changes[0]
        for text in (said, said.replace("vllm/worker/multi_step_", "vllm/v1/worker/gpu_"))
    )
    assert (bound.name, open_.name) == ("num-scheduler-steps", "num-scheduler-steps")
    assert "the log does not tell its release" not in bound.why
    assert "the log does not tell its release" in open_.why
