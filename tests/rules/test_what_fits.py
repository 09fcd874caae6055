"""Which release, package or value fits, told from what a text shows beside its last line."""

from tests.rules.test_ends import diagnosed
from vllm_doctor.records.finding import Change, Diagnosis


def first(text: str) -> Change:
    return diagnosed(text).findings[0].changes[0]


def changed(text: str) -> list[tuple[str, object]]:
    return [(change.name, change.after) for change in diagnosed(text).findings[0].changes]


def title(found: Diagnosis) -> str:
    return found.findings[0].title


NONE_READ = "AttributeError: 'NoneType' object has no attribute 'get_len'"
DRAFTS = f"""Traceback (most recent call last):
  File "/opt/v/lib/python3.10/site-packages/vllm/spec_decode/spec_decode_worker.py", line 300, in execute_model
    seq_len = group.encoder_seq_data.get_len()
{NONE_READ}"""


def test_an_option_of_the_launch_that_ended_says_which_names_the_release_has() -> None:
    """--speculative-model went with 0.8.3, and --speculative-config was no option of releases long before."""
    launch = 'vllm serve example/model-8b --speculative-model "[ngram]" --num-speculative-tokens 4\n'
    assert [first(launch + DRAFTS).name, first(DRAFTS).name] == ["speculative-model", "speculative-config"]


def test_an_option_that_this_launch_was_refused_for_dates_nothing() -> None:
    refused = (
        "vllm serve example/model-8b --speculative-model example/draft\n"
        "usage: vllm serve [model_tag] [options]\n"
        "vllm: error: unrecognized arguments: --speculative-model example/draft"
    )
    assert ("speculative-model", None) in [(c.name, c.after) for c in diagnosed(refused).findings[0].changes]


CALL = """Traceback (most recent call last):
  File "/opt/v/lib/python3.12/site-packages/vllm/v1/structured_output/backend_guidance.py", line 150, in validate
    told = llguidance.LLMatcher.validate_rows(rows,
TypeError: LLMatcher.validate_rows() got some positional-only arguments passed as keyword arguments: 'rows'"""


def test_a_call_by_a_librarys_name_that_it_does_not_take_is_about_its_release() -> None:
    found = diagnosed(CALL)
    assert title(found) == "llguidance and this release of vLLM do not fit each other"
    assert [found.findings[0].changes[0].name, found.findings[0].changes[1].after] == [
        "llguidance",
        '{"backend": "xgrammar"}',
    ]


def test_a_call_of_vllms_own_is_about_no_library() -> None:
    own = CALL.replace("llguidance.LLMatcher.validate_rows(", "self.matcher.validate_rows(")
    assert "llguidance" not in title(diagnosed(own))


HIDDEN = """  File "/opt/v/lib/python3.12/site-packages/lmformatenforcer/integrations/transformers.py", line 8, in run
    raise ImportError('transformers is not installed. Please install it with "pip install transformers[torch]"')
ImportError: transformers is not installed. Please install it with "pip install transformers[torch]"
"""
LACKS = """Traceback (most recent call last):
  File "/opt/v/lib/python3.12/site-packages/lmformatenforcer/integrations/transformers.py", line 5, in <module>
    from transformers.generation.logits_process import LogitsRoom
ImportError: cannot import name 'LogitsRoom' from 'transformers.generation.logits_process'"""


def test_a_package_that_is_there_is_not_called_missing_because_a_library_says_so() -> None:
    found = diagnosed(f"{HIDDEN}\n{LACKS}").findings[0]
    assert [found.confidence.value, found.changes[0].name] == ["likely", "lm-format-enforcer"]
    assert diagnosed(HIDDEN).findings[0].changes[0].name == "transformers[torch]"


WORKER = "RuntimeError: Worker failed with error '{said}', please check the stack trace above for the root cause"


def test_a_check_that_the_executor_quotes_is_told_as_the_check_that_it_is() -> None:
    """The executor keeps the words alone: their class is the one that vLLM raises in them."""
    said = "PP+async expects sampled_token_ids to have shape [num_reqs, 1]"
    launch = "vllm serve example/model-8b --pipeline-parallel-size 2\n"
    made = changed(launch + WORKER.format(said=said))
    assert made[:2] == [("async-scheduling", False), ("pipeline-parallel-size", 1)]


def test_a_template_says_which_value_of_a_request_it_takes() -> None:
    found = diagnosed(
        '(APIServer pid=7)   File "<template>", line 24, in top-level template code\n'
        "(APIServer pid=7) jinja2.exceptions.TemplateError: Unsupported tone: loud. Supported values: ['low', 'mid']\n"
        '(APIServer pid=7) INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error'
    )
    change = found.findings[0].changes[0]
    assert [change.name, "['low', 'mid']" in change.why] == ["client-input", True]


def test_a_draft_of_another_width_is_the_drafts_matter() -> None:
    found = diagnosed(
        "vllm serve example/model-14b --speculative-model example/heads --num-speculative-tokens 3\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.10/site-packages/vllm/model_executor/models/medusa.py", line 25, in forward\n'
        "    x = x + self.act(layer(x))\n"
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x6144 and 2048x2048)"
    )
    assert title(found) == "The draft's matrices do not fit the model that it drafts for"
    assert [c.name for c in found.findings[0].changes[:2]] == ["speculative-model", "speculative-model"]


LACKED = "AttributeError: 'ExampleImageProcessor' object has no attribute 'fetch_rooms'"


