"""A plugin, or compiled code beside torch, that was made for another release: its own release is the change.

Composed of calls of vLLM and of what Python and the dynamic linker say, with names of our own.
"""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/site-packages"


def _finding(file: str, code: str, raised: str) -> Finding:
    lines = [
        "INFO 03-14 09:11:58 [api_server.py:1977] vLLM API server version 0.33.0",
        "Traceback (most recent call last):",
        f'  File "{SITE}/vllm/plugins/__init__.py", line 76, in load_plugins_by_group',
        "    func = plugin.load()",
        f'  File "{file}", line 22, in <module>',
        f"    {code}",
        raised,
    ]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    assert judged.findings
    return judged.findings[0]


@pytest.mark.parametrize(
    "raised",
    [
        f"ImportError: cannot import name 'halve' from 'vllm.utils' ({SITE}/vllm/utils/__init__.py)",
        "ModuleNotFoundError: No module named 'vllm.halves'",
    ],
)
@pytest.mark.parametrize(
    ("file", "name"), [(f"{SITE}/vllm_seven/models.py", "vllm_seven"), ("/srv/app/serve.py", "program-code")]
)
def test_who_imports_what_this_vllm_lacks_is_of_another_release(raised: str, file: str, name: str) -> None:
    found = _finding(file, "from vllm.utils import halve", raised)
    assert found.code == "VD514"
    assert "does not fit this vLLM" in found.title
    assert found.changes[0].name == name


@pytest.mark.parametrize(
    "raised",
    [
        "AttributeError: 'AsyncLLM' object has no attribute 'halves'",
        "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'halves'",
    ],
)
def test_a_program_that_asks_vllm_for_what_it_lacks_is_of_another_release(raised: str) -> None:
    found = _finding("/srv/app/serve.py", "engine.halves", raised)
    assert found.title == "serve.py and this release of vLLM do not fit each other"


def test_what_vllm_itself_imports_is_its_environment() -> None:
    raised = f"ImportError: cannot import name 'halve' from 'vllm.utils' ({SITE}/vllm/utils/__init__.py)"
    found = _finding(f"{SITE}/vllm/v1/engine/core.py", "from vllm.utils import halve", raised)
    assert [c.name for c in found.changes] == ["python-env"]


@pytest.mark.parametrize(
    ("library", "first"),
    [
        ("aiter/jit/module_norm.so", "aiter"),
        ("flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", "flash-attn"),
        ("torch/lib/libtorch_cuda.so", "LD_LIBRARY_PATH"),
        ("vllm/_C.abi3.so", "python-env"),
    ],
)
def test_the_library_that_lacks_a_symbol_is_built_again(library: str, first: str) -> None:
    raised = f"ImportError: {SITE}/{library}: undefined symbol: _ZN3c105ErrorC2Ev"
    found = _finding(f"{SITE}/vllm/_seven_ops.py", "import seven", raised)
    assert (found.code, found.changes[0].name) == ("VD514", first)
    assert (found.confidence is Confidence.CONFIRMED) == (first == "python-env")


@pytest.mark.parametrize(
    ("caller", "title"),
    [
        ("/srv/openrlhf/openrlhf/trainer/engine.py", "openrlhf and this release of vLLM do not fit each other"),
        ("/srv/app/serve.py", "serve.py passes an argument that this vLLM lacks: halves"),
    ],
)
def test_an_argument_that_vllm_hands_on_is_its_caller_s(caller: str, title: str) -> None:
    lines = [
        "INFO 03-14 09:11:58 [api_server.py:1977] vLLM API server version 0.33.0",
        "Traceback (most recent call last):",
        f'  File "{caller}", line 22, in start',
        "    self.llm = LLM(*args, **kwargs)",
        f'  File "{SITE}/vllm/entrypoints/llm.py", line 210, in __init__',
        "    engine_args = EngineArgs(",
        "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'halves'",
    ]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    assert judged.findings[0].title == title


@pytest.mark.parametrize(
    ("symbol", "title", "first"),
    [
        ("_ZN3c105ErrorC2Ev", "vLLM's compiled operators do not fit the torch beside them", "python-env"),
        ("_Z11halve_seven", "This build of vLLM lacks a function: halve_seven", "source-build"),
        ("cuHalveSeven", "The Python environment is broken", "python-env"),
    ],
)
@pytest.mark.parametrize("file", [f"{SITE}/vllm/_C.abi3.so", "/srv/vllm/vllm/_moe_C.abi3.so"])
def test_whose_symbol_vllm_s_own_library_lacks(file: str, symbol: str, title: str, first: str) -> None:
    found = _finding(f"{SITE}/vllm/_seven_ops.py", "import seven", f"ImportError: {file}: undefined symbol: {symbol}")
    assert (found.title, found.changes[0].name) == (title, first)
