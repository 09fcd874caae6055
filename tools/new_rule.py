#!/usr/bin/env python3
"""Begin a rule: its rows in ORDER.md and by_message.toml, its page, its message in the catalogue, three scenarios.

What only a person can say is marked WRITE in the page; a test fails while the mark is there. Nothing is overwritten.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from vllm_doctor.records.verdict import Cause, Phase
from vllm_doctor.rules.chart import NODES
from vllm_doctor.rules.order import FAMILIES

REPO = Path(__file__).resolve().parent.parent
# The catalogue's file for a message of a family, where it has no file of its own name.
CATALOGUE = {"burst": "runtime", "pressure": "runtime", "prefix": "runtime", "live": "runtime", "container": "host"}
TITLE = 70
UNDER_LOAD = frozenset(phase for phase in Phase if phase.startswith(("runtime-", "prefix-")))
SPAN = re.compile(r"(?:\d+(?:\.\d+)+(?:\.post\d+)?\.\.)?(?P<last>\d+(?:\.\d+)+(?:\.post\d+)?)")
SOURCE = re.compile(r"(?!vllm/)[\w./-]+\.py")

ROW = """
[[{code}]]
messages = ["{name}"]
refute = {refute}
"""

PAGE = """# {code} {title}

## What it is

WRITE: what happens, in two sentences; the first one stands in docs/findings.md.

## How it is recognised

`{anchor}`.

## What to do

WRITE: imperatives, the cheapest first.

## What is often said

- "WRITE: common advice": why it is wrong here.

## Sources

