"""A finding's way to people: the doctor's text file, a real Prometheus with the exported rules, a real Alertmanager
with the receivers that the role renders, at the end a mail server and a web server that keep what they were sent."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from ansible.errors import AnsibleFilterError

from tests import ports
from tests.debian import command
from tests.monitor.test_faults import Prometheus, Vllm, fast_rules
from tests.render.sample import diagnosis, finding
from vllm_doctor.render import prometheus as prometheus_text

REPO = Path(__file__).parents[2]
PASSWORD = "mail-password"  # noqa: S105
TITLE = "The KV cache of <!channel> & others is too small"
DEADLINE_S = 40.0
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")


class Inbox:
    """A web server that keeps what it is sent, by path."""

    def __init__(self) -> None:
        self.got: dict[str, list[Any]] = {}
        outer = self

        class Page(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.setdefault(self.path, []).append(json.loads(body))
                self.send_response(202 if "enqueue" in self.path else 200)  # what PagerDuty says, and others
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()


class Letters:
    """Keeps mail."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802
        self.got.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 kept"


class Page(Vllm):
    """The doctor's text file with one finding, until it is mended."""

    mended = False

    def page(self) -> str:
        found = [] if self.mended else [finding(title=TITLE)]
        return prometheus_text.text([diagnosis(*found)], time.time(), codes=["VD131"])


class Sent(NamedTuple):
    """What reached each of them, first that it fires and then that it is over."""

    web: dict[str, list[Any]]
    mail: list[Any]
    configuration: str


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    folder = tmp_path_factory.mktemp("receivers")
    inbox, letters, page = Inbox(), Letters(), Page("gpu01")
    mail = Controller(
        letters,
        hostname="127.0.0.1",
        port=(smtp := ports.unused()),
        auth_required=True,
        auth_require_tls=False,
        authenticator=_login,
        auth_exclude_mechanism=["LOGIN"],  # aiosmtpd asks for "User Name", other servers for "Username:"
    )
    mail.start()
    receivers: list[dict[str, Any]] = [
        {"name": "chat", "type": "slack", "secret": f"{inbox.url}/slack-token", "channel": "#gpu"},
        {"name": "duty", "type": "pagerduty", "secret": "routing-key", "url": f"{inbox.url}/v2/enqueue"},
        {"name": "own", "type": "webhook", "url": f"{inbox.url}/own"},
        {"name": "gone", "type": "webhook", "url": "http://127.0.0.1:9/refuses"},
        {
            "name": "mail", "type": "email", "to": "ops@example.net", "from": "gpu@example.net",
            "smarthost": f"127.0.0.1:{smtp}", "username": "gpu", "secret": PASSWORD, "starttls": False,
        },
    ]  # fmt: skip
    with alertmanager(folder, receivers) as at:
        job = {
            "job_name": "node",
            "static_configs": [{"targets": [f"127.0.0.1:{page.port}"], "labels": {"host": "gpu01"}}],
        }
        # No vLLM is scraped here, which is an alert too.
        only = fast_rules(without=["VllmNotWatched"])
        prometheus = Prometheus(folder, [job], only, alertmanager=at)
        try:
            _until(lambda: len(inbox.got) == 3 and letters.got)
            page.mended = True
            _until(lambda: all(len(got) > 1 for got in inbox.got.values()) and len(letters.got) > 1)
            yield Sent(inbox.got, letters.got, (folder / "alertmanager.yml").read_text())
        finally:
            prometheus.stop()
            mail.stop()
            for server in (page.http, inbox.http):
                server.shutdown()
                server.server_close()


def _login(_server: object, _session: object, _envelope: object, _how: str, told: object) -> AuthResult:
    return AuthResult(success=told == LoginPassword(b"gpu", PASSWORD.encode()))


def _until(told: Any) -> None:
    end = time.monotonic() + DEADLINE_S
    while not told():
        assert time.monotonic() < end
        time.sleep(0.1)


