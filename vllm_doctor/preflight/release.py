"""The checks of a vLLM release against the driver, the GPU and the system's C library and Python."""

from dataclasses import replace

from vllm_doctor.knowledge.compat import Fit, Table, numbers
from vllm_doctor.preflight.records import Case, Row, Verdict

_OK, _FAIL, _WARN = Verdict.OK, Verdict.FAIL, Verdict.WARN
_UNKNOWN, _SKIP = Verdict.UNKNOWN, Verdict.NOT_APPLICABLE


_BUILD = "wheel's CUDA x driver"
_BEST_FIRST = (_OK, _WARN, _UNKNOWN, _FAIL)


def wheel_runs_on_driver(case: Case) -> Row:
    """8: the CUDA of the wheel is not newer than the driver can run."""
    if case.intent.cpu or not case.intent.vllm or case.intent.vllm_version is None:
        return Row(_BUILD, _SKIP)
    if case.intent.variant != "auto" or not case.intent.locked:
        return _build_runs(case)
    chosen = choose_variant(case)
    return chosen if isinstance(chosen, Row) else _build_runs(_with_variant(case, chosen))


def choose_variant(case: Case) -> str | Row:
    """What `vllm_variant: auto` means here: of the builds with a hash lock the newest that fits best; else why none."""
    version, locked = case.intent.vllm_version or "", case.intent.locked
    if case.intent.cpu and "cpu" in locked:
        return "cpu"
    builds = [name for name in locked if (name == "cpu") == case.intent.cpu]
    if not builds:
        return Row(
            _BUILD,
            _FAIL,
            f"vLLM {version} has a lock for {', '.join(locked) or 'no build'}",
            f"the hash lock of a build for {'the CPU' if case.intent.cpu else 'NVIDIA GPUs'}",
            "set vllm_version to a release that has one, or make it with tools/vllm_lock.py",
        )
    rows = {name: _build_runs(_with_variant(case, name)) for name in builds}
    best = min(builds, key=lambda name: (_BEST_FIRST.index(rows[name].verdict), [-n for n in _cuda(case, name)]))
    if rows[best].verdict in {_OK, _WARN}:
        return best
    found = "; ".join(f"{name}: {rows[name].found}" for name in builds)
    return replace(rows[best], found=found)


def _with_variant(case: Case, name: str) -> Case:
    return replace(case, intent=replace(case.intent, variant=name))


def _cuda(case: Case, name: str) -> tuple[int, ...]:
    variant = case.table.variant(name)
    return numbers(variant.cuda) if variant else ()


def _build_runs(case: Case) -> Row:
    name = _BUILD
    if case.intent.vllm_version is None:
        return Row(name, _SKIP)
    wheel = case.table.wheel(case.intent.vllm_version)
    version = case.intent.vllm_version.split("+", 1)[0]
    cuda = wheel.cuda if wheel else None
    if case.intent.variant not in {"auto", "default"}:
        variant = case.table.variant(case.intent.variant)
        if variant is None:
            return Row(
                name,
                _FAIL,
                f"variant {case.intent.variant}",
                "auto, default, cpu, cu129 or cu130",
                "set vllm_variant: auto",
            )
        if not variant.exists_for(version):
            span = f"{variant.first} to {variant.last}" if variant.last else f"{variant.first} or newer"
            return Row(name, _FAIL, f"{variant.name} of vLLM {version}", f"vLLM {span}", "set vllm_variant: auto")
        cuda = variant.cuda
    if cuda is None:
        return Row(name, _UNKNOWN, f"the CUDA of vLLM {version} is not known", "a known release", "")
    driver = case.driver
    if driver is None:
        return Row(name, _UNKNOWN, f"CUDA {cuda}; no driver", "a driver", "set nvidia_driver_enabled: true")
    fit = case.table.fit(driver, cuda)
    gpus = case.gpus
    if fit is Fit.FAIL:
        if case.intent.forward_compat and gpus and all(case.table.forward_compatible(gpu, driver) for gpu in gpus):
            return Row(name, _WARN, f"CUDA {cuda} on {driver} by forward compatibility", "cuda-compat on the host", "")
        older = _variant_for(driver, version, case.table)
        way = f"set vllm_variant: {older}, or " if older else ""
        if older and case.intent.locked and older not in case.intent.locked:
            way = f"make {version}+{older}.lock with tools/vllm_lock.py, or "
        return Row(
            name,
            _FAIL,
            f"vLLM {version} brings CUDA {cuda}; driver {driver}",
            f"driver {case.table.family_floor(cuda)} or newer",
            f"{way}set nvidia_driver_version: {case.table.default_driver}",
        )
    if fit is Fit.UNKNOWN:
        return Row(name, _UNKNOWN, f"CUDA {cuda} on {driver}", f"driver {case.table.family_floor(cuda)}", "")
    if fit is Fit.MINOR:
        compiled = [gpu for gpu in gpus if numbers(gpu.compute) >= numbers(case.table.ptx_only_from)]
        strict = bool(compiled) and not case.intent.attention_without_ptx and numbers(cuda)[0] == 12
        return Row(
            name,
            _FAIL if strict else _WARN,
            f"CUDA {cuda} on {driver} by minor-version compatibility",
            f"a driver whose own CUDA is {cuda} or newer, for code that the driver compiles from PTX",
            f"set nvidia_driver_version: {case.table.default_driver}"
            + (f" ({compiled[0].label}: FlashAttention 2 is compiled from PTX)" if compiled else ""),
        )
    return Row(name, _OK, f"CUDA {cuda} on {driver}")


