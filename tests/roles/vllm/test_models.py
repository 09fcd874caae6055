"""Models of a hub: what is asked for, what is refused before a host is asked, and which folder is whole."""

import hashlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.roles.vllm.plugins import REPO, load, said
from tests.roles.vllm.test_units import judged
from vllm_doctor.launch import unit_text

models = load("plugins/filter/vllm_models.py")
fetch = load("roles/vllm/files/fetch_model.py")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"


def complaints(**inventory: Any) -> str:
    variables = {"generated_model": False, "hub_endpoint": "https://huggingface.co", "secret_names": [], **inventory}
    rows = models.problems(judged(**inventory)[0], variables)
    return said(rows)


def test_a_model_of_a_hub_is_served_from_the_folder_of_its_commit_under_its_own_name() -> None:
    (unit,), _ = judged(model="org/Llama-3.1", revision=COMMIT)
    assert unit["model"] == f"/var/lib/vllm-models/org--Llama-3.1/{COMMIT}"
    assert unit["offline"]
    assert unit["arguments"]["served-model-name"] == "org/Llama-3.1"
    assert "revision" not in unit["arguments"]


def test_a_name_of_ones_own_stays() -> None:
    (unit,), _ = judged(model="org/Llama-3.1", revision=COMMIT, served_model_name="llama")
    assert unit["arguments"]["served-model-name"] == "llama"


@pytest.mark.parametrize(("model", "offline"), [("/srv/models/tiny", True), ("s3://bucket/llama", False)])
def test_a_folder_and_a_stream_are_nobody_elses_business(model: str, offline: bool) -> None:
    (unit,), _ = judged(model=model, revision=COMMIT)
    assert (unit["hub"], unit["model"], unit["offline"]) == (None, model, offline)
    assert complaints(model=model) == ""


def test_services_share_a_folder_and_it_is_fetched_once() -> None:
    two = [{"name": "a", "port": 1}, {"name": "b", "port": 2}, {"name": "c", "port": 3, "model": "org/other"}]
    units, _ = judged(model="org/Llama", revision=COMMIT, instances=two)
    assert [one["repo"] for one in models.models(units)] == ["org/Llama", "org/other"]


def speculative(model: str, **more: Any) -> tuple[dict[str, Any], list[str]]:
    """The config that the service gets, and what is fetched."""
    config = {"method": "eagle3", "num_speculative_tokens": 3, "model": model, **more}
    (unit,), _ = judged(model="org/Llama", revision=COMMIT, speculative_config=config)
    return unit["arguments"]["speculative-config"], [one["repo"] for one in models.models([unit])]


