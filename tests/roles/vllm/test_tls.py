"""Which files of TLS the role starts a server with, and that it asks none but that server."""

import os
import time
import urllib.error
from pathlib import Path

import pytest

from tests.certificates import certificate, served
from tests.roles.vllm.plugins import load

tls = load("plugins/modules/vllm_tls.py")
http = load("plugins/module_utils/vllm_http.py")
DAY_S = 86400


def test_a_pair_is_in_order(tmp_path: Path) -> None:
    pem, key = map(str, certificate(tmp_path, "vllm"))
    assert tls.of_pair(pem, key, "") == []
    assert tls.of_pair(pem, key, pem) == []
    assert tls.of_time(pem, time.time()) == ([], "")


@pytest.mark.skipif(os.geteuid() != 0, reason="the files have to belong to root")
def test_a_key_of_roots_alone_is_in_order(tmp_path: Path) -> None:
    _, key = certificate(tmp_path, "vllm")
    assert tls.of_file(str(key), "vllm_ssl_keyfile", private=True) == []


def test_an_expired_one_a_future_one_and_one_that_soon_ends(tmp_path: Path) -> None:
    now = time.time()
    (late,), _ = tls.of_time(str(certificate(tmp_path, "late", begins=-9, ends=-2)[0]), now)
    assert "expired on " in late["found"]
    (early,), _ = tls.of_time(str(certificate(tmp_path, "early", begins=3)[0]), now)
    assert "begins on " in early["found"]
    found, warning = tls.of_time(str(certificate(tmp_path, "soon", ends=5)[0]), now)
    assert found == []
    assert "expires in 5 days" in warning


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda one, two: (one[0], two[1]), "the key is another certificate's"),
        (lambda one, _two: (one[1], one[1]), "needed"),
        (lambda one, _two: (one[0], one[0]), "needed"),
    ],
)
def test_what_openssl_would_not_take_is_refused(tmp_path: Path, make: object, says: str) -> None:
    assert callable(make)
    pem, key = make(certificate(tmp_path, "one"), certificate(tmp_path, "two"))
    (row,) = tls.of_pair(str(pem), str(key), "")
    assert says in f"{row['found']} needed: {row['needed']}"


def test_a_key_with_a_passphrase_is_refused_without_asking_for_it(tmp_path: Path) -> None:
    pem, key = certificate(tmp_path, "vllm", passphrase=b"secret")
    (row,) = tls.of_pair(str(pem), str(key), "")
    assert row["needed"].endswith("without a passphrase")


@pytest.mark.skipif(os.geteuid() != 0, reason="the files have to belong to root")
def test_a_missing_file_and_one_that_others_can_read_or_write(tmp_path: Path) -> None:
    _, key = certificate(tmp_path, "vllm")
    (row,) = tls.of_file(str(tmp_path / "no.pem"), "vllm_ssl_certfile", private=False)
    assert "No such file" in row["found"]
    (row,) = tls.of_file(str(tmp_path), "vllm_ssl_certfile", private=False)
    assert row["found"].endswith("is no file")
    key.chmod(0o604)
    (row,) = tls.of_file(str(key), "vllm_ssl_keyfile", private=True)
    assert row["do"] == f"chmod o-r {key}"
    key.chmod(0o620)
    (row,) = tls.of_file(str(key), "vllm_ssl_keyfile", private=True)
    assert "chmod go-w" in row["do"]


def test_readiness_asks_the_server_of_the_file_alone(tmp_path: Path) -> None:
    pem, key = certificate(tmp_path, "vllm")
    with served(pem, key) as (url, keys):
        assert http.ask(f"{url}/v1/models", "right", 30, certificate=str(pem))["data"]
        assert http.status(f"{url}/v1/models", "GET", 30, {}, str(pem)) == 401
    assert keys == ["Bearer right", None]
    with served(*certificate(tmp_path, "stranger")) as (url, keys):
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            http.ask(f"{url}/v1/models", "right", 30, certificate=str(pem))
        assert keys == []
