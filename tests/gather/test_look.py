"""A look at a server that is another program, hangs, drips, or wants a key: a clear word, and never a guess."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vllm_doctor.gather import journal, look, nvml, probe, procfs, systemd
from vllm_doctor.gather.http import NO_PASS, NoResponse, Pass, Response
from vllm_doctor.gather.systemd import Found
from vllm_doctor.operate.announce import announced
from vllm_doctor.operate.tune.unit import flag_number
from vllm_doctor.records.host import Gpu, Sample, Scrape, Unit
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown
from vllm_doctor.records.sample import Counters, EngineUse

VLLM = 'vllm:num_requests_running{engine="0"} 3.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'


class Server(BaseHTTPRequestHandler):
    page: bytes = b""
    status = 200
    drip = False

    def do_GET(self) -> None:
        if self.path == "/health":
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        for at in range(len(self.page) if self.drip else 0):
            self.wfile.write(self.page[at : at + 1])
            time.sleep(0.2)
        if not self.drip:
            self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[object]:
    made = []

    def start(page: str, **more: object) -> str:
        handler = type("Handler", (Server,), {"page": page.encode(), **more})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in made:
        server.shutdown()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_HTTP_S", 1.0)


def test_a_server_is_read_by_its_address_alone(serve) -> None:
    told = look.look_at(serve(VLLM))
    assert (told.health, told.why) == (200, "")
    assert told.counters is not None
    assert (told.counters.running, told.counters.kv, told.counters.generated) == (3, 0.25, None)


@pytest.mark.parametrize(
    ("page", "more", "why"),
    [
        ("node_load1 1\n", {}, "no vLLM metric in it: another program answers here"),
        ("<html>hello</html>\n", {}, "not in the Prometheus format"),
        ("", {}, "an empty answer"),
        (VLLM.replace("3.0", "NaN"), {}, "which is impossible"),
        (VLLM, {"status": 401}, "it refuses requests from here"),
        (VLLM, {"status": 500}, "answers 500"),
        (VLLM, {"drip": True}, "still sending"),
    ],
)
def test_what_cannot_be_read_is_said(serve, page: str, more: dict[str, object], why: str) -> None:
    told = look.look_at(serve(page, **more))
    assert told.counters is None
    assert why in told.why


def test_where_nobody_listens_health_is_zero_and_not_silence() -> None:
    told = look.look_at("http://127.0.0.1:9", Pass())
    assert (told.health, told.counters) == (0, None)


def test_a_server_on_a_unix_socket_is_said_not_to_be_asked() -> None:
    unit = Unit("vllm@main.service", "loaded", "active", "running", "success")
    found = Found(unit, ("vllm", "serve", "m", "--uds", "/run/m.sock"), {}, "", None)
    seen = look._look(found, Unknown("no NVML", ""), (0.0, 0.0, 0.0), "", None)
    assert (seen.state, seen.health, seen.silent_s) == ("not asked", None, None)
    assert seen.why == "it listens on a Unix socket (--uds), which the guard does not ask: only its memory is watched"


def test_a_unit_whose_command_line_cannot_be_read_has_no_key_there() -> None:
    unit = Unit("vllm.service", "loaded", "active", "running", "success")
    assert look.key_of(Found(unit, (), {"VLLM_API_KEY": "k"}, "", None)) == "k"
    assert flag_number((), "max-num-seqs") is None


def test_who_changes_the_host_is_believed_for_some_hours(tmp_path: Path) -> None:
    file = tmp_path / "changing"
    assert look.changing(time.time(), file) is None
    file.write_text("site.yml\n")
    said = look.changing(time.time(), file)
    assert said == look.HostChange("site.yml")
    assert said.of("vllm@main.service")
    assert look.changing(time.time() + 5 * 3600, file) is None


def test_who_changes_one_unit_holds_no_other_up(tmp_path: Path) -> None:
    file = tmp_path / "changing"
    with announced("vllm-doctor recover", "vllm@main.service", file):
        said = look.changing(time.time(), file)
        assert said is not None
        assert (said.of("vllm@main.service"), said.of("vllm@two.service")) == (True, False)


def test_a_word_of_who_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    file, unit = tmp_path / "changing", "vllm@main.service"
    with announced("vllm-doctor recover", unit, file):
        with announced("another", unit, file):
            assert look.changing(time.time(), file) == look.HostChange("vllm-doctor recover", unit)
        assert file.exists()
    assert not file.exists()
    file.write_text("vllm-doctor recover\n4194305 1\n")
    assert look.changing(time.time(), file) is None
    with announced("the second try", unit, file):
        assert look.changing(time.time(), file) == look.HostChange("the second try", unit)
    assert not file.exists()


def _scrape(*told: tuple[str, float], **labels: str) -> Scrape:
    return Scrape(0.0, tuple(Sample(name, labels, value) for name, value in told))


FIRST, TOKEN, OLD = (
    f"vllm:{name}_seconds" for name in ("time_to_first_token", "inter_token_latency", "time_per_output_token")
)


@pytest.mark.parametrize(
    ("told", "field", "read"),
    [
        ((("vllm:num_requests_running", 3.0),), "running", 3.0),
        ((("vllm:num_requests_waiting", 4.0),), "waiting", 4.0),
        ((("vllm:kv_cache_usage_perc", 0.5),), "kv", 0.5),
        ((("vllm:prompt_tokens_total", 5.0),), "prompt", 5.0),
        ((("vllm:generation_tokens_total", 6.0),), "generated", 6.0),
        ((("vllm:request_success_total", 7.0), ("vllm:request_success_total", 1.0)), "finished", 8.0),
        ((("vllm:num_preemptions_total", 9.0),), "preemptions", 9.0),
        ((("process_start_time_seconds", 1.7e9),), "server", 1.7e9),
        (((f"{FIRST}_sum", 2.5), (f"{FIRST}_count", 10.0)), "first", (2.5, 10.0)),
        (((f"{FIRST}_sum", 2.5),), "first", None),
        (((f"{FIRST}_count", 2.5),), "first", None),
        (((f"{OLD}_sum", 1.0), (f"{OLD}_count", 2.0)), "between", (1.0, 2.0)),
        (
            ((f"{OLD}_sum", 1.0), (f"{OLD}_count", 2.0), (f"{TOKEN}_sum", 3.0), (f"{TOKEN}_count", 4.0)),
            "between",
            (3.0, 4.0),
        ),
    ],
)
def test_each_metric_has_its_own_field(told: tuple[tuple[str, float], ...], field: str, read: object) -> None:
    counters = look._counters(_scrape(*told))
    assert getattr(counters, field) == read
    assert counters == (Counters(**{field: read}) if read is not None else Counters())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "value", "asleep"),
    [("weights_offloaded", 1.0, True), ("discard_all", 1.0, True), ("discard_all", 0.0, False), ("awake", 1.0, False)],
)
def test_a_server_sleeps_where_its_weights_are_away(state: str, value: float, *, asleep: bool) -> None:
    assert look._counters(_scrape(("vllm:engine_sleep_state", value), sleep_state=state)).asleep is asleep
    assert not look._counters(_scrape(("vllm:other", value), sleep_state=state)).asleep


@pytest.mark.parametrize(("count", "several"), [(1, False), (2, True), (256, True), (257, False)])
def test_engines_are_told_one_by_one_where_there_are_several(count: int, *, several: bool) -> None:
    names = {
        "vllm:num_requests_running": 1.0,
        "vllm:prompt_tokens_total": 2.0,
        "vllm:generation_tokens_total": 3.0,
        "vllm:request_success_total": 4.0,
        "vllm:kv_cache_usage_perc": 0.5,
    }
    told = names if count == 2 else {"vllm:num_requests_running": 1.0}
    found = look._counters(
        Scrape(0.0, tuple(Sample(name, {"engine": f"{n}"}, v + n) for n in range(count) for name, v in told.items()))
    )
    assert len(found.engines) == (count if several else 0)
    if count == 2:
        assert found.engines[1] == EngineUse("1", running=2.0, prompt=3.0, generated=4.0, finished=5.0, kv=1.5)


def _unit(*words: str, state: str = "active", env: dict[str, str] | None = None, name: str = "vllm.service") -> Found:
    unit = Unit(name, "loaded", state, "running", "success", invocation_id="ab12")
    return Found(unit, ("vllm", "serve", "m", *words), env or {}, "", None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the server answers, by the door; and `given`, what each was asked with."""
    doors: dict[str, object] = {
        "health": Response(200, b"", "", ""), "load": _scrape(("vllm:num_requests_running", 3.0)), "names": (),
        "completes": (True, ""), "silent": 12.0, "given": [],
    }  # fmt: skip

    def door(name: str) -> object:
        return lambda *words, **more: doors["given"].append((name, *words, more)) or doors[name]  # type: ignore[attr-defined]

    for module, function, name in (
        (look, "get_keyed", "health"), (look, "scrape_few", "load"), (probe, "served", "names"),
        (probe, "completion", "completes"), (journal, "silent_s", "silent"),
    ):  # fmt: skip
        monkeypatch.setattr(module, function, door(name))
    return doors


