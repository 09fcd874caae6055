"""VD703: the build, or the compiler it uses, has no code for this generation of GPU."""

from vllm_doctor.knowledge import generations, gpus
from vllm_doctor.knowledge.compat import numbers, table
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown, text
from vllm_doctor.rules.gates.rocm import least_capability
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.attention_backend import other_attention, without_triton
from vllm_doctor.rules.remedies.kernel_kind import KernelKind, called, kernel_kind
from vllm_doctor.rules.remedies.known_issue import issue_of
from vllm_doctor.rules.remedies.layer import off
from vllm_doctor.rules.remedies.other_kernel import in_its_place, other_kernel
from vllm_doctor.rules.say import environment, finding, release_to, set_flag, thing, upgrade

_IDS = (
    "no-kernel-image",
    "rocm-no-code",
    "rocm-no-code-object",
    "kernel-image-invalid",
    "compiler-pass",
    "stack-frame-limit",
    "arch-ptxas",
    "no-compiled-kernel",
    "ampere-needed",
    "quantization-capability",
    "scheme-capability",
    "ptx-target",
    "fp8-type",
    "llvm-select",
    "triton-too-old",
    "function-invalid",
    "translate-failed",
    "sm-only",
    "devices-with",
    "capability-has",
    "flashinfer-arch",
    "flashinfer-cards",
)
# An image that is invalid may also be one that this driver, or another compiler, does not read. FlashInfer also counts
# a card as too old where the host's CUDA toolkit is older than the card. A compiler's pass that fails names no cause:
# the card may lack what the kernel uses, or the compiler has a defect.
_IN_DOUBT = frozenset(
    {"kernel-image-invalid", "flashinfer-cards", "compiler-pass", "stack-frame-limit", "translate-failed"}
    | {"llvm-select"}
)
# vLLM's own check of the card against the quantization of the checkpoint.
_CARD = frozenset({"quantization-capability", "scheme-capability"})
# A library's own check of the card, or an operator's, before it starts a kernel: another kernel may do the same work.
_CHECKED = frozenset(
    {
        "sm-only",
        "devices-with",
        "capability-has",
        "flashinfer-arch",
        "flashinfer-cards",
        "ampere-needed",
        "no-compiled-kernel",
    }
)
# The least compute capability that FlashInfer has kernels for.
_FLASHINFER = generations.TURING
# The first CUDA that compiles for Blackwell (compute capability 10 and 12; its release notes).
_BLACKWELL = (12, 8)
_PTXAS = "/usr/local/cuda/bin/ptxas"
# LLVM within Triton has no instruction of this GPU for a step of the kernel: nothing of vLLM's build is asked.
_UNSELECTED = "Triton's compiler has no instruction of this GPU for a kernel"
_STACK = "A kernel of Triton needs more stack than this AMD card gives it"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# What a compiler says when the card lacks an instruction that a kernel uses.
_COMPILED = frozenset({"compiler-pass", "stack-frame-limit", "ptx-target", "llvm-select", "translate-failed"})

# What Triton compiles, it compiles when it is called: no list of a build's architectures has a part in it.
_AT_RUN_TIME = frozenset({"compiler-pass", "translate-failed"})
_UNCOMPILED = "Triton cannot compile a kernel for this GPU"