{source}
"""

# Where the message ends a start, and where it ends a server that was ready: the rule must be tried where it is met.
IN_A_START = """\
    (APIServer pid=4100) INFO 03-14 09:01:00 [api_server.py:1839] vLLM API server version {last}
    (APIServer pid=4100) Traceback (most recent call last):
    (APIServer pid=4100)   File "/opt/vllm/lib/python3.12/site-packages/vllm/{source}", line 100, in start
    (APIServer pid=4100)     raise {kind}(
    (APIServer pid=4100) {message}
"""
WHILE_SERVING = """\
    (APIServer pid=4100) INFO 03-14 09:01:00 [api_server.py:1839] vLLM API server version {last}
    (APIServer pid=4100) INFO 03-14 09:01:00 [utils.py:233] non-default args: {{'model': 'example/model-8b'}}
    (APIServer pid=4100) INFO:     Application startup complete.
    (APIServer pid=4100) INFO:     10.0.0.7:50012 - "POST /v1/completions HTTP/1.1" 200 OK
    (EngineCore pid=4242) ERROR 03-14 10:01:00 [core.py:1586] EngineCore encountered a fatal error.
    (EngineCore pid=4242) ERROR 03-14 10:01:00 [core.py:1586] Traceback (most recent call last):
    (EngineCore pid=4242) ERROR 03-14 10:01:00 [core.py:1586]   File "/opt/vllm/lib/python3.12/site-packages/vllm/{source}", line 100, in step
    (EngineCore pid=4242) ERROR 03-14 10:01:00 [core.py:1586]     raise {kind}(
    (EngineCore pid=4242) ERROR 03-14 10:01:00 [core.py:1586] {message}
"""  # noqa: E501

SCENARIOS = """---
{prefix}-fires:
  expect: finding
  log: |
{failure}
{prefix}-near-miss:
  expect: not-here
  log: |
    (APIServer pid=4100) INFO 03-14 09:00:00 [api_server.py:1839] vLLM API server version {last}
    (APIServer pid=4100) INFO 03-14 09:00:01 [utils.py:233] non-default args: {{'model': 'example/model-8b'}}
    (APIServer pid=4100) WARNING 03-14 09:00:02 [utils.py:80] {anchor}: a default is used
    (APIServer pid=4100) INFO:     Application startup complete.

{prefix}-unknown:
  expect: unseen
"""


NEXT = """
The rule is {code}. What is left, in this order:
1. in the page: what WRITE asks for
2. in rules/by_message.toml: at least one [[{code}.answers]]; knowledge/answers.py says what each key means.
   A name in `options` that is no option, variable or package needs its words in render/instructions.py
3. in the catalogue: the unit of each figure, where `number` says too little
4. in tests/scenarios/{code}.yaml: a near miss that vLLM says; below `expect: finding` its `phase` and `changes`
5. .venv/bin/pytest tests/meta/test_registry.py tests/scenarios tests/rules -k "{code} or {name}"
6. .venv/bin/python tools/release.py add WHEEL   # the newest: the next release is compared with the new message
7. .venv/bin/python -m tests.approved {code} media wordings && make docs   # then read the diff"""


class RefusalError(Exception):
    """What was asked for cannot be begun; the text says what is needed."""


def cells(line: str) -> list[str]:
    """The cells of a table's line."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def with_row(text: str, row: list[str], above: str) -> str:
    """ORDER.md with a row above that of another code. Raises RefusalError for an unknown code."""
    head, mark, below = text.partition("## Retired codes")
    lines = head.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("| Code"))
    last = max(i for i, line in enumerate(lines) if line.startswith("|"))
    table = [cells(line) for line in lines[first : last + 1] if not line.startswith("|-")]
    codes = [one[0] for one in table]
    if row[0] in codes or f"| {row[0]} " in below:
        raise RefusalError(f"{row[0]} was given to a rule already; a code is never given twice")
    if above not in codes:
        raise RefusalError(f"--above {above}: no rule has this code; ORDER.md has them all")
    table.insert(codes.index(above), row)
    widths = [max(len(one[column]) for one in table) for column in range(len(row))]
    written = ["| " + " | ".join(c.ljust(w) for c, w in zip(one, widths, strict=True)) + " |" for one in table]
    written.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([*lines[:first], *written, *lines[last + 1 :]]).rstrip("\n") + "\n\n" + mark + below


def with_message(text: str, given: argparse.Namespace) -> str:
    """The catalogue's file with the message's row at its end."""
    rows = json.loads(text)
    if any(row["id"] == given.name for row in rows):
        raise RefusalError(f"the catalogue has a message {given.name} already")
    fields = fields_of(given)
    sample = json.dumps({"versions": given.version, "line": given.message} | ({"fields": fields} if fields else {}),
                        ensure_ascii=False)  # fmt: skip
    keys: dict[str, object] = {"id": given.name, "kind": "cause", "scope": "log", "anchor": given.anchor}
    if fields:
        keys["regex"] = regex(given.message, given.anchor, fields)
        keys["fields"] = {name: "number" if value.isdecimal() else "text" for name, value in fields.items()}
    told = [f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}," for k, v in keys.items()]
    row = [" {", *(f" {line}" for line in told), '   "samples": [', f"    {sample}", "   ],"]
    row += [f'   "source": {json.dumps(given.source)}', " }"]
    return text.rstrip().removesuffix("]").rstrip() + ",\n" + "\n".join(row) + "\n]\n"


def fields_of(given: argparse.Namespace) -> dict[str, str]:
    """The figures and names of the message that the rule's answers name. Raises RefusalError for one that it lacks."""
    found = {}
    for field in given.field:
        name, _, value = field.partition("=")
        after = given.message.partition(given.anchor)[2]
        if not re.fullmatch(r"[a-z_]{1,40}", name) or not re.search(_alone(value), after):
            raise RefusalError(
                f"--field {field}: needed is name=value, a value that stands in --message after --anchor"
            )
        found[name] = value
    return found


def regex(message: str, anchor: str, fields: dict[str, str]) -> str:
    """The message from its anchor to the last field: a group for each field, other numbers free."""
    groups = {value: name for name, value in fields.items()}
    free = re.compile("|".join((*(_alone(value) for value in sorted(groups, key=len, reverse=True)), r"\d+")))
    written, at = re.escape(anchor), 0
    after = message.partition(anchor)[2]
    left = set(groups)
    for found in free.finditer(after):
        name = groups.get(found[0], "") if found[0] in left else ""
        kind = r"\d{1,24}" if found[0].isdecimal() else r"\S{1,200}"
        written += re.escape(after[at : found.start()]) + (f"(?P<{name}>{kind})" if name else kind)
        at = found.end()
        left.discard(found[0])
        if not left:
            break
    return written.replace(r"\ ", " ")


def _alone(value: str) -> str:
    return rf"(?<!\w){re.escape(value)}(?!\w)" if value else "(?!)"


def arguments() -> argparse.ArgumentParser:
    """What must be known to begin a rule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", help=f"{', '.join(FAMILIES.values())}; or a code of your choice, VD and three digits")
    parser.add_argument("name", help="words with dashes: the file's name and the message's id")
    parser.add_argument("--title", required=True, help=f"the problem, in at most {TITLE} characters")
    parser.add_argument("--box", required=True, help="the question of the flowchart (rules/chart.py)")
    parser.add_argument("--cause", required=True, help="the cause (records/verdict.py)")
    parser.add_argument("--phase", required=True, help="the phase (records/verdict.py)")
    parser.add_argument("--above", required=True, help="the code of the rule that this one comes before in ORDER.md")
    parser.add_argument("--message", required=True, help="the line of the log, with figures of your own")
    parser.add_argument("--anchor", required=True, help="the part of it that is always the same")
    parser.add_argument("--field", action="append", default=[], metavar="NAME=VALUE",
                        help="a value of the message that answers name as {NAME}; may be repeated")  # fmt: skip
    parser.add_argument(
        "--version", required=True, help="the release that writes it, or the first and the last: 0.31.0..0.33.0"
    )
    parser.add_argument("--source", required=True, help="the file in vLLM that writes it, v1/core/x.py")
    parser.add_argument("--refute", required=True, help="what would show that it is not this")
    parser.add_argument("--serving", action="store_true", help="a server that was ready says it, while it serves; a "
                        "phase of the load (runtime-…) says so by itself")  # fmt: skip
    return parser


def free_code(family: str, order: str) -> str:
    """The code after the last one of a family; what ends in 99 is its last resort. A code itself is taken as it is."""
    hundred = next((digit for digit, name in FAMILIES.items() if name == family), None)
    if hundred is None:
        return family
    given = [int(number) for number in re.findall(rf"^\| VD({hundred}\d\d) ", order, re.MULTILINE)]
    return f"VD{max(number for number in given if number % 100 != 99) + 1:03}"


def check(given: argparse.Namespace) -> None:
    """Raises RefusalError for what a test would refuse later, with all that is wrong: one line for each."""
    if wrong := list(problems(given)):
        raise RefusalError("\n".join(wrong))


def problems(given: argparse.Namespace) -> Iterator[str]:
    """What a test would refuse later, and what is needed instead."""
    if not re.fullmatch(r"VD\d{3}", given.code):
        families = ", ".join(FAMILIES.values())
        yield f"{given.code!r} is no family and no code; needed: {families}, or VD and three digits"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", given.name):
        yield f"{given.name!r} is no name; needed: small letters and digits with dashes"
    if not 0 < len(given.title) <= TITLE or "|" in given.title:
        yield f"--title has {len(given.title)} characters; needed: 1 to {TITLE}, without a bar"
    of = {"box": [node.id for node in NODES], "cause": [*Cause], "phase": [*Phase]}
    for option, known in of.items():
        if getattr(given, option) not in known:
            yield f"--{option} {getattr(given, option)}: found none of that name; needed: {', '.join(known)}"
    if given.anchor not in given.message:
        yield "--anchor does not stand in --message"
    if not SPAN.fullmatch(given.version):
        yield f"--version {given.version}: needed: a release, 0.33.0, or the first and the last, 0.31.0..0.33.0"
    if not SOURCE.fullmatch(given.source):
        yield f"--source {given.source}: needed: the file below vllm/, v1/core/x.py"


def begin(given: argparse.Namespace, repo: Path) -> list[Path]:
    """Write all that belongs to the rule; returns the files. Raises RefusalError before anything is written."""
    rules = repo / "vllm_doctor" / "rules"
    given.code = free_code(given.family, (rules / "ORDER.md").read_text(encoding="utf-8"))
    check(given)
    family = FAMILIES[given.code[2]]
    page = rules / family / f"{given.code.lower()}_{given.name.replace('-', '_')}.md"
    order, by_message = rules / "ORDER.md", rules / "by_message.toml"
    catalogue = repo / "vllm_doctor" / "log" / "catalogue" / f"{CATALOGUE.get(family, family)}.json"
    row = [given.code, given.name, given.box, given.cause, given.phase, "", "preview", given.title]
    fields = {**vars(given), "prefix": f"{given.code.lower()}-{given.name}", "kind": given.message.partition(":")[0],
              "last": given.version.rpartition("..")[2]}  # fmt: skip
    said = WHILE_SERVING if given.serving or given.phase in UNDER_LOAD else IN_A_START
    scenarios = SCENARIOS.format(**fields, failure=said.format(**fields))
    quoted = {**fields, "refute": json.dumps(given.refute, ensure_ascii=False)}  # a basic string of TOML is one of JSON
    wanted = {
        order: with_row(order.read_text(encoding="utf-8"), row, given.above),
        catalogue: with_message(catalogue.read_text(encoding="utf-8"), given),
        by_message: by_message.read_text(encoding="utf-8") + ROW.format(**quoted),
        page: PAGE.format(**fields),
        repo / "tests" / "scenarios" / f"{given.code}.yaml": scenarios,
    }
    there = [path for path in wanted if path not in {order, by_message, catalogue} and path.exists()]
    if there:
        raise RefusalError(f"{there[0].relative_to(repo)} is there already")
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return list(wanted)


def main(words: list[str], repo: Path = REPO) -> int:
    """Begin the rule, and say what is left to do."""
    try:
        given = arguments().parse_args(words)
        for path in begin(given, repo):
            print(f"wrote {path.relative_to(repo)}")
    except RefusalError as why:
        for line in str(why).splitlines():
            print(f"tools/new_rule.py: {line}", file=sys.stderr)
        return 2
    print(NEXT.format(code=given.code, name=given.name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