NOWHERE, MUTE = NoResponse("refused", connected=False), NoResponse("silent", connected=True)


@pytest.mark.parametrize(
    ("state", "health", "told", "doors"),
    [
        ("active", Response(200, b"", "", ""), (200, 3.0, None), ["health", "load"]),
        ("active", Response(503, b"", "", ""), (503, 3.0, None), ["health", "load"]),
        ("active", MUTE, (None, 3.0, None), ["health", "load"]),
        ("active", NOWHERE, (0, None, 12.0), ["health", "silent"]),
        ("activating", Response(200, b"", "", ""), (0, None, None), []),
        ("failed", Response(200, b"", "", ""), (0, None, None), []),
    ],
)
def test_a_server_is_asked_for_its_load_unless_nobody_listens(
    asked: dict[str, object], state: str, health: object, told: tuple[object, ...], doors: list[str]
) -> None:
    asked["health"] = health
    seen = look._look(_unit(state=state), Absent("not asked"), (1.0, 2.0, 3.0), "", None)
    assert (seen.health, seen.counters.running if seen.counters else None, seen.silent_s) == told
    given: list[tuple[object, ...]] = asked["given"]  # type: ignore[assignment]
    assert [one[0] for one in given] == doors
    assert all(one[1] in {"http://127.0.0.1:8000/health", "http://127.0.0.1:8000", "ab12"} for one in given)
    assert (seen.canary, seen.why, seen.restarts) == (None, "", 0)


