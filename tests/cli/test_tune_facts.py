"""What `tune` learns of a host with a card: the plan's bound, the launch's own numbers, the key, the pool."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.nvml_sim.build import build
from tests.plan.models import LLAMA_8B
from vllm_doctor.cli import tune_facts
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.gather.look import key_of
from vllm_doctor.gather.systemd import Found
from vllm_doctor.operate.tune.allowed import allowance
from vllm_doctor.operate.tune.decide import TrialSetting
from vllm_doctor.records.host import Sample, Scrape, Unit

SIM = Path(__file__).parents[1] / "nvml_sim"
ASKED = SimpleNamespace(unit="vllm@main.service", without_plan=False, dry_run=False, from_seqs=None, from_tokens=None)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A unit of this host, which has two H100s; the flags behind its model are the test's."""
    release = tmp_path / "release"
    (release / "lib/python3.12/site-packages/vllm-0.33.0.dist-info").mkdir(parents=True)
    (release / "bin").mkdir()
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(LLAMA_8B))
    library = build(tmp_path / "nvml")
    library.with_name("nvml-sim").symlink_to(SIM / "profiles/h100x2.txt")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))

    def found(*flags, **properties):
        argv = (str(release / "bin/vllm"), "serve", str(model), *flags)
        unit = Unit("vllm@main.service", "loaded", "active", "running", "success", properties=properties)
        return Found(unit=unit, argv=argv, env={}, control_group="", output_file=None)

    monkeypatch.setattr(tune_facts.systemd, "find", lambda *_: tune_facts.Known((found(),), "test"))
    return found


def test_the_plan_bounds_what_is_tried_and_knows_what_the_launch_does_not_say(host):
    predict, word, own = tune_facts._plan(ASKED, host("--max-model-len", "8192"))
    assert predict is not None
    assert "safe" in word
    assert (own["seqs"], own["tokens"], own["length"]) == (1024, 8192, 8192)
    start = tune_facts._start(ASKED, host("--max-model-len", "8192").argv, own)
    assert start == TrialSetting(1024, 8192)
    allowed = allowance(predict, start, pool_tokens=None, request_tokens=640, most_seqs=None)
    assert allowed(TrialSetting(1024, 16384)) is None
    assert "the plan" in allowed(TrialSetting(1024, 400_000))


def test_the_units_own_numbers_go_before_the_plans(host):
    unit = host("--max-model-len", "8192", "--max-num-seqs", "64")
    _, _, own = tune_facts._plan(ASKED, unit)
    assert tune_facts._start(ASKED, unit.argv, own).seqs == 64


def test_without_a_plan_it_needs_consent(host, tmp_path):
    unit = host("--max-model-len", "many")
    with pytest.raises(UsageProblem, match="--without-plan"):
        tune_facts._plan(ASKED, unit)
    predict, word, own = tune_facts._plan(SimpleNamespace(**{**vars(ASKED), "without_plan": True}), unit)
    assert (predict, own) == (None, {})
    assert word.startswith("none (")
    with pytest.raises(UsageProblem, match="--from-seqs"):
        tune_facts._start(ASKED, unit.argv, own)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("VLLM_API_KEY=plain", "plain"),
        ('VLLM_API_KEY="a\\"b\\$c"', 'a"b$c'),
        ("VLLM_API_KEY='x y'", "x y"),
        ("OTHER=1", None),
    ],
)
def test_the_key_is_read_where_systemd_reads_it(host, tmp_path, line, key):
    (tmp_path / "secrets").write_text(f"# kept by the role\n{line}\n")
    unit = host(EnvironmentFiles=f"{tmp_path / 'secrets'} (ignore_errors=no)")
    assert key_of(unit) == key


def test_the_pool_is_what_this_version_tells_of_it():
    def scrape(**labels):
        return Scrape(0.0, (Sample("vllm:cache_config_info", labels, 1.0),))

    assert tune_facts._pool(scrape(num_gpu_blocks="100", block_size="16")) == 1600
    assert tune_facts._pool(scrape(num_gpu_blocks="100", block_size="16", kv_cache_size_tokens="1500")) == 1500
    assert tune_facts._pool(scrape(num_gpu_blocks="None")) is None
