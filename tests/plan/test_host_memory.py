"""What a launch keeps in memory of the host: weights, cache blocks and connectors' pools, as each release allocates
them."""

import json

import pytest

from tests.plan.models import HYBRID_LIKE, LLAMA_8B
from vllm_doctor.cli.main import run
from vllm_doctor.knowledge.pinned_memory import pinned
from vllm_doctor.plan.question.planner import Question, planner

GIB = 1 << 30
# 0.26.0 runs a dense model on the second runner, which offloads nothing before 0.28.
FIRST_RUNNER = "VLLM_USE_V2_MODEL_RUNNER=0"


@pytest.fixture
def use(tmp_path, monkeypatch):
    """The memory of the host that a launch takes, as the plan's JSON and its text tell it."""
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def asked(flags="", *, version="0.26.0", config=LLAMA_8B, gpus=2, host=None, env=()):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        words = (*env, "vllm", "serve", "m", "--max-model-len", "8192", *flags.split())
        question = Question(words, "H100", gpus, None, version, str(file), host_memory_gib=host)
        return planner(question).predict()

    return asked


def connector(name: str, **extra: object) -> str:
    told = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return "--kv-transfer-config " + json.dumps(told, separators=(",", ":"))


def test_a_launch_that_keeps_nothing_there_takes_nothing(use):
    assert use().host.pools == ()


@pytest.mark.parametrize(("asked", "taken"), [(2.25, 4), (1.125, 2), (6, 8), (2, 2), (0, 0)])
def test_torch_rounds_what_it_pins_up_to_a_power_of_two(asked, taken):
    # Measured with torch 2.13 and on an L4 (vLLM pull request 50094): 2.25 takes 4, 6 takes 8.
    assert pinned(asked * GIB) == taken * GIB


def test_above_the_threshold_of_the_environment_nothing_is_rounded(use):
    launch = "-tp 2 --kv-offloading-size 80"
    assert use(launch).host.total_gib == pytest.approx(128)
    exact = use(launch, env=("PYTORCH_ALLOC_CONF=expandable_segments:False,pinned_max_round_threshold_mb:1",))
    assert exact.host.total_gib == pytest.approx(80, abs=0.1)


@pytest.mark.parametrize(("size", "each"), [(64, 32), (80, 64)])
def test_offloaded_blocks_are_pinned_tensors_of_each_rank_to_0_26(use, size, each):
    # vLLM pull request 48436, two ranks: 64 took 32 GiB of each process beside its own 3, 80 took 64.
    (pool,) = use(f"-tp 2 --kv-offloading-size {size}").host.pools
    assert (pool.taken, pool.ranks, pool.shared) == (pytest.approx(each), 2, False)


def test_from_0_27_on_they_are_one_file_of_shared_memory_as_large_as_asked_for(use):
    told = use("-tp 2 --kv-offloading-size 80", version="0.27.0").host
    assert (told.total_gib, told.shared_gib) == (pytest.approx(80), pytest.approx(80))


def test_each_engine_of_this_host_has_its_own(use):
    assert use("-dp 2 --kv-offloading-size 64", version="0.33.0").host.total_gib == pytest.approx(128)


def test_a_hybrid_has_as_many_tensors_as_its_largest_group(use):
    (pool,) = use("-tp 1 --kv-offloading-size 50", config=HYBRID_LIKE, gpus=1).host.pools
    assert "16 pinned tensors" in pool.formula


@pytest.mark.parametrize("version", ["0.11.1", "0.13.0"])
def test_to_0_13_the_option_alone_does_nothing_and_with_its_backend_ends_the_start(use, version):
    assert use("--kv-offloading-size 64", version=version).host.pools == ()
    refused = use("--kv-offloading-size 64 --kv-offloading-backend native", version=version)
    assert refused.outcome == "rejected"
    assert "0.14 or later" in refused.settings.refusals[0].needed


@pytest.mark.parametrize("option", ["--cpu-offload-gb 4", "--offload-group-size 4"])
@pytest.mark.parametrize(
    ("version", "env", "moved"),
    [("0.27.1", (), False), ("0.27.1", (FIRST_RUNNER,), True), ("0.28.0", (), True), ("0.21.0", (), True)],
)
def test_the_second_runner_offloads_no_weights_before_0_28(use, option, version, env, moved):
    p = use(option, gpus=1, version=version, env=env)
    assert bool(p.host.pools) is moved
    assert any("VLLM_USE_V2_MODEL_RUNNER=0" in note for note in p.settings.notes) is not moved