@pytest.mark.parametrize(
    ("names", "answer", "canary", "model"),
    [
        ((), (True, ""), True, "m"),
        (("a", "b"), (True, ""), True, "a"),
        ((), (False, "500"), False, "m"),
        ((), (None, "401"), None, "m"),
    ],
)
def test_a_unit_with_a_canary_is_asked_for_one_token_of_the_model_that_it_serves(
    asked: dict[str, object], names: tuple[str, ...], answer: tuple[bool | None, str], canary: bool | None, model: str
) -> None:
    asked["names"], asked["completes"] = names, answer
    unit = _unit("--api-key", "k", "--ssl-certfile", "/c.pem")
    assert look._look(unit, Absent(""), (1.0, 2.0, 3.0), "", 7.0).canary is canary
    given: list[tuple[object, ...]] = asked["given"]  # type: ignore[assignment]
    key = Pass("k", "/c.pem")
    assert given[-1] == ("completes", "https://127.0.0.1:8000", model, {"deadline_s": 7.0, "given": key})
    assert all(key in (*one[1:-1], *one[-1].values()) for one in given)  # type: ignore[attr-defined]


def test_metrics_of_another_program_are_no_load_of_none(asked: dict[str, object]) -> None:
    asked["load"] = _scrape(("vllm:kv_cache_usage_perc", 0.5))
    assert look._load("http://h", NO_PASS) == (
        None,
        "http://h/metrics has no vllm:num_requests_running: its load is unknown (another program, or another release)",
    )


