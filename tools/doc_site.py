#!/usr/bin/env python3
"""Build the documentation as a site into build/site: docs/, and a page for each finding, command and role.

A link that leads nowhere, to a page or a heading, ends it with an error; no page fetches anything from elsewhere.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

import typer  # noqa: E402
import typer.main  # noqa: E402

from vllm_doctor import __version__  # noqa: E402 - the checkout's own, whatever is installed
from vllm_doctor.cli.app import app  # noqa: E402
from vllm_doctor.rules.explain import explained_rule  # noqa: E402
from vllm_doctor.rules.order import by_code  # noqa: E402

PAGES, OUT, CONFIG = REPO / "build" / "site-pages", REPO / "build" / "site", REPO / "build" / "mkdocs.yml"
FIXED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/findings.md": "findings/index.md",
    "vllm_doctor/rules/ORDER.md": "findings/order.md",
    "playbooks/README.md": "playbooks.md",
    "templates/README.md": "units.md",
}
FOLDERS = (("docs/measurements", "measurements"), ("docs", ""))
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)|(!\[[^\]]*\])\(([^()\s]+)\)")


class BrokenLinkError(Exception):
    """A page links to something that is not in the checkout."""


def sources() -> dict[str, str]:
    """Each Markdown file of the checkout that becomes a page, with the page's path in the site."""
    found = dict(FIXED)
    for folder, under in FOLDERS:
        for file in sorted((REPO / folder).glob("*.md")):
            found.setdefault(f"{folder}/{file.name}", f"{under}/{file.name}".lstrip("/"))
    for readme in sorted(REPO.glob("roles/*/README.md")):
        found[f"roles/{readme.parent.name}/README.md"] = f"roles/{readme.parent.name}.md"
    for readme in sorted(REPO.glob("tests/*/README.md")):
        found[f"tests/{readme.parent.name}/README.md"] = f"development/{readme.parent.name}.md"
    for code, rule in by_code().items():
        found[str(rule.page.relative_to(REPO))] = f"findings/{code}.md"
    return found


def relinked(text: str, source: str, pages: dict[str, str], files: set[str]) -> str:
    """The text with its links as they are in the site; `files` collects what is linked and is no page."""
    parts = re.split(r"((?:^|\n)```.*?\n```)", text, flags=re.DOTALL)

    def link(found: re.Match[str]) -> str:
        image, target = found[3], found[2] or found[4]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, mark, anchor = target.partition("#")
        whole = _inside(PurePosixPath(source).parent / path)
        if whole not in pages:
            if ".." in PurePosixPath(whole).parts or not (REPO / whole).is_file():
                raise BrokenLinkError(f"{source}: [{found[1] or image}]({target}): {whole} is not in the checkout")
            files.add(whole)
        there = pages.get(whole, f"files/{whole}")
        depth = len(PurePosixPath(pages[source]).parts) - 1
        label = image or f"[{found[1]}]"
        return f"{label}({'../' * depth}{there}{mark}{anchor})"

    return "".join(part if part.lstrip("\n").startswith("```") else LINK.sub(link, part) for part in parts)


def _inside(path: PurePosixPath) -> str:
    kept: list[str] = []
    for part in path.parts:
        if part == "..":
            if not kept:
                return str(path)
            kept.pop()
        elif part != ".":
            kept.append(part)
    return "/".join(kept)


def commands() -> dict[str, str]:
    """A page for each command, from the command itself."""
    made: Any = typer.main.get_command(app(""))  # typer's own copy of click has no public types
    context = typer.Context(made, info_name="vllm-doctor")
    found = {name: made.get_command(context, name) for name in made.list_commands(context)}
    shown = {name: command for name, command in found.items() if not command.hidden}
    index = ["# Commands", "", "| command | what it does |", "|---|---|"]
    index += [f"| [{name}]({name}.md) | {_cell(one.get_short_help_str(200))} |" for name, one in shown.items()]
    pages = {"commands/index.md": "\n".join(index) + "\n"}
    for name, command in shown.items():
        pages[f"commands/{name}.md"] = "\n".join(_command(name, command)) + "\n"
    return pages