def test_a_requirement_without_an_end_names_the_day_of_the_release() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.12/site-packages/transformers/processing_utils.py", line 600, in __call__\n'
        f"    self.fetch_rooms()\n{LACKED}\n"
    )
    change = first(text + "vllm 0.22.1, transformers 5.99.0")
    assert [change.name, "--exclude-newer 2026-06-05" in (change.command or "")] == ["transformers", True]


def test_a_package_that_no_release_asks_for_is_taken_from_the_releases_own_time() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.12/site-packages/vllm/distributed/kv_transfer/kv_connector/x.py", line 37, in x\n'
        "    from lmcache.experimental.cache_engine import LMCacheEngineBuilder\n"
        "ModuleNotFoundError: No module named 'lmcache.experimental'\n"
    )
    change = first(text + "vLLM API server version 0.9.1")
    assert [change.name, change.command] == ["lmcache", "uv pip install --exclude-newer 2025-06-10 lmcache"]
    assert first(text).command == "pip check; pip show -v vllm lmcache"


def test_on_a_platforms_plugin_vllm_is_not_upgraded_alone() -> None:
    check = (
        "(EngineCore pid=7) INFO 05-14 09:17:41 [__init__.py:217] Platform plugin ascend is activated\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 61, in __init__\n'
        "    assert rooms is not None\nAssertionError"
    )
    assert [("vllm-ascend", None) in changed(check), ("vllm-version", "0.33.0") in changed(check)] == [True, False]


def test_a_checkpoint_of_the_bare_class_is_served_as_the_one_with_a_head() -> None:
    refused = (
        "ValueError: Model architectures ['MistralModel'] are not supported for now. "
        "Supported architectures: ['LlamaForCausalLM', 'MistralForCausalLM']"
    )
    assert first(refused).after == '{"architectures": ["MistralForCausalLM"]}'
    assert first(refused.replace("MistralModel", "ExampleModel")).name == "vllm-version"


def test_a_kind_of_item_that_the_models_code_does_not_take_is_not_sent() -> None:
    said = "ValueError: The model only supports at most 0 video items, but you passed 1 video items in the same prompt."
    assert changed(said)[0][0] == "client-input"


def test_a_pooler_that_is_not_there_is_made_by_the_runner() -> None:
    check = (
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.12/site-packages/vllm/model_executor/models/adapters.py", line 271, in _init\n'
        "    assert pooler_config is not None\nAssertionError"
    )
    assert changed(check)[0] == ("runner", "pooling")


def test_names_of_tensors_that_are_no_adapters_are_a_matter_of_the_adapter() -> None:
    check = (
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.10/site-packages/vllm/lora/utils.py", line 37, in parse_fine_tuned_lora_name\n'
        '    assert parts[-2] == "lora_A" or parts[-2] == "lora_B"\nAssertionError'
    )
    assert changed(check)[0][0] == "adapter"


def test_triton_that_gives_up_on_an_old_card_is_spared_the_kernel_that_the_launch_asks_for() -> None:
    abort = (
        "vllm serve example/model-8b --enable-prefix-caching --swap-space 4\n"
        "python3: /project/lib/Room.cpp:40: mlir::Value mlir::triton::rooms(mlir::Value): Assertion `n > 2' failed.\n"
        "Aborted (core dumped)"
    )
    assert changed(abort)[0][0] == "enable-prefix-caching"
    assert changed(abort.replace(" --enable-prefix-caching", ""))[0][0] == "triton"


def test_a_copy_that_crashes_in_the_driver_is_no_matter_of_the_driver() -> None:
    crash = (
        "!!!!!!! Segfault encountered !!!!!!!\n"
        '  File "<unknown>", line 0, in cuMemcpyDtoDAsync_v2\n'
        '  File "<unknown>", line 0, in torch::autograd::THPVariable_copy_(_object*, _object*, _object*)\n'
    )
    assert changed(crash)[0][0] == "client-input"
    assert changed(crash.replace("cuMemcpyDtoDAsync_v2", "cuInit"))[0][0] == "driver"


def test_an_option_and_its_value_in_one_word_are_written_apart() -> None:
    text = (
        'main_command = ["vllm", "serve", "example/model-8b", "--host 127.0.0.1", "--port 8001"]\n'
        "usage: vllm serve <model_tag> [options]\n"
        "vllm serve: error: unrecognized arguments: --host 127.0.0.1 --port 8001"
    )
    change = first(text)
    assert [change.name, change.command] == ["command", '"--host", "127.0.0.1"   # or "--host=127.0.0.1"']


def test_dyld_names_a_missing_symbol_in_words_of_its_own() -> None:
    said = (
        "ImportError: dlopen(/opt/v/lib/python3.12/site-packages/vllm/_C.abi3.so, 0x0002): "
        "Symbol not found: __ZN3c104cuda9SetDeviceEi"
    )
    assert "do not fit the torch beside them" in title(diagnosed(said))


def test_a_sentence_that_says_how_far_gets_that_value() -> None:
    refused = (
        "Traceback (most recent call last):\n"
        '  File "/opt/v/lib/python3.12/site-packages/vllm/model_executor/models/example.py", line 95, in dummy_data\n'
        "    raise RuntimeError(\n"
        "RuntimeError: Example cannot process 4 audios and 4 images in a prompt, please increase max_model_len to be "
        "larger than 20000 or reduce the limit by --limit-mm-per-prompt."
    )
    assert changed(refused)[:2] == [("max-model-len", 20001), ("limit-mm-per-prompt", None)]
