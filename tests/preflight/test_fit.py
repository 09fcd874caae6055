"""Whether the model fits is in the same table, for all hosts, before one is changed."""

import json
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.knowledge.compat import table
from vllm_doctor.preflight.fit import model_fits
from vllm_doctor.preflight.judged import Checked, HostFacts, HostToJudge, Instance, Intent, Result
from vllm_doctor.preflight.launches import launches
from vllm_doctor.preflight.slices import slices_possible

H100, L4, T4, A30, RTXPRO = "2330", "27b8", "1eb8", "20b7", "2bb5"
FLAGS = json.loads((Path(__file__).parents[2] / "vllm_doctor/knowledge/inventory_vars.json").read_text())
MODEL = "/srv/models/llama"
STORE, COMMIT = "/var/lib/vllm-models", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    return str(path)


def judge(gpus: tuple[str, ...] | None, config: str | None, **values: object) -> Checked:
    values = {"vllm_model": MODEL, **values}
    intent = Intent(
        driver=True,
        driver_version="580.105.08",
        vllm_version="0.32.0",
        variant=str(values.get("vllm_variant", "cu130")),
        launches=launches(values, FLAGS, STORE),
    )
    configs = ((str(values.get("read_from", MODEL)), config),) if config else ()
    memory = values.get("memory_gib")
    host = HostFacts(gpus=gpus, model_configs=configs, memory_gib=memory if isinstance(memory, float) else None)
    return model_fits(HostToJudge(intent, host, table(), date(2026, 11, 21)))


