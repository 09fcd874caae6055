"""Does a version exist at all? What NVIDIA and vLLM published is a list with a date.

What is newer than the list may have been published since: that is unknown, and the package manager or the hash lock
has the last word. What lies below or between what was published never was, and is refused before a host is asked.
"""

from datetime import date

from vllm_doctor.knowledge.compat import DriverFit, Table, nearest_torch, numbers
from vllm_doctor.preflight import host_table
from vllm_doctor.preflight.judged import Checked, HostToJudge, Intent, Result
from vllm_doctor.preflight.locks import nearest_version


def driver_released(case: HostToJudge) -> Checked:
    """17: NVIDIA published this driver version."""
    name, version = "driver version", case.intent.driver_version
    branch = case.table.branch(version)
    if case.intent.cpu or not case.intent.driver or branch is None or len(numbers(version)) < 2:
        return Checked(name, Result.NOT_APPLICABLE)
    row, known = Checked(name, Result.OK, version), case.table.driver_releases(branch.number)
    if version in case.intent.exists:
        return row
    return _published(row, "nvidia_driver_version", known, case.table.releases_until)


def toolkit_released(version: str, wanted: Intent, table: Table) -> Checked:
    """NVIDIA published this CUDA toolkit."""
    row, known = Checked("CUDA toolkit", Result.OK, version), table.toolkits()
    if not numbers(version):
        native = [item for item in known if table.fit(table.default_driver, item) is DriverFit.NATIVE]
        return Checked(row.check, Result.FAIL, version, "an exact version", f"set cuda_toolkit_version: {native[-1]}")
    return row if version in wanted.exists else _published(row, "cuda_toolkit_version", known, table.releases_until)


def vllm_released(case: HostToJudge) -> Checked:
    """18: vLLM published this release, or somebody made its hash lock from packages that were there."""
    name, version = host_table.RELEASE, case.intent.vllm_version
    if not case.intent.vllm or version is None:
        return Checked(name, Result.NOT_APPLICABLE)
    known, until = case.table.wheel(version) is not None, case.table.checked
    fits = [lock for lock in case.intent.locks if (lock.variant == "cpu") == case.intent.cpu]
    fits = [lock for lock in fits if case.machine in {None, lock.machine}]
    nearest = nearest_version(version, (lock.version for lock in fits))
    newest = nearest or case.table.wheels()[-1]
    if case.intent.of_release:
        found = f"vLLM {version} is not in the table of {until}"
        return (
            Checked(name, Result.OK, version) if known else Checked(name, Result.UNKNOWN, found, "a known release", "")
        )
    if known and not case.intent.locks:  # nobody looked for locks
        return Checked(name, Result.OK, version)
    newer = numbers(version) > numbers(case.table.wheels()[-1])
    said = "has no hash lock" if known else f"was not known on {until}, and has no lock" if newer else "does not exist"
    there = ", ".join(dict.fromkeys(lock.build for lock in fits))
    return Checked(
        name,
        Result.FAIL,
        f"vLLM {version} {said}",
        f"a release with a hash lock: {there}" if there else f"a published release, up to {newest}",
        "make its lock with tools/vllm_lock.py"
        if case.intent.locks and nearest is None
        else f"set vllm_version: {newest}" + ("; or make its lock with tools/vllm_lock.py" if newer or known else ""),
    )


def _published(row: Checked, variable: str, known: tuple[str, ...], until: date) -> Checked:
    """`row` is what to say of a version that was: its name and the version found."""
    version = row.found
    if version in known:
        return row
    if not known or numbers(version) > numbers(known[-1]):
        found = f"{version} is newer than what was known on {until}"
        return Checked(
            row.check, Result.UNKNOWN, found, "a published version", "the package manager is asked on the host"
        )
    below = [item for item in known if numbers(item) <= numbers(version)]
    around = dict.fromkeys((*below[-1:], *known[len(below) :][:1]))
    begun = [item for item in known if item.startswith(f"{version}.")]
    meant = begun[-1] if begun else nearest_torch(version, known) or next(iter(around))
    return Checked(
        row.check,
        Result.FAIL,
        f"{version} does not exist (releases until {until})",
        f"a published version, such as {' or '.join(around)}",
        f"set {variable}: {meant}; or, if it was published since, name it in preflight_known_versions",
    )
