"""Secrets go, what tells about memory stays."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vllm_doctor.knowledge
from vllm_doctor.redact.launch import scrub_argv, scrub_env, scrub_values, secret_values
from vllm_doctor.redact.lines import Lines
from vllm_doctor.redact.names import word_list
from vllm_doctor.redact.text import HIDDEN, scrub, without_secrets

RELEASES = Path(vllm_doctor.knowledge.__file__).parent / "releases"

SECRET = "hunter2-Xyz-42-canary"  # noqa: S105 - a canary


@pytest.mark.parametrize(
    "line",
    [
        f"non-default args: {{'api_key': ['{SECRET}'], 'model': 'm'}}",
        f"args: Namespace(host=None, api_key='{SECRET}', max_num_seqs=8)",
        f"VLLM_API_KEY={SECRET}",
        f"vllm serve m --api-key {SECRET} --port 1",
        f"vllm serve m --api-key={SECRET}",
        f'{{"hf_token": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"proxy http://user:{SECRET}@proxy.example:3128/",
        f"HF_TOKEN='{SECRET}' AWS_SECRET_ACCESS_KEY={SECRET}",
        f"password: {SECRET}",
        f"Received request cmpl-1: prompt: 'my {SECRET} text, with commas', params: SamplingParams(n=1)",
        f'prompt: "{SECRET}", prompt_token_ids: [1, 2, 3]',
        f"Proxy-Authorization: Digest username='ops', response='{SECRET}'",
        f"headers: {{'Authorization': 'Token {SECRET}', 'accept': '*/*'}}",
        f"Set-Cookie: sid={SECRET}; HttpOnly",
        f"mysql pwd={SECRET}",
        f'    assert token == "{SECRET}"',
        f'AssertionError: assert "{SECRET}" == settings.api_key',
        f'{{"auths": {{"reg.example": {{"auth": "{SECRET}"}}}}}}',
        f"https://b.s3.amazonaws.com/w?X-Amz-Expires=60&X-Amz-Signature={SECRET}&x=1",
        f"https://a.blob.core.windows.net/c?sv=2020&sig={SECRET}",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{SECRET}\\n-----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_secrets_by_the_name_beside_them(line: str) -> None:
    assert SECRET not in scrub(line)
    assert HIDDEN in scrub(line)


@pytest.mark.parametrize(
    "name",
    [
        "api\u200b_key",
        "api_\u2060key",
        "\uff41\uff50\uff49_\uff4b\uff45\uff59",
        "api\x08_key",
        "\x1b[1mapi_\x1b[0mkey",
        "\U0001d68a\U0001d699\U0001d692_key",
    ],
)
@pytest.mark.parametrize("joint", ["=", ": ", "\uff1d", "\uff1a"])
def test_a_name_is_the_same_with_letters_that_nobody_sees_or_of_another_width(name: str, joint: str) -> None:
    assert scrub(f"INFO {name}{joint}{SECRET}").endswith(HIDDEN)


def test_text_without_a_secret_keeps_its_letters_of_double_width() -> None:
    line = "\u2502 loss\u2026 \u00bd \u2502 KV\uff1a50\uff05\u200b \u2502"
    assert scrub(line) == line


@pytest.mark.parametrize(
    "line",
    [
        f"error: ambiguous option: --api={SECRET} could match --api-key, --api-server-count",
        f"error: argument --api-key: invalid str value: '{SECRET}'",
        f"error: argument --hf-token: expected one word, got '{SECRET}'",
        f"vllm serve m --api-k {SECRET} --port 80",
        f"vllm serve m --hf_t={SECRET}",
    ],
)
def test_what_argparse_takes_or_quotes_of_a_secret_option_is_hidden(line: str) -> None:
    assert SECRET not in scrub(line)


def test_an_abbreviated_option_is_secret_where_no_other_option_begins_so() -> None:
    assert scrub_argv(["vllm", "serve", "--api-k", "swordfish"])[-1] == HIDDEN
    assert scrub_argv(["vllm", "serve", "--hf-config-path", "swordfish"])[-1] == "swordfish"


def test_the_options_beside_the_secret_ones_are_those_of_the_releases() -> None:
    for release in RELEASES.glob("0.3*.json"):
        options = json.loads(release.read_text())["options"]
        begin = [name for name in options if name.startswith(("ap", "hf"))]
        assert set(begin) - word_list("secret_options") <= word_list("options_beside_them"), release.name


@pytest.mark.parametrize(
    "line",
    [
        "pass: swordfish",
        "user=ops pass=swordfish host=db",
        "{'pass': 'Swordfish', 'port': 6379}",
        "license_key: swordfish, seats: 4",
        "--license-key swordfish --port 8000",
        "sentry_dsn: 'swordfish'",
        "webhook=swordfish",
        "prompt: tell me of a swordfish, and why it hurts",
        "system_prompt: <|im_start|>system you are a swordfish",
        '{"log": "prompt: my swordfish is ill", "stream": "stdout"}',
        "transcript: 2 swordfish walk into a bar",
    ],
)
def test_a_plain_word_under_a_weak_name_and_a_sentence_under_a_user_s(line: str) -> None:
    kept = scrub(f"INFO 01-01 00:00:00 [a.py:1] {line}")
    assert "swordfish" not in kept.lower()
    assert HIDDEN in kept
    assert all(name in kept for name in ("stream",) if name in line)


@pytest.mark.parametrize(
    "line",
    [
        "pass: post_grad_pass, pass: fusion",
        "pass: the first of two",
        "warm-up pass: logits, fp32 copy",
        "test pass: ok, last pass: failed",
        "auth: basic, auth=ldap",
        "--auth basic --port 8000",
        "cache_key: decode, sort_key=latency",
        "prompt: field required",
        "prompt: 512 tokens",
        "    assert '</s>' == stop_token",
        "    if 'auto' == key_cache_dtype:",
        "    model_output = self.forward(*args, **kwargs)",
        "Avg prompt throughput: 4.0 tokens/s, Avg generation throughput: 2.0 tokens/s",
    ],
)
def test_work_modes_outcomes_and_code_stay(line: str) -> None:
    assert scrub(f"INFO 01-01 00:00:00 [a.py:1] {line}") == f"INFO 01-01 00:00:00 [a.py:1] {line}"


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "a1B2" * 8, "sk-" + "a1B2" * 6, "ghp_" + "a1B2" * 8, "AKIA" + "ABCD" * 4, "glpat-" + "a1B2" * 5,
        "eyJhbGciOi.eyJzdWIiOi." + "a1B2" * 4, "nvapi-" + "a1B2" * 8, "AIza" + "a1B2" * 9, "dckr_pat_" + "a1B2" * 6,
        "pypi-" + "a1B2" * 8, "ASIA" + "ABCD" * 4, "npm_" + "a1B2" * 9, "dop_v1_" + "a1Z2" * 16,
        base64.b64encode(b"hf_" + b"a1B2" * 8).decode(), base64.b64encode(b"user:" + SECRET.encode()).decode(),
    ],
)  # fmt: skip
def test_secrets_by_their_shape(secret: str) -> None:
    assert secret not in scrub(f"something {secret} something")


@pytest.mark.parametrize(
    "line",
    [
        "max_num_batched_tokens=8192 max_tokens=5 tokens: 33",
        "GPU KV cache size: 524,288 tokens, Maximum concurrency for 512 tokens per request: 1024.00x",
        "tokenizer='/srv/model/tiny', skip_tokenizer_init=False, tokenizer_mode=auto, revision=None",
        "--max-num-batched-tokens 2048 --max-model-len 4096",
        "api_key=None, hf_token=None",
        "eos_token_id=2, pad_token_id=0",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB",
        "user-space driver; basic checks; the key figure",
        "PWD=/opt/vllm/current pwd=~/x",
        "commit 0e9e39f249a16976918f6564b8830bc894c89659 of aws-ofi-nccl",
        "model='/srv/hub/models/Qwen2/Instruct/snapshots/0e9e39f249a16976918f6564b8830bc894c89659', aws",
        "-----BEGIN CERTIFICATE-----",
    ],
)
def test_what_tells_about_memory_stays(line: str) -> None:
    assert scrub(line) == line


def test_command_lines_lose_values_and_keep_names() -> None:
    argv = ["vllm", "serve", "m", "--api-key", SECRET, SECRET, "--hf-token=" + SECRET, "--max-model-len", "4096"]
    kept = scrub_argv(argv)
    assert SECRET not in " ".join(kept)
    assert kept[3:6] == ("--api-key", HIDDEN, HIDDEN)
    assert kept[-2:] == ("--max-model-len", "4096")


KEY = ("MIIEow" + "aB3+" * 14, "CAnary" + "aB3/" * 14, "tailaB3aB3aB3==")


@pytest.mark.parametrize("prefix", ["", "2026-11-20T10:00:00+00:00 host vllm[7]: ", "(Worker pid=7) INFO "])
def test_a_private_key_over_several_lines_goes_and_what_follows_stays(prefix: str) -> None:
    after = ["commit 0e9e39f249a16976918f6564b8830bc894c89659", "/srv/models/meta/Llama3/Instruct0"]
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    lines = ["before", begin, "Proc-Type: 4,ENCRYPTED", *KEY, end, *after]
    following = Lines()
    kept = [following.scrub(prefix + line) for line in lines]
    assert not any(part in line for line in kept for part in KEY)
    assert [line.removeprefix(prefix) for line in kept[-2:]] == after
    assert kept[0] == f"{prefix}before"


def test_within_a_key_a_header_is_taken_whole() -> None:
    following = Lines()
    following.scrub("-----BEGIN PRIVATE KEY-----")
    assert following.scrub(f'Authorization: Digest username="ops", response="{SECRET}"') == f"Authorization: {HIDDEN}"


def test_a_key_that_never_ends_does_not_blind_the_rest_of_the_log() -> None:
    following = Lines()
    following.scrub("-----BEGIN PRIVATE KEY-----")
    kept = [following.scrub("0e9e39f249a16976918f6564b8830bc894c89659") for _ in range(300)]
    assert kept[0] == HIDDEN
    assert kept[-1] != HIDDEN


def test_a_secret_key_of_aws_goes_where_aws_is_spoken_of() -> None:
    key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYCANARY0KEY"
    assert key not in scrub(f"using AKIAABCDABCDABCDABCD {key} for s3")


def test_environments_keep_names_and_only_listed_values() -> None:
    kept = scrub_env({"VLLM_USE_V1": "0", "VLLM_API_KEY": SECRET, "MY_THING": SECRET, "NCCL_DEBUG": "INFO"})
    assert kept == {"VLLM_USE_V1": "0", "VLLM_API_KEY": HIDDEN, "MY_THING": HIDDEN, "NCCL_DEBUG": "INFO"}


def test_a_known_secret_is_found_where_no_name_stands_beside_it() -> None:
    secrets = secret_values(["vllm", "--api-key", SECRET], {"HF_TOKEN": "another-secret", "HOME": "/root"})
    assert secrets == {SECRET, "another-secret"}
    both = secret_values(["vllm", "--api-key", SECRET, "second-key", "--port", "80808080"], {})
    assert both == {SECRET, "second-key"}
    assert scrub_values(f"odd line with {SECRET}!", secrets) == f"odd line with {HIDDEN}!"


@given(st.text(max_size=400))
def test_any_text_can_be_scrubbed_and_twice_is_once(text: str) -> None:
    once = scrub(text)
    assert scrub(once) == once or len(scrub(once)) <= len(once) + len(HIDDEN)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("NAME_USER=user:S3cretPw9x", "S3cretPw9x"),
        ('<input type="password" value="S3cretPw9x">', "S3cretPw9x"),
        ("<input name=p value='S3cretPw9x' type=password>", "S3cretPw9x"),
        ("otp seed JBSWY3DPEHPK3PXP", "JBSWY3DPEHPK3PXP"),
        ("PIN: 493817", "493817"),
        ('key "sk" \u2192 S3cretPw9xQabc', "S3cretPw9xQabc"),
        ("Secret key = <S3cretPw9x>", "S3cretPw9x"),
        ("credentials: user : S3cretPw9x", "S3cretPw9x"),
        ("SetCredentialEncrypted=api: k6iUCUh0RJCQyvL8k8q1Uy", "k6iUCUh0RJCQyvL8k8q1Uy"),
        ("SetCredential=api:hunter", "hunter"),
    ],
)
def test_words_and_tags_around_a_value_tell_what_it_is(text: str, secret: str) -> None:
    assert secret not in scrub(text)
    assert secret not in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "pin_memory=True",
        "spin: 1234567",
        "user: vllm:docker",
        "--user 1000:1000",
        "--seed 1234567890123456",
        "seed everything with abcdefghijklmnopqrst",
        "Set the key <your-token> first",
        "Unexpected key 'lm_head' -> tensor",
        '<input type="text" value="S3cretPw9x">',
    ],
)
def test_words_like_these_around_a_value_hide_nothing(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize(
    "query",
    ["api%5Fkey=@", "access%5ftoken=@&b=1", "%61pi_key=@", "x=1&%74oken=@", "client%2Dsecret=@", "a%2Fapi_key=@"],
)
def test_a_name_that_an_address_writes_with_percents_is_the_same_name(query: str) -> None:
    assert "Zq81kdnvAAQ1" not in scrub(f"GET /x?{query} HTTP/1.1".replace("@", "Zq81kdnvAAQ1"))


def test_percents_that_write_no_secrets_name_stay() -> None:
    assert scrub("GET /x?model%5Fname=Qwen/Qwen3-8B&q=100%25 HTTP/1.1") == (
        "GET /x?model%5Fname=Qwen/Qwen3-8B&q=100%25 HTTP/1.1"
    )


@pytest.mark.parametrize(
    "before",
    [
        ["FOO=@"],
        ["sudo", "env", "A=b", "FOO=@"],
        ["docker", "run", "-e", "FOO=@"],
        ["docker", "run", "--env=FOO=@"],
        ["docker", "run", "--label", "team.a=@"],
    ],
)
def test_a_variable_and_a_label_of_a_command_line_are_told_as_those_of_a_unit_or_pod(before: list[str]) -> None:
    argv = [*(word.replace("@", "plum orchard") for word in before), "VLLM_LOGGING_LEVEL=DEBUG", "vllm", "serve", "m"]
    kept = scrub_argv(argv)
    assert not [word for word in kept if "plum" in word]
    assert [word for word in kept if "FOO=" in word or "team.a=" in word]
    shown = scrub_argv(["VLLM_LOGGING_LEVEL=DEBUG", "vllm", "serve", "m", "--mm-processor-kwargs", "do_resize=False"])
    assert shown[0] == "VLLM_LOGGING_LEVEL=DEBUG"
    assert shown[-1] == "do_resize=False"


@pytest.mark.parametrize("query", ["q=my secret question", "q=frage&model=m", "%71=frage%20zwei", "anything"])
def test_what_a_client_sent_behind_the_path_of_its_request_is_a_users_text(query: str) -> None:
    line = f'(APIServer pid=1) INFO:     10.0.0.1:3 - "GET /v1/models?{query} HTTP/1.1" 200 OK'
    assert scrub(line) == f'(APIServer pid=1) INFO:     10.0.0.1:3 - "GET /v1/models?{HIDDEN} HTTP/1.1" 200 OK'
    assert query not in scrub(json.dumps({"log": line}))


def test_a_function_of_a_native_stack_keeps_its_name_and_random_text_before_such_an_offset_is_hidden() -> None:
    frame = " 2  /usr/local/vgpu/libvgpu.so(cuMemImportFromShareableHandle+0x1d) [0x7f00ccbbccdd]"
    assert scrub(frame) == frame
    random = base64.b64encode(bytes(range(7, 250, 9))).decode().rstrip("=")
    assert random not in scrub(f"libvgpu.so({random}+0x1d)")