def _command(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=f"vllm-doctor {name}")
    yield f"# vllm-doctor {name}"
    for paragraph in (command.help or "").split("\n\n"):
        yield from ("", _plain(paragraph.replace("\b\n", "")))
    yield from ("", "```", f"vllm-doctor {name} {' '.join(command.collect_usage_pieces(context))}", "```")
    rows = [r for p in command.get_params(context) if (r := p.get_help_record(context)) is not None]
    if rows:
        yield from ("", "| option | meaning |", "|---|---|")
        yield from (f"| `{_cell(option)}` | {_cell(_plain(told))} |" for option, told in rows)
    examples = [line for line in (command.epilog or "").splitlines()[1:] if line.strip() not in {"", "\b"}]
    if examples:
        yield from ("", "## Examples", "", "```sh", *(line.strip() for line in examples), "```")


def _plain(text: str) -> str:
    """A text of the help in one line, no sign of it read as Markdown or HTML."""
    return re.sub(r"([<>*_\[\]])", r"\\\1", " ".join(text.split()))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def config(pages: dict[str, str]) -> dict[str, Any]:
    """What mkdocs is told; --strict makes an error of each warning."""
    there = set(pages)

    def some(*names: str) -> list[str]:
        return [name for name in names if name in there]

    placed = {"index.md", "guard.md", "doctor.md", "hosts.md", "playbooks.md", "units.md", "support.md"}
    placed |= {"contributing.md", "changelog.md"}
    others = sorted(name for name in there if "/" not in name and name not in placed)
    findings = sorted(name for name in there if re.fullmatch(r"findings/VD\d+\.md", name))
    return {
        "site_name": "vllm-doctor",
        "site_description": "Why vLLM does not start, ran out of memory or serves badly",
        "docs_dir": str(PAGES),
        "site_dir": str(OUT),
        "use_directory_urls": False,  # the site is read from a folder as well as from a server
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.indexes", "navigation.sections", "content.code.copy", "search.suggest"],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "teal"},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "teal"},
            ],
        },
        "plugins": [{"search": {"lang": "en"}}],
        "markdown_extensions": ["tables", "fenced_code", {"toc": {"permalink": True}}],
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn", "absolute_links": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"},
        },
        "extra": {"generator": False, "version_shown": __version__},
        "nav": [
            {"Start": "index.md"},
            {"The doctor": some("doctor.md", "guard.md", *others)},
            {"Commands": some("commands/index.md") + sorted(n for n in there if re.match(r"commands/(?!index)", n))},
            {"Findings": some("findings/index.md", "findings/order.md") + findings},
            {"Your hosts": some("hosts.md", "playbooks.md", "units.md")},
            {"Roles": sorted(name for name in there if name.startswith("roles/"))},
            {"How far to trust it": some("support.md") + sorted(n for n in there if n.startswith("measurements/"))},
            {"Development": some("contributing.md") + sorted(n for n in there if n.startswith("development/"))},
            {"Changes": "changelog.md"},
        ],
    }


def write() -> dict[str, str]:
    """Write the pages and what they link to; returns the path and the text of each page."""
    where, files = sources(), set[str]()
    codes = by_code()
    made: dict[str, str] = commands()
    for source, page in where.items():
        code = PurePosixPath(page).stem
        text = explained_rule(codes[code], None) if code in codes else (REPO / source).read_text(encoding="utf-8")
        made[page] = relinked(text, source, where, files)
    shutil.rmtree(PAGES, ignore_errors=True)
    for page, text in made.items():
        (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / page).write_text(text, encoding="utf-8")
    for name in files:
        target = PAGES / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPO / name, target)
    return made


def main() -> int:
    """Write the pages, and have mkdocs build them; 1 where a link is broken."""
    try:
        pages = write()
    except BrokenLinkError as problem:
        print(problem, file=sys.stderr)
        return 1
    CONFIG.write_text(yaml.safe_dump(config(pages), sort_keys=False), encoding="utf-8")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort
    from mkdocs.utils import CountHandler

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    counted = CountHandler()
    counted.setLevel(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(counted)
    try:
        build(load_config(str(CONFIG), strict=True))
    except Abort as problem:
        print(problem.format_message(), file=sys.stderr)
        return 1
    told = sum(count for _, count in counted.get_counts())
    print(f"{len(pages)} pages in {OUT.relative_to(REPO)}" if not told else f"{told} warnings, see above")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
