"""No text costs more than its bytes: whoever can write into a log could otherwise stop the doctor with one line."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_doctor.redact.lines import Lines
from vllm_doctor.redact.text import scrub

# What each step looks for, begun and never finished, or finished at once and begun again.
BEGINNINGS = (
    "token-", "api_key", "a-", "a.", "1.", "a:b@", "://", "http://a@", "http://a/b.png", "token=", "token='",
    'token="x', "token=[", "token=(", "token={'", "input=(", "messages=[{'a':", '\\"token\\":', '\\"', "\\",
    "(b'x-api-key',", "['--api-key', '", "--api-key ", "--api-key x", "--token=a ", "password is ", "Bearer ",
    "Bearer aaaaaaaa ", "eyJ", "eyJaaaaa.", "eyJ-", "SG.", "hf_", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ",
    "AKIA", "8Q~", "aaa8Q~", "wandb ", "{{", "{%", "}} {{ content", "curl -u ", "-u a:", "-p ", "A1b2", "a", "/",
    "=", "'", '"', "&#39;", "&amp;", "?sig=", "token%3D", "a/", "@", " ", "\t", ",", ";", ")", "token=a)",
    "token=a,b", "Cookie: ", '"Cookie: ', "api key: ", "token=f(", "${", "token=<", "input_value=", "text=",
    "text:", "some_key=", "url='http://a", "url='http://github.com/ ", "--", "_", "é", ";base64,", "aB3/aB3=", "\n",
    "prompt: ", "prompt: 1 ", "prompt: a b ", "prompt:", "pass: ab ", "pass=abcd ", "pass: abcd,", "--some-key abcd ",
    "name: a_key ", "name: a_key, value: ", "<password>", "<password a", "HF_TOKEN a1 ", "password ", "a_key -> ",
    "senha ", "mot de passe : ", "\u5bc6\u7801", "echo a | ", "htpasswd -b ", "openssl -k ", "SecretStr('", "a:b1c2d@",
    "//a:b1c2d3@", "hooks.a/", "http://a/hooks/", "machine a login b password ", "sig=", "DBPASS=",
    "name: a_key value: [", "name: HF_TOKEN value: [", "name: HF_TOKEN value: 'a", "key=ab val=[", "password [",
    "password 'a", "secret 'a", "secret a:bbbbbb1[", "SecretStr('a", "htpasswd -b a b [", "htpasswd -b a b 'a",
    "openssl -k [a", "senha: [",
)  # fmt: skip
# So that no step is skipped because the text has nothing for it.
EVERYTHING = "token content wandb curl http:// ;base64, PRIVATE KEY hf_ SG. eyJ 8Q~ @ {{ "
SMALL, FACTOR = 2048, 16


def seconds(text: str) -> float:
    """Of the processor, so that other work on the machine does not count."""
    began = time.process_time()
    scrub(text)
    return time.process_time() - began


def per_byte_grows(unit: str, small: int, factor: int) -> bool:
    """Is a text that is `factor` times as long much more than `factor` times as much work, whenever it is tried?"""
    short, long = (EVERYTHING + unit * (size // len(unit)) for size in (small, small * factor))
    floor = 0.0005  # below it the clock tells nothing
    # A busy machine slows this processor time too, now and then; work that grows faster than its text does so always.
    return all(seconds(long) > 4 * factor * max(floor, min(seconds(short) for _ in range(2))) for _ in range(6))


@pytest.mark.parametrize("unit", BEGINNINGS)
def test_the_time_grows_with_the_length_alone(unit: str) -> None:
    assert not per_byte_grows(unit, SMALL, FACTOR)


@pytest.mark.parametrize("unit", ["token-", "{{ token='", "a."])
def test_a_line_of_a_mebibyte_costs_seconds_at_most(unit: str) -> None:
    assert seconds(EVERYTHING + unit * ((1 << 20) // len(unit))) < 10


@settings(max_examples=30)
@given(st.lists(st.sampled_from(BEGINNINGS), min_size=1, max_size=5))
def test_no_mixture_of_them_does_better(units: list[str]) -> None:
    unit = "".join(units)
    assert not per_byte_grows(unit, 512, 8) or not per_byte_grows(unit, SMALL, FACTOR)


def test_the_lines_of_a_key_that_never_ends_cost_no_more() -> None:
    following = Lines()
    began = time.process_time()
    for _ in range(200):
        following.scrub("-----BEGIN PRIVATE KEY----- " + "aB3+" * 1000)
    assert time.process_time() - began < 10
