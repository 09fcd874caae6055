"""What is said of a hub that does not give a model, and which way it is asked: the hub's library stands in."""

import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from vllm_doctor.gather import hub
from vllm_doctor.records.reading import Known, Unknown

huggingface_hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    from huggingface_hub import constants, errors

    monkeypatch.setattr(constants, "ENDPOINT", "https://me:secret@hub.example:8443/sub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return errors


def _made(kind: type[Exception], text: str = "it said this\nand more") -> Exception:
    made = kind.__new__(kind)
    Exception.__init__(made, text)
    return made


@pytest.mark.parametrize(
    ("name", "offline", "reason", "remedy"),
    [
        ("GatedRepoError", False, "a/m is gated on https://hub.example:8443", "accept them on https://hub.example"),
        ("RevisionNotFoundError", False, "https://hub.example:8443 has a/m, but no revision r7", "give one that is"),
        ("RepositoryNotFoundError", False, "https://hub.example:8443 has no model a/m", "correct the name"),
        ("LocalEntryNotFoundError", True, "HF_HUB_OFFLINE is set, and the hub's cache here", "unset it once"),
        ("LocalEntryNotFoundError", False, "https://hub.example:8443 could not be reached", "HF_ENDPOINT names"),
        ("EntryNotFoundError", False, "a/m: r7", "of the files"),
        (
            "HfHubHTTPError",
            False,
            "https://hub.example:8443 refuses config.json of a/m: it said this",
            "--model-config",
        ),
    ],
)
def test_each_refusal_has_its_words(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    monkeypatch: pytest.MonkeyPatch, errors, name: str, offline: bool, reason: str, remedy: str
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(hub, "_without_config", lambda m, r: Unknown(f"{m}: {r}", "of the files"))
    told = hub._refusal("a/m", "r7", _made(getattr(errors, name)))
    assert told.reason.startswith(reason)
    assert told.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (["adapter_config.json", "x.gguf"], "a/m is an adapter"),
        (["a.txt", "q4.gguf", "params.json"], "a/m holds GGUF files"),
        (["params.json"], "a/m has Mistral's params.json"),
        (["d", "c", "b", "a"], "https://hub.example:8443 has a/m, but no config.json in it (a, b, c …)"),
        ([], "https://hub.example:8443 has a/m, but no config.json in it"),
        (None, "https://hub.example:8443 has a/m, but no config.json in it"),
    ],
)
def test_what_a_model_has_in_the_place_of_a_config_is_named(  # type: ignore[no-untyped-def]
    monkeypatch: pytest.MonkeyPatch, errors, files: list[str] | None, reason: str
) -> None:
    def listed(_: object, model: str, *, revision: str) -> list[str]:
        assert (model, revision) == ("a/m", "r7")
        if files is None:
            raise OSError
        return files

    # Put in beside the library's own, which would be imported first, with all that it needs.
    monkeypatch.setitem(vars(huggingface_hub), "HfApi", type("HfApi", (), {"list_repo_files": listed}))
    told = hub._without_config("a/m", "r7").reason
    assert told.startswith(reason)
    assert told == reason or not reason.startswith("https")


@pytest.mark.parametrize(("size", "more", "known"), [(9, 0, True), (9, 1, False)])
def test_a_config_as_large_as_the_bound_is_taken(  # type: ignore[no-untyped-def]
    monkeypatch: pytest.MonkeyPatch, errors, tmp_path: Path, size: int, more: int, *, known: bool
) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b"x" * (size + more))
    asked: list[tuple[object, ...]] = []

    def fetched(model: str, name: str, **how: object) -> str:
        asked.append((model, name, how["revision"], how["local_files_only"]))
        return str(file)

    monkeypatch.setitem(vars(huggingface_hub), "hf_hub_download", fetched)
    monkeypatch.setattr(hub, "_reached", lambda: True)
    monkeypatch.setattr(hub, "_no_larger", nullcontext)
    monkeypatch.setattr(hub, "_MOST", size)
    told = hub.config("a/m", "r7")
    assert told == (Known(file, str(file)) if known else Unknown(f"{file}: larger than any config.json", hub._GIVEN))
    assert asked == [("a/m", name, "r7", False) for name in (hub.CONFIG, hub.INDEX)[: 1 + known]]


@pytest.mark.parametrize(
    ("endpoint", "proxies", "offline", "way"),
    [
        ("https://hub.example", {}, False, ("hub.example", 443)),
        ("http://hub.example", {}, False, ("hub.example", 80)),
        ("https://hub.example:8443", {}, False, ("hub.example", 8443)),
        ("https://hub.example", {"https": "proxy:3128"}, False, ("proxy", 3128)),
        ("https://hub.example", {"https": "http://proxy"}, False, ("proxy", 80)),
        ("https://hub.example", {"http": "http://proxy"}, False, ("hub.example", 443)),
        ("https://hub.example", {}, True, None),
        ("no-address", {}, False, None),
    ],
)
@pytest.mark.parametrize("up", [True, False])
def test_the_hub_or_the_proxy_before_it_is_looked_for(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    monkeypatch: pytest.MonkeyPatch, errors, endpoint: str, proxies: dict[str, str], offline: bool,
    way: tuple[str, int] | None, up: bool,
) -> None:  # fmt: skip
    asked: list[object] = []

    def connected(where: tuple[str, int], timeout: float) -> object:
        asked.append(where)
        if not up:
            raise ConnectionRefusedError
        return nullcontext()

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("urllib.request.getproxies", lambda: proxies)
    monkeypatch.setattr("urllib.request.proxy_bypass", lambda _: False)
    monkeypatch.setattr(socket, "create_connection", connected)
    assert hub._reached() is (up or way is None)
    assert asked == ([way] if way else [])
