"""What a release's parser and its front end refuse by the kind of a text, and what its own tests refuse together.

Read from the sources of 0.33.0: the types that `get_kwargs` gives argparse, the readers of single options, the tests in
`validate_parsed_serve_args` and in the validators of configuration classes, and vllm/envs.py.
"""

import shlex

import pytest

from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch


def refusals(words: str, version: str = "0.33.0", env: str = "") -> list[str]:
    return [str(r) for r in parse_launch(shlex.split(f"{env} vllm serve m {words}"), as_version(version)).refusals]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--lora-modules sql", "--lora-modules: found 'sql'; needed: name=path, or a JSON object with"),
        ("--lora-modules a=/a sql", "--lora-modules: found 'a=/a,sql'; needed: name=path, or"),
        ("""--lora-modules '{"name": "a"}'""", "needed: name=path, or a JSON object with the keys name and path"),
        ("""--lora-modules '{"name": "a", "path": "/a", "rank": 8}'""", "needed: no key but name, path, base"),
        ("--middleware nosuch", "--middleware: found 'nosuch'; needed: the name of what a module has, MODULE.NAME"),
        ("--worker-cls Mine", "--worker-cls: found 'Mine'; needed: the name of what a module has"),
        ("--limit-mm-per-prompt image=2", "--limit-mm-per-prompt: found 'image=2'; needed: a JSON object"),
        ("--compilation-config 9", "--compilation-config: found '9'; needed: a JSON object"),
        ("--speculative-config ngram", "needed: a JSON object"),
        ("--allowed-origins '*'", "--allowed-origins: found '*'; needed: JSON"),
        ("--hf-overrides '{a}'", "--hf-overrides: found '{a}'; needed: a JSON object"),
        ("-cc.compile_mm_encoder maybe", "config.compile_mm_encoder: found 'maybe'; needed: true or false"),
        ("-cc.custom_ops none", "--compilation-config.custom_ops: found 'none'; needed: a list"),
        ("--kv-transfer-config.kv_connector 5", "needed: a text"),
        ("--seed 99999999999999999999999", "needed: a whole number from 0 to 4294967295"),
        ("--enable-log-outputs", "--enable-log-outputs: found given; needed: --enable-log-requests beside"),
        ("--enable-per-request-metrics --disable-log-stats", "needed: no --disable-log-stats beside"),
        ("--sse-keep-alive-interval -5", "needed: --sse-keep-alive-interval of 0 or more"),
        ("--grpc-port 70000", "needed: --grpc-port from 0 to 65535"),
        ("--enable-eplb", "--enable-eplb: found given; needed: --enable-expert-parallel beside --enable-eplb"),
        ("--kv-transfer-config.kv_connector A", "needed: kv_role beside kv_connector"),
    ],
)  # fmt: skip
def test_a_text_of_the_wrong_kind_is_refused_with_what_is_needed(words: str, said: str) -> None:
    found = refusals(words)
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "words",
    [
        "--lora-modules sql=/a other=/b",
        """--lora-modules '{"name": "a", "path": "/a", "base_model_name": "b"}' c=/d""",
        "--lora-modules ''",
        "--middleware mine.Guard",
        "--worker-cls auto",
        """--limit-mm-per-prompt '{"image": 2}'""",
        "--limit-mm-per-prompt.image 2",
        "-cc.compile_mm_encoder yes",
        "-cc.custom_ops+ none",
        """--kv-transfer-config '{"kv_connector": "A", "kv_role": "kv_both", "kv_buffer_size": 80m}'""",
        "--kv-transfer-config.kv_connector A --kv-transfer-config.kv_role kv_both",
        "--kv-transfer-config None",
        """--allowed-origins '["*"]'""",
        "--seed 4294967295",
        "--enable-log-outputs --enable-log-requests",
        "--enable-eplb --enable-expert-parallel",
        "--enable-eplb --enable-expert-parallel=$EP --grpc-port $PORT",
        "--max-model-len 8k --seed 0",
    ],
)
def test_what_the_release_takes_is_not_refused(words: str) -> None:
    found = refusals(words)
    assert [said for said in found if "switch" not in said] == []


