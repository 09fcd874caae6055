"""What the roles advise can be done: it names variables of a role, cards of the table, releases with a lock."""

import ast
import itertools
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml

from tests.preflight.test_checks import HOST, INTENT
from vllm_doctor.knowledge import templates
from vllm_doctor.knowledge.compat import table
from vllm_doctor.preflight import intent as wants
from vllm_doctor.preflight import locks
from vllm_doctor.preflight.checks import CHECKS, judge
from vllm_doctor.preflight.judged import HostToJudge, Result

REPOSITORY = Path(__file__).resolve().parents[2]
LOCKS = locks.read(REPOSITORY / "roles/vllm/files/locks")
ROLES = sorted(path.parent.parent for path in (REPOSITORY / "roles").glob("*/meta/argument_specs.yml"))
VARIABLES = {
    name
    for role in ROLES
    for entry in yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"].values()
    for name in entry.get("options", {})
}
PLUGINS = {path.stem for path in (*(REPOSITORY / "plugins").glob("*/*.py"), *(REPOSITORY / "roles").glob("*/*/*.py"))}
NAME = re.compile(rf"(?<![/\w])(?:{'|'.join(role.name for role in ROLES)})_[a-z0-9_]*[a-z0-9]\b")
SOURCES = [
    *(REPOSITORY / "vllm_doctor/preflight").glob("*.py"),
    *(REPOSITORY / "plugins/filter").glob("*.py"),
    *(REPOSITORY / "plugins/action").glob("*.py"),
]


def advice(source: Path) -> str:
    """The sentences of a source: its strings with a space in them, which no name of a filter or a module has."""
    strings = (node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant))
    return "\n".join(text for text in strings if isinstance(text, str) and " " in text)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_no_sentence_names_a_variable_that_no_role_has(source: Path) -> None:
    named = set(NAME.findall(advice(source)))
    own = {name for name in named if name.startswith(("preflight_host", "vllm_doctor"))}  # registers, and the package
    assert named - own - VARIABLES - PLUGINS == set()


def judged(case: HostToJudge) -> list[str]:
    """What a case is told to do."""
    return [row.action for row in judge(case, CHECKS) if row.verdict in {Result.FAIL, Result.WARN} and row.action]


CASES = [
    HostToJudge(
        replace(INTENT, vllm_version=version, variant=variant, driver_version=driver, locks=LOCKS, python=None),
        replace(HOST, gpus=(gpu,), machine=machine, python="3.9.2", glibc=glibc),
        table(),
        date(2026, 11, 21),
    )
    for version, variant, driver, gpu, machine, glibc in itertools.product(
        ("0.8.5", "0.19.1", "0.30.0", "0.31.7", "0.32.0", "0.33.0", "0.99.0"),
        ("auto", "cu128", "cu129", "cu130", "cu118", "cpu"),
        ("570.124.06", "580.105.08"),
        ("2330", "1db5", "2342", "2684"),
        ("x86_64", "aarch64"),
        ("2.28", "2.36"),
    )
]


def test_every_release_and_build_that_is_advised_can_be_installed_there() -> None:
    seen = set()
    for case in CASES:
        for action in judged(case):
            for version, variant in re.findall(r"vllm_version: (\S+?)(?: and vllm_variant: (\w+))?(?=[,; ]|$)", action):
                fits = [lock for lock in LOCKS if lock.version == version and lock.machine == case.machine]
                said = f"{case.intent.vllm_version} {case.intent.variant} on {case.machine}: {action}"
                assert [lock for lock in fits if variant in {"", lock.variant}], said
                seen.add((version, variant))
            for variant in re.findall(r"vllm_variant: (\w+)", action):
                assert variant in {"auto", "cpu", *(lock.variant for lock in LOCKS)}, action
    assert {version for version, _ in seen} >= {"0.19.1", "0.31.0", "0.32.0"}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("NVIDIA H100 SXM 80GB", "NVIDIA H100 80GB HBM3"),  # by letters an A100
        ("NVIDIA H100 80GB HBM", "NVIDIA H100 80GB HBM3"),
        ("H100 PCIe 80 GB", "NVIDIA H100 PCIe"),
        ("A100 80GB", "NVIDIA A100-SXM4-80GB"),
        ("RTX4090", "NVIDIA GeForce RTX 4090"),
        ("V100 32GB", "Tesla V100-SXM2-32GB"),
        ("GB200 NVL72", "NVIDIA GB200"),
        ("AMD Instinct MI300X", None),
    ],
)
def test_the_card_that_is_advised_is_the_one_that_was_meant(said: str, meant: str | None) -> None:
    assert table().gpu_like(said) == meant
    wanted = replace(INTENT, gpus=(said,))
    (row,) = (row for row in wants.contradictions({}, wanted, table()) if row.check == "GPU name")
    assert row.action == (f"preflight_gpus: [{meant}]" if meant else f"name one of {', '.join(table().gpu_names())}")


def test_every_card_is_like_itself_in_other_letters() -> None:
    for name in table().gpu_names():
        found = table().gpu_like(name.casefold().removeprefix("nvidia "))
        assert found is not None, name
        assert set(re.findall(r"[a-z0-9]+", name.casefold())) <= set(re.findall(r"[a-z0-9]+", found.casefold())), name


def test_the_templates_that_are_advised_exist() -> None:
    files = {path.name.removesuffix(".service.j2") for path in (REPOSITORY / "templates/gpu").glob("*.j2")}
    assert {templates.behaviour(card) for card in templates.cards()} <= files
