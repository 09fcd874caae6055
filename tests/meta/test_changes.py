"""Every change that any scenario is offered: exact, known to its release, and written so that it can be pasted.

Where no value can be known the reason stands here, so that a new vague change has to give one.
"""

import html
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.scenarios.loading import diagnosis, names, snapshot, until
from vllm_doctor.knowledge import kernels, parser, versions
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.records.finding import Change, Diagnosis, Finding
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.remedy import dropin, inventory
from vllm_doctor.remedy.argv import applied, exact, written
from vllm_doctor.render.html import page
from vllm_doctor.render.human import text
from vllm_doctor.render.instructions import deed
from vllm_doctor.rules.case import Case

ROLES = Path(__file__).parents[2] / "roles"
TABLES = [
    file
    for file in (Path(__file__).parents[2] / "vllm_doctor" / "knowledge").rglob("*.json")
    if file.parent.name not in {"history", "releases", "said_by"}
]
ARGV = ("/opt/vllm/bin/vllm", "serve", "acme/chat-8b")
JSON_OPTIONS = {"compilation-config", "speculative-config", "limit-mm-per-prompt", "mm-processor-kwargs"}

SETTINGS = {ChangeKind.FLAG, ChangeKind.ENV}
# Why no value can be known, by what is to be changed.
NOT_KNOWN = {
    "server": "a log does not say whether a unit, a container or a shell started it",
    "model": "which checkpoint is the owner's choice; the size that fits is in the words and in `predicted`",
    "max-num-batched-tokens": "neither the launch nor the release is known, so only 'half of what it is' is true",
    "max-model-len": "V0 without its launch or the line with its settings: only 'half of what it is' is true",
    "compilation-config": "the message shows no more than where its JSON breaks",
    "speculative-config": "the shell took the quotes away, and what came after the first field with them",
    "mm-processor-kwargs": "the launch's own words, only parted: the message shows them cut",
    "mamba-backend": "the message lists what the release has; which of them the card can run is not told",
    "linear-backend": "only the operator is named: which other kernel these weights and this card have is not told",
    "kv-transfer-config": "which of two connectors is meant is the owner's choice",
    "lora-modules": "which adapter was meant is the owner's knowledge",
    "tool-call-parser": "in which format a model writes its calls, its own page says",
    "reasoning-parser": "how a model marks its reasoning, its own page says",
    "chat-template": "which file was meant is the owner's knowledge",
    "revision": "which branch, tag or commit is wanted is the owner's knowledge",
    "ssl-certfile": "which certificate and key are meant is the owner's knowledge",
    "port": "the message does not name the port that is taken",
    "load-balancer": "which balancer stands in front, and what it calls this, no server tells",
    "tensor-parallel-size": "how many GPUs the cluster has is Ray's knowledge: `ray status`",
    "host-ram": "how much more would have been taken is not known after a kill",
    "limits.memory": "how much more a container would have taken is not known after its kill",
    "VLLM_CPU_KVCACHE_SPACE": "the launch does not say how much it is, and the host's memory is not known",
    "num-gpu-blocks-override": "the launch does not say how long a prompt may be",
    "cpu-offload-gb": "the launch does not say how much it is, and the host's memory is not known",
    "guard": "what stands in front of a server is the owner's choice",
    "vllm_api_key": "a key is the owner's secret",
    "client-input": "a rule of the gateway, in its own language",
    "command": "the words of a container's or script's command line, which is not vLLM's",
}


class Offer(NamedTuple):
    """One change as it was offered."""

    scenario: str
    finding: Finding
    change: Change
    at: Version
    known: bool

    @property
    def where(self) -> str:
        """For a failure's list."""
        return f"{self.scenario}: {self.finding.code} {self.change.name} → {self.change.after}"


@cache
def diagnoses() -> tuple[tuple[str, Diagnosis, Case], ...]:
    return tuple((name, diagnosis(name), Case(snapshot(name))) for name in names())


@cache
def offers() -> tuple[Offer, ...]:
    return tuple(
        Offer(name, finding, change, case.version or until(name) or versions.newest_known(), case.version is not None)
        for name, told, case in diagnoses()
        for finding in told.findings
        for change in finding.changes
    )


def test_there_is_something_to_look_at() -> None:
    assert len(offers()) > 600