class TestBesideTheModel:
    """A draft model and adapters come by commit too, and the service is given their folders."""

    def test_a_draft_of_a_hub(self) -> None:
        config, fetched = speculative("org/draft", revision=OTHER)
        assert config == {
            "method": "eagle3",
            "num_speculative_tokens": 3,
            "model": f"/var/lib/vllm-models/org--draft/{OTHER}",
        }
        assert fetched == ["org/Llama", "org/draft"]

    def test_a_draft_inside_the_model_is_no_second_download(self) -> None:
        config, fetched = speculative("org/Llama")
        assert config["model"] == f"/var/lib/vllm-models/org--Llama/{COMMIT}"
        assert fetched == ["org/Llama"]

    @pytest.mark.parametrize("model", ["/srv/models/draft", "ngram", "my_module.MyProposer"])
    def test_a_folder_a_method_and_a_class_are_no_names_on_a_hub(self, model: str) -> None:
        config, fetched = speculative(model)
        assert (config["model"], fetched) == (model, ["org/Llama"])

    def test_a_draft_of_a_hub_beside_a_folder(self) -> None:
        config = {"model": "org/draft", "revision": OTHER, "num_speculative_tokens": 3}
        (unit,), _ = judged(speculative_config=config)
        assert [one["repo"] for one in models.models([unit])] == ["org/draft"]
        assert "revision" not in unit["arguments"]["speculative-config"]
        assert config["revision"] == OTHER

    def test_adapters(self) -> None:
        adapters = [
            {"name": "sql", "path": "org/sql-lora", "revision": OTHER},
            {"name": "law", "path": "/srv/adapters/law", "base_model_name": "llama"},
        ]
        (unit,), complaints = judged(model="org/Llama", revision=COMMIT, enable_lora=True, lora_modules=adapters)
        assert complaints == ""
        assert unit["arguments"]["lora-modules"] == [
            f"sql=/var/lib/vllm-models/org--sql-lora/{OTHER}",
            '{"name": "law", "path": "/srv/adapters/law", "base_model_name": "llama"}',
        ]
        assert [one["repo"] for one in models.models([unit])] == ["org/Llama", "org/sql-lora"]

    def test_services_that_share_an_adapter_fetch_it_once(self) -> None:
        adapter = {"name": "sql", "path": "org/sql-lora", "revision": OTHER}
        two = [{"name": "a", "port": 1}, {"name": "b", "port": 2, "lora_modules": [{**adapter, "name": "other"}]}]
        units, _ = judged(instances=two, enable_lora=True, lora_modules=[adapter])
        assert [one["folder"] for one in models.models(units)] == [f"/var/lib/vllm-models/org--sql-lora/{OTHER}"]

    @pytest.mark.parametrize(
        ("inventory", "words"),
        [
            (
                {"enable_lora": True, "lora_modules": ["sql=org/x"]},
                ["vllm_lora_modules: sql=org/x", "needed: name and path"],
            ),
            ({"enable_lora": True, "lora_modules": [{"name": "sql", "pfad": "/srv/x"}]}, ["'pfad'"]),
            ({"lora_modules": [{"name": "sql", "path": "/srv/x"}]}, ["do:     vllm_enable_lora: true"]),
            ({"extra_args": {"lora-modules": "sql=/srv/x"}}, ["vllm_lora_modules, which says the same"]),
            ({"extra_args": {"tokenizer": "org/x"}}, ["a folder on the host: the service runs offline"]),
        ],
    )
    def test_what_the_service_could_not_load_is_refused(self, inventory: dict[str, Any], words: list[str]) -> None:
        said = judged(**inventory)[1]
        assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("inventory", "words"),
    [
        (
            {"speculative_config": {"model": "org/draft", "num_speculative_tokens": 3}},
            ["org/draft at no revision", "vllm_speculative_config: revision: the first column of `git ls-remote"],
        ),
        (
            {"enable_lora": True, "lora_modules": [{"name": "sql", "path": "org/sql-lora", "revision": "main"}]},
            ["org/sql-lora at main", "vllm_lora_modules: revision of sql: the first column of"],
        ),
        ({"model": "org/Llama"}, ["org/Llama at no revision", "git ls-remote https://huggingface.co/org/Llama main"]),
        ({"model": "org/Llama", "revision": "v1"}, ["org/Llama at v1", "40 hexadecimal digits", "org/Llama v1`"]),
        ({"model": "org/Llama", "revision": COMMIT[:12]}, ["an exact commit"]),
        ({"model": "org/Llama", "revision": COMMIT, "generated_model": True}, ["vllm_model: /srv/models/tiny"]),
        ({"environment": {"HF_TOKEN": "x"}}, ["vllm_environment: HF_TOKEN", "put it into vllm_hub_token"]),
        ({"environment": {"AWS_SECRET_ACCESS_KEY": "x"}}, ["everyone on the host can read", "into vllm_secrets"]),
        ({"secret_names": ["HF_TOKEN"]}, ["vllm_secrets: take HF_TOKEN out, and set vllm_hub_token"]),
        (
            {
                "model": "org/Llama",
                "revision": COMMIT,
                "instances": [{"name": "a"}, {"name": "b", "port": 2, "model_allow": ["*.gguf"]}],
            },
            ["vllm@b: org/Llama with other files than vllm@a", "vllm_instances"],
        ),
    ],
)
def test_what_cannot_be_fetched_exactly_is_refused_with_the_line_to_write(
    inventory: dict[str, Any], words: list[str]
) -> None:
    said = complaints(**inventory)
    assert all(word in said for word in words), said


