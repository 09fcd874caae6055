"""VD519: a kernel does not fit the on-chip shared memory of this GPU; that is neither VRAM nor /dev/shm."""

from vllm_doctor.knowledge import builds, kernels, versions
from vllm_doctor.knowledge.version import Version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.gates.rocm import least_capability, on_rocm, platforms
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.attention_backend import other_attention
from vllm_doctor.rules.remedies.kernel_kind import KernelKind, kernel_kind
from vllm_doctor.rules.remedies.other_kernel import other_kernel
from vllm_doctor.rules.remedies.step import sequences
from vllm_doctor.rules.remedies.weights import quantized
from vllm_doctor.rules.say import environment, finding, set_flag, thing, upgrade

_IDS = (
    "triton-shared",
    "tile-unsupported",
    "xla-on-chip",
)

_WHICH = "Say which card it is (--gpu): NVIDIA's and AMD's cards with this much on-chip memory have different kernels"
_CALLS = (
    "The calls above this line say which kernel it is: attention has other backends, experts have others, quantized "
    "weights need another checkpoint; give the log with them"
)
# Tokens of a prompt: with so many a page is a quarter of the largest, and above so many the smallest.
_SMALL_PAGES, _LONGEST_PAGED = 1024, 8192
_SCOPE = "--xla_tpu_scoped_vmem_limit_kib=65536"
# Up to this release a card below compute capability 8.0 falls back to V0.
_V0_LEFT = Version((0, 9))