@pytest.mark.parametrize(
    "words", ["--disable-prefix-caching", "--enable-custom-all-reduce", "--disable_prefix_caching"]
)
def test_a_switch_has_an_opposite_where_the_release_s_parser_makes_one(words: str) -> None:
    """`--disable-x` is `--no-enable-x` from 0.33.0 on."""
    name = {"d": "enable-prefix-caching", "e": "disable-custom-all-reduce"}[words[2]]
    read = parse_launch(["vllm", "serve", "m", words], as_version("0.33.0"))
    assert (read.refusals, read.flags[name]) == ((), False)
    assert parse_launch(["vllm", "serve", "m", words], as_version("0.32.0")).refusals != ()


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("VLLM_PORT=tcp://10.0.0.1:8000", "found 'tcp://10.0.0.1:8000'; needed: a whole number, not an address"),
        ("VLLM_LOGGING_LEVEL=LOUD", "VLLM_LOGGING_LEVEL: found 'LOUD'; needed: one of CRITICAL, FATAL, ERROR"),
        ("VLLM_USE_DEEP_GEMM=true", "VLLM_USE_DEEP_GEMM: found 'true'; needed: a whole number"),
        ("VLLM_SERVER_DEV_MODE=", "VLLM_SERVER_DEV_MODE: found ''; needed: a whole number"),
        ("VLLM_LOG_STATS_INTERVAL=1s", "VLLM_LOG_STATS_INTERVAL: found '1s'; needed: a number"),
        ("VLLM_WORKER_MULTIPROC_METHOD=forkserver", "needed: one of spawn, fork"),
        ("VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS=container,x", "needed: some of container, code_interpreter"),
        ("CUDA_VISIBLE_DEVICES=-1", "CUDA_VISIBLE_DEVICES: found '-1'; needed: the numbers or UUIDs of the GPUs"),
        ("CUDA_VISIBLE_DEVICES=NoDevFiles", "needed: the numbers or UUIDs of the GPUs"),
    ],
)  # fmt: skip
def test_a_variable_that_the_release_cannot_read_is_refused(env: str, said: str) -> None:
    found = refusals("", env=env)
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "env",
    [
        "VLLM_PORT=8000", "VLLM_LOGGING_LEVEL=warning", "VLLM_USE_DEEP_GEMM=0", "VLLM_LOG_STATS_INTERVAL=.5",
        "VLLM_FLOAT32_MATMUL_PRECISION=HIGH", "VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS=", "VLLM_PORT='$PORT'",
        "VLLM_NO_SUCH_THING=x", "CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=GPU-5ebe9a2c-1", "VLLM_HOST_IP=x",
        "CUDA_VISIBLE_DEVICES=MIG-5ebe9a2c",
    ],
)  # fmt: skip
def test_a_variable_that_it_reads_is_not(env: str) -> None:
    assert refusals("", env=env) == []


def test_ranks_need_as_many_cards_as_cuda_shows() -> None:
    env = "CUDA_VISIBLE_DEVICES=0,1"
    assert "needed: 4 GPUs" in refusals("-tp 2 -pp 2", env=env)[0]
    for elsewhere in ("--nnodes 2", "--distributed-executor-backend ray"):
        assert refusals(f"-tp 4 {elsewhere}", env=env) == []
    assert refusals("", "0.33.0+cpu", env="CUDA_VISIBLE_DEVICES=-1") == []


def test_of_a_release_that_was_not_read_nothing_is_said() -> None:
    for words in ("--lora-modules sql", "--middleware nosuch", "--enable-log-outputs"):
        assert refusals(words, "99.0.0") == []
    assert refusals("", "99.0.0", env="VLLM_PORT=tcp://x") == []