@pytest.mark.parametrize(
    ("words", "env", "key"),
    [
        (("--api-key", "w"), {"VLLM_API_KEY": "e"}, "w"),
        ((), {"VLLM_API_KEY": "e"}, "e"),
        ((), {}, "f"),
    ],
)
def test_a_unit_s_key_is_its_word_its_variable_or_in_its_file(
    tmp_path: Path, words: tuple[str, ...], env: dict[str, str], key: str
) -> None:
    (tmp_path / "env").write_text("VLLM_API_KEY=f\n")
    (tmp_path / "env").chmod(0o600)
    found = _unit(*words, env=env)
    unit = Unit(
        "v.service",
        "loaded",
        "active",
        "x",
        "success",
        properties={"EnvironmentFiles": f"{tmp_path}/env (ignore_errors=no)"},
    )
    assert look.key_of(Found(unit, found.argv, env, "", None)) == key


@pytest.mark.parametrize(
    ("listed", "names", "seen"),
    [
        (Known((_unit(), _unit(name="two.service")), "s"), (), ["vllm.service", "two.service"]),
        (Known((_unit(), _unit(name="two.service")), "s"), ("two.service",), ["two.service"]),
        (Known((_unit(),), "s"), ("vllm.service", "llm.service"), ["vllm.service", "llm.service"]),
        (Absent("no unit"), ("llm.service",), ["llm.service"]),
        (Absent("no unit"), (), Absent("no unit")),
        (Unknown("no systemd", "x"), ("llm.service",), Unknown("no systemd", "x")),
        (Known((_unit(),), "s"), ("gone.service",), []),
    ],
)
def test_the_units_that_are_looked_at(
    asked: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    listed: Reading[tuple[Found, ...]],
    names: tuple[str, ...],
    seen: object,
) -> None:
    others = {None: listed, "llm.service": Known((_unit(name="llm.service"),), "s")}
    monkeypatch.setattr(systemd, "find", lambda name, _: others.get(name, Absent("no such unit")))
    monkeypatch.setattr(look, "changing", lambda _: look.HostChange("site.yml", "two.service"))
    told = look.looks(names, cards=False, canaries={"two.service": 5.0})
    assert ([one.unit for one in told.value] if isinstance(told, Known) else told) == seen
    for one in told.value if isinstance(told, Known) else ():
        two = one.unit == "two.service"
        assert (one.held, one.canary, one.cards) == ("site.yml" if two else "", True if two else None, ())


def test_the_driver_is_asked_where_cards_are_wanted(asked: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "find", lambda *_: Known((_unit(),), "s"))
    monkeypatch.setattr(nvml, "read", lambda: (Known((Gpu(0, "H100"),), "NVML"), Absent("")))
    kept: list[object] = []
    monkeypatch.setattr(look, "_used", lambda gpus, _: kept.append(gpus) or ())
    look.looks((), cards=True, canaries={})
    look.looks((), cards=False, canaries={})
    assert [isinstance(one, Known) for one in kept] == [True, False]


@pytest.mark.parametrize(
    ("own", "free", "most", "room"),
    [(3, 4, None, 7), (3, 4, 5, 5), (3, 4, 9, 7), (None, 4, 5, 5), (3, None, 5, 5), (3, None, None, None)],
)
def test_room_is_what_is_held_and_free_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, own: int | None, free: int | None, most: int | None, room: int | None
) -> None:
    monkeypatch.setattr(procfs, "meminfo", lambda: {} if free is None else {"MemAvailable": free})
    assert look._room(own, most) == room