def compute_capability(case: Case) -> Row:
    """9: the wheel carries code for every GPU."""
    name = "compute capability"
    gpus = case.gpus
    wheel = case.table.wheel(case.intent.vllm_version) if case.intent.vllm_version else None
    if case.intent.cpu or not case.intent.vllm or wheel is None or not gpus:
        return Row(name, _SKIP)
    weakest = min(gpus, key=lambda gpu: numbers(gpu.compute))
    if numbers(weakest.compute) < numbers(wheel.compute_floor):
        last = [v for v in case.table.wheels() if _floor(case.table, v) <= numbers(weakest.compute)]
        action = f"set vllm_version: {last[-1]} (the last that runs on it)" if last else "use another card"
        return Row(
            name,
            _FAIL,
            f"{weakest.label} has {weakest.compute}",
            f"{wheel.compute_floor} or newer for vLLM {wheel.version}",
            action,
        )
    for gpu in gpus:
        if numbers(wheel.cuda) < numbers(gpu.min_cuda):
            return Row(
                name,
                _FAIL,
                f"{gpu.label} ({gpu.compute}) with the CUDA {wheel.cuda} of vLLM {wheel.version}",
                f"CUDA {gpu.min_cuda} or newer",
                "set a newer vllm_version",
            )
    return Row(name, _OK, f"{weakest.compute}")


def libc_and_python(case: Case) -> Row:
    """10: the wheel's glibc tag and Python range fit the host."""
    name = "glibc and Python"
    wheel = case.table.wheel(case.intent.vllm_version) if case.intent.vllm_version else None
    if not case.intent.vllm or wheel is None:
        return Row(name, _SKIP)
    shipped = case.table.platform(case.host.platform) if case.host.platform else None
    glibc = case.host.glibc or (shipped[0] if shipped else None)
    python = case.intent.python or case.host.python or (shipped[1] if shipped else None)
    if glibc is None or python is None:
        return Row(name, _UNKNOWN, "not read", f"glibc {wheel.glibc}, Python {wheel.python}", "")
    if numbers(glibc) < numbers(wheel.glibc):
        return Row(
            name,
            _FAIL,
            f"glibc {glibc}",
            f"{wheel.glibc} or newer for the wheel of vLLM {wheel.version}",
            "use a newer distribution, or a vllm_version whose wheel has a lower tag",
        )
    if not _in_range(python, wheel.python):
        return Row(
            name,
            _FAIL,
            f"Python {python}",
            f"{wheel.python} for vLLM {wheel.version}",
            "set vllm_python_version to a managed interpreter, such as 3.12",
        )
    return Row(name, _OK, f"glibc {glibc}, Python {python}")


def _floor(table: Table, version: str) -> tuple[int, ...]:
    wheel = table.wheel(version)
    return numbers(wheel.compute_floor) if wheel else ()


def _variant_for(driver: str, version: str, table: Table) -> str | None:
    variant = table.variant("cu129")
    fits = variant is not None and variant.exists_for(version) and table.fit(driver, variant.cuda) is not Fit.FAIL
    return "cu129" if fits else None


def _in_range(python: str, wanted: str) -> bool:
    have = numbers(python)[:2]
    for bound in wanted.split(","):
        limit = numbers(bound.lstrip("<>=!"))[:2]
        if bound.startswith(">=") and have < limit:
            return False
        if bound.startswith("<") and not bound.startswith("<=") and have >= limit:
            return False
    return True