def judge(case: Case) -> Outcome:
    """Did a kernel not fit on-chip memory?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        title="A program needs more memory than a TPU core has" if "xla-on-chip" in fault.ids else "",
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=_changes(case, fault),
        then=_then(case, fault),
        refute="the same model fails in the same call on a GPU with more on-chip memory",
    )


def _then(case: Case, fault: Fault) -> str:
    """What is still to be known: whose card it is, or which kernel."""
    if kernel_kind(case, fault) is None and "xla-on-chip" not in fault.ids:
        return _CALLS
    return _WHICH if platforms(case, fault) - {"cuda"} and "rocm" in platforms(case, fault) else ""


def _changes(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """Another attention backend only where attention is what did not fit; else other kernels for what failed. Triton
    refuses before the kernel runs, so the call that failed is the one that is named."""
    if fault.fields("xla-on-chip").get("space") == "smem":
        return _smaller_table(case)
    if fault.fields("xla-on-chip").get("space") == "vmem":
        return _larger_scope(case, fault) or _smaller_page(case)
    failed = kernel_kind(case, fault)
    triton = "triton-shared" in fault.ids
    if failed is KernelKind.ATTENTION:
        other = other_attention(case, fault, "this backend's kernels need less on-chip memory", not_triton=triton)
        return (other, *_whole_prompts(case, fault)) if other is not None else _without_another(case, fault)
    if failed is KernelKind.MATRIX and triton:
        why = (
            "take a checkpoint with another quantization (AWQ, GPTQ): Triton's kernel for this one does "
            "not fit this GPU"
        )
        return (thing(ChangeKind.FLAG, "model", Direction.CHANGE, why),)
    if failed is KernelKind.EXPERTS and triton:
        return (*_experts(case, fault), _smaller_block(case, fault))
    return other_kernel(case, fault) if failed is not None else ()


def _without_another(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    whole = _whole_prompts(case, fault)
    return whole or (_smaller_block(case, fault),)


def _whole_prompts(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """V0 calls this kernel for prompts alone of which a part is in the cache: of an earlier one, or of a chunk before.
    Cards below 8.0 run V0 up to 0.8."""
    old = case.version is not None and case.version < _V0_LEFT and (least_capability(case, fault) or 8.0) < 8.0
    engine = case.run.engine if case.run is not None else None
    cached = any(says(file, "call-cached-prompt") for file in fault.files)
    if not cached or not (engine == "V0" or (engine is None and old)):
        return ()
    why = "this kernel continues a prompt that is partly cached; whole prompts use another kernel"
    return (
        set_flag(case, "enable-chunked-prefill", False, Direction.SET, why),
        set_flag(case, "enable-prefix-caching", False, Direction.SET, why),
    )


def _experts(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """Other kernels for the experts than Triton's; else another width of them, for which the tiles are chosen anew
    (fused_moe.py: try_get_optimal_moe_config)."""
    at = case.release
    maker = {"rocm"} if on_rocm(case) else platforms(case, fault)
    to = "aiter" if maker == {"rocm"} else "marlin" if quantized(case) and maker <= {"cuda"} else None
    changes: list[Change | None] = []
    if to is not None and kernels.has("moe", to, at):
        why = "Triton's kernel for the experts does not fit; this one multiplies the same weights"
        changes.append(set_flag(case, "moe-backend", to, Direction.SET, why))
    elif to == "aiter" and case.has_env("VLLM_ROCM_USE_AITER") is not None and case.env("VLLM_ROCM_USE_AITER") != "1":
        why = "AITER's kernels for the experts take the place of Triton's, which do not fit"
        needs = Applicability.NEEDS_REVIEW
        changes.append(environment("VLLM_ROCM_USE_AITER", Direction.SET, why, to="1", applicability=needs))
    if case.effective("enable-expert-parallel") in {True, "True"}:
        why = (
            "Triton chooses tiles by the number and width of a GPU's experts: each GPU then has a part of every expert"
        )
        changes.append(set_flag(case, "enable-expert-parallel", None, Direction.REMOVE, why))
    return tuple(changes)


def _smaller_table(case: Case) -> tuple[Change | None, ...]:
    """The memory for scalars of a core holds the table of blocks, a row for each sequence, a place for each of its
    blocks (v1/attention/backends/pallas.py)."""
    why = "the core's memory for scalars (1 MiB) holds the table of blocks: sequences × blocks of the longest prompt"
    longest, (most, _) = case.count("max-model-len"), sequences(case)
    return (
        set_flag(case, "max-model-len", longest // 2 if longest else None, Direction.LOWER, why),
        set_flag(case, "max-num-seqs", most // 2, Direction.LOWER, f"{why}; half of {most} sequences halve it"),
    )


def _larger_scope(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """JAX's runner (tpu-inference) has kernels of its own; their share of a core's memory for vectors is XLA's flag, by
    default 16 MiB."""
    if not any(says(file, "call-of-tpu-runner") for file in fault.files):
        return ()
    why = "XLA gives a kernel 16 MiB of a core's memory for vectors by default, and a core has several times as much"
    newer = "newer releases of the TPU plugin set this limit for their kernels themselves"
    return (
        environment("LIBTPU_INIT_ARGS", Direction.SET, why, to=_SCOPE, before=case.env("LIBTPU_INIT_ARGS")),
        thing(ChangeKind.PACKAGE, "tpu-inference", Direction.UPGRADE, newer, command="pip show tpu-inference vllm-tpu"),
    )


def _smaller_page(case: Case) -> tuple[Change | None, ...]:
    """The memory for vectors of a core holds whole pages of the KV cache, and a page is a 16th of the longest prompt up
    to 8192 tokens, of 16 to 256 tokens (v1/attention/backends/pallas.py get_page_size)."""
    longest = case.count("max-model-len") or _LONGEST_PAGED
    if not _SMALL_PAGES < longest <= _LONGEST_PAGED:
        return ()
    why = (
        f"the kernel keeps whole pages in the core's memory, and a page has max_model_len / 16 tokens: at "
        f"{_SMALL_PAGES} a page is a quarter of the largest; above {_LONGEST_PAGED} vLLM takes the smallest page"
    )
    return (set_flag(case, "max-model-len", _SMALL_PAGES, Direction.LOWER, why),)


def _smaller_block(case: Case, fault: Fault) -> Change | None:
    """vLLM names no other kernel for this model and card: what is left is a release whose kernel fits, where the
    newest has code for such a card."""
    least = least_capability(case, fault) if not on_rocm(case) else None
    if least is not None and builds.has_code(least, versions.newest_known()) is False:
        return None
    return upgrade(
        case, "vLLM names no other kernel for this model on this GPU; the newest release may have a kernel that fits"
    )


RULE = rule("VD519", reads=frozenset({Signal.GPUS, Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