def test_each_change_is_exact_or_says_why_it_cannot_be() -> None:
    vague = [
        o
        for o in offers()
        if o.change.after is None
        and o.change.direction is not Direction.REMOVE
        and o.change.by is None
        and (o.change.kind is ChangeKind.FLAG or o.change.name in NOT_KNOWN)
    ]
    assert [o.where for o in vague if o.change.name not in NOT_KNOWN] == []
    assert [o.where for o in vague if not o.change.why] == []
    assert set(NOT_KNOWN) - {o.change.name for o in vague} == set(), "a reason that nothing needs any more"


def test_each_change_says_what_to_type() -> None:
    """A value in its own line, or a command: the one that makes it, or the first that helps to decide."""
    silent = [
        o.where
        for o in offers()
        if o.change.command is None
        and o.change.after is None
        and o.change.unset is None
        and inventory.line(o.change) is None
        and not (o.change.kind in SETTINGS and o.change.direction is Direction.REMOVE)
    ]
    assert silent == []


def test_each_thing_to_do_on_a_host_is_a_sentence_and_not_a_name() -> None:
    """`change job-request` tells nobody what to do; a systemd setting and a variable are names that people know."""
    bare = {
        f"{o.change.name}: {deed(o.change)}"
        for o in offers()
        if o.change.kind is ChangeKind.OS
        and re.fullmatch(r"[a-z-]+", o.change.name)  # a unit, a path and a field of a pod are names too
        and deed(o.change) == f"{o.change.direction.value} {o.change.name}"
    }
    assert bare == set()


def test_each_thing_that_a_table_may_offer_has_a_sentence() -> None:
    """The scenarios meet some of the answers; somebody meets each of the others."""
    nameless: set[str] = set()
    for answer in _answers(tuple(json.loads(file.read_bytes()) for file in TABLES)):
        way, name = Direction(answer.get("direction", "change")), answer["options"][0]
        change = Change(ChangeKind.OS, name, None, answer.get("to"), way, Applicability.MANUAL)
        if deed(change) == f"{change.direction.value} {change.name}":
            nameless.add(change.name)
    assert nameless == set()


def _answers(table: object) -> Iterator[dict[str, Any]]:
    if isinstance(table, dict):
        if table.get("kind") == "os" and table.get("options"):
            yield table
        table = tuple(table.values())
    if isinstance(table, list | tuple):
        for one in table:
            yield from _answers(one)


def test_the_release_has_each_option_and_takes_the_value() -> None:
    assert [f"{o.where}: {told}" for o in offers() if (told := _refused(o)) is not None] == []


def _refused(o: Offer) -> str | None:
    """Why the release would refuse the change; None where it takes it."""
    c = o.change
    if c.kind is ChangeKind.ENV:
        name = c.variable or c.name
        fact = versions.env(name, o.at) if name.startswith("VLLM_") else None
        wrong = fact is not None and fact.exists is not True and c.direction is not Direction.REMOVE
        return "this release does not read it" if wrong or not re.fullmatch(r"[A-Za-z_]\w*", name) else None
    if c.kind is not ChangeKind.FLAG or c.after is None or c.name == "model":
        return None
    fact = versions.flag(c.name, o.at)
    if fact is None or fact.exists is not True:
        return "this release has no such option"
    if c.after is False and not fact.negatable:
        return "there is no --no- form"
    if fact.choices is not None and isinstance(c.after, str) and c.after not in fact.choices:
        return f"one of {fact.choices}"
    if c.name in {"attention-backend", "moe-backend"}:
        table: kernels.KernelTable = "moe" if c.name == "moe-backend" else "attention"
        return None if kernels.has(table, str(c.after), o.at) else "no such kernels there"
    if c.name in JSON_OPTIONS and not re.fullmatch(r"\w+=\d+(,\w+=\d+)*", str(c.after)):
        return _mapping_refused(o, json.loads(str(c.after)))
    complaint = parser.complaint(c.name, c.after, str(o.at))
    return str(complaint) if complaint is not None and " " not in str(c.after) else None


def _mapping_refused(o: Offer, fields: dict[str, object]) -> str | None:
    if o.change.name != "compilation-config":
        return None
    passes = fields.get("pass_config")
    tables: list[tuple[kernels.KernelTable, str]] = [("compilation", name) for name in fields]
    tables += [("pass_config", str(name)) for name in (passes if isinstance(passes, dict) else {})]
    return next((f"no field {name}" for table, name in tables if not kernels.has(table, name, o.at)), None)


