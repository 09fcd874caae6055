"""The question of `plan`: texts from the command line, checked and turned into a planner."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import (
    Card,
    elsewhere,
    exactly,
    find,
    nearest,
    nominal,
    other_maker,
    others_of,
    under_wsl,
    unlisted,
    usable_gib,
)
from vllm_doctor.knowledge.versions import Version, newest_known, parse_version, sampled
from vllm_doctor.launch.parse import LaunchLine, parse_launch
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.config_json import Section, checkpoint_bytes, read_config
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.model.largest_image import with_largest_image
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.model.separate_drafter import describe_drafter
from vllm_doctor.plan.prediction.known import KnownTerms
from vllm_doctor.plan.prediction.predict import stages, whole_start
from vllm_doctor.plan.prediction.record import GIB, Prediction
from vllm_doctor.plan.prediction.stage import quantization
from vllm_doctor.plan.question.logged_starts import History
from vllm_doctor.plan.terms.weights import WeightTarget, rank_weights
from vllm_doctor.records import excerpt


class PlanProblem(Exception):  # noqa: N818
    """A question that cannot be answered: what was found and what is needed."""


# Several cards that one name was given: `2x4090`, `2 × L40S`, `4090 x2`.
_COUNTED = re.compile(
    r"\s*(?:(?P<first>\d{1,2})\s*[x\u00d7*]\s*(?P<after>\S.*)|(?P<before>.*\S)\s+[x\u00d7*]\s*(?P<last>\d{1,4}))\s*",
    re.IGNORECASE,
)
# The launch line of a config.json with nothing else.
MODEL_ALONE = ("vllm", "serve", "MODEL")


class Question(msgspec.Struct, frozen=True):
    """What was asked, as text; None is what was left out."""

    launch: tuple[str, ...]
    gpu: str | None = None
    gpus: int = 1
    gpu_memory_gib: str | None = None
    version: str | None = None
    config: str | None = None
    weights_gib: str | None = None
    available_kv_gib: str | None = None
    measured: KnownTerms = msgspec.field(default_factory=KnownTerms)
    host_memory_gib: str | None = None
    draft_config: str | None = None  # of a drafter that is a separate model
    assumed: tuple[str, ...] = ()  # what was taken because nobody said it, each in a sentence


class Planner(msgspec.Struct, frozen=True):
    """Everything that stays the same while the launch is varied."""

    arch: Architecture
    line: LaunchLine
    version: Version
    gpu: Card | None
    total_gib: float | None
    gpus: int
    known: KnownTerms
    notes: tuple[str, ...] = ()
    history: History = msgspec.field(default_factory=History)
    draft: Architecture | None = None  # of a drafter that is a separate model
    unread: tuple[str, ...] = ()  # what nobody knows of the release, each in a sentence
    cards: tuple[Card, ...] = ()  # of the pipeline stages, where they differ; `gpu` is the least of them

    def settings(self, changes: dict[str, str | bool | None] | None = None) -> Settings:
        """The launch resolved, with flags changed or (None) left out."""
        flags = {k: v for k, v in {**self.line.flags, **(changes or {})}.items() if v is not None}
        line = replace(self.line, flags=flags)
        s = resolve(line, self.version, self.arch, self.gpu, self.total_gib, self.gpus, self.draft)
        return replace(s, doubts=self.unread) if self.unread else s

    def predict(self, changes: dict[str, str | bool | None] | None = None) -> Prediction:
        """The prediction for the launch with these changes. A known pool says nothing about a changed launch, so it
        counts only without changes."""
        known = self.known if not changes else replace(self.known, available_kv_gib=None, activation_gib=None)
        return whole_start(self._stages(known, self.settings(changes)))

    def stages(self) -> list[Prediction]:
        """The launch as asked, one prediction for the first and one for the last pipeline stage."""
        return self._stages(self.known, self.settings())

    def _stages(self, known: KnownTerms, s: Settings) -> list[Prediction]:
        return stages(self.arch, s, self.gpu, self.total_gib, known.over(self.history.known(s)), self.cards)

    def with_history(self, history: History) -> Planner:
        """The same, with what earlier starts on this host logged in the place of predicted terms."""
        if history.known(self.settings()) == KnownTerms():
            return replace(self, history=history)
        note = "terms logged by an earlier start of this launch on this host replace predicted ones"
        return replace(self, history=history, notes=(*self.notes, note))

    def on(self, gpu: Card, gpus: int) -> Planner:
        """The same launch on other cards."""
        return replace(self, gpu=gpu, total_gib=gpu.total_gib, gpus=gpus, history=History(), cards=())


def gib(name: str, text: str | None, high: float) -> float | None:
    """A size in GiB from text. Raises PlanProblem for another unit, a size that no card has, and what is no number."""
    if text is None:
        return None
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)\s*(gib)?", text.strip(), re.IGNORECASE)
    if not found:
        raise PlanProblem(f"{name}: found {text!r}; needed: a number of GiB (2^30 bytes), such as 79.19")
    value = float(found[1])
    if not 0 < value <= high:
        near = (
            f"; {value / 1024:.2f} GiB if MiB were meant"
            if high < value < 1e7
            else f"; {value / 2**30:.2f} GiB if bytes were meant"
            if 1e7 <= value <= high * 2**30
            else ""
        )
        raise PlanProblem(f"{name}: found {text}; needed: GiB above 0 and up to {high:g}{near}")
    return value


def _doubled(card: Card, total: float) -> bool:
    """Cards whose memory was doubled by a workshop (RTX 4090 with 48 GB, RTX 2080 Ti with 22 GB) keep their name."""
    return 1.9 * card.total_gib <= total <= 2.1 * card.total_gib


def _several(name: str) -> str | None:
    """What asks the same of several cards in one name (`2 x RTX 4090`, `H100,A100`); None for other names."""
    counted = _COUNTED.fullmatch(name)
    if counted is not None:
        one, number = counted["after"] or counted["before"], counted["first"] or counted["last"]
        return f"--gpu '{one}' --gpus {number}" if find(one) is not None else None
    names = [one.strip() for one in name.split(",")]
    if len(names) > 1 and all(find(one) is not None for one in names):
        return (
            f"--sweep '{','.join(names)}' to compare them; of unequal cards in one server, plan the one with less "
            f"memory, with --gpus {len(names)}, or one for each stage: --pipeline-parallel-size {len(names)}"
        )
    return None


def _of_stages(q: Question, line: LaunchLine) -> tuple[Card, ...]:
    """The cards of a name that lists as many as the launch has pipeline stages, in their order; none where one of them
    is not known."""
    cards = tuple(find(one.strip()) for one in (q.gpu or "").split(","))
    known = tuple(card for card in cards if card is not None and card.other_gib is None)
    asked = str(len(cards)) == line.flags.get("pipeline-parallel-size") and q.gpu_memory_gib is None
    return known if asked and 1 < len(known) == len(cards) else ()


def card_of(name: str | None, total: float | None) -> Card | None:
    """The card of a name, or None for no name. Raises PlanProblem with the nearest names."""
    if name is None:
        return None
    card = find(name, total)
    if card is None and (other := elsewhere(name, total)) is not None:
        if not other.total_gib:
            raise PlanProblem(
                f"--gpu: found {excerpt.value(name)}, whose name does not say its memory; needed: "
                "--gpu-memory-gib beside it"
            )
        return other
    if card is not None and card.other_gib is not None:
        raise PlanProblem(
            f"--gpu: found {excerpt.value(name)}, which is sold with {card.total_gib:g} and with {card.other_gib:g} "
            f"GiB; needed: --gpu-memory-gib beside it, or the size in the name, such as "
            f"{card.name.removeprefix('NVIDIA ')} {nominal(card.total_gib)}GB"
        )
    if card is None and (maker := other_maker(name)) is not None:
        if total is not None and (made := unlisted(name, total)) is not None:
            return made
        sized = "--gpu-memory-gib beside it, or " if unlisted(name, 0.0) is not None else ""
        raise PlanProblem(
            f"--gpu: found {excerpt.value(name)}, no device of {maker} that is known; needed: {sized}one of "
            f"{', '.join(others_of(maker))}; of these, weights and the KV cache of a request are all that is planned"
        )
    if card is None and (asked := _several(name)) is not None:
        raise PlanProblem(f"--gpu: found {excerpt.value(name)}, more than the name of one card; needed: {asked}")
    if card is None:
        close = nearest(name)
        offered = f"; nearest: {', '.join(close)}" if close else ""
        raise PlanProblem(
            f"--gpu: found {excerpt.value(name)}; needed: the name of a card{offered}; or --gpu-memory-gib N alone for "
            f"a card that is not listed"
        )
    if total is not None and not (0.5 * card.total_gib <= total <= 1.25 * card.total_gib or _doubled(card, total)):
        raise PlanProblem(
            f"--gpu-memory-gib: found {total:g}; needed: about {card.total_gib:g}, which is what {card.name} has"
        )
    return card


def _overridden(config: Section, line: LaunchLine) -> Section:
    """The config as --hf-overrides changes it, object into object as vLLM merges it (config/model.py), and as
    --rope-scaling of 0.4 to 0.9 sets one key of it (transformers_utils/config.py get_config)."""

    def merged(values: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
        out = dict(values)
        for key, new in changes.items():
            old = values.get(key)
            out[key] = merged(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        return out

    flags = Flags(line)
    asked = flags.object("rope-scaling")
    made = merged(config.values, flags.object("hf-overrides"))
    return Section({**made, "rope_scaling": asked} if asked else made, config.path)


# A checkpoint stored in twice as many bits is one; what lies beyond is another model's, or a part of one.
_OTHER_MODEL = 2.5
_UNLIKE = 1.15
# Rounding of the allocator and what a description leaves out; no card is decided by it.
_NOTHING = 64 << 20


def _weighed(config: Path, a: Architecture, element: int) -> list[str]:
    """The checkpoint beside the config, held against what the config describes. Raises PlanProblem where they are not
    of one model."""
    stored = checkpoint_bytes(config)
    if stored is None:
        return []
    # Tables of rotary positions are computed when loading and in no checkpoint.
    target = WeightTarget(element, rope_rows=0)
    described = rank_weights(a, scheme(a.quantization, None, element), Parallel(1, 1, 1, False), 0, target)
    if abs(stored - described) < _NOTHING:
        return []
    times = max(stored, described) / min(stored, described)
    told = (
        f"the checkpoint beside {config} holds {stored / GIB:.2f} GiB, the config describes {described / GIB:.2f} GiB"
    )
    if a.known and times > _OTHER_MODEL:
        raise PlanProblem(f"{told}; needed: config and weights of one model, or --weights-gib")
    return [f"{told}; --weights-gib settles it"] if times > _UNLIKE else []


def _carded(q: Question, card: Card, total: float) -> list[str]:
    """What is taken of the card that the question does not say."""
    notes: list[str] = []
    if card.backend != "CUDA":
        told = (
            f"{card.name} runs vLLM's {card.backend}: planned as CUDA's is, and more outside torch, as starts of two "
            f"hosts had it; refusals of that build are not judged"
        )
        return [told] if card.compared else []
    if q.gpu is not None and q.gpu_memory_gib is None and not exactly(q.gpu):
        notes.append(f"--gpu {excerpt.value(q.gpu)} is planned as {card.name}, {card.total_gib:g} GiB")
    if _doubled(card, total):
        notes.append(f"{card.name} is sold with {card.total_gib:g} GiB; planned with the {total:g} that were given")
    if not card.exact and q.gpu_memory_gib is None:
        notes.append(
            f"{card.name}: {card.total_gib:g} GiB follows from the nameplate, not from a log; give --gpu-memory-gib"
        )
    return notes


def _apart(cards: tuple[Card, ...]) -> list[str]:
    told = ", ".join(f"{card.name} ({card.total_gib:g} GiB)" for card in cards)
    return [f"one card for each pipeline stage, in this order: {told}; another layout is planned with the least"]


def _asleep(line: LaunchLine, version: Version) -> list[str]:
    """What the profile of a start that can sleep counts wrong: what loading frees leaves the card, while torch still
    counts it as its own (device_allocator/cumem.py use_memory_pool), so that less seems to lie outside torch."""
    sleeps = Flags(line).on("enable-sleep-mode", default=False) or Flags(line).on(
        "enable-cumem-allocator", default=False
    )
    if not sleeps or not behaviour(version).trims_unseen:
        return []
    told = (
        "sleep mode: vLLM plans its KV cache larger by what loading has freed, which is not told here; where the card "
        "has no room for that, making the cache ends the start: a lower --gpu-memory-utilization"
    )
    return [told]


def _kept(card: Card | None, said: float, total: float | None) -> list[str]:
    notes = [f"the driver keeps a part of the {said:g} GiB that nvidia-smi shows: planned with {total:g}"]
    if card is not None and card.of_pc:
        notes.append(f"under WSL CUDA sees all of the {said:g} GiB, and vLLM takes its share of them")
    return notes


def _nameless() -> list[str]:
    return ["no --gpu: the compute capability is not known, so what the release refuses on older cards is not judged"]


def _drafter(q: Question) -> Architecture | None:
    return describe_drafter(read_config(Path(q.draft_config))) if q.draft_config else None


def _unread(q: Question, s: Settings) -> list[str]:
    """What was given and is not asked for."""
    if q.draft_config is None or s.draft is not None:
        return []
    return ["--draft-config: this launch drafts without a separate model, so the file was not read"]


def planner(q: Question) -> Planner:
    """Check the question and read what it names.

    Raises PlanProblem, ConfigError, LaunchError or SettingError, each naming what was found and what is needed.
    """
    if not q.version:
        raise PlanProblem(
            "--vllm-version is missing and this host has no vLLM; needed: the release that will run, such as 0.33.0"
        )
    version = parse_version(q.version)
    if version is None:
        raise PlanProblem(f"--vllm-version: found {q.version!r}; needed: a release such as {newest_known()}")
    if not q.config:
        raise PlanProblem("--model-config is missing; needed: the model's config.json, or the folder that holds it")
    if not 1 <= q.gpus <= 4096:
        raise PlanProblem(f"--gpus: found {q.gpus}; needed: the number of cards, from 1 to 4096")
    total = gib("--gpu-memory-gib", q.gpu_memory_gib, 1024)
    line = parse_launch(list(q.launch), version)
    apart = _of_stages(q, line)
    card = min(apart, key=lambda one: one.total_gib) if apart else card_of(q.gpu, total)
    gpus = max(q.gpus, len(apart))
    weights = gib("--weights-gib", q.weights_gib, 4096)
    available = gib("--available-kv-gib", q.available_kv_gib, 4096)
    said, total = total, card.total_gib if card is not None and total is None else total
    if card is not None and total is not None:
        total = usable_gib(card, total)
    if total is None and available is None:
        raise PlanProblem(
            "no card; needed: --gpu NAME or --gpu-memory-gib N (or --available-kv-gib N for the token arithmetic alone)"
        )
    known = replace(
        q.measured,
        weights_gib=weights or q.measured.weights_gib,
        available_kv_gib=available,
        host_gib=gib("--host-memory-gib", q.host_memory_gib, 1 << 20),
    )
    arch = describe(_overridden(read_config(Path(q.config)), line))
    arch = with_largest_image(arch, Path(q.config), line.model)
    notes = [*q.assumed, *arch.doubts, *_asleep(line, version)]
    newest, unread = newest_known(), list[str]()
    if version > newest:
        told = f"vLLM {version} is newer than {newest}, the newest release that was read; planned as that one"
        # What mends a release changes no more than a note is worth; another one may refuse what this one takes.
        (notes if version.release[:2] == newest.release[:2] else unread).append(told)
    elif version < sampled()[0]:
        notes.append(
            f"vLLM {version} is older than {sampled()[0]}, the oldest release that was read; planned as that one"
        )
    if total is not None:
        notes += _apart(apart) if apart else _nameless() if card is None else _carded(q, card, total)
    if said is not None and said != total:
        card = card and under_wsl(card, said)
        notes += _kept(card, said, total)
    notes += [f"--{name} is a flag of no known release: it was not judged" for name in line.unknown]
    draft = _drafter(q)
    s = resolve(line, version, arch, card, total, gpus, draft)
    notes += _unread(q, s)
    fmt = quantization(arch, s)
    if weights is None and s.gguf is None:
        notes += _weighed(Path(q.config), arch, s.element)
    if not fmt.exact:
        notes.append(
            f"quantization {fmt.name}: its layout is not known here, so the weights are an estimate; --weights-gib "
            "gives the exact size"
        )
    return Planner(
        arch, line, version, card, total, gpus, known, tuple(notes), draft=draft, unread=tuple(unread), cards=apart
    )
