"""What we ship is listed and looked up: the SBOM is the lock, and an advisory is seen, or said not to be looked for."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

REPO = Path(__file__).parents[2]
TOOLS = REPO / "tools"
sys.path.insert(0, str(TOOLS))
import locked  # noqa: E402
import sbom  # noqa: E402


@pytest.mark.parametrize(
    ("name", "version", "lock"), list(sbom.subjects()), ids=lambda value: getattr(value, "name", value)
)
def test_the_sbom_lists_what_the_lock_pins_and_nothing_else(name: str, version: str, lock: Path) -> None:
    text = sbom.document(name, version, lock)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert text == sbom.document(name, version, lock), "the same lock makes the same file"
    told = json.loads(text)
    assert (told["metadata"]["component"]["name"], told["metadata"]["component"]["version"]) == (name, version)
    # Counted without the tool's own reader.
    pinned = sorted(re.findall(r"^([A-Za-z0-9._-]+)===?([^ ;\\]+)", lock.read_text(), re.MULTILINE))
    assert sorted((part["name"], part["version"]) for part in told["components"]) == pinned
    digests = sorted(re.findall(r"--hash=sha256:(\w{64})", lock.read_text()))
    assert sorted(digest["content"] for part in told["components"] for digest in part["hashes"]) == digests


def test_a_lock_without_a_hash_or_a_version_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    for text, said in (("jinja2==3.1.6\n", "without a hash: jinja2"), ("jinja2>=3\n", "lock:1: is no pinned package")):
        lock.write_text(text)
        with pytest.raises(ValueError, match=said):
            locked.pins(lock)


class Osv(BaseHTTPRequestHandler):
    """An advisory database that knows of one package; `answers` is False for a proxy's page."""

    answers = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = asked["package"]["name"], asked["version"]
        affected = [
            {
                "package": {"name": name, "ecosystem": "PyPI"},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.1"}]}],
            }
        ]
        hit = {
            "id": "PYSEC-2026-1",
            "aliases": ["CVE-2026-1"],
            "summary": "bad",
            "details": "bad",
            "affected": affected,
        }
        known = name in {"filelock", "vllm"} or (name, version) == ("jinja2", "2.10")
        text = json.dumps({"vulns": [hit]} if known else {}) if self.answers else "<html>sign in first</html>"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def osv() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Osv)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def audit(database: str, *words: str) -> tuple[int, str]:
    # PyPI is not asked from here: a proxy that is none stands before it.
    env = {"VLLM_DOCTOR_OSV": database, "https_proxy": "http://127.0.0.1:9", "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, TOOLS / "audit.py", *words], env=env, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_an_advisory_is_told_with_its_package_its_fix_and_the_locks_that_pin_it(osv: str) -> None:
    code, told = audit(osv, "--own")
    assert code == 1
    assert re.search(r"advisory: filelock [\d.]+: PYSEC-2026-1; fixed in 99\.1; in roles/vllm_doctor/files/", told)
    assert re.search(r"^\d+ packages of 2 locks checked by osv, 1 advisories$", told, re.MULTILINE)
    assert "not checked" not in told


@pytest.mark.parametrize("answers", [False, None])
def test_without_a_database_it_says_so_and_is_not_clean(
    osv: str, monkeypatch: pytest.MonkeyPatch, answers: bool | None
) -> None:
    monkeypatch.setattr(Osv, "answers", False)
    code, told = audit("http://127.0.0.1:9" if answers is None else osv, "--own")
    assert code == 3
    assert re.match(r"not checked: \d+ packages of 2 locks: no advisory database answers", told)


def test_images_are_made_from_a_digest() -> None:
    """A tag is whatever its owner says today."""
    tracked = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    files = [REPO / name for name in tracked if re.search(r"(Containerfile|Dockerfile)[^/]*$", name)]
    assert TOOLS / "image" / "Containerfile" in files
    for file in files:
        stages: set[str] = set()
        arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", file.read_text(), re.MULTILINE))
        for named, _, stage in re.findall(r"^FROM (\S+)( AS (\S+))?$", file.read_text(), re.MULTILINE):
            base = arguments.get(named.strip("${}"), named)
            assert re.search(r"@sha256:[0-9a-f]{64}$", base) or base.replace("${RELEASE}", "12") in stages
            stages.add(stage)
    for release in ("12", "13"):
        assert f" AS debian-{release}\n" in (TOOLS / "image" / "Containerfile").read_text()


def test_the_doctor_is_installed_from_wheels_by_hash_alone() -> None:
    tasks = yaml.safe_load((REPO / "roles/vllm_doctor/tasks/install.yml").read_text())
    (install,) = [str(task) for task in tasks if "'pip', 'install'" in str(task)]
    for word in ("--require-hashes", "--only-binary=:all:", "--no-deps"):
        assert f"'{word}'" in install