@cache
def _variables() -> dict[str, str]:
    """The roles' variables by name, with their type."""
    found = {}
    for file in ROLES.glob("*/meta/argument_specs.yml"):
        options = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
        found |= {name: str(spec.get("type", "str")) for name, spec in options.items()}
    return found


def test_each_inventory_line_is_yaml_of_a_variable_s_type() -> None:
    types = {"int": int, "float": (int, float), "str": (str, int, float), "dict": dict, "list": list, "bool": bool}
    wrong = []
    for o in offers():
        line = inventory.line(o.change)
        if line is None:
            continue
        assert "\n" not in line
        if line.startswith("#"):
            continue
        ((name, value),) = yaml.safe_load(line).items()
        kind = _variables().get(name)
        if kind is None or (kind in types and not isinstance(value, types[kind])):
            wrong.append(f"{o.where}: {line} ({kind})")
    assert wrong == []


def _units() -> dict[str, tuple[Change, str]]:
    """A drop-in for every different change, by file name."""
    made: dict[tuple[str, str], tuple[Change, str]] = {}
    for o in offers():
        body = dropin.text(o.finding.code, ARGV, (o.change,))
        if body is not None:
            made.setdefault((o.change.name, str(o.change.after)), (o.change, body))
    return {f"vllm-change-{n}.service": pair for n, pair in enumerate(made.values())}


def test_each_setting_has_a_drop_in_that_reads_back_as_the_command_line() -> None:
    settings = [o for o in offers() if o.change.kind in {ChangeKind.FLAG, ChangeKind.ENV} and exact(o.change)]
    missing = [o.where for o in settings if dropin.text(o.finding.code, ARGV, (o.change,)) is None]
    assert missing == []
    for change, body in _units().values():
        last = body.splitlines()[-1]
        if change.kind is ChangeKind.FLAG:
            words = shlex.split(last.removeprefix("ExecStart=").replace("$$", "$").replace("%%", "%"))
            assert tuple(words) == applied(ARGV, (change,))
        elif change.after is not None:
            (word,) = shlex.split(last.removeprefix("Environment=").replace("%%", "%"))
            assert word == f"{change.variable or change.name}={change.after}"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_each_drop_in(tmp_path: Path) -> None:
    files = []
    for name, (change, body) in _units().items():
        start = "" if change.kind is ChangeKind.FLAG else "ExecStart=/bin/true\n"
        files.append(tmp_path / name)
        files[-1].write_text(body.replace("/opt/vllm/bin/vllm", "/bin/echo") + start)
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "vllm-change-" in line] == []


def test_no_finding_offers_a_change_and_its_opposite() -> None:
    against = {Direction.LOWER: Direction.RAISE, Direction.ADD: Direction.REMOVE}
    both = [
        f"{name}: {finding.code} {change.name}"
        for name, told, _ in diagnoses()
        for finding in told.findings
        for change in finding.changes
        if (change.name, against.get(change.direction)) in {(c.name, c.direction) for c in finding.changes}
    ]
    assert both == []


def test_a_number_goes_the_way_that_its_direction_says() -> None:
    wrong = []
    for o in offers():
        before, after = o.change.before, o.change.after
        if isinstance(before, bool) or isinstance(after, bool):
            continue
        if isinstance(before, int | float) and isinstance(after, int | float):
            lower, higher = o.change.direction is Direction.LOWER, o.change.direction is Direction.RAISE
            if (lower and after >= before) or (higher and after <= before):
                wrong.append(o.where)
    assert wrong == []


def test_a_list_is_written_as_words_and_a_switch_without_a_value() -> None:
    for o in offers():
        if o.change.kind is ChangeKind.FLAG and o.change.after is not None:
            words = written(o.change)
            option = (parser.options("0.32.0") or {}).get(o.change.name)
            if option is not None:
                assert len(words) == 1 if option.words == 0 else len(words) >= 2, words
                assert option.words == "+" or len(words) <= 2, words


def test_text_and_page_show_the_line_to_copy_unbroken() -> None:
    for name, told, _ in diagnoses():
        roots = [f for f in told.findings if f.explained_by is None]
        shown = text(told, width=60, why=True).splitlines()
        paper = html.unescape(page([(told, ())], taken_at="2026-01-01T00:00:00+00:00"))
        for change in (c for f in roots for c in f.changes):
            line = deed(change)
            assert any(line in row for row in shown), (name, line)
            assert line in paper, (name, line)
            if change.command is not None:
                assert any(f"$ {change.command}" in row for row in shown), (name, change.command)
                assert change.command in paper, (name, change.command)
