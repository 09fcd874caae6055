"""`--compilation-config` with one thing changed: what the launch already says in it stays."""

import json

from vllm_doctor.knowledge import kernels
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import set_flag

NAME = "compilation-config"


def with_passes_off(case: Case, passes: tuple[str, ...], why: str) -> Change | None:
    """The named switches of `pass_config` off, under the names that this run's own log used."""
    return _changed(case, {"pass_config": dict.fromkeys(passes, False)}, why) if passes else None


def with_keys_off(case: Case, keys: tuple[str, ...], why: str) -> Change | None:
    """Switches of the compilation itself off."""
    return _changed(case, dict.fromkeys(keys, False), why)


def with_key(case: Case, key: str, value: str, why: str) -> Change | None:
    """One key of the compilation set to another word."""
    return _changed(case, {key: value}, why)


def without_compiling(case: Case, why: str) -> Change | None:
    """torch.compile off (`mode` 0, `level` 0 before 0.11.2); CUDA graphs stay where the release can do one alone."""
    key = next((k for k in ("mode", "level") if case.version and kernels.has("compilation", k, case.version)), None)
    return _changed(case, {key: 0}, why) if key is not None else None


def without_graphs(case: Case, why: str) -> Change | None:
    """CUDA graphs off, torch.compile stays (0.10.1.1 and later)."""
    known = case.version is not None and kernels.has("compilation", "cudagraph_mode", case.version)
    return _changed(case, {"cudagraph_mode": "NONE"}, why) if known else None


def _changed(case: Case, new: dict[str, object], why: str) -> Change | None:
    given = given_config(case)
    if given is None:
        return None
    merged = {**given, **{k: {**_mapping(given.get(k)), **v} if isinstance(v, dict) else v for k, v in new.items()}}
    if merged == given:
        return None
    return set_flag(case, NAME, json.dumps(merged), Direction.CHANGE, why)


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def given_config(case: Case) -> dict[str, object] | None:
    """What the launch itself says: {} where it says nothing, None where it cannot be told (the log prints the whole
    configuration with its defaults, as Python objects)."""
    launch = case.launch
    written = launch.flags.get(NAME) if launch is not None else None
    if written is None:
        return {} if case.flag(NAME) is None or launch is not None else None
    if not isinstance(written, str):
        return None
    if written in {"0", "1", "2", "3"}:  # -O3
        key = "mode" if case.version and kernels.has("compilation", "mode", case.version) else "level"
        return {key: int(written)}
    try:
        read = json.loads(written)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None