class TestFit:
    def test_it_fits_and_says_the_sum(self, config: str) -> None:
        row = judge((H100,), config, vllm_max_model_len=32768)
        assert row.verdict is Result.OK
        assert row.found.startswith("vllm@main on 1 x NVIDIA H100 80GB HBM3: 79.19 x 0.92 - weights 14.99 ")
        assert row.found.endswith("GiB for the KV cache")

    @pytest.mark.parametrize(("revision", "verdict"), [(COMMIT, Result.OK), ("f" * 40, Result.UNKNOWN)])
    def test_a_model_of_a_hub_is_read_from_the_store_at_its_commit(
        self, config: str, revision: str, verdict: Result
    ) -> None:
        there = f"{STORE}/org--llama/{COMMIT}"
        row = judge((H100,), config, vllm_model="org/llama", vllm_revision=revision, read_from=there)
        assert row.verdict is verdict

    def test_before_it_is_fetched_a_config_of_the_inventory_speaks_for_it(self, config: str) -> None:
        row = judge((H100,), config, vllm_model="org/llama", vllm_revision=COMMIT, read_from="org/llama")
        assert row.verdict is Result.OK

    def test_an_override_that_cannot_fit_is_refused_with_the_sum_and_the_value_that_does(self, config: str) -> None:
        row = judge((L4,), config, vllm_max_model_len=131072)
        assert row.verdict is Result.FAIL
        assert "kv-too-small: 22.03 x 0.94 - weights 14.99 " in row.found
        assert row.needed.endswith("GiB for one request of 131072 tokens")
        value = int(row.action.removeprefix("set vllm_max_model_len: "))
        assert judge((L4,), config, vllm_max_model_len=value).verdict is Result.OK

    def test_what_the_inventory_leaves_open_the_plan_chooses(self, config: str) -> None:
        assert judge((L4,), config).verdict is Result.OK  # a shorter context than the model's own

    def test_weights_that_two_cards_would_hold_are_refused(self, config: str) -> None:
        row = judge((T4,), config)
        assert row.verdict is Result.FAIL
        assert row.action == "take a smaller or quantized model, more cards, or larger ones"

    def test_weights_that_spill_into_host_memory_are_a_warning(self, tmp_path: Path) -> None:
        deep = tmp_path / "deep.json"  # in 4 bits already, with heads that no number of cards divides
        odd = {"hidden_size": 3200, "num_attention_heads": 25, "num_key_value_heads": 5, "num_hidden_layers": 200}
        stored = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
        deep.write_text(json.dumps({**LLAMA_8B, **odd, **stored}))
        row = judge((T4,), str(deep))
        assert row.verdict is Result.WARN
        assert "in host memory" in row.found

    def test_what_it_keeps_on_the_host_must_fit_there(self, config: str) -> None:
        asked = {"vllm_extra_args": {"kv-offloading-size": 100}, "vllm_max_model_len": 32768}
        row = judge((H100,), config, **asked, memory_gib=62.8)
        assert row.verdict is Result.FAIL
        assert row.found.endswith(" oom-host: offloaded cache blocks 100.0 GiB of the host's memory, which has 62.8")
        assert row.needed == "100.0 GiB beside what the processes themselves take"
        assert judge((H100,), config, **asked, memory_gib=251.5).verdict is Result.OK
        assert judge((H100,), config, **asked).verdict is Result.OK  # a host whose memory was not read

    @pytest.mark.parametrize(("pool", "verdict", "lacks"), [("6G", Result.WARN, "0.53"), ("7G", Result.FAIL, "1.53")])
    def test_a_step_that_finds_no_room_beside_the_pool_is_told_with_the_pool_that_leaves_it(
        self, tmp_path: Path, pool: str, verdict: Result, lacks: str
    ) -> None:
        path = tmp_path / "small.json"
        path.write_text(json.dumps({**LLAMA_8B, "vocab_size": 32000}))
        wide = {"vllm_max_model_len": 16384, "vllm_max_num_batched_tokens": 16384, "vllm_max_num_seqs": 16}
        row = judge((L4,), str(path), vllm_kv_cache_memory_bytes=pool, vllm_enforce_eager=True, **wide)
        assert row.verdict is verdict
        assert row.needed == f"{lacks} GiB more beside the KV cache for a step of 16384 tokens"
        assert row.action == "set vllm_kv_cache_memory_bytes: 5867831296"

    def test_more_ranks_than_cards(self, config: str) -> None:
        row = judge((H100, H100), config, vllm_tensor_parallel_size=4)
        assert row.verdict is Result.FAIL
        assert "at most the 2" in row.needed

    def test_an_instance_goes_before_the_variable(self, config: str) -> None:
        row = judge((L4,), config, vllm_max_model_len=131072, vllm_instances=[{"name": "short", "max_model_len": 512}])
        assert row.verdict is Result.OK
        assert row.found.startswith("vllm@short on 1 x")

    def test_the_worst_instance_is_the_hosts_answer(self, config: str) -> None:
        instances = [{"name": "short"}, {"name": "long", "max_model_len": 131072, "gpus": ["GPU-1"]}]
        row = judge((L4, L4), config, vllm_max_model_len=4096, vllm_instances=instances)
        assert row.verdict is Result.FAIL
        assert row.found.startswith("vllm@long on 1 x")