@contextlib.contextmanager
def alertmanager(folder: Path, receivers: list[dict[str, Any]]) -> Iterator[str]:
    """Debian's, with the role's own configuration; only its waits are short. Gives its address."""
    (folder / "secrets").mkdir()
    for one in receivers:
        if "secret" in one:
            (folder / "secrets" / one["name"]).write_text(one["secret"])
    made = _filters().alertmanager(receivers, str(folder / "secrets"))
    made["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(made))
    at = f"127.0.0.1:{ports.unused()}"
    words = [f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder / 'alerts'}"]
    words += ["--cluster.listen-address=", f"--web.listen-address={at}"]
    with (folder / "alertmanager.log").open("w") as log:
        process = subprocess.Popen([*command("prometheus-alertmanager"), *words], stderr=log, stdout=log)
    try:
        yield at
    finally:
        process.terminate()
        process.wait(timeout=30)


def _filters() -> Any:
    path = REPO / "plugins/filter/monitoring.py"
    spec = importlib.util.spec_from_file_location("monitoring_filters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHANGE = "--max-model-len"


def test_a_mail_says_code_title_and_first_change_and_that_it_is_over(sent: Sent) -> None:
    first, last = sent.mail[0], sent.mail[-1]
    assert first["Subject"].startswith("FIRING gpu01")
    assert f"VD131 {TITLE}" in first["Subject"]
    text = first.get_body(("plain",)).get_content()
    assert CHANGE in text
    assert "vllm-doctor explain VD131" in text
    assert last["Subject"].startswith("RESOLVED gpu01")
    assert (first["To"], first["From"]) == ("ops@example.net", "gpu@example.net")


def test_a_chat_says_it_without_calling_everybody(sent: Sent) -> None:
    first, last = sent.web["/slack-token"][0], sent.web["/slack-token"][-1]
    told = json.dumps(first)
    assert first["channel"] == "#gpu"
    assert "VD131 The KV cache of &lt;!channel&gt; &amp; others is too small" in told
    assert "<!channel>" not in told
    assert CHANGE in told
    assert last["attachments"][0]["title"].startswith("RESOLVED gpu01")


def test_an_incident_is_opened_and_resolved_under_one_key(sent: Sent) -> None:
    first, last = sent.web["/v2/enqueue"][0], sent.web["/v2/enqueue"][-1]
    assert (first["routing_key"], first["event_action"]) == ("routing-key", "trigger")
    assert first["payload"]["summary"].startswith("FIRING gpu01")
    assert f"VD131 {TITLE}" in first["payload"]["summary"]
    assert first["payload"]["severity"] == "critical"
    assert CHANGE in first["payload"]["custom_details"]["alerts"]
    assert (last["event_action"], last["dedup_key"]) == ("resolve", first["dedup_key"])


def test_a_webhook_has_it_whole(sent: Sent) -> None:
    first, last = sent.web["/own"][0], sent.web["/own"][-1]
    (alert,) = first["alerts"]
    assert (alert["labels"]["code"], alert["labels"]["title"]) == ("VD131", TITLE)
    assert CHANGE in alert["annotations"]["do"]
    assert (first["status"], last["status"]) == ("firing", "resolved")


def test_no_secret_stands_in_the_configuration(sent: Sent) -> None:
    assert not [word for word in ("slack-token", "routing-key", PASSWORD) if word in sent.configuration]


@pytest.mark.parametrize(
    ("receiver", "told"),
    [
        (
            {"type": "webhook", "url": "alerts.example.net/s3cret"},
            "url is not one; needed: an address such as https://",
        ),
        ({"type": "webhook", "url": "https:///s3cret"}, "url is not one"),
        ({"type": "webhook", "url": "https://h/s3cret more"}, "url is not one"),
        ({"type": "pagerduty", "secret": "k", "url": "s3cret"}, "url is not one"),
        (
            {"type": "email", "to": "a@b", "from": "c@d", "smarthost": "mail.example.net"},
            "smarthost is not one; needed: HOST:PORT",
        ),
    ],
)
def test_an_address_that_is_none_is_refused_before_alertmanager_reads_it_and_is_not_told(
    receiver: dict[str, Any], told: str
) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        _filters().alertmanager([{"name": "own", **receiver}], "/etc/secrets")
    assert told in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("host", ["mail.example.net:587", "[2001:db8::7]:25", "127.0.0.1:9"])
def test_a_mail_server_is_a_host_and_a_port(host: str) -> None:
    mail = {"name": "own", "type": "email", "to": "a@b", "from": "c@d", "smarthost": host}
    assert _filters().alertmanager([mail], "/etc/secrets")["receivers"][1]["email_configs"][0]["smarthost"] == host


def test_one_word_is_a_list_of_one_as_ansible_reads_it() -> None:
    made = _filters().alertmanager([{"name": "own", "type": "webhook", "url": "http://h/", "severities": "info"}], "/s")
    assert made["route"]["routes"][0]["matchers"] == ['severity=~"info"']
    whole, less = (_filters().rules_text(["0.32.0"], {}, without) for without in ([], "VllmDown, VllmErrors"))
    assert ("alert: VllmDown\n" in whole, "alert: VllmDown\n" in less, "alert: VllmErrors\n" in less) == (
        True,
        False,
        False,
    )
