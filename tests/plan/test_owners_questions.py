"""What an owner of servers asks in passing: several hosts, idle cards, an embedding model, an old release."""

import json

import pytest

from tests.plan.models import DEEPSEEK_LIKE, LLAMA_8B
from vllm_doctor.cli.main import run
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.launch.write import serve_words
from vllm_doctor.plan.advice.remedies import hardware
from vllm_doctor.plan.advice.set_ups import _counts
from vllm_doctor.plan.question.planner import Question, planner

LLAMA_70B = {
    **LLAMA_8B,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
ROBERTA = {
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "max_position_embeddings": 8194,
    "vocab_size": 250002,
    "position_embedding_type": "absolute",
    "torch_dtype": "float32",
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))

    def write(config):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return str(path)

    return write


@pytest.fixture
def told(file, capsys):
    """What `plan` says of a model on cards: the exit code, and its lines or its complaint."""

    def ask(config, *words, gpu="H100", version="0.33.0"):
        card = () if gpu is None else ("--gpu", gpu)
        code = run(["plan", "--model-config", file(config), *card, "--vllm-version", version, *words])
        streams = capsys.readouterr()
        return code, streams.out or streams.err

    return ask


@pytest.mark.parametrize(
    ("flags", "cards"),
    [
        ("-tp 8 -pp 2 --nnodes 2", 8),
        ("-tp 16 --nnodes 2", 8),
        ("-tp 4 -dp 4 --nnodes 2 --enable-expert-parallel", 8),  # two copies on each host
        ("-tp 8 -dp 2 --nnodes 4 --enable-expert-parallel", 4),  # each copy on two hosts
        ("-dp 16 --nnodes 2 --enable-expert-parallel", 8),
        ("-tp 8", 8),
    ],
)
def test_each_of_several_hosts_has_its_part_of_the_ranks(file, flags, cards):
    words = ("vllm", "serve", "m", *flags.split())
    settings = planner(Question(words, "H200", 8, None, "0.33.0", file(DEEPSEEK_LIKE))).settings()
    assert (settings.parallel.cards, settings.refusals) == (cards, ())


def test_too_many_ranks_for_each_host_are_refused_by_host(told):
    launch = ("--", "vllm", "serve", "m", "-tp", "16", "--nnodes", "2")
    code, text = told(DEEPSEEK_LIKE, "--gpus", "4", *launch, gpu="H200")
    assert code == 1
    assert "H200 × 4 on each of 2 hosts: does not start" in text
    assert "needed: at most the 4 GPU(s) of each of 2 hosts (--gpus)" in text


def test_hosts_without_a_size_get_one_that_they_share(told):
    code, text = told(DEEPSEEK_LIKE, "--gpus", "8", "--", "vllm", "serve", "m", "--nnodes", "2")
    assert code == 1
    assert "needed: a divisor of 1, the ranks of this launch" in text
    assert "--nnodes 2 --tensor-parallel-size 16" in " ".join(text.replace("\\", " ").split())


def test_a_release_without_nnodes_is_not_advised_to_take_it(told):
    _, text = told(LLAMA_8B, "--gpus", "8", "--", "vllm", "serve", "m", "--nnodes", "2", version="0.10.0")
    advised = text.partition("  run ")[2].partition("  holds ")[0]
    assert "vllm serve m" in advised
    assert "nnodes" not in advised


def test_ray_takes_cards_of_other_hosts_which_are_taken_for_granted(told):
    launch = ("--", "vllm", "serve", "m", "-tp", "4", "-pp", "2")
    _, text = told(LLAMA_8B, "--gpus", "4", *launch, "--distributed-executor-backend", "ray")
    assert "H100 80GB HBM3 × 4 on each of 2 hosts: starts" in text
    assert "2 hosts with 4 such as this one are taken for granted" in " ".join(text.split())
    code, text = told(LLAMA_8B, "--gpus", "4", *launch)
    assert code == 1
    assert "needed: at most the 4 GPU(s) of the host (--gpus)" in text
    _, text = told(LLAMA_8B, "--gpus", "8", *launch, "--distributed-executor-backend", "ray")
    assert "taken for granted" not in text


def test_hosts_that_ray_finds_itself_are_not_named(told):
    launch = ("--", "vllm", "serve", "m", "--nnodes", "2", "-tp", "8", "--distributed-executor-backend", "ray")
    _, text = told(LLAMA_8B, "--gpus", "8", *launch)
    assert "refused  --nnodes: found 2; needed: 1 with Ray" in text
    advised = text.partition("  run ")[2].partition("  holds ")[0]
    assert "--tensor-parallel-size 8" in advised
    assert "nnodes" not in advised


