"""Templates of runs on test hosts are compiled once on this machine, and not for each task of each host anew.

Ansible compiles a template where it is rendered. That is in the fork of a task, and what a fork has compiled ends with
it: a third of what a task costs the controller. What was compiled lies in the folder that COMPILED_TEMPLATES names,
under the hash of the source and of all that decides what is made of it; tools/hosttest and tools/run_tests.py name one,
and without it nothing is done. Nothing else differs: what does not compile is not kept.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
from ansible._internal._templating import _jinja_bits as bits
from jinja2.environment import TemplateExpression

FOLDER = Path(os.environ.get("COMPILED_TEMPLATES", "/nowhere"))
MADE_BY = (sys.version, version("ansible-core"), version("jinja2"))
KEPT = 50_000  # some 5,000 of 2 KB are of one state of the roles; beyond, all are thrown away with those of long ago
_compile = bits.AnsibleEnvironment.compile
_compile_expression = bits.AnsibleEnvironment.compile_expression


def key(environment: Any, kind: str, source: str) -> str:
    """Name what a source of this kind is compiled to; its Origin is no part of it."""
    options = [getattr(environment, name) for name in bits._TEMPLATE_OVERRIDE_FIELD_NAMES]  # noqa: SLF001
    context = bits._TemplateCompileContext.current(optional=True)  # noqa: SLF001
    extensions, embedded = sorted(environment.extensions), bits._TemplateConfig.allow_embedded_templates  # noqa: SLF001
    decides = (*MADE_BY, kind, str(source), options, extensions, embedded, context and context.escape_backslashes)
    return hashlib.sha256(repr(decides).encode()).hexdigest()


def kept(name: str) -> Any:
    """What was compiled under this name; None if nothing is there, or no such thing."""
    try:
        return marshal.loads((FOLDER / name).read_bytes())  # noqa: S302 (who writes there writes tools/, too)
    except (OSError, EOFError, ValueError, TypeError):
        return None


def keep(name: str, code: Any) -> None:
    """Let others find it; where nothing can be written, each compiles anew as without us."""
    with suppress(OSError, ValueError):
        own = FOLDER / f"{name}.{os.getpid()}"
        own.write_bytes(marshal.dumps(code))
        own.replace(FOLDER / name)


def compiled(self: Any, source: Any, *arguments: Any, **words: Any) -> Any:
    """`compile`, for a template's text; a tree that was parsed, and what is to be debugged, as ever."""
    if self._debuggable_template_source or arguments or words:
        return _compile(self, source, *arguments, **words)
    if isinstance(source, jinja2.nodes.Template):
        code = _compile(self, source)
        if name := self.__dict__.pop("name_of_expression", None):
            keep(name, code)
        return code
    return once(key(self, "template", source), lambda: _compile(self, source))


def once(name: str, make: Callable[[], Any]) -> Any:
    """What lies under this name, or is made and laid there."""
    code = kept(name)
    if code is None:
        code = make()
        keep(name, code)
    return code


def compiled_expression(self: Any, source: str, undefined_to_none: bool = True) -> Any:
    """`compile_expression`, of which Jinja makes a tree before it compiles."""
    if self._debuggable_template_source:
        return _compile_expression(self, source, undefined_to_none)
    name = key(self, "expression", source)
    if code := kept(name):
        template = self.template_class.from_code(self, code, self.make_globals(None), None)
        return TemplateExpression(template, undefined_to_none)
    self.name_of_expression = name
    try:
        return _compile_expression(self, source, undefined_to_none)
    finally:
        self.__dict__.pop("name_of_expression", None)


def begin() -> None:
    """From now on, in this process and its forks."""
    with suppress(OSError):
        FOLDER.mkdir(parents=True, exist_ok=True)
        if sum(1 for _ in os.scandir(FOLDER)) > KEPT:
            for file in FOLDER.iterdir():
                file.unlink(missing_ok=True)
    bits.AnsibleEnvironment.compile = compiled
    bits.AnsibleEnvironment.compile_expression = compiled_expression
