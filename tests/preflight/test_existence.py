"""A version that does not exist is refused before a host is asked; one that is newer than the lists may exist."""

from dataclasses import replace
from datetime import date

import pytest

from tests.preflight.test_checks import HOST, INTENT
from vllm_doctor.knowledge.compat import numbers, table
from vllm_doctor.preflight.existence import driver_released, toolkit_released, vllm_released
from vllm_doctor.preflight.judged import Checked, HostToJudge, Intent, Result
from vllm_doctor.preflight.locks import Lock

TABLE = table()


def lock(version: str) -> Lock:
    return Lock(version, "cu130", "x86_64", "2.31", ("3.11", "3.12", "3.13"))


def case(intent: Intent) -> HostToJudge:
    return HostToJudge(intent, HOST, TABLE, date(2026, 11, 21))


def driver(version: str, **more: object) -> Checked:
    return driver_released(case(replace(INTENT, driver_version=version, **more)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "offers"),
    [
        ("580.105.80", ("580.105.08", "580.119.02")),  # two figures changed places
        ("580.105.8", ("580.105.08", "580.119.02")),  # the package's name has the zero
        ("580.105", ("580.95.05", "580.105.08")),  # it breaks off
        ("580.10.01", ("580.65.06",)),  # below the first of its branch
        ("570.100.00", ("570.86.16", "570.124.04")),
    ],
)
def test_what_lies_below_or_between_the_releases_of_a_branch_does_not_exist(
    version: str, offers: tuple[str, ...]
) -> None:
    row = driver(version)
    assert row.verdict is Result.FAIL
    assert f"{version} does not exist" in row.found
    assert row.needed == f"a published version, such as {' or '.join(offers)}"
    assert row.action.startswith("set nvidia_driver_version: ")


def test_a_slip_gets_the_version_that_was_meant() -> None:
    assert driver("580.105.80").action.startswith("set nvidia_driver_version: 580.105.08; ")


def test_what_is_newer_than_the_list_may_have_been_published_since() -> None:
    row = driver("580.299.01")
    assert row.verdict is Result.UNKNOWN
    assert str(TABLE.releases_until) in row.found


def test_what_the_user_vouches_for_exists() -> None:
    assert driver("580.126.99").verdict is Result.FAIL
    assert driver("580.126.99", exists=("580.126.99",)).verdict is Result.OK


def test_a_branch_that_nobody_knows_is_the_complaint_of_another_check() -> None:
    assert driver("582.10.01").verdict is Result.NOT_APPLICABLE


def test_a_driver_that_the_role_does_not_install_is_not_asked_for() -> None:
    assert driver("580.105.80", driver=False).verdict is Result.NOT_APPLICABLE


def test_a_toolkit() -> None:
    assert toolkit_released("13.0.2", INTENT, TABLE).verdict is Result.OK
    assert toolkit_released("12.7.0", INTENT, TABLE).verdict is Result.FAIL
    assert toolkit_released("12.7.0", replace(INTENT, exists=("12.7.0",)), TABLE).verdict is Result.OK
    assert toolkit_released("13.9.0", INTENT, TABLE).verdict is Result.UNKNOWN
    assert toolkit_released("13.0", INTENT, TABLE).action.startswith("set cuda_toolkit_version: 13.0.3; ")
    assert toolkit_released("latest", INTENT, TABLE).action == "set cuda_toolkit_version: 13.0.3"


@pytest.mark.parametrize(
    ("version", "locks", "verdict"),
    [
        ("0.33.0", (), Result.OK),
        ("0.33.0+cpu", (), Result.OK),
        ("0.31.7", (), Result.FAIL),
        ("0.33.00", (), Result.FAIL),
        ("0.99.0", (), Result.FAIL),  # perhaps it exists, but without a lock nothing of it can be installed
        ("0.99.0", (lock("0.99.0"),), Result.UNKNOWN),  # somebody had its packages
        ("0.33.0", (lock("0.32.0"),), Result.FAIL),  # published, but it cannot be installed
    ],
)
def test_a_release_of_vllm(version: str, locks: tuple[Lock, ...], verdict: Result) -> None:
    row = vllm_released(case(replace(INTENT, vllm_version=version, locks=locks)))
    assert row.verdict is verdict
    assert "set vllm_version: 0." in row.action or verdict is not Result.FAIL


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.99.0", "set vllm_version: 0.32.0; or make its lock"),  # not 0.9.0, which only looks like it
        ("0.33.0", "set vllm_version: 0.32.0; or make its lock"),
        ("0.31.7", "set vllm_version: 0.31.0"),
        ("0.17.1", "set vllm_version: 0.19.1; or make its lock"),
    ],
)
def test_the_release_that_is_advised_is_one_that_can_be_installed(version: str, said: str) -> None:
    have = tuple(map(lock, ("0.19.1", "0.31.0", "0.32.0")))
    assert vllm_released(case(replace(INTENT, vllm_version=version, locks=have))).action.startswith(said)


def test_the_cpu_build_of_a_release_that_does_not_exist_is_refused_too() -> None:
    intent = replace(INTENT, driver=False, variant="cpu", vllm_version="0.31.7+cpu")
    assert vllm_released(case(intent)).verdict is Result.FAIL


def test_the_lists_are_in_order_and_of_their_branch() -> None:
    for branch in TABLE.branches():
        known = TABLE.driver_releases(branch.number)
        assert list(known) == sorted(set(known), key=numbers)
        assert {numbers(version)[0] for version in known} == {branch.number}
    assert list(TABLE.toolkits()) == sorted(TABLE.toolkits(), key=numbers)


def test_the_drivers_that_the_table_itself_names_exist() -> None:
    named = {TABLE.default_driver, *(TABLE.toolkit_driver(toolkit) or "" for toolkit in TABLE.toolkits())}
    assert {driver(version).verdict for version in named} == {Result.OK}
