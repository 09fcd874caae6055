"""VD140: the dummy batch of the sampler does not fit: too many sequences times the vocabulary."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.told_step import SAMPLER
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Phase
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED, Oom, exhausted, has_words, sums, tenants
from vllm_doctor.rules.gates.profile_run import dummy_batch
from vllm_doctor.rules.gates.run_time import of_a_request
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.step import SMALLEST_DEFAULT, fewer_sequences, sequences
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.remedies.weights import lighter
from vllm_doctor.rules.say import finding

_MESSAGES = frozenset({"sampler-oom", "pooler-oom"})
_NEAR = 200


def judge(case: Case) -> Outcome:
    """Did the warm-up of the sampler (or pooler) run out of memory?"""
    run, root = case.run, case.root
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if root is None:
        return NotHere("the log shows no failure that ended the run")
    said = bool(root.ids & _MESSAGES) or _relayed(run, root)
    named = exhausted(case, StartupPhase.WARMUP)
    told = not said and isinstance(named, Oom) and has_words(named, SAMPLER)
    unplaced = not told and _in_its_code(root)
    if not said and not (root.ids & EXHAUSTED and dummy_batch(root)) and not unplaced and not told:
        return NotHere("the first failure is not the sampler's dummy batch")
    if tenants(case, run.oom) is not None:
        return Clear("something else holds the memory that was missing")
    # Pools of graphs that were captured stand in torch's message: then it was the warm-up, after the KV cache.
    captured = run.oom is not None and bool(run.oom.private_pools)
    # The sampler's sentence speaks of its warm-up; its code without that sentence runs in the profile first.
    measuring = root.startup_phase == StartupPhase.PROFILE or (unplaced and not captured and not said)
    return finding(
        RULE,
        title=f"The {'pooler' if 'pooler-oom' in root.ids else 'sampler'}'s dummy batch{_size(case)} does not fit",
        phase=Phase.STARTUP_PROFILE if measuring else Phase.STARTUP_SAMPLER_WARMUP,
        confidence=Confidence.LIKELY if unplaced or told else Confidence.CONFIRMED,
        evidence=tuple(case.line(h.index) for h in root.hits[:2]),
        arithmetic=(*sums(run.oom), *_each(case)),
        changes=(
            *_smaller(case, run.oom),
            None
            if measuring
            else lower_utilization(
                case, run.oom, "the warm-up runs after vLLM allocates the KV cache, in the memory that is left"
            ),
        ),
        refute="the same start with a tenth of max_num_seqs fails in the same place",
    )


def _smaller(case: Case, torch: TorchOom | None) -> tuple[Change | None, ...]:
    """Fewer sequences; where there are hardly any already, it is the weights that leave no room for them."""
    fewer = fewer_sequences(case, torch)
    return (fewer,) if fewer is not None else lighter(case)


def _size(case: Case) -> str:
    """How many sequences the batch has, where the launch, the log or the release tells it."""
    rows, source = sequences(case)
    return f" of {rows} sequences" if source != SMALLEST_DEFAULT else ""


def _in_its_code(root: Fault) -> bool:
    """A traceback cut off before the step: what fails in the sampler's own code is a buffer of sequences × vocabulary,
    and while serving there are never more of them than the profile run had."""
    if root.startup_phase is not StartupPhase.CONFIG or not root.ids & EXHAUSTED or of_a_request(root):
        return False
    return any(says(f, "call-v1-sampler") for f in root.files[-2:]) and not any("logprobs" in f for f in root.functions)


def _relayed(run: AnalysedRun, root: Fault) -> bool:
    """Several ranks fail at once: the allocator's line and the one that says what it was for may not stand together."""
    told = run.first(*_MESSAGES)
    lone = root.crash is None or not root.crash.root.frames
    return bool(root.ids & EXHAUSTED) and lone and told is not None and root.index <= told.index <= root.last + _NEAR


def _each(case: Case) -> tuple[Arithmetic, ...]:
    torch = case.run.oom if case.run is not None else None
    rows, source = sequences(case)
    if torch is None or source == SMALLEST_DEFAULT:
        return ()
    return (
        Arithmetic(
            "one sequence",
            round(torch.asked / rows / 1024, 1),
            "KiB",
            f"{torch.asked / GIB:.2f} GiB / {rows}",
            "torch's message",
        ),
    )


RULE = rule("VD140", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