def judge(case: Case) -> Outcome:
    """Is there no code for this GPU?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return _warned(case) or fault
    if "xformers-no-cuda" in fault.ids:
        return Clear("xFormers has no code for any card: it was built without CUDA")
    if "no-compiled-kernel" in fault.ids and fault.crash is not None and issue_of(case, fault.crash) is not None:
        return Clear("this release says so where it has the kernel, a defect that VD526 names")
    if "fp8-type" in fault.ids:
        return _without_fp8(case, fault)
    # FlashInfer has kernels for this card: it is the host's nvcc that does not know it.
    if fault.ids & frozenset(_IDS) == {"flashinfer-cards"} and (least_capability(case, fault) or 0.0) >= _FLASHINFER:
        return _toolkit(case, fault)
    # A kernel that FlashInfer compiles goes through the toolkit's own ptxas; Triton brings one.
    if fault.ids & frozenset(_IDS) == {"arch-ptxas"} and any(says(f, "call-flashinfer") for f in fault.files):
        return _toolkit(case, fault)
    if fault.ids & frozenset(_IDS) == {"ampere-needed"}:
        return _attention_of_ampere(case, fault)
    if fault.ids & frozenset(_IDS) == {"flashinfer-cards"} and kernel_kind(case, fault) is None:
        return _no_card(case, fault)
    if fault.ids & frozenset(_IDS) == {"flashinfer-arch"} and kernel_kind(case, fault) is None:
        return _unasked(case, fault)
    at_run_time = bool(fault.ids & _AT_RUN_TIME) and fault.ids & set(_IDS) <= _IN_DOUBT
    return finding(
        RULE,
        title="The GPU is too old for the way this checkpoint is quantized"
        if fault.ids & _CARD
        else _UNSELECTED
        if "llvm-select" in fault.ids
        else _STACK
        if "stack-frame-limit" in fault.ids
        else _UNCOMPILED
        if at_run_time
        else "",
        confidence=Confidence.LIKELY if fault.ids & set(_IDS) <= _IN_DOUBT else Confidence.CONFIRMED,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            _other_card(case, fault) if fault.ids & _CARD else None,
            *(_ptxas(case, fault) if "arch-ptxas" in fault.ids else ()),
            *(_image(case, fault) if "kernel-image-invalid" in fault.ids else ()),
            *(_compiler(case, fault) if fault.ids & _COMPILED else ()),
            _triton(case) if "llvm-select" in fault.ids else None,
            *(_checked(case, fault) if fault.ids & _CHECKED else ()),
            _checkpoint(case)
            if fault.ids & _CARD
            else (upgrade(case, "a newer release has another Triton, and other kernels for this card") or _triton(case))
            if at_run_time
            else _build(case)
            if "stack-frame-limit" not in fault.ids
            else upgrade(case, "newer releases have other attention kernels for AMD's cards"),
        ),
        refute="the same build runs another model on the same card",
    )


def _toolkit(case: Case, fault: Fault) -> Finding:
    """FlashInfer counts a card out that the nvcc on the host does not know, and is left with none that it has kernels
    for (flashinfer/compilation_context.py, jit/core.py check_cuda_arch)."""
    why = "FlashInfer compiles with the host's nvcc, which does not know this GPU: 12.9 knows Blackwell's RTX cards"
    command = "nvcc --version   # that of CUDA_HOME, else of PATH"
    return finding(
        RULE,
        title="The CUDA toolkit on the host is too old for this GPU",
        confidence=Confidence.LIKELY,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(ChangeKind.PACKAGE, "cuda-toolkit", Direction.UPGRADE, why, command=command),
            *_checked(case, fault),
        ),
        refute="nvcc --version names a CUDA that supports this GPU",
    )


def _no_card(case: Case, fault: Fault) -> Finding:
    """The same check where neither the card is known nor who called FlashInfer: the sampler and the attention do, and
    both do without."""
    name = "VLLM_USE_FLASHINFER_SAMPLER"
    sampler = "where the sampler called FlashInfer: torch's own needs nothing of the card"
    toolkit = "on a card from 7.5 on the sentence means that the nvcc of CUDA_HOME or PATH does not know it"
    command = "nvidia-smi --query-gpu=name,compute_cap --format=csv; nvcc --version"
    return finding(
        RULE,
        title="FlashInfer finds no GPU here that it has kernels for",
        confidence=Confidence.LIKELY,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            environment(name, Direction.SET, sampler, to="0") if case.has_env(name) else None,
            other_attention(case, fault, "where the attention called it: this backend is not FlashInfer's"),
            thing(ChangeKind.PACKAGE, "cuda-toolkit", Direction.UPGRADE, toolkit, command=command),
        ),
        refute="the same release runs with neither changed on this card",
    )


def _attention_of_ampere(case: Case, fault: Fault) -> Finding:
    """flash-attn checks the card itself (csrc/flash_attn/flash_api.cpp): no build of it runs below capability 8.0."""
    of_encoder = _of_encoder(case, fault)
    why = "FlashAttention's kernels begin at compute capability 8.0; this backend's do not"
    latent = (
        environment("VLLM_MLA_DISABLE", Direction.SET, _WITHOUT_MLA, to="1")
        if case.has_env("VLLM_MLA_DISABLE")
        else None
    )
    checked = _checked(case, fault) if of_encoder else (other_attention(case, fault, why, first=_BEFORE_AMPERE),)
    return finding(
        RULE,
        title="FlashAttention does not run on a GPU older than Ampere",
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(*checked, latent),
        refute="the GPU has compute capability 8.0 or more (nvidia-smi --query-gpu=name,compute_cap --format=csv)",
    )


def _of_encoder(case: Case, fault: Fault) -> bool:
    """The encoder's own attention, or the flash-attn package: vLLM's backends for text use a copy of their own."""
    package = any(says(file, "call-flash-attn-package") for file in fault.files)
    return package or any(says(file, "call-encoder-attention") for file in called(case, fault))


def _unasked(case: Case, fault: Fault) -> Finding:
    """FlashInfer compiles each kernel for the generations that it is written for, and its quoted lines do not show who
    asked for this one: the build of vLLM has no part in that."""
    why = "newer releases write more of their kernels for more generations of cards; vLLM pins the one that fits it"
    newer = "a newer release asks for kernels that this card has, or names the backend to choose instead"
    return finding(
        RULE,
        title="FlashInfer's kernel is not written for this GPU",
        confidence=Confidence.LIKELY,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            upgrade(case, newer),
            thing(ChangeKind.PACKAGE, "flashinfer-python", Direction.UPGRADE, why, command=_PINNED),
        ),
        refute="the same build runs this model on the same card",
    )


def _other_card(case: Case, fault: Fault) -> Change | None:
    """Of several kinds of cards that vLLM names, one has what the first lacks: the table knows which."""
    run = case.run
    told = run.first("different-devices") if run is not None else None
    if run is None or told is None:
        return None
    asked = fault.fields("quantization-capability").get("needed") or fault.fields("scheme-capability").get("needed")
    least = int(asked) / 10 if asked is not None and asked.isdigit() else 0.0
    names = [name.strip().rstrip(".") for name in told.fields["names"].split(",")]
    known = {name: card.capability for name in names if (card := gpus.find(name)) is not None and card.capability}
    fit = next((name for name, has in known.items() if least and has >= least), None)
    if fit is None:
        return None
    why = f"vLLM took another card first: use the index or UUID of a card that has the kernels, the {fit}"
    command = "nvidia-smi -L; export CUDA_DEVICE_ORDER=PCI_BUS_ID   # so that indices are those of nvidia-smi"
    return environment("CUDA_VISIBLE_DEVICES", Direction.SET, why, command=command, before=case.env(_VISIBLE))


def _image(case: Case, fault: Fault) -> tuple[Change, ...]:
    """Off with the component whose own compiled code it is; where none is named, Triton's may be made for another, if
    it is not torch that speaks of its own."""
    of_triton = "triton" in fault.fields("kernel-image-invalid")
    return off(case, fault) or ((_triton(case),) if of_triton else ())


def _ptxas(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """Triton brings its own ptxas, and takes another one from a variable: newer ones name Blackwell's apart."""
    why = "Triton's own ptxas is older than this card; the ptxas of a newer CUDA toolkit compiles for the card"
    command = "/usr/local/cuda/bin/ptxas --help | grep -o 'sm_1[0-9]*' | sort -u   # CUDA 13 knows sm_103, 110 and 121"
    newer = "Triton releases with a separate ptxas for Blackwell read this name"
    blackwell = "TRITON_PTXAS_BLACKWELL_PATH"
    if fault.fields("arch-ptxas").get("newer"):
        return (environment(blackwell, Direction.SET, why, to=_PTXAS, command=command), _triton(case))
    return (
        environment("TRITON_PTXAS_PATH", Direction.SET, why, to=_PTXAS, command=command),
        environment(blackwell, Direction.SET, newer, to=_PTXAS),
        _triton(case),
    )


