"""VD203: log-probabilities over the whole vocabulary, which nothing measured at start."""

from vllm_doctor.knowledge.version import Version
from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, sums, tenants
from vllm_doctor.rules.gates.run_time import at_run_time, for_logprobs, of_a_request
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.step import fewer_tokens, tokens
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.say import finding, set_flag, thing

# From here on V1 is the only engine; it chunks prompts unless it is told not to.
_ALWAYS = Version((0, 11, 0))
# GiB: 1024 sequences × the largest vocabulary (262144) × 4 bytes.
_OF_A_DUMMY = 1.0
# Only V1's model runner has it, and V1 chunks prompts by itself.
_OF_V1 = "_get_prompt_logprobs_dict"
# How many a request asks for is no matter: they are made of the whole vocabulary (v1/sample/sampler.py).
_REFUSES = "refuses requests that ask for any: one alone needs as much as twenty, the whole vocabulary for each token"


def judge(case: Case) -> Outcome:
    """Did a step fail while it computed log-probabilities?"""
    oom = at_run_time(case)
    cut = _unplaced(case) if isinstance(oom, NotHere) else None
    oom = cut or oom
    if isinstance(oom, NotHere | Unseen):
        return oom
    if tenants(case, oom.torch) is not None:
        return Clear("something else holds the memory that was missing")
    if not for_logprobs(oom):
        return Clear("no frame computes log-probabilities")
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.CONFIRMED if cut is None and oom.fault.functions else Confidence.LIKELY,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=(*_whole(case), *sums(oom.torch)),
        changes=(
            _chunked(case),
            None if _in_pieces(oom) else fewer_tokens(case, oom.torch, measuring=False),
            lower_utilization(case, oom.torch, "the buffers use the memory that gpu_memory_utilization leaves free"),
            set_flag(case, "max-logprobs", 0, Direction.LOWER, _REFUSES),
            thing(
                ChangeKind.OS,
                "prompt_logprobs",
                Direction.REMOVE,
                "any client can end the engine with such a request: let the gateway refuse prompt_logprobs",
            ),
        ),
        refute="the same requests without logprobs and prompt_logprobs fail in the same frame",
    )


def _unplaced(case: Case) -> Oom | None:
    """A traceback that is cut off before the step: the dummy batch has one row a sequence, a few hundred at most;
    more than those take, or a request in the text that asks for the log-probabilities of its prompt, is a step."""
    oom = exhausted(case, StartupPhase.CONFIG)
    if not isinstance(oom, Oom) or not for_logprobs(oom):
        return None
    large = oom.torch is not None and oom.torch.asked > _OF_A_DUMMY * GIB
    return oom if large or of_a_request(oom.fault) or oom.run.first("asks-prompt-logprobs") is not None else None


def _in_pieces(oom: Oom) -> bool:
    """V2's runner computes a prompt's in pieces of 1024 tokens, whatever a step has (sample/prompt_logprob.py)."""
    return any(says(file, "call-v2-prompt-logprobs") for file in oom.fault.files)


def _chunked(case: Case) -> Change | None:
    if case.effective("enable-chunked-prefill") is True or case.effective("chunked-prefill-enabled") is True:
        return None
    if case.version is not None and case.version >= _ALWAYS:
        return None
    root = case.root
    # A message quoted without calls was told by a line of V1's sampler.
    if (case.run is not None and case.run.engine == "V1") or root is None or not root.functions:
        return None
    if _OF_V1 in root.functions:
        return None
    return set_flag(
        case,
        "enable-chunked-prefill",
        True,
        Direction.ADD,
        "vLLM then computes the logits of a long prompt chunk by chunk",
        applicability=Applicability.NEEDS_REVIEW,
    )


def _whole(case: Case) -> tuple[Arithmetic, ...]:
    now, config = tokens(case), case.model_config
    vocabulary = config.get("vocab_size") if config is not None else None
    if now is None or not isinstance(vocabulary, int):
        return ()
    size = now[0] * vocabulary * 6 / GIB
    return (
        Arithmetic(
            "one full step of prompt log-probabilities",
            round(size, 2),
            "GiB",
            f"{now[0]} × {vocabulary} × (2 + 4) B",
            "logits and their 32-bit copy",
        ),
    )


RULE = rule(
    "VD203", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.MODEL_CONFIG}), judge=judge
)
