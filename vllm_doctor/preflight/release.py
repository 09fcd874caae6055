"""The checks of a vLLM release against the driver, the GPU and the system's C library and Python."""

from dataclasses import replace

from vllm_doctor.knowledge.compat import DriverFit, Table, numbers
from vllm_doctor.preflight import host_table
from vllm_doctor.preflight.judged import Checked, HostToJudge, Result
from vllm_doctor.preflight.locks import Lock, nearest_version

_OK, _FAIL, _WARN = Result.OK, Result.FAIL, Result.WARN
_UNKNOWN, _SKIP = Result.UNKNOWN, Result.NOT_APPLICABLE


_BUILD = host_table.BUILD
_LEFT_OUT = "the driver's stage comes first: site.yml without --tags, or --tags driver"
_BEST_FIRST = (_OK, _WARN, _UNKNOWN, _FAIL)


def wheel_runs_on_driver(case: HostToJudge) -> Checked:
    """8: the CUDA of the wheel is not newer than the driver can run."""
    if case.intent.cpu or not case.intent.vllm or case.intent.vllm_version is None:
        return Checked(_BUILD, _SKIP)
    if case.intent.variant != "auto" or not case.intent.of_release:
        return _build_runs(case)
    chosen = choose_variant(case)
    return chosen if isinstance(chosen, Checked) else _build_runs(_with_variant(case, chosen))


def choose_variant(case: HostToJudge) -> str | Checked:
    """What `vllm_variant: auto` means here: of the builds with a hash lock the newest that fits best; else why none."""
    version, cpu = case.intent.vllm_version or "", case.intent.cpu
    locked = tuple(dict.fromkeys(lock.variant for lock in case.locks))
    if cpu and "cpu" in locked:
        return "cpu"
    builds = [name for name in locked if (name == "cpu") == cpu]
    if not builds:
        host = f" on {case.machine}" if case.machine else ""
        there = ", ".join(lock.name for lock in case.intent.of_release) or "none"
        return Checked(
            _BUILD,
            _FAIL,
            f"vLLM {version}{host}: of its hash locks there is {there}",
            f"the hash lock of a build for {'the CPU' if cpu else 'NVIDIA GPUs'}{host}",
            _with_lock(case, [lock for lock in case.intent.locks if (lock.variant == "cpu") == cpu]),
        )
    rows = {name: _build_runs(_with_variant(case, name)) for name in builds}
    best = min(builds, key=lambda name: (_BEST_FIRST.index(rows[name].verdict), [-n for n in _cuda(case, name)]))
    if rows[best].verdict in {_OK, _WARN}:
        return best
    found = "; ".join(f"{name}: {rows[name].found}" for name in builds)
    return replace(rows[best], found=found)


def variant_answer(case: HostToJudge) -> dict[str, str]:
    """`choose_variant` in words: {variant, because}, or {found, needed, do} where no build runs."""
    case = replace(case, intent=replace(case.intent, variant="auto"))
    chosen = choose_variant(case)
    if isinstance(chosen, Checked):
        return {"found": chosen.found, "needed": chosen.needed, "do": chosen.action}
    return {"variant": chosen, "because": wheel_runs_on_driver(case).found or "preflight_gpu_count: 0"}


def _with_lock(case: HostToJudge, locks: list[Lock]) -> str:
    """What to do where the wanted release has no lock for this: take the nearest that has one, or make it."""
    here = [lock for lock in locks if case.machine in {None, lock.machine}]
    nearest = nearest_version(case.intent.vllm_version or "", (lock.version for lock in here))
    other = f"set vllm_version: {nearest}, or " if nearest and nearest != case.intent.vllm_version else ""
    return f"{other}make the lock with tools/vllm_lock.py"


def _with_variant(case: HostToJudge, name: str) -> HostToJudge:
    return replace(case, intent=replace(case.intent, variant=name))


def _cuda(case: HostToJudge, name: str) -> tuple[int, ...]:
    variant = case.table.variant(name)
    return numbers(variant.cuda) if variant else ()