def test_all_cards_are_used_where_a_workload_needs_them(told):
    work = ("--gpus", "8", "--context", "32k", "--concurrency")
    _, text = told(LLAMA_70B, *work, "30")
    assert text.startswith("vLLM 0.33.0 on NVIDIA H100 80GB HBM3 × 8: starts\n"), "with four of them it holds 14"
    assert "--tensor-parallel-size 8" in text
    assert "unused" not in text
    _, text = told(LLAMA_70B, *work, "12")
    assert "--tensor-parallel-size 4" in text
    assert "  unused   4 of the 8 GPUs: these hold the workload\n" in text
    _, text = told(LLAMA_70B, *work, "300")
    assert "--tensor-parallel-size 8" in text, "not enough, and the most"


def test_a_size_that_the_launch_names_is_kept_for_a_workload(told):
    launch = ("--", "vllm", "serve", "m", "--tensor-parallel-size", "4")
    _, text = told(LLAMA_70B, "--gpus", "8", "--context", "32768", "--concurrency", "30", *launch)
    assert "--tensor-parallel-size 4" in text
    assert "  unused   4 of the 8 GPUs: one copy of the model gains nothing by them" in text


def test_idle_cards_are_said(told):
    _, text = told(LLAMA_8B, "--gpus", "2")
    assert "  unused   1 of the 2 GPUs: --context and --concurrency say what the launch must hold\n" in text


def test_no_more_requests_are_promised_than_the_scheduler_runs(told):
    _, text = told(LLAMA_8B, "--", "vllm", "serve", "m", "--max-model-len", "2048", "--max-num-seqs", "64")
    assert "  holds    64 requests of 2048 tokens at once, " in text
    assert "           --max-num-seqs runs no more; the KV cache alone has room for 22" in text


def test_a_length_that_the_tokenizer_may_bound_is_not_written_out(told):
    _, text = told(ROBERTA, gpu="L4")
    assert "  run      vllm serve MODEL --gpu-memory-utilization 0.92\n" in text
    _, text = told(ROBERTA, "--context", "8000", gpu="L4")
    assert "--max-model-len 8000" in text, "asked for"


@pytest.mark.parametrize(
    ("line", "version", "words"),
    [
        ("vllm serve m", "0.5.4", "vllm serve m --seed 1"),
        ("vllm serve m", "0.5.3", "python3 -m vllm.entrypoints.openai.api_server --model m --seed 1"),
        (
            "python -m vllm.entrypoints.openai.api_server --model m",
            "0.4.2",
            "python3 -m vllm.entrypoints.openai.api_server --model m --seed 1",
        ),
        ("python -m vllm.entrypoints.openai.api_server --model m", "0.33.0", "vllm serve m --seed 1"),
    ],
)
def test_the_line_starts_the_program_that_the_release_has_and_names_the_model_once(line, version, words):
    at = as_version(version)
    assert " ".join(serve_words(parse_launch([*line.split(), "--seed", "1"], at), at)) == words


def test_the_pasted_line_of_an_old_release_names_the_model_once(told):
    launch = ("--", "python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m")
    _, text = told({**LLAMA_8B, "rope_scaling": None}, *launch, version="0.4.2")
    assert "  run      python3 -m vllm.entrypoints.openai.api_server --model m \\\n" in text
    _, text = told(LLAMA_8B, *launch)
    assert "  run      vllm serve m --" in text
    assert "--model m" not in text


def test_a_quantization_that_no_release_knows_is_no_promise(told):
    code, text = told({**LLAMA_8B, "quantization_config": {"quant_method": "zorb"}})
    assert code == 3
    assert "  unknown  quantization zorb: none of the releases that were read has a method of this name" in text


def test_blocks_of_nothing_are_refused(told):
    config = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 0]}}
    code, text = told(config)
    assert code == 2
    assert "weight_block_size is 0; needed: a list of whole numbers from 1 to 65536" in text


def test_a_notebook_has_one_card(file):
    notebook = find("RTX 5090 Laptop GPU")
    assert notebook is not None
    asked = planner(Question(("vllm", "serve", "m"), "L4", 8, None, "0.33.0", file(LLAMA_70B)))
    assert _counts(asked, notebook) == [1]
    assert all(count == 1 for card, count, _ in hardware(asked) if card.alone)


