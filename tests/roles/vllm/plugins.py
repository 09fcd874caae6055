"""Plugins and programs of the roles, loaded as Ansible does: by path."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

REPO = Path(__file__).parents[3]
ROLE = REPO / "roles" / "vllm"


def load(path: str, name: str = "") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name or f"role_vllm_{Path(path).stem}", REPO / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


for shared in ("vllm_http", "vllm_doors", "vllm_routes"):  # in the order in which they need each other
    load(f"plugins/module_utils/{shared}.py", f"ansible_collections.vllm_doctor.hosts.plugins.module_utils.{shared}")


def said(rows: list[dict[str, str]]) -> str:
    """What rows refuse, in words."""
    return "".join(f"found: {row['found']}\nneeded: {row['needed']}\ndo:     {row['do']}\n" for row in rows)
