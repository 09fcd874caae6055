"""A person's own words tell that memory ran out, and in which step, where no program's line does."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.told_memory import kill_accounts, memory_accounts
from vllm_doctor.log.told_step import told_step
from vllm_doctor.log.told_text import is_prose

SERVER = "vLLM 0.12.0 on one H100"


@pytest.mark.parametrize(
    ("sentence", "step"),
    [
        ("it just dies while loading: {}", StartupPhase.WEIGHTS),
        ("der Server stirbt beim Laden mit {}", StartupPhase.WEIGHTS),
        ("加载模型时 {}", StartupPhase.WEIGHTS),
        ("the model loads fine, then graph capture gets to 60% and {}", StartupPhase.GRAPHS),
        ("{} in the memory profiling run", StartupPhase.PROFILE),
        ("{} while allocating the KV cache", StartupPhase.KV),
        ("{} during warm-up", StartupPhase.WARMUP),
        ("after 6 hours under load: {}", StartupPhase.SERVING),
        ("nach ein paar Anfragen {}", StartupPhase.SERVING),
        ("{} as soon as a client sends prompt_logprobs", StartupPhase.SERVING),
        ("{} when input is longer than 8k", StartupPhase.SERVING),
        ("创建模型时 {}", StartupPhase.WEIGHTS),
        ("{} while loading. It is a server for many users.", StartupPhase.WEIGHTS),
        ("au bout de 20 minutes de charge : {}", StartupPhase.SERVING),
    ],
)
def test_a_step_is_named_in_a_sentence(sentence: str, step: StartupPhase) -> None:
    assert told_step([sentence.format("CUDA out of memory")], 0) is step


def test_of_two_steps_the_nearer_one_counts() -> None:
    lines = ["it had served for an hour under load.", "Now it dies while loading:", "CUDA out of memory"]
    assert told_step(lines, 2) is StartupPhase.WEIGHTS


def test_torchs_own_words_name_no_step() -> None:
    assert told_step(["128.00 MiB allocated in private pools (e.g., CUDA Graphs)"], 0) is None


@pytest.mark.parametrize(
    "text",
    [
        "it goes out of memory",
        "OOM at start",
        "der GPU-Speicher ist voll",
        "启动就爆显存",
        "не хватает видеопамяти",
        "CUDA: недостаточно памяти",
        "dann reicht beim Laden der GPU-Speicher nicht",
        "peta: sin memoria en la GPU",
        "服务正常跑着,压测时报 torch.OutOfMemoryError",
        "mémoire GPU insuffisante",
        "a memória da GPU é insuficiente",
        "GPU メモリが足りない",
        "torch.OutOfMemoryError in convert_layout, tried to allocate 1.25 GiB",
        "Process 71 has 30.02 GiB memory in use. Process 72 has 41.11 GiB memory in use.",
        "加载模型时就出现OOM\uff0c是啥原因呢\uff1f",
        "加载完成后进行推理时OOM退出",
        "기동하면 OOM이 납니다",
        "OOM while loading in Apple Silicon",
    ],
)
def test_memory_that_ran_out_is_told_in_many_languages(text: str) -> None:
    assert memory_accounts([SERVER, text]) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "if you run out of memory, lower gpu_memory_utilization",
        "How much memory do I need to avoid OOM?",
        "the host ran out of memory and swap is full",
        "JavaScript heap out of memory",
        "my trainer, without vLLM, goes out of memory in backward",
        "it is no longer out of memory, now it answers 404",
        "ERROR: out of shared memory",
    ],
)
def test_advice_questions_and_other_memory_are_no_account_of_it(text: str) -> None:
    assert not memory_accounts([SERVER, text])


@pytest.mark.parametrize(
    "text",
    [
        "the answers are empty, but it is not going out of memory",
        "The OOM while loading is gone since we use FP8.\nNow the stream stops.",
        "das war der GPU-Speicher, der war voll; das haben wir behoben",
        "\u4e0d\u662f\u663e\u5b58\u4e0d\u8db3\u7684\u95ee\u9898",
        "It goes OOM in the test of the alert.\nAll good so far.",
        "Tried to allocate X GiB is what stands there when CUDA goes OOM",
    ],
)
def test_a_text_that_denies_it_in_one_sentence_tells_it_in_no_other(text: str) -> None:
    assert not memory_accounts([SERVER, *text.splitlines()])


@pytest.mark.parametrize(
    "text",
    [
        "Q: why does it go OOM while loading?",
        "we will see an OOM under load",
        "Will two cards go out of memory while loading",
        "two cards go OOM while loading?",
        "we are afraid of an OOM under load",
        "a colleague says it goes OOM while loading",
        "En cas de m\u00e9moire GPU insuffisante, baissez-le",
        "\u4f1a\u4e0d\u4f1a\u663e\u5b58\u4e0d\u8db3",
        "VRAM\u304c\u4e0d\u8db3\u3057\u305f\u3089\u4e0b\u3052\u308b",
        "| 0.95 | goes out of memory while loading | no |",
        "    summary: goes out of memory while loading",
        "Out of memory",
        "ollama goes out of memory while loading",
        "- goes OOM while loading (#17)\n- starts faster",
        "batch 64: 2210 tok/s, batch 128: OOM",
        "fix: catch out of memory",
        "this avoids the OOM at capture that vLLM 0.16 had on an H100",
        "H100, vLLM 0.12, Llama-70B: 8k 41 tok/s, 32k 33 tok/s, 128k OOM",
        "1. load the model 2. send 200 requests 3. note when it goes OOM",
        "OOM can happen while loading",
        "OOM under load was a myth in our case",
        "the panel of vLLM's OOM events shows no data",
        "explain why it hits OOM with many sequences",
        "the Java service throws OutOfMemoryError: Java heap space under load",
        "[SOLVED] OOM while loading",
        "\u663e\u5b58\u4e0d\u8db3\u65f6\uff0c\u8bf7\u51cf\u5c11\u5e76\u53d1",
    ],
)
def test_questions_fears_hearsay_forms_and_other_programs_are_no_account(text: str) -> None:
    assert not memory_accounts([SERVER, *text.splitlines()])


@pytest.mark.parametrize(
    "text",
    [
        "why does it go OOM while loading?",
        "it goes OOM while loading, is there a way around it?",
        "it goes OOM while loading, fine without LoRA",
        "OOM at capture with Qwen3-32B-AWQ on an L40S, works without --enable-lora",
        "it does not start, OOM while loading",
        "ollama works, vllm goes out of memory while loading",
        "- goes OOM while loading",
        "I find that a long prompt will go OOM on the card",
        "it starts well, all good so far, but under load it goes OOM",
        "一开始服务正常\uff0c但是并发上来后显存不足",
    ],
)
def test_what_only_looks_like_one_of_these_is_an_account(text: str) -> None:
    assert memory_accounts([SERVER, text]) == [1]


def test_an_account_that_names_nothing_of_a_setup_is_advice_or_a_plan() -> None:
    assert not memory_accounts(["the engine goes out of memory while loading"])
    for named in ("on an L40S", "with an 8B", "in 0.9.1", "with --max-num-seqs 64", "on 24 GB"):
        assert memory_accounts([f"it goes out of memory while loading, {named}"]) == [0], named


def test_a_launch_given_beside_it_names_the_server() -> None:
    assert memory_accounts(["it goes out of memory while loading"], of_server=True) == [0]
    assert not memory_accounts(["how do I avoid going out of memory"], of_server=True)


@pytest.mark.parametrize(
    ("text", "killed"),
    [
        ("our vLLM pod keeps getting OOMKilled while it reads the shards", True),
        ("the OOM killer ends the engine as soon as it loads", True),
        ("all vLLM workers die with 'Killed'", True),
        ("mój kontener z vLLM zostaje zabity przez OOM killera", True),
        ("docker logs end with 'Killed', it is vLLM 0.8.5", True),
        ("vLLM is up, the redis next to it was OOMKilled", False),
        ('pod vllm-0: container "log-shipper" was OOMKilled', False),
        ("our vLLM pod was not OOMKilled", False),
        ("could the vLLM pod get OOMKilled?", False),
        ("our vLLM pod restarts. Possible reasons: it was OOMKilled, a probe failed", False),
        ("the memory of our vLLM pod grows; the pod is then restarted due to an OOM event", True),
        ("vLLM 运行后打爆服务器内存\uff0c服务停止", True),
        ("vLLM's log ends, and below it one word: Killed.", True),
        ("konteyner: vLLM OOM killer ile öldürülüyor", True),
        ("the grafana agent was killed by the OOM killer, vLLM runs", False),
        ("our vLLM pod is never killed any more, the OOM killer entries are old", False),
        ("der OOM-Killer ist nie aktiv geworden, vLLM startet nur langsam", False),
        ("vLLM's actor died. (1) It was killed by the OOM killer. (2) ray stop was called. (3) It crashed.", False),
    ],
)
def test_a_kill_for_the_hosts_memory_is_told_of_a_server(text: str, killed: bool) -> None:
    assert bool(kill_accounts([text])) is killed


def test_a_kill_that_is_only_told_is_likely() -> None:
    found = judged_text("our vLLM pod keeps getting OOMKilled while it reads the shards").findings[0]
    assert (found.code, found.confidence.value, found.changes[0].name) == ("VD603", "likely", "limits.memory")


def test_what_only_a_person_says_is_never_certain() -> None:
    told = "OOM with --enable-lora --max-loras 16 on an A100, Llama-3-8B. It fails in create_lora_weights."
    found = judged_text(told).findings[0]
    assert (found.code, found.confidence.value, found.changes[0].after) == ("VD114", "likely", 8)


def test_a_programs_words_in_advice_are_no_failure() -> None:
    advice = "Set it lower in case of CUDA out of memory during graph capture."
    assert not judged_text(advice).findings
    quoted = "torch.OutOfMemoryError: CUDA out of memory. Is it gone in case of eager mode?"
    assert [finding.code for finding in judged_text(quoted).findings] == ["VD208"]


def test_words_count_only_where_no_program_wrote() -> None:
    told = "graph capture gets to 60% on my 4090 and it goes out of memory"
    assert [finding.code for finding in judged_text(told).findings] == ["VD130"]
    assert not judged_text(f"INFO 01-01 00:00:00 [api_server.py:1] up\n{told}").findings


def test_a_step_that_words_alone_name_is_never_certain() -> None:
    torch = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 23.52 "
        "GiB of which 60.88 MiB is free. Including non-PyTorch memory, this process has 23.45 GiB memory in use. Of "
        "the allocated memory 22.98 GiB is allocated by PyTorch, and 61.20 MiB is reserved by PyTorch but unallocated."
    )
    (told,) = judged_text(f"it dies while loading the model\n{torch}").findings
    assert (told.code, told.confidence.value) == ("VD110", "likely")
    call = '  File "/opt/vllm/v1/worker/gpu_worker.py", line 213, in load_model\n    self.model_runner.load_model()\n'
    (shown,) = judged_text(f"Traceback (most recent call last):\n{call}{torch}").findings
    assert (shown.code, shown.confidence.value) == ("VD110", "confirmed")


def test_a_kill_for_memory_of_no_device_is_the_hosts() -> None:
    assert kill_accounts(
        ["OOM on my 16 GB Mac with vllm-metal, opt-125m. It prints the memory and then it is killed"]
    ) == [0]
    assert not kill_accounts(["CUDA out of memory on my card with vllm. I then killed it"])


def test_a_call_in_another_sentence_than_the_one_that_speaks_of_memory_is_talk() -> None:
    told = "determine_num_available_blocks counts the target alone. vLLM 0.6.3 then gives CUDA OOM at run time."
    assert judged_text(told).findings[0].code == "VD201"
    assert judged_text("vLLM 0.6.3 gives CUDA OOM in determine_num_available_blocks.").findings[0].code == "VD112"


def test_an_options_name_is_no_word_for_a_step() -> None:
    assert told_step(["vllm: error: unrecognized arguments: --disable-log-requests"], 0) is None


def test_the_step_behind_the_words_for_memory_counts_before_the_one_ahead_of_them() -> None:
    told = "two images per request: CUDA out of memory in the vision encoder, text requests work"
    assert told_step([told], 0) is StartupPhase.PROFILE_ENCODER
    assert told_step(["it loads the weights, then it goes out of memory while profiling"], 0) is StartupPhase.PROFILE


def test_a_step_within_anothers_words_and_a_models_name_are_read_as_they_are_meant() -> None:
    dummies = "CUDA out of memory while warming up the sampler with 256 dummy requests"
    assert told_step([dummies], 0) is StartupPhase.WARMUP
    assert told_step(["it tried loading all of Qwen3-30B on GPU 0: out of memory"], 0) is StartupPhase.WEIGHTS


def test_the_encoder_runs_in_the_profile_run() -> None:
    assert told_step(["the image encoder OOMs during profiling"], 0) is StartupPhase.PROFILE_ENCODER


def test_the_server_of_another_program_is_that_programs() -> None:
    assert not memory_accounts(["the llama.cpp server OOMs on my 3090"])
    assert memory_accounts(["the vllm server OOMs on my 3090"]) == [0]


def test_a_programs_sentence_with_its_figures_is_no_word_for_a_step() -> None:
    said = (
        "ValueError: To serve at least one request with the model's max seq len (65536), 12.5 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (4.1 GiB). Based on the available memory, the estimated "
        "maximum model length is 21488."
    )
    assert "failed_while_serving" not in judged_text(said).facts


@pytest.mark.parametrize(
    "head",
    [
        "Warning  Evicted   5s   kubelet   ",
        "09:15:21.1Z the model of chat failed: ",
        '{"Status":"exited","Running":false,',
    ],
)
def test_columns_times_and_objects_are_no_prose(head: str) -> None:
    assert not is_prose(head)
    assert is_prose("yesterday our little server said ")