def _without_fp8(case: Case, fault: Fault) -> Finding:
    """Triton has this FP8 only from compute capability 8.9 on. In attention it is the type of the KV cache, in a
    product that of the weights; no other build brings it."""
    cache = kernel_kind(case, fault) is KernelKind.ATTENTION or (
        str(case.effective("kv-cache-dtype")).startswith("fp8")
    )
    why = "attention then reads a KV cache of the model's own type: half as many tokens fit"
    also = "the FP8 type that Triton has for older GPUs has fewer digits: check the quality of answers"
    return finding(
        RULE,
        title="The GPU lacks the FP8 type (E4M3) of the "
        + ("KV cache" if cache else "weights: FP8 needs compute capability 8.9"),
        severity=severity(case, fault),
        evidence=shown(case, fault, "fp8-type"),
        changes=(
            set_flag(case, "kv-cache-dtype", "auto", Direction.CHANGE, why),
            set_flag(case, "kv-cache-dtype", "fp8_e5m2", Direction.CHANGE, also),
        )
        if cache
        else (*_compiler(case, fault), _checkpoint(case)),
        refute="the same build runs another model on the same card",
    )


def _warned(case: Case) -> Finding | None:
    """Torch warned that its build has no code for the card, and the log ends before a step of the start."""
    run = case.run
    hit = run.first("arch-warning", "arch-advice") if run is not None else None
    if run is None or hit is None or case.root is not None or any(s is not StartupPhase.CONFIG for _, s in run.miles):
        return None
    return finding(
        RULE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hit.index),),
        changes=(_build(case),),
        refute="the start goes on after torch's warning",
    )