def _build_runs(case: HostToJudge) -> Checked:
    name = _BUILD
    if case.intent.vllm_version is None:
        return Checked(name, _SKIP)
    wheel = case.table.wheel(case.intent.vllm_version)
    version = case.intent.vllm_version.split("+", 1)[0]
    cuda = wheel.cuda if wheel else None
    if case.intent.variant not in {"auto", "default"}:
        variant = case.table.variant(case.intent.variant)
        if variant is None:
            return Checked(
                name,
                _FAIL,
                f"variant {case.intent.variant}",
                f"auto, default, cpu, {' or '.join(case.table.variants())}",
                "set vllm_variant: auto",
            )
        if not variant.exists_for(version):
            span = f"{variant.first} to {variant.last}" if variant.last else f"{variant.first} or newer"
            return Checked(name, _FAIL, f"{variant.name} of vLLM {version}", f"vLLM {span}", "set vllm_variant: auto")
        cuda = variant.cuda
    if cuda is None:
        return Checked(name, _UNKNOWN, f"the CUDA of vLLM {version} is not known", "a known release", "")
    driver = case.driver
    if driver is None:
        action = _LEFT_OUT if case.intent.driver_left_out else "set nvidia_driver_enabled: true"
        return Checked(name, _UNKNOWN, f"CUDA {cuda}; no driver", "a driver", action)
    fit = case.table.fit(driver, cuda)
    gpus = case.gpus
    if fit is DriverFit.FAIL:
        if case.intent.forward_compat and gpus and all(case.table.forward_compatible(gpu, driver) for gpu in gpus):
            return Checked(
                name, _WARN, f"CUDA {cuda} on {driver} by forward compatibility", "cuda-compat on the host", ""
            )
        way = _older_cuda(case, driver, version)
        return Checked(
            name,
            _FAIL,
            f"vLLM {version} brings CUDA {cuda}; driver {driver}",
            f"driver {case.table.family_floor(cuda)} or newer",
            f"{way}set nvidia_driver_version: {case.table.default_driver}",
        )
    if fit is DriverFit.UNKNOWN:
        return Checked(name, _UNKNOWN, f"CUDA {cuda} on {driver}", f"driver {case.table.family_floor(cuda)}", "")
    if fit is DriverFit.MINOR:
        compiled = [gpu for gpu in gpus if numbers(gpu.compute) >= numbers(case.table.ptx_only_from)]
        strict = bool(compiled) and not case.intent.attention_without_ptx and numbers(cuda)[0] == 12
        return Checked(
            name,
            _FAIL if strict else _WARN,
            f"CUDA {cuda} on {driver} by minor-version compatibility",
            f"a driver whose own CUDA is {cuda} or newer, for code that the driver compiles from PTX",
            f"set nvidia_driver_version: {case.table.default_driver}"
            + (f" ({compiled[0].label}: FlashAttention 2 is compiled from PTX)" if compiled else ""),
        )
    return Checked(name, _OK, f"CUDA {cuda} on {driver}")


def compute_capability(case: HostToJudge) -> Checked:
    """9: the wheel carries code for every GPU."""
    name = "compute capability"
    gpus = case.gpus
    wheel = case.table.wheel(case.intent.vllm_version) if case.intent.vllm_version else None
    if case.intent.cpu or not case.intent.vllm or wheel is None or not gpus:
        return Checked(name, _SKIP)
    weakest = min(gpus, key=lambda gpu: numbers(gpu.compute))
    if numbers(weakest.compute) < numbers(wheel.compute_floor):
        last = [v for v in case.table.wheels() if _floor(case.table, v) <= numbers(weakest.compute)]
        ready = {lock.version for lock in case.intent.locks if case.machine in {None, lock.machine}}
        action = f"set vllm_version: {last[-1]} (the last that runs on it)" if last else "use another card"
        if last and ready and last[-1] not in ready:
            action = f"make the lock of vLLM {last[-1]}, the last that runs on it, with tools/vllm_lock.py"
        return Checked(
            name,
            _FAIL,
            f"{weakest.label} has {weakest.compute}",
            f"{wheel.compute_floor} or newer for vLLM {wheel.version}",
            action,
        )
    for gpu in gpus:
        if numbers(wheel.cuda) < numbers(gpu.min_cuda):
            return Checked(
                name,
                _FAIL,
                f"{gpu.label} ({gpu.compute}) with the CUDA {wheel.cuda} of vLLM {wheel.version}",
                f"CUDA {gpu.min_cuda} or newer",
                "set a newer vllm_version",
            )
    return Checked(name, _OK, f"{weakest.compute}")


