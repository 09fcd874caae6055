"""The extractor on a small wheel written here, and its merge into what is known."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.extract import DATA, ExtractError, dumps, extract, main, merge
from vllm_doctor.knowledge.versions import as_version, complete, flag_names

ARG_UTILS = """
from vllm.config import CacheConfig
class EngineArgs:
    model: str = "x"
    max_num_seqs: int | None = None
    cache_dtype: CacheDType = CacheConfig.cache_dtype
    enforce_eager: bool = False
    @staticmethod
    def add_cli_args(parser):
        cache_group.add_argument("--kv-cache-dtype", **cache_kwargs["cache_dtype"])
        group.add_argument("--max-num-seqs", **{**scheduler_kwargs["max_num_seqs"], "default": None})
        group.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
        parser.add_argument("--port", "-p", type=int, default=8000, choices=[8000, 8001])
        parser.add_argument("--old", action="store_true", help="[DEPRECATED] gone soon")
"""
CONFIG = """
CacheDType = Literal["auto", "fp8"]
class CacheConfig:
    cache_dtype: CacheDType = "auto"
class ModelConfig:
    enforce_eager: bool = False
"""
ENVS = """
if TYPE_CHECKING:
    VLLM_THING: int = 3
environment_variables = {"VLLM_THING": lambda: 3, "VLLM_OTHER": lambda: None}
"""


@pytest.fixture
def wheel(tmp_path):
    file = tmp_path / "vllm-0.99.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("vllm/engine/arg_utils.py", ARG_UTILS)
        made.writestr("vllm/config/cache.py", CONFIG)
        made.writestr("vllm/envs.py", ENVS)
    return file


def test_flags_defaults_and_choices_are_resolved(wheel):
    r = extract(wheel)
    assert r.version == as_version("0.99.0")
    assert (r.flags["kv-cache-dtype"].default, r.flags["kv-cache-dtype"].choices) == ("'auto'", ["auto", "fp8"])
    assert r.flags["max-num-seqs"].default == "None"
    assert r.flags["enforce-eager"].negatable
    assert (r.flags["port"].choices, r.flags["port"].aliases) == ([8000, 8001], ["-p"])
    assert r.flags["old"].deprecated
    assert r.environment == {"VLLM_THING": "3", "VLLM_OTHER": None}


def test_a_release_from_before_envs_py_has_the_options_of_its_server(tmp_path):
    file = tmp_path / "vllm-0.2.1-cp310-cp310-manylinux1_x86_64.whl"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("vllm/engine/arg_utils.py", ARG_UTILS)
        made.writestr("vllm/entrypoints/openai/api_server.py", 'parser.add_argument("--host", default="localhost")\n')
    r = extract(file)
    assert (r.flags["host"].default, r.flags["max-num-seqs"].default, r.environment) == ("'localhost'", "None", {})


def test_a_new_release_ends_the_life_of_flags_it_lacks(wheel):
    before = json.loads(DATA.read_text())
    after = merge(before, [extract(wheel)])
    assert "0.99.0" in after["sampled"]
    assert after["flags"]["gpu-memory-utilization"]["present"][-1][1] == before["sampled"][-1]
    assert after["flags"]["max-num-seqs"]["present"][-1][1] == "0.99.0"
    assert after["flags"]["old"]["present"] == [["0.99.0", "0.99.0"]]
    assert after["flags"]["gpu-memory-utilization"]["note"] == before["flags"]["gpu-memory-utilization"]["note"]


def test_merging_twice_changes_nothing(wheel):
    once = merge(json.loads(DATA.read_text()), [extract(wheel)])
    assert dumps(merge(json.loads(dumps(once)), [extract(wheel)])) == dumps(once)


def test_the_kept_file_is_written_in_its_own_layout():
    assert dumps(json.loads(DATA.read_text())) == DATA.read_text()


@pytest.mark.parametrize("name", ["vllm-0.9.9.whl", "other.whl", "vllm-abc.whl"])
def test_what_is_no_wheel_is_named(tmp_path, name, capsys):
    (tmp_path / name).write_text("x")
    assert main([str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err
    with pytest.raises(ExtractError):
        extract(tmp_path / name)


@pytest.mark.parametrize("version", ["0.32.0"])
def test_the_static_reading_agrees_with_the_releases_own_parser(version):
    # parser/VERSION.json was written by the release's parser itself.
    own = {n for n in parser.options(version) if not n.startswith("no-")} - {"help"}
    assert complete(version)
    from vllm_doctor.knowledge.versions import canonical

    assert own - set(flag_names(version)) - {n for n in own if canonical(n) in flag_names(version)} == set()
    assert set(flag_names(version)) - own == set()


def wheels() -> list[Path]:
    """Wheels of vLLM that lie on this machine: in $VLLM_DOCTOR_WHEELS and where pip finds links."""
    words = f"{os.environ.get('VLLM_DOCTOR_WHEELS', '')} {os.environ.get('PIP_FIND_LINKS', '')}".split()
    folders = [Path(word.removeprefix("file://")) for word in words]
    return sorted(w for folder in folders if folder.is_dir() for w in folder.glob("vllm*-*.whl"))


def test_the_kept_file_follows_from_the_wheels_that_are_here():
    here = [extract(wheel) for wheel in wheels()]
    if not here:
        pytest.skip("no wheel of vLLM here: name a folder in VLLM_DOCTOR_WHEELS")
    kept = json.loads(DATA.read_text())
    known = [r for r in here if str(r.version) in kept["sampled"]]
    assert known, (
        f"none of {[str(r.version) for r in here]} is in versions.json: python -m vllm_doctor.knowledge.extract"
    )
    assert dumps(merge(kept, known)) == DATA.read_text()