def _triton(case: Case) -> Change:
    """The Triton that torch pins comes with it; another one was put beside it, or torch itself was changed."""
    wheel = table().wheel(str(case.version)) if case.version is not None else None
    why = "install the Triton version that this torch pins: the present one was made for another CUDA or GPU"
    to = f"torch=={wheel.torch}" if wheel is not None else None
    command = f"pip install --force-reinstall {to}   # brings its own Triton" if to else "pip show torch triton"
    return thing(ChangeKind.PACKAGE, "triton-version", Direction.CHANGE, why, to=to, command=command)


def _build(case: Case) -> Change | None:
    """The release nearest to this one whose wheel has the card: before Volta was dropped, after Blackwell came."""
    card = gpus.find(case.gpu_name) if case.gpu_name else None
    capability = card.capability if card is not None else None
    wheels = [w for v in table().wheels() if (w := table().wheel(v)) is not None]
    fit = None
    if capability is not None and capability >= generations.BLACKWELL:
        fit = next((w for w in wheels if numbers(w.cuda)[:2] >= _BLACKWELL), None)
    elif capability is not None:
        fit = next((w for w in reversed(wheels) if float(w.compute_floor) <= capability), None)
    why = "use a build whose list of architectures contains this GPU"
    if fit is None or case.version is None:
        return thing(ChangeKind.PACKAGE, "vllm-version", Direction.CHANGE, why, command=_ARCHITECTURES)
    right = as_version(fit.version)
    newer = capability is not None and capability >= generations.BLACKWELL
    if case.version >= right if newer else case.version <= right:
        return None  # this release's own wheel has it: it is another build, or the card is not what failed
    way = Direction.UPGRADE if newer else Direction.CHANGE
    return release_to(case, fit.version, way, why)


_WITHOUT_MLA = "a model with latent attention (DeepSeek) then takes plain attention, with a larger KV cache"
# Triton's from V1 on; before it xFormers'.
_BEFORE_AMPERE = ("TRITON_ATTN", "XFORMERS")
_PINNED = "pip show -v vllm | grep -i flashinfer; pip install -U flashinfer-python"
_ARCHITECTURES = "python -c 'import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())'"


def _compiler(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """What keeps the compiler from being asked: a type the card has, another attention backend, no compiling."""
    if says(text(case, fault), "names-bf16") and case.effective("dtype") not in {"half", "float16"}:
        return (set_flag(case, "dtype", "half", Direction.CHANGE, "the compiler says that the GPU has no bfloat16"),)
    if says(fault.fields("stack-frame-limit").get("kernel", ""), "attention-kernel"):
        return (without_triton(case, "Triton's attention does not compile for this card"),)
    failed = kernel_kind(case, fault)
    if failed is KernelKind.ATTENTION:
        why = "use a backend with precompiled kernels: the compiler has no code for this GPU"
        return (other_attention(case, fault, why, not_triton=True),)
    return other_kernel(case, fault) if failed is not None else ()


def _checkpoint(case: Case) -> Change | None:
    """No build helps a card that lacks the arithmetic: another quantization of the same model does."""
    why = "use the same model in a quantization that this GPU supports (AWQ and GPTQ from compute capability 7.5)"
    return set_flag(case, "model", None, Direction.CHANGE, why)


def _checked(case: Case, fault: Fault) -> tuple[Change | None, ...]:
    """The kernel of another library, by what was called; weights that no kernel of this card multiplies: others."""
    if says(fault.fields("devices-with").get("what", ""), "fp8-product"):
        why = "products of two FP8 matrices need a newer GPU; this one supports FP8 weights only through Marlin"
        return (
            set_flag(case, "quantization", None, Direction.CHANGE, why)
            if case.effective("quantization") is not None
            else set_flag(case, "model", None, Direction.CHANGE, f"{why}: use weights in int8, AWQ or GPTQ instead"),
        )
    if _of_encoder(case, fault):
        why = "torch's attention for the image encoder has no such limit"
        return (set_flag(case, "mm-encoder-attn-backend", "TORCH_SDPA", Direction.CHANGE, why),)
    newer = "a newer release has this kernel for more GPUs, or takes another one on this GPU"
    return (
        *in_its_place(case, fault),
        upgrade(case, newer) if "no-compiled-kernel" in fault.ids and case.version is not None else None,
    )


RULE = rule("VD703", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
