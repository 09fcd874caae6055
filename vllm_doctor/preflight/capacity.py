"""The checks of what else the host must have: disk, memory, ports."""

from vllm_doctor.preflight.judged import Checked, Disk, HostToJudge, Result

_OK, _FAIL, _UNKNOWN, _SKIP = Result.OK, Result.FAIL, Result.UNKNOWN, Result.NOT_APPLICABLE


def disk_space(case: HostToJudge) -> Checked:
    """12: room for this release, the one before it and the model; paths on one file system share its room."""
    name = "disk space"
    if not case.intent.vllm:
        return Checked(name, _SKIP)
    wanted = (
        (case.intent.releases_dir, float(2 * case.table.disk_gib("cpu" if case.intent.cpu else "environment"))),
        (case.intent.models_dir, case.intent.model_gib),
    )
    disks = {disk.path: disk for disk in case.host.disk}
    shared: dict[str, tuple[Disk, float]] = {}
    for path, gib in wanted:
        if gib <= 0:
            continue
        if path not in disks:
            return Checked(name, _UNKNOWN, f"{path} could not be read", f"{gib:.0f} GiB", "")
        disk = disks[path]
        shared[disk.filesystem] = (disk, shared.get(disk.filesystem, (disk, 0.0))[1] + gib)
    for disk, gib in shared.values():
        if disk.free_gib < gib:
            return Checked(
                name,
                _FAIL,
                f"{disk.free_gib:.1f} GiB free for {disk.path}",
                f"{gib:.0f} GiB: this release, the one before it for a rollback, the model",
                "free the space, or mount a larger file system there",
            )
    return Checked(name, _OK, ", ".join(f"{disk.path}: {disk.free_gib:.0f} GiB free" for disk, _ in shared.values()))


def host_memory(case: HostToJudge) -> Checked:
    """13: the host's memory holds what is asked of it."""
    name = "host memory"
    if not case.intent.vllm or case.intent.memory_gib <= 0:
        return Checked(name, _SKIP)
    if case.host.memory_gib is None:
        return Checked(name, _UNKNOWN, "not read", f"{case.intent.memory_gib:.0f} GiB", "")
    if case.host.memory_gib < case.intent.memory_gib:
        return Checked(
            name,
            _FAIL,
            f"{case.host.memory_gib:.1f} GiB",
            f"{case.intent.memory_gib:.0f} GiB",
            "lower preflight_memory_gib, or use a larger host",
        )
    return Checked(name, _OK, f"{case.host.memory_gib:.1f} GiB")


def ports_free(case: HostToJudge) -> Checked:
    """14: nobody else listens on the ports of the service."""
    name = "ports"
    if not case.intent.ports:
        return Checked(name, _SKIP)
    if case.host.listening is None:
        return Checked(name, _UNKNOWN, "not read", ", ".join(map(str, case.intent.ports)), "")
    taken = [
        (port, owner)
        for port, owner in case.host.listening
        if port in case.intent.ports and "vllm" not in owner.lower()
    ]
    if taken:
        port, owner = taken[0]
        return Checked(
            name,
            _FAIL,
            f"{owner or 'another process'} listens on {port}",
            f"port {port} free",
            "stop it, or choose another port for this instance",
        )
    return Checked(name, _OK, ", ".join(map(str, case.intent.ports)))