def test_offloaded_weights_are_whole_parameters_each_rounded(use):
    # Of one layer 80 of 448 MiB lie above a power of two: gate and up (224 of 256) and qkv (48 of 64).
    p = use("--cpu-offload-gb 4", gpus=1, env=(FIRST_RUNNER,))
    (pool,) = p.host.pools
    assert pool.asked == pytest.approx(4.0, abs=0.25)
    assert pool.taken / pool.asked == pytest.approx((256 + 128 + 64 + 32) / (224 + 112 + 48 + 32), abs=0.02)
    assert use(gpus=1).weights_gib - p.weights_gib == pytest.approx(pool.asked, abs=0.01)


def test_no_more_is_offloaded_than_the_layers_have(use):
    p = use("--cpu-offload-gb 100", gpus=1, env=(FIRST_RUNNER,))
    assert p.weights_gib == pytest.approx(2 * 128256 * 4096 * 2 / GIB, abs=0.2)  # embedding and head stay


def test_named_parameters_alone_are_offloaded(use):
    p = use("--cpu-offload-gb 100 --cpu-offload-params down_proj", gpus=1, version="0.33.0")
    assert p.host.pools[0].asked == pytest.approx(32 * 14336 * 4096 * 2 / GIB)


def test_layers_of_a_group_go_with_a_buffer_for_each_that_is_fetched_ahead(use):
    layer = (6144 * 4096 + 4096 * 4096 + 3 * 14336 * 4096) * 2 / GIB
    p = use("--offload-group-size 8 --offload-num-in-group 2 --offload-prefetch-step 1", gpus=1, version="0.33.0")
    assert p.host.pools[0].asked == pytest.approx(8 * layer, rel=0.01)
    assert use(gpus=1, version="0.33.0").weights_gib - p.weights_gib == pytest.approx(7 * layer, rel=0.01)


def test_memory_that_is_not_pinned_is_not_rounded(use):
    (pool,) = use(
        "--cpu-offload-gb 4", gpus=1, env=(FIRST_RUNNER, "VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY=1")
    ).host.pools
    assert pool.taken == pool.asked


def test_v0_keeps_room_for_swapped_requests_unasked(use):
    assert use("-tp 2", version="0.6.4").host.total_gib == pytest.approx(8)
    assert use("-tp 2 --swap-space 0", version="0.6.4").host.pools == ()
    assert use("-tp 2 --swap-space 16", version="0.11.0").host.pools == ()  # V1 has no swapped requests


@pytest.mark.parametrize(
    ("flags", "version", "each"),
    [
        (connector("SimpleCPUOffloadConnector"), "0.33.0", 4),
        (connector("SimpleCPUOffloadConnector", cpu_bytes_to_use_per_rank=3 * GIB), "0.33.0", 3),
        (connector("LMCacheConnectorV1"), "0.19.0", 5),
        (connector("P2pNcclConnector"), "0.19.0", 32),
        (connector("OffloadingConnector", cpu_bytes_to_use=20 * GIB), "0.33.0", 10),
        ("--kv-offloading-size 20 --kv-offloading-backend lmcache", "0.19.0", 10),
        (connector("MultiConnector", connectors=[{"kv_connector": "P2pNcclConnector"}]), "0.19.0", 32),
    ],
)
def test_connectors_keep_what_their_options_say_or_what_they_take_unasked(use, flags, version, each):
    (pool,) = use("-tp 2 " + flags, version=version).host.pools
    assert pool.taken == pytest.approx(each)


def test_what_is_not_known_is_said(use):
    told = use(connector("MooncakeStoreConnector"), version="0.33.0").host
    assert told.pools == ()
    assert "not known" in told.unsure[0]


def test_a_host_with_less_memory_than_is_kept_there_ends_the_start(use):
    launch = "-tp 2 --kv-offloading-size 80"
    assert use(launch, host="120").outcome == "oom-host"
    assert use(launch, host="120", version="0.33.0").outcome == "ok"


def test_the_answer_says_what_is_taken_and_what_must_be_free(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))

    def told(version: str, size: str, *more: str) -> str:
        where = ("--gpu", "H100", "--gpus", "2", "--vllm-version", version, "--model-config", str(tmp_path), *more)
        run(
            [
                "plan",
                *where,
                "--",
                "vllm",
                "serve",
                "m",
                "-tp",
                "2",
                "--max-model-len",
                "8k",
                "--kv-offloading-size",
                size,
            ]
        )
        return capsys.readouterr().out

    before = told("0.26.0", "80", "--host-memory-gib", "100")
    assert "does not start: it needs more host memory than the host has" in before
    assert "128.0 of 100.0 GiB are kept in its memory" in before
    assert "64 GiB of all ranks would be used whole, and take half" in before
    assert "recommended" not in before
    assert "/dev/shm must have 80.0 GiB free, else the start ends" in told("0.33.0", "80")
    assert "one call of CUDA pins less than 512 GiB" in told("0.29.0", "600")
    assert "one call of CUDA" not in told("0.31.0", "600")
    assert json.loads(told("0.33.0", "80", "--format", "json"))["host"]["shared_memory_gib"] == 80
