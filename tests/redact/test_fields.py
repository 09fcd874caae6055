"""A secret that no shape betrays goes where its name stands in a field of its own; words of sentences stay."""

import json

import pytest

from vllm_doctor.redact.launch import secret_values
from vllm_doctor.redact.lines import Lines
from vllm_doctor.redact.text import HIDDEN, scrub

WEAK = "Winter-Rack-1987"
HEX = "5e1c" * 16


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "HF_TOKEN", "value": "@"}',
        '{\\"name\\": \\"HF_TOKEN\\", \\"value\\": \\"@\\"}',
        "- name: HF_TOKEN value: @",
        "+    - name: HF_TOKEN\\n+      value: @\\n",
        '--additional-config={"name":"HF_TOKEN","value":"@"}',
        "EnvVar{Name:HF_TOKEN,Value:@,ValueFrom:nil,}",
        "{'Key': 'db-password', 'Value': '@'}",
        "<password>@</password>",
        '<Password kind="clear">@</Password>',
        '<add key="ApiKey" value="@"/>',
        '<property name="db.password" value="@" />',
        "machine models.example login ops password @",
        "machine models.example login ops password swordfish",
        "password @",
        "passwd @ for user ops",
        "setenv HF_TOKEN @",
        "HF_TOKEN @",
        "printenv HF_TOKEN -> @",
        "HF_TOKEN \u2192 @",
        "aws configure set aws_secret_access_key @",
        "secret minioadmin:@",
    ],
)
def test_a_name_and_its_value_in_two_fields(line: str) -> None:
    kept = scrub(f"INFO 01-01 00:00:00 [a.py:1] {line.replace('@', WEAK)}")
    assert HIDDEN in kept
    assert WEAK not in kept
    assert "swordfish" not in kept


def test_a_value_on_the_line_behind_its_name() -> None:
    following = Lines()
    kept = [following.scrub(text) for text in ("  - name: HF_TOKEN", f"    value: {WEAK}", f"    value: {WEAK}")]
    assert kept == ["  - name: HF_TOKEN", f"    value: {HIDDEN}", f"    value: {WEAK}"]
    assert following.scrub("  - name: NCCL_DEBUG") + following.scrub("    value: INFO-2") == (
        "  - name: NCCL_DEBUG    value: INFO-2"
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("    password: |", "      @", "      @", "    user: ops"),
        ("ERROR 01-01 00:00:00 [a.py:1] hf: api_key: >-", "  @", "", "  @", "next"),
        ("api_key", "  Input should be a valid list [type=list_type, input_value='@', input_type=str]"),
        (
            "(APIServer pid=7) hf_token",
            "(APIServer pid=7)   Extra inputs [type=extra, input_value='@', input_type=str]",
        ),
    ],
)
def test_a_text_of_several_lines_behind_the_name_of_a_secret(lines: tuple[str, ...]) -> None:
    following = Lines()
    kept = [following.scrub(line.replace("@", WEAK)) for line in lines]
    assert WEAK not in "\n".join(kept)
    assert kept[-1] == lines[-1].replace("@", HIDDEN)


@pytest.mark.parametrize(
    "lines",
    [("description: |", f"  {WEAK}"), ("max_tokens", f"  x [input_value='{WEAK}']"), ("max tokens: |", f"  {WEAK}")],
)
def test_a_text_of_several_lines_behind_another_name_stays(lines: tuple[str, ...]) -> None:
    following = Lines()
    assert [following.scrub(line) for line in lines] == list(lines)


@pytest.mark.parametrize(
    "line",
    [
        "DBPASS=@", "PW=@", "pw: @", "passcode=@", "db_pw = '@'", '--model-loader-extra-config={"pw":"@"}', "sig=@",
        f"X-Amz-Signature={HEX}", f"X-Amz-Credential={WEAK}/20260101/eu-west-1/s3/aws4_request",
        f"RuntimeError: upstream said session={HEX}; csrftoken=@", f"RuntimeError: Cookie: session={HEX}; theme=@",
        "webhook_url=https://hooks.example.org/services/@", "SLACK_WEBHOOK_URL=https://chat.example.org/x/@",
        "posting to https://chat.example.org/hooks/@ failed", "//ops:@@nas.example/models",
        "ops:@@db.example:5432/models",
        "api_key=SecretStr('@')", "SecretStr('@')",
    ],
)  # fmt: skip
def test_short_names_and_addresses(line: str) -> None:
    kept = scrub(f"INFO 01-01 00:00:00 [a.py:1] {line.replace('@', WEAK, 1)}")
    assert HIDDEN in kept
    assert WEAK not in kept
    assert HEX not in kept


