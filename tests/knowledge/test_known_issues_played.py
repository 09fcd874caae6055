"""A failure of a known issue, as a log shows it, is named by its entry; one that differs in a single thing is not."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

import pytest
import yaml

from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.knowledge.known_issues import issues, matching
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/site-packages/"


class Failure(NamedTuple):
    """What a log shows of one: the innermost call last."""

    kind: str
    calls: list[str]
    release: str
    code: str = ""
    message: str = ""

    @classmethod
    def of(cls, row: Mapping[str, object]) -> Self:
        return cls(**{name: row[name] for name in cls._fields if name in row})  # type: ignore[arg-type]

    def matches(self) -> list[str]:
        calls = [call if call.startswith("/") else SITE + call for call in self.calls]
        kind = self.kind.rpartition(".")[2]
        return [one.id for one in matching(kind, self.message, self.code, calls, as_version(self.release))]

    def log(self) -> str:
        """The engine's log, with the code of the innermost call."""
        said = [f"Initializing a V1 LLM engine (v{self.release}) with config: model='acme/chat'"]
        told = ["EngineCore failed to start.", "Traceback (most recent call last):"]
        for place, call in enumerate(self.calls):
            file, _, function = call.rpartition(":")
            at = file if file.startswith("/") else SITE + file
            code = self.code if place == len(self.calls) - 1 else f"{function}(arguments)"
            told += [f'  File "{at}", line {100 + place}, in {function}', f"    {code}"]
        told += f"{self.kind}: {self.message}".removesuffix(": ").splitlines()
        lines = [f"INFO 11-23 10:00:00 [core.py:80] {line}" for line in said]
        return "\n".join([*lines, *(f"ERROR 11-23 10:00:09 [core.py:900] {line}" for line in told), ""])

    def first_finding(self, folder: Path) -> Finding:
        file = folder / "server.log"
        file.write_text(self.log(), encoding="utf-8")
        return diagnose(Snapshot(taken_at="", log=read_logs([str(file)]))).findings[0]


FILE = Path(__file__).with_name("known_issues.yaml")
ROWS: dict[str, dict[str, object]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
EVERY_ROW = pytest.mark.parametrize("name", ROWS)


@EVERY_ROW
def test_the_failure_is_named_by_its_entry(name: str, tmp_path: Path) -> None:
    entry = next(one for one in issues() if one.id == name)
    failure = Failure.of(ROWS[name])
    assert failure.matches()[0] == name
    found = failure.first_finding(tmp_path)
    assert (found.code, found.confidence) == ("VD526", Confidence.LIKELY)
    assert found.title == entry.title
    assert entry.address in found.detail


@EVERY_ROW
def test_a_failure_that_differs_in_one_thing_is_not(name: str) -> None:
    row = ROWS[name]
    near = row["near"]
    assert isinstance(near, dict)
    assert len(near) == 1
    assert name not in Failure.of(row | near).matches()
