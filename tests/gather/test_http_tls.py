"""The doctor gives a key over TLS to the server that shows the certificate of its own file, and to nobody else."""

from pathlib import Path

from tests.certificates import certificate, served
from vllm_doctor.gather.http import NoResponse, Pass, Response, get, get_keyed


def test_the_server_of_the_file_is_given_the_key(tmp_path: Path) -> None:
    pem, key = certificate(tmp_path, "vllm")
    with served(pem, key) as (url, keys):
        answer = get_keyed(f"{url}/metrics", Pass("right", str(pem)), deadline_s=30, max_bytes=1 << 20)
    assert isinstance(answer, Response)
    assert answer.status == 200
    assert keys == [None, "Bearer right"], "first as anybody may"


def test_another_server_on_the_port_gets_no_key(tmp_path: Path) -> None:
    pem, _ = certificate(tmp_path, "vllm")
    with served(*certificate(tmp_path, "stranger")) as (url, keys):
        answer = get(f"{url}/v1/models", deadline_s=30, given=Pass("right", str(pem)))
    assert isinstance(answer, NoResponse)
    assert keys == []


def test_where_the_file_cannot_be_read_no_key_goes_out(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n")
    with served(*certificate(tmp_path, "vllm")) as (url, keys):
        for file in (None, str(tmp_path / "missing.pem"), str(broken)):
            answer = get(f"{url}/v1/models", deadline_s=30, given=Pass("right", file))
            assert not isinstance(answer, Response) or answer.status == 401
    assert "Bearer right" not in keys