def libc_and_python(case: HostToJudge) -> Checked:
    """10: what is installed takes the host's architecture, glibc and Python: as the lock says, or else the wheel."""
    name = "glibc and Python"
    wheel = case.table.wheel(case.intent.vllm_version) if case.intent.vllm_version else None
    if not case.intent.vllm or (wheel is None and not case.intent.of_release):
        return Checked(name, _SKIP)
    lock = _lock(case)
    if isinstance(lock, Checked):
        return replace(lock, check=name)
    what = f"{lock.name}.lock" if lock else f"the wheel of vLLM {case.intent.vllm_version}"
    needs = lock.glibc if lock else wheel.glibc if wheel else ""
    shipped = case.table.platform(case.host.platform) if case.host.platform else None
    glibc = case.host.glibc or (shipped[0] if shipped else None)
    if glibc is not None and numbers(glibc) < numbers(needs):
        action = "use a newer distribution, or a vllm_version whose lock takes this glibc"
        return Checked(name, _FAIL, f"glibc {glibc}", f"{needs} or newer for {what}", action)
    own = case.host.python or (shipped[1] if shipped else None)
    named = case.intent.python or (own if case.intent.own_python else None)
    brought = case.intent.brought

    def takes(python: str) -> bool:
        return lock.takes(python) if lock else _in_range(python, wheel.python if wheel else "")

    wanted = f"Python {' or '.join(lock.pythons)}" if lock else f"Python {wheel.python}" if wheel else ""
    if named is not None and not takes(named):
        action = f"set vllm_python: auto; Python {brought} is then brought along"
        return Checked(name, _FAIL, f"Python {named}", f"{wanted} for {what}", action)
    if named is None and own is not None and not takes(own) and not takes(brought):
        best = lock.pythons[-1] if lock else "3.12"
        found = f"Python {own}, and managed_python_version {brought}"
        return Checked(name, _FAIL, found, f"{wanted} for {what}", f'set managed_python_version: "{best}"')
    if glibc is None or (named is None and own is None):
        return Checked(name, _UNKNOWN, "not read", f"glibc {needs}, {wanted}", "")
    python = named or (own if own and takes(own) else f"{brought}, which is brought along")
    return Checked(name, _OK, f"glibc {glibc}, Python {python}")


def _lock(case: HostToJudge) -> Lock | Checked | None:
    """The lock that will be installed; a refusal where there is none for this host; None where nobody looked."""
    if not case.intent.of_release:
        return None  # that the release has none at all is said by vllm_released
    variant: str | Checked = case.intent.variant
    if variant == "auto":
        variant = choose_variant(case)
        if isinstance(variant, Checked):  # said by wheel_runs_on_driver
            return next(iter(case.locks), None)
    found = [lock for lock in case.locks if lock.variant == variant]
    if found:
        return found[0] if case.machine or len(found) == 1 else None
    others = [lock for lock in case.intent.of_release if lock.variant == variant]
    if not others or case.machine is None:
        return None
    return Checked(
        "",
        _FAIL,
        f"a host of {case.machine}; {others[0].build} has a lock for {', '.join(lock.machine for lock in others)}",
        f"a lock for {case.machine}",
        _with_lock(case, [lock for lock in case.intent.locks if (lock.variant == "cpu") == (variant == "cpu")]),
    )


def _floor(table: Table, version: str) -> tuple[int, ...]:
    wheel = table.wheel(version)
    return numbers(wheel.compute_floor) if wheel else ()


def _older_cuda(case: HostToJudge, driver: str, version: str) -> str:
    """Another build, or an older release with one, that this driver runs: only what has a lock, where that is known."""
    table = case.table
    fits = [
        name
        for name in table.variants()
        if (variant := table.variant(name)) and table.fit(driver, variant.cuda) is not DriverFit.FAIL
    ]
    here = [name for name in fits if (variant := table.variant(name)) and variant.exists_for(version)]
    if here and not case.intent.locks:
        return f"set vllm_variant: {here[-1]}, or "
    if ready := [name for name in here if any(lock.variant == name for lock in case.locks)]:
        return f"set vllm_variant: {ready[-1]}, or "
    older = [lock for lock in case.intent.locks if lock.variant in fits and case.machine in {None, lock.machine}]
    older = [lock for lock in older if all(_floor(table, lock.version) <= numbers(gpu.compute) for gpu in case.gpus)]
    if older:
        return f"set vllm_version: {older[-1].version} and vllm_variant: {older[-1].variant}, or "
    return f"make the lock of {version}+{here[-1]} with tools/vllm_lock.py, or " if here else ""


def _in_range(python: str, wanted: str) -> bool:
    have = numbers(python)[:2]
    for bound in wanted.split(","):
        limit = numbers(bound.lstrip("<>=!"))[:2]
        if bound.startswith(">=") and have < limit:
            return False
        if bound.startswith("<") and not bound.startswith("<=") and have >= limit:
            return False
    return True
