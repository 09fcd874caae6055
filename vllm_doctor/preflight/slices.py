"""Can the cards be sliced as the inventory declares? (NVIDIA, MIG user guide: supported GPUs and profiles.)"""

import re

from vllm_doctor.launch.numbers import number
from vllm_doctor.launch.parse import parse_words
from vllm_doctor.preflight.judged import Checked, HostToJudge, Result

_NAME = "MIG layout"
_PROFILE = re.compile(r"(?:\d+c\.)?(?P<parts>\d+)g\.\d+gb(?:[+-][a-z.]+)?|(?P<id>\d+)")
_LAYOUT = 'a list of profiles, such as {"0": [3g.40gb, 3g.40gb]}'


def slices_possible(case: HostToJudge) -> Checked:
    """16: every declared slice is a profile, its card can be sliced, and has that many slices."""
    if not case.intent.slices or case.intent.cpu:
        return Checked(_NAME, Result.NOT_APPLICABLE)
    for index, profiles in case.intent.slices:
        for profile in profiles:
            if not _PROFILE.fullmatch(profile):
                return _fail(
                    f"GPU {index}: {profile!r}", _LAYOUT, "correct host_settings_mig (nvidia-smi mig -lgip lists them)"
                )
    for launch in case.intent.launches:
        if (ranks := _ranks(launch.words)) > 1:
            return _fail(
                f"{launch.name} with --tensor-parallel-size {ranks}",
                "1: slices have no NVLink between them",
                "set vllm_tensor_parallel_size: 1, or give up host_settings_mig",
            )
    if not case.host.gpus:
        return Checked(_NAME, Result.UNKNOWN, "no card is known", "cards that can be sliced", "")
    for index, profiles in case.intent.slices:
        row = _of_card(case, index, profiles)
        if row is not None:
            return row
    layouts = (f"GPU {index}: {' '.join(profiles) or 'whole'}" for index, profiles in case.intent.slices)
    return Checked(_NAME, Result.OK, "; ".join(layouts))


def _of_card(case: HostToJudge, index: str, profiles: tuple[str, ...]) -> Checked | None:
    devices = case.host.gpus or ()
    if not index.isdigit() or int(index) >= len(devices):
        return _fail(f"GPU {index} of {len(devices)}", f"0 to {len(devices) - 1}", "correct host_settings_mig")
    gpu = case.table.gpu(devices[int(index)])
    if gpu is None or not profiles:
        return None  # an unknown card is the first check's complaint
    parts = [match["parts"] for profile in profiles if (match := _PROFILE.fullmatch(profile))]
    asked = sum(int(part) for part in parts if part)
    if not gpu.mig:
        return _fail(f"GPU {index}, {gpu.label}", "a card that can be sliced", "take it out of host_settings_mig")
    if asked > gpu.mig:
        return _fail(
            f"GPU {index}: {' '.join(profiles)}, {asked} compute slices",
            f"at most {gpu.mig} on {gpu.label}",
            "declare fewer or smaller slices in host_settings_mig",
        )
    return None


def _ranks(words: tuple[str, ...]) -> int:
    """GPUs that one copy of the engine spreads over, as vLLM's parser reads the words."""
    given = parse_words(words, None).flags.get("tensor-parallel-size")
    return int(number(given) or 1) if isinstance(given, str) else 1


def _fail(found: str, needed: str, action: str) -> Checked:
    return Checked(_NAME, Result.FAIL, found, needed, action)
