#!/usr/bin/env python3
"""Write the variable table of every role's README from meta/argument_specs.yml, or with --check say what is stale.

That of the playbooks is made from playbooks/meta/variables.yml.

--check also proves that the defaults that the specification states are those in defaults/main.yml, both ways.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import generated
import yaml

REPO = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- variables: made by make docs -->", "<!-- /variables -->"


def load(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; an absent or empty file is an empty one."""
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def prose(words: object) -> str:
    """Join a description, which may be a list of paragraphs, for a table cell."""
    text = " ".join(map(str, words)) if isinstance(words, list) else str(words or "")
    return " ".join(text.split()).replace("|", "\\|")


def shown(value: object) -> str:
    """Write a default as YAML has it."""
    if value == "":
        return '`""`'
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
    return "`" + text.replace("|", "\\|") + "`"


def rows(options: dict[str, Any], prefix: str = "") -> list[str]:
    """Make one table row for each option; options of an option are indented under it by a dotted name."""
    table = []
    for name, option in options.items():
        kind = option.get("type", "str") + (f" of {option['elements']}" if "elements" in option else "")
        default = "**required**" if option.get("required") else shown(option["default"]) if "default" in option else ""
        choices = f" One of {', '.join(shown(choice) for choice in option['choices'])}." if "choices" in option else ""
        table.append(f"| `{prefix}{name}` | {kind} | {default} | {prose(option.get('description'))}{choices} |")
        table += rows(option.get("options", {}), f"{prefix}{name}.")
    return table


def readme(role: Path) -> str:
    """Compose the README: what a person wrote around the markers stays."""
    spec = load(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]
    target = role / "README.md"
    if not target.exists():
        paragraphs = spec.get("description", [])
        text = "\n\n".join(paragraphs if isinstance(paragraphs, list) else [paragraphs])
        return f"# {role.name}\n\n{spec.get('short_description', '')}.\n\n{text}\n\n{block(spec.get('options', {}))}\n"
    return with_table(target, spec.get("options", {}))


def block(options: dict[str, Any]) -> str:
    """Make the table with its markers."""
    table = "\n".join(["| Variable | Type | Default | Meaning |", "|---|---|---|---|", *rows(options)])
    return f"{BEGIN}\n{table}\n{END}"


def with_table(target: Path, options: dict[str, Any]) -> str:
    """Compose a file with the table between its markers, or at its end."""
    before, begin, rest = target.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return f"{before.rstrip()}\n\n{block(options)}\n"
    return f"{before}{block(options)}{after}"


def disagreements(role: Path) -> list[str]:
    """Compare argument_specs with defaults/main.yml."""
    path = role / "meta" / "argument_specs.yml"
    if not path.exists():
        return [f"{path.relative_to(REPO)}: missing"]
    options = load(path)["argument_specs"]["main"].get("options", {})
    stated = {name: option["default"] for name, option in options.items() if "default" in option}
    # A default of null is how a role says "not set"; a specification says so by stating no default.
    defaults = load(role / "defaults" / "main.yml")
    stated |= {name: None for name, value in defaults.items() if value is None and name not in stated}
    where = f"roles/{role.name}"
    found = [
        f"{where}: {name} has a default in argument_specs and none in defaults"
        for name in stated.keys() - defaults.keys()
    ]
    found += [f"{where}: {name} is in defaults and not in argument_specs" for name in defaults.keys() - options.keys()]
    found += [
        f"{where}: {name} is {defaults[name]!r} in defaults and {stated.get(name, 'absent')!r} in argument_specs"
        for name in sorted(defaults.keys() & options.keys())
        if name not in stated or stated[name] != defaults[name] or type(stated[name]) is not type(defaults[name])
    ]
    return sorted(found) + [
        f"{where}: {name} does not begin with the role's name" for name in options if not name.startswith(role.name)
    ]


def main(arguments: list[str]) -> int:
    """Write or check."""
    roles = sorted(path for path in (REPO / "roles").iterdir() if (path / "tasks").is_dir())
    found = {role: disagreements(role) for role in roles}
    for line in (line for wrong in found.values() for line in wrong):
        print(line)
    whole = [role for role, wrong in found.items() if not any(line.endswith("missing") for line in wrong)]
    wanted = {role / "README.md": readme(role) for role in whole}
    playbooks = REPO / "playbooks"
    wanted[playbooks / "README.md"] = with_table(playbooks / "README.md", load(playbooks / "meta" / "variables.yml"))
    stale = generated.main(arguments, wanted, "argument_specs or playbooks/meta/variables.yml says")
    return 1 if stale or any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