def test_an_exact_commit_and_ordinary_variables_draw_no_complaint() -> None:
    environment = {"VLLM_LOGGING_LEVEL": "INFO", "TOKENIZERS_PARALLELISM": "false", "VLLM_KEEP_ALIVE": "1"}
    assert complaints(model="org/Llama", revision=COMMIT, environment=environment, secret_names=["VLLM_API_KEY"]) == ""


def test_the_answers_of_a_fetch_become_rows() -> None:
    hub = {"repo": "org/Llama", "revision": COMMIT, "folder": "/m", "allow": ["*.json"], "ignore": []}
    assert models.choice(hub) == ["/m", "--repo=org/Llama", f"--revision={COMMIT}", "--allow=*.json"]
    row = {"found": "a", "needed": "b", "do": "c"}
    results = [
        {"rc": 0, "stdout": "{}", "item": hub},
        {"rc": 1, "stdout": json.dumps(row), "item": hub},
        {"rc": 137, "stdout": "", "stderr": "code=killed", "item": hub},
    ]
    refused = models.refused(results)
    assert refused[0] == row
    assert "code=killed" in refused[1]["found"]
    assert "it goes on where it ended" in refused[1]["do"]


def test_check_mode_says_how_much_would_come_and_when_it_cannot_know() -> None:
    hub = {"repo": "org/Llama", "revision": COMMIT, "folder": "/m"}
    answer = {"changed": True, "files": 3, "bytes": 3 * 2**30}
    there = {"changed": False, "files": 3, "bytes": 0}
    results = [{"rc": 0, "stdout": json.dumps(one), "item": hub} for one in (answer, there)] + [{"item": hub}]
    assert [line.partition("/m: ")[2] for line in models.told(results)] == [
        "3 files, 3.00 GiB",
        "how much is known once the release that asks the hub is there",
    ]


def named(*names: str) -> list[Any]:
    return [fetch.File(name, 1, "git:0") for name in names]