def test_memory_alone_says_what_was_not_judged(told):
    _, text = told(LLAMA_8B, "--gpu-memory-gib", "24", gpu=None)
    assert "note: no --gpu: the compute capability is not known" in text


def test_a_host_that_is_too_small_is_told_by_how_much(told):
    launch = ("--", "vllm", "serve", "m", "--kv-offloading-size", "32")
    code, text = told(LLAMA_8B, "--host-memory-gib", "16", *launch)
    assert code == 1
    assert "           16.0 GiB too much: take less of it, or a host with more memory\n" in text


@pytest.mark.parametrize(
    ("beside", "way"),
    [
        (("--upgrade", "0.28.0:0.33.0"), "one of the two"),
        (("--context", "32k"), "--goal finds cards for a workload"),
        (("--concurrency", "4"), "--goal finds cards for a workload"),
    ],
)
def test_a_sweep_answers_nothing_beside_it(told, beside, way):
    code, text = told(LLAMA_8B, "--sweep", "L4,H100", *beside)
    assert code == 2
    assert f"--sweep: found {beside[0]} beside it; needed: --sweep without it ({way})" in text


def test_a_sweep_takes_every_card_that_plan_takes(told):
    code, text = told(LLAMA_8B, "--sweep", "H100,MI250X")
    assert code == 0
    row = next(line for line in text.splitlines() if line.startswith("AMD Instinct MI250X"))
    assert row.split()[3:] == ["1", "unknown", "14.99"]


def test_models_of_one_deep_folder_are_told_apart(file, tmp_path, capsys):
    names = []
    for end in ("one", "two"):
        path = tmp_path / ("x" * 60) / end / "config.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(LLAMA_8B))
        names += ["--model-config", str(path)]
    assert (
        run(
            [
                "plan",
                "--sweep",
                "models",
                "--gpu",
                "H100",
                "--vllm-version",
                "0.33.0",
                *names,
                "--",
                "vllm",
                "serve",
                "m",
            ]
        )
        == 0
    )
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[0][-15:] for row in rows] == ["one/config.json", "two/config.json"]


def test_a_goal_of_a_model_without_a_cache_speaks_of_none(told):
    _, text = told(ROBERTA, "--goal", "context=8k,concurrency=64", gpu="L4")
    assert "KV cache" not in text
    assert "  holds    no cache; weights 1.06, left " in text


def test_the_release_is_that_of_the_image_that_the_launch_names(told, file, capsys):
    launch = ["docker", "run", "--gpus", "all", "vllm/vllm-openai:v0.28.0", "--model", "m"]
    assert run(["plan", "--model-config", file(LLAMA_8B), "--gpu", "H100", "--", *launch]) == 0
    assert capsys.readouterr().out.startswith("vLLM 0.28.0 on NVIDIA H100")
    assert told(LLAMA_8B, "--", *launch)[1].startswith("vLLM 0.33.0 on NVIDIA H100")  # given: it comes first


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("2x4090", "--gpu '4090' --gpus 2"),
        ("4090 x2", "--gpu '4090' --gpus 2"),
        ("4 × NVIDIA L40S", "--gpu 'NVIDIA L40S' --gpus 4"),
        ("H100, A100", "--sweep 'H100,A100' to compare them"),
        ("8x nonsense", "the name of a card"),
        ("H100, nonsense", "the name of a card"),
    ],
)
def test_several_cards_in_one_name_are_asked_for_as_the_options_have_them(told, name, needed):
    code, said = told(LLAMA_8B, gpu=name)
    assert code == 2
    assert f"needed: {needed}" in said


@pytest.mark.parametrize(
    ("name", "gib"), [("H100 1g.10gb", 9.77), ("A100-MIG-3g.40gb", 39.08), ("A100 MIG 3g.40gb", 39.08)]
)
def test_a_slice_is_one_with_or_without_the_word(name, gib):
    card = find(name)
    assert card is not None
    assert (card.slice, card.total_gib) == (True, gib)


def test_a_launch_without_its_dashes_is_told_so(told):
    code, said = told(LLAMA_8B, "vllm", "serve", "m", "--max-model-len", "8192")
    assert (code, "needed: `--` before the launch" in said) == (2, True)
    assert told(LLAMA_8B, "vllm", "serve", "m")[0] == 0


def test_a_file_in_the_models_place_is_told_its_option(file, capsys):
    path = file(LLAMA_8B)
    assert run(["plan", path, "--gpu", "H100"]) == 2
    assert f"needed: --model-config {path}" in capsys.readouterr().err