class TestUnknown:
    def test_no_config_anywhere_is_said_so(self) -> None:
        row = judge((H100,), None)
        assert row.verdict is Result.UNKNOWN
        assert f"no config.json of {MODEL} on the host or in preflight_model_configs" in row.found
        assert "asks again on the host" in row.action

    def test_cards_of_several_kinds(self, config: str) -> None:
        row = judge((H100, L4), config)
        assert row.verdict is Result.WARN
        assert row.found == "vllm@main sees cards of several kinds: NVIDIA H100 80GB HBM3, NVIDIA L4"
        assert row.action == "set vllm_gpus to cards of one kind, as nvidia-smi -L lists them"

    def test_a_bus_that_cannot_be_read(self, config: str) -> None:
        assert judge(None, config).verdict is Result.UNKNOWN

    def test_a_config_that_is_no_config(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("[]")
        row = judge((H100,), str(tmp_path / "config.json"))
        assert row.verdict is Result.UNKNOWN
        assert "needed: one JSON object" in row.found

    def test_a_slice_is_not_a_card(self, config: str) -> None:
        row = judge((H100,), config, vllm_instances=[{"name": "a", "gpus": ["MIG-1"]}])
        assert row.verdict is Result.UNKNOWN

    def test_a_controller_without_the_planners_packages(self, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "vllm_doctor.plan.advice.choice", None)
        row = judge((H100,), config, vllm_max_model_len=777)  # a launch of its own: answers are kept
        assert row.verdict is Result.UNKNOWN

    def test_the_cpu_build_has_no_card(self, config: str) -> None:
        assert judge((), config, vllm_variant="cpu").verdict is Result.NOT_APPLICABLE


class TestLaunches:
    def test_words_are_those_of_the_role(self) -> None:
        (launch,) = launches(
            {
                "vllm_model": MODEL,
                "vllm_host": "0.0.0.0",  # noqa: S104
                "vllm_enforce_eager": True,
                "vllm_enable_prefix_caching": False,
                "vllm_plan": {"launch": {"max-num-seqs": 8, "max-model-len": 1}},
                "vllm_max_model_len": 2,
                "vllm_extra_args": {
                    "max-logprobs": 3,
                    "middleware": ["one.Of", "two.Of"],
                    "cudagraph-capture-sizes": [1, 2],
                },
                "vllm_environment": {"VLLM_USE_V1": "1", "OTHER": "x"},
            },
            FLAGS,
            STORE,
        )
        assert launch.environment == ("VLLM_USE_V1=1",)
        assert "--host" not in launch.words
        assert "--enforce-eager" in launch.words
        assert "--no-enable-prefix-caching" in launch.words
        pairs = dict(zip(launch.words, launch.words[1:], strict=False))
        assert (pairs["--max-num-seqs"], pairs["--max-model-len"], pairs["--max-logprobs"]) == ("8", "2", "3")
        assert " ".join(launch.words).endswith("--middleware one.Of --middleware two.Of --cudagraph-capture-sizes 1 2")

    def test_no_model_is_no_launch(self) -> None:
        assert launches({}, FLAGS, STORE) == ()


class TestSlices:
    @pytest.mark.parametrize(
        ("gpus", "layout", "verdict", "says"),
        [
            ((H100,), {"0": ("3g.40gb", "3g.40gb")}, Result.OK, "GPU 0: 3g.40gb 3g.40gb"),
            ((H100,), {"0": ("1g.10gb+me", "19")}, Result.OK, "GPU 0"),
            ((A30,), {"0": ("2g.12gb", "2g.12gb")}, Result.OK, "GPU 0"),
            ((RTXPRO,), {"0": ("2g.48gb", "2g.48gb", "1g.24gb")}, Result.FAIL, "5 compute slices"),
            ((H100,), {"0": ("4g.40gb", "4g.40gb")}, Result.FAIL, "at most 7"),
            ((H100,), {"0": ("3g.40",)}, Result.FAIL, "'3g.40'"),
            ((L4,), {"0": ("1g.10gb",)}, Result.FAIL, "NVIDIA L4"),
            ((H100,), {"1": ("1g.10gb",)}, Result.FAIL, "GPU 1 of 1"),
            (None, {"0": ("1g.10gb",)}, Result.UNKNOWN, "no card is known"),
            ((H100,), {}, Result.NOT_APPLICABLE, ""),
        ],
    )
    def test_layout(
        self, gpus: tuple[str, ...] | None, layout: dict[str, tuple[str, ...]], verdict: Result, says: str
    ) -> None:
        intent = Intent(driver=True, driver_version="580.105.08", slices=tuple(layout.items()))
        row = slices_possible(HostToJudge(intent, HostFacts(gpus=gpus), table(), date(2026, 11, 21)))
        assert row.verdict is verdict
        assert says in f"{row.found} {row.needed}"

    @pytest.mark.parametrize("words", ["--tensor-parallel-size 2", "--tensor-parallel-size=2", "-tp 2", "--tensor-p 2"])
    def test_tensor_parallelism_across_slices(self, words: str) -> None:
        intent = Intent(
            driver=True,
            driver_version="580.105.08",
            slices=(("0", ("1g.10gb",)),),
            launches=(Instance("vllm@main", MODEL, tuple(words.split())),),
        )
        row = slices_possible(HostToJudge(intent, HostFacts(gpus=(H100,)), table(), date(2026, 11, 21)))
        assert row.verdict is Result.FAIL
        assert "no NVLink" in row.needed