def kept(*names: str, allow: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> set[str]:
    return {file.name for file in fetch.chosen(named(*names), allow, ignore)}


class TestChoice:
    def test_weights_that_are_there_twice_come_as_safetensors(self) -> None:
        assert kept("config.json", "model-1.safetensors", "pytorch_model-1.bin", "pytorch_model.bin.index.json") == {
            "config.json",
            "model-1.safetensors",
        }

    def test_weights_that_are_there_once_come_as_they_are(self) -> None:
        assert kept("config.json", "pytorch_model.bin") == {"config.json", "pytorch_model.bin"}

    def test_each_folder_counts_for_itself(self) -> None:
        assert kept("model.safetensors", "2_Dense/pytorch_model.bin") == {
            "model.safetensors",
            "2_Dense/pytorch_model.bin",
        }

    def test_patterns_choose_and_reach_into_folders(self) -> None:
        names = ("a.gguf", "b.gguf", "original/consolidated.00.pth", "model.safetensors", "x.bin")
        assert kept(*names, ignore=("original/*", "*.gguf")) == {"model.safetensors"}
        assert kept(*names, allow=("a.*", "x.bin", "*.safetensors")) == {"a.gguf", "x.bin", "model.safetensors"}


class TestWhole:
    """The folder is judged by its marker; the hub is asked in the Molecule scenario `models`."""

    @pytest.fixture
    def request_of(self, tmp_path: Path) -> Any:
        (tmp_path / "config.json").write_text("{}")
        content = b"weights" * 1000
        (tmp_path / "model.safetensors").write_bytes(content)
        asked = fetch.Request(tmp_path, "org/Llama", COMMIT)
        marker = fetch.Marker(asked)
        blob = hashlib.sha1(b"blob 2\0{}", usedforsecurity=False).hexdigest()
        for file in (
            fetch.File("config.json", 2, f"git:{blob}"),
            fetch.File("model.safetensors", 7000, f"sha256:{hashlib.sha256(content).hexdigest()}"),
        ):
            assert marker.holds(file)
        marker.write(complete=True)
        return asked

    def test_nobody_is_asked_about_a_whole_folder(self, request_of: Any) -> None:
        assert fetch.bring(request_of, None, plan=False, verify=False) == {"changed": False, "files": 2, "bytes": 0}

    @pytest.mark.parametrize("damage", ["shorter", "other content", "gone"])
    def test_a_damaged_file_is_found(self, request_of: Any, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
        file = request_of.folder / "model.safetensors"
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(b"weights" if damage == "shorter" else b"weighty" * 1000)

        def asked(*_: object) -> None:
            raise fetch.RefusedError("the hub is asked", "", "")

        monkeypatch.setattr(fetch, "listing", asked)
        with pytest.raises(fetch.RefusedError, match="the hub is asked"):
            fetch.bring(request_of, None, plan=True, verify=False)

    def test_a_file_that_was_written_anew_as_it_was_is_no_damage(self, request_of: Any) -> None:
        (request_of.folder / "config.json").write_text("{}")
        assert fetch.bring(request_of, None, plan=False, verify=False)["changed"] is False

    def test_another_choice_of_files_is_another_folder(self, request_of: Any) -> None:
        other = fetch.Request(request_of.folder, "org/Llama", COMMIT, allow=("*.json",))
        assert not fetch.Marker(other).complete

    def test_a_torn_marker_is_no_marker(self, request_of: Any) -> None:
        (request_of.folder / fetch.MARKER).write_text('{"repo": "org')
        assert not fetch.Marker(request_of).complete


def test_a_disk_that_is_too_small_is_refused_with_the_sum(tmp_path: Path) -> None:
    with pytest.raises(fetch.RefusedError) as refused:
        fetch.judge_room(fetch.Request(tmp_path, "org/Llama", COMMIT), 2**60, 5)
    assert refused.value.row["needed"] == f"{2**30:.2f} GiB: 5 files of org/Llama that are not there yet"
    assert "vllm_models_dir" in refused.value.row["do"]


class Hub:
    """huggingface_hub as far as a listing and a Xet download go; the real one is asked in Molecule."""

    def __init__(self, *entries: tuple[str, int], xet: bool = False, sent: bytes = b"") -> None:
        lfs = SimpleNamespace(sha256=hashlib.sha256(b"large").hexdigest())
        self.siblings = [SimpleNamespace(rfilename=name, size=size, lfs=lfs, blob_id="") for name, size in entries]
        self.xet, self.sent = xet, sent

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def hf_hub_download(_: str, name: str, *, local_dir: Path, **__: object) -> str:
            local_dir.mkdir(parents=True, exist_ok=True)
            (local_dir / name).write_bytes(self.sent)
            return str(local_dir / name)

        library = SimpleNamespace(
            HfApi=lambda **_: SimpleNamespace(model_info=lambda *_, **__: self),
            hf_hub_url=lambda *_, **__: "",
            get_hf_file_metadata=lambda *_, **__: SimpleNamespace(xet_file_data={} if self.xet else None),
            hf_hub_download=hf_hub_download,
        )
        monkeypatch.setitem(sys.modules, "huggingface_hub", library)
        monkeypatch.setitem(sys.modules, "huggingface_hub.utils", SimpleNamespace(is_xet_available=lambda: True))


@pytest.mark.parametrize(
    ("name", "size", "says"),
    [
        ("model.safetensors", 60 * 10**9, "model.safetensors of org/Llama has 56 GiB"),
        ("../../etc/cron.d/x", 1, "a file named ../../etc/cron.d/x"),
        ("/etc/passwd", 1, "a file named /etc/passwd"),
        (".complete.json", 1, "a file named .complete.json"),
        ("original/x.pth", 1, "1 files and none is wanted"),
    ],
)
def test_what_a_hub_may_not_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int, says: str
) -> None:
    Hub((name, size)).install(monkeypatch)
    asked = fetch.Request(tmp_path, "org/Llama", COMMIT, ignore=("original/*",))
    with pytest.raises(fetch.RefusedError, match=says):
        fetch.listing(asked, None)


class TestBeyondWhatHttpServes:
    """Files above 50 GB, which a hub serves by Xet alone; here from 3 bytes on."""

    @pytest.fixture
    def asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(fetch, "HTTP_LIMIT", 3)
        return fetch.Request(tmp_path, "org/Llama", COMMIT)

    def test_they_come_by_xet_and_their_hash_is_compared(self, asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        Hub(("model.gguf", 5), xet=True, sent=b"large").install(monkeypatch)
        assert fetch.bring(asked, None, plan=False, verify=False) == {"changed": True, "files": 1, "bytes": 5}
        assert (asked.folder / "model.gguf").read_bytes() == b"large"
        assert sorted(path.name for path in asked.folder.iterdir()) == [fetch.MARKER, "model.gguf"]

    def test_another_content_is_refused(self, asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        Hub(("model.gguf", 5), xet=True, sent=b"LARGE").install(monkeypatch)
        with pytest.raises(fetch.RefusedError, match="came twice with another content"):
            fetch.bring(asked, None, plan=False, verify=False)

    def test_a_hub_without_xet_is_refused_before_anything_comes(
        self, asked: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Hub(("config.json", 1), ("model.gguf", 5)).install(monkeypatch)
        with pytest.raises(fetch.RefusedError, match=r"model.gguf of org/Llama .* offers no Xet"):
            fetch.bring(asked, None, plan=False, verify=False)
        assert list(asked.folder.iterdir()) == []


def test_a_partial_file_counts_as_far_as_it_goes(tmp_path: Path) -> None:
    file = fetch.File("a", 100, "sha256:ab")
    asked = fetch.Request(tmp_path, "org/Llama", COMMIT)
    assert fetch.missing_bytes(asked, [file]) == 100
    (tmp_path / fetch.PARTIAL).mkdir()
    (tmp_path / fetch.PARTIAL / "sha256-ab").write_bytes(b"x" * 60)
    assert fetch.missing_bytes(asked, [file]) == 40


def test_a_credential_that_did_not_arrive_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert fetch.credential("hub-token") is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(fetch.RefusedError, match="did not hand over"):
        fetch.credential("hub-token")
    (tmp_path / "hub-token").write_text("abc\n")
    assert fetch.credential("hub-token") == "abc"


@pytest.mark.parametrize(
    ("protect", "launch", "hidden"),
    [
        ("yes", "serve /home/ops/models/llama --port 8000", "/home/ops/models/llama"),
        ("yes", "serve /srv/llama --lora-modules a=/root/adapters/a", "/root/adapters/a"),
        (
            "tmpfs",
            'serve /srv/llama --speculative-config \'{"model": "/run/user/1000/draft"}\'',
            "/run/user/1000/draft",
        ),
        ("yes", "serve /srv/home/llama", ""),
        ("yes", "serve /srv/llama --chat-template /etc/rooted/x.jinja", ""),
        ("read-only", "serve /home/ops/models/llama", ""),
        ("no", "serve /home/ops/models/llama", ""),
    ],
)
def test_what_a_launch_reads_in_homes_that_its_unit_hides_is_refused(protect: str, launch: str, hidden: str) -> None:
    text = (
        f"[Service]\nEnvironment=HOME=/home/of/nobody\nProtectHome={protect}\nExecStart=/opt/vllm/bin/vllm {launch}\n"
    )
    rows = models.hidden([{"instance": "main", "name": "vllm@main"}], {"main": text})
    assert [row["found"] for row in rows] == (
        [f"vllm@main: {hidden}, where the service sees nothing: its unit has ProtectHome=yes"] if hidden else []
    )


def test_our_own_unit_hides_homes() -> None:
    template = (REPO / "templates" / "vllm.service.j2").read_text()
    assert set(unit_text.values(template, "ProtectHome")) <= models.HIDES
