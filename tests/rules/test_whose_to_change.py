"""What to change is of whoever can change it: the program's user, the owner of another maker's card."""

from tests.rules.test_ends import diagnosed

NO_DEVICE = "RuntimeError: Device string must not be empty"
ARGUMENT = "TypeError: AsyncEngineArgs.__init__() got an unexpected keyword argument 'limit_mm_per_prompt'"
HEADER = "/srv/vllm/csrc/cpu/utils.cpp:2:10: fatal error: room.h: No such file or directory"


def test_a_newer_release_stands_before_an_argument_that_a_program_gives() -> None:
    by_program = diagnosed(f"{ARGUMENT}\n- vLLM version: 0.5.3").findings[0]
    assert [change.name for change in by_program.changes] == ["vllm-version", "limit-mm-per-prompt"]


def test_a_module_that_no_release_requires_is_installed_alone() -> None:
    one = diagnosed("vllm serve m\nModuleNotFoundError: No module named 'roomlib9'").findings[0]
    assert [(change.name, change.after) for change in one.changes] == [("foreign-module", "roomlib9")]


def test_an_amd_card_needs_another_build() -> None:
    assert diagnosed(f"AMD Radeon 8060S, vLLM from pip\n{NO_DEVICE}").findings[0].changes[0].name == "wheel"
    assert diagnosed(f"AMD EPYC 9654, vLLM from pip\n{NO_DEVICE}").findings[0].changes[0].name == "process-gpus"


def test_a_header_is_brought_by_a_package() -> None:
    one = diagnosed(HEADER).findings[0]
    assert (one.changes[0].name, one.changes[0].after) == ("system-header", "room.h")


def test_a_package_that_lacks_a_name_is_of_another_release_than_its_reader() -> None:
    said = "AttributeError: module 'roomlib9.serve' has no attribute 'Door'"
    one = diagnosed(f"INFO 05-16 15:37:06 [llm_engine.py:242] Initializing a V0 LLM engine (v0.8.3)\n{said}").findings[
        0
    ]
    assert [(change.name, change.after) for change in one.changes] == [("foreign-package", "roomlib9")]
    own_file = diagnosed(said.replace("roomlib9.serve", "door"))
    assert not own_file.findings or "foreign-package" not in {change.name for change in own_file.findings[0].changes}


def test_a_name_of_weights_is_not_that_of_a_layer() -> None:
    head = "INFO 05-16 15:37:06 [llm_engine.py:242] Initializing a V0 LLM engine (v0.8.3)"
    one = diagnosed(f"{head}\nKeyError: 'layers.38.self_attn.o_proj.w_room'").findings[0]
    assert one.title == "The checkpoint has weights that the model's code does not know"