@pytest.mark.parametrize(
    "line",
    [
        "contraseña: @", "la contraseña es @", "contrasena=@", "clave: @", "mot de passe : @", "mdp=@", "Passwort: @",
        "Kennwort = @", "senha: @", "palavra-passe: @", "parola d'ordine: @", "密码: @", "用户密码=@", "密码是@",
        "密码\uff1a@", "密碼為@", "パスワード\uff1a@", "パスワードは@です", "비밀번호: @", "비밀번호는 @",
        "пароль: @", "пароль @",
    ],
)  # fmt: skip
def test_in_the_languages_of_those_who_run_it(line: str) -> None:
    kept = scrub(f"INFO 01-01 00:00:00 [a.py:1] {line.replace('@', WEAK)}")
    assert HIDDEN in kept
    assert WEAK not in kept


@pytest.mark.parametrize(
    "line",
    [
        "echo @ | docker login -u ops --password-stdin reg.example",
        "printf '%s' @ | podman login --password-stdin",
        "echo @ | sudo -S reboot",
        "openssl enc -k @ -in a",
        "openssl rsa -passin pass:@ -in key",
        "htpasswd -b /etc/nginx/users ops @",
        "htpasswd -nb ops @",
        "ipmitool -I lanplus -U admin -P @ chassis status",
        "unzip -P @ models.zip",
    ],
)
def test_what_programs_take_by_place(line: str) -> None:
    kept = scrub(f"+ {line.replace('@', WEAK)}")
    assert kept == f"+ {line.replace('@', HIDDEN)}"


@pytest.mark.parametrize(
    "line",
    [
        "passphrase is: {}",
        "pass phrase: {}",
        "client_secret: !vault {}",
        "HF_TOKEN is set to {}",
        "HF_TOKEN ({})",
        "the api key ({}) was rejected",
        "pwd was \u201c{}\u201d",
        "token%20=%20{}",
        "login bob/{}@orcl",
        "jdbc:oracle:thin:bob/{}@//db:1521/x",
    ],
)
def test_what_a_sentence_or_a_login_tells_is_hidden(line: str) -> None:
    assert "Zq7Canary11Xw9" not in scrub(f"ValueError: {line.format('Zq7Canary11Xw9')}")


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "NCCL_DEBUG", "value": "INFO-2"}',
        "- name: HF_TOKEN value: ${HF_TOKEN}",
        '{"name": "max_tokens", "value": "512"}',
        '{"key": "eos_token_id", "value": "128-009"}',
        "<tokenizer>meta-llama/Llama-3.1-8B</tokenizer>",
        "HF_TOKEN HUGGING_FACE_HUB_TOKEN VLLM_API_KEY",
        "set HF_TOKEN (see https://huggingface.co/settings/tokens)",
        "the password policy. Password protected, password expiration: password change.",
        "HF_TOKEN is not set, and api_key has no value",
        "token count 1.5k tokens, max_tokens 512, num_batched_tokens -> 8192",
        "block_key -> 0x7f01, cache_key: decode-3",
        "    sig = inspect.signature(f)",
        "    async with session.get(url, session=session) as response:",
        "def f(session: ClientSession, sig: FunctionSig) -> None:",
        'type=1326 comm="vllm" sig=31 arch=c000003e',
        "image nvidia/cuda:12.8.1-base@sha256:0e9e39f249a16976918f6564b8830bc894c89659",
        "API key is set to None, secret key (optional), token (bos), KV_CACHE_KEY (int)",
        "KV cache: kv_cache_dtype=fp8_e4m3, key_cache (2, 16), pw: 300 W, bypass=layer-2",
        "vllm-main: started vllm@main.service",
        "openssl 3.0.15 -k",
        "OpenSSL 3.0.15 3 Sep 2024",
    ],
)  # fmt: skip
def test_what_only_looks_like_it_stays(line: str) -> None:
    assert scrub(f"INFO 01-01 00:00:00 [a.py:1] {line}") == f"INFO 01-01 00:00:00 [a.py:1] {line}"


def test_a_secret_inside_of_a_value_is_known_wherever_it_stands() -> None:
    argv = ["vllm", "serve", "m", "--otlp-traces-endpoint", "http://ops:Otlp-Pw-77@otel:4317"]
    argv += ["--hf-overrides", json.dumps({"auth": "Over-Ride-78", "rope_scaling": {"factor": 2}}), "--port", "8000"]
    env = {
        "http_proxy": "http://ops:Proxy%2DPw-75@proxy:3128",
        "LMCACHE_CONF": "lm://a:Cache-Pw-76@kv:1",
        "VLLM_RPC": "lm://vllm:memory@kv:1",
    }
    found = secret_values(argv, env)
    assert {"Otlp-Pw-77", "Over-Ride-78", "Proxy%2DPw-75", "Proxy-Pw-75", "Cache-Pw-76"} <= found
    assert not found & {"memory", "vllm", "8000", "rope_scaling", "factor"}, "words of every log stay in it"
