"""What separates the causes of a failed profile run."""

from vllm_doctor.knowledge.hub import billions, bits_of_words, names_quantization
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.log.startup_phase import SAMPLER_BATCHES, StartupPhase
from vllm_doctor.log.told_step import ADAPTERS, START
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.deaths import START_FAILED
from vllm_doctor.rules.gates.out_of_memory import Oom, exhausted, has_words
from vllm_doctor.rules.outcome import NotHere, Unseen

# Weights above this share of the card leave no room for the pass whatever its size: contexts, NCCL and workspaces take
# 1 to 2 GiB of any card, and the fraction keeps a tenth.
_FULL = 0.8
# Lines around the error in which an engine says that its start failed, and above it those with the last call's code.
_AROUND, _CODE = 400, 3
_HANDLES = frozenset({"cublas-alloc", "cublas-create"})


def dummy_batch(fault: Fault) -> bool:
    """Was it the dummy batch of the sampler or pooler: by a call's name, by the line of the call before it, as a
    traceback that is cut has only one of them."""
    crash = fault.crash
    codes = [f.code for link in crash.links for f in link.frames] if crash is not None else []
    if fault.startup_phase is StartupPhase.PROFILE and _in_v0_sampler(fault):
        return True
    # V2's runner warms its sampler up with a step of its own.
    if fault.startup_phase is StartupPhase.WARMUP and any(says(f, "call-v1-sampler") for f in fault.files[-2:]):
        return True
    shown = any(f"{name}(" in code for code in codes for name in SAMPLER_BATCHES)
    return shown or bool(SAMPLER_BATCHES & set(fault.functions))


def _in_v0_sampler(fault: Fault) -> bool:
    """V0 samples within its profile run: a buffer of the sampler's own code is one of sequences × vocabulary."""
    return any(says(file, "call-v0-sampler") for file in fault.files[-2:])


def measuring(case: Case, *stages: StartupPhase) -> Oom | NotHere | Unseen:
    """The fault, if memory ran out in one of these stages, or in compiled code before any graph was captured, where no
    call names the step: torch counts the pools of graphs, and only an engine that starts runs such code without."""
    oom = exhausted(case, *stages)
    unplaced = exhausted(case, StartupPhase.CONFIG) if isinstance(oom, NotHere) else oom
    if not isinstance(oom, NotHere) or not isinstance(unplaced, Oom) or unplaced.run.served():
        return oom
    torch = unplaced.torch
    first = torch is not None and torch.allocated is not None and torch.private_pools is None
    return unplaced if first and _unnamed_pass(unplaced) else oom


def in_pass(oom: Oom) -> bool:
    """Was it in the pass itself? Compiled code runs nowhere else during the start, though its frames name no step."""
    if oom.fault.startup_phase in {StartupPhase.PROFILE, StartupPhase.PROFILE_ENCODER}:
        return True
    return _unnamed_pass(oom)


def _unnamed_pass(oom: Oom) -> bool:
    """A pass whose calls name no step: in code that torch compiled, or, of a start that failed, where the code of the
    last call that was pasted works on tokens."""
    if in_compiled(oom):
        return True
    above = oom.run.lines[max(0, oom.fault.index - _CODE) : oom.fault.index]
    bare = not oom.fault.files and fails_in_start(oom)
    return bare and any(line.text[:1] == " " and says(line.text, "code-of-forward") for line in above)


def fails_in_start(oom: Oom) -> bool:
    """Does V1 say around the error that the engine did not come up, or who tells of it? Then no server was ready."""
    told = (death.index for death in oom.run.deaths if death.id in START_FAILED)
    failed = any(abs(at - oom.fault.index) <= _AROUND for at in told)
    return not oom.run.served() and (failed or (oom.unplaced and has_words(oom, START)))


def first_handle(oom: Oom) -> bool:
    """Was it the handle of cuBLAS, made at the first matrix product and of some MiB, before a pass has a peak? Then the
    card was full before it."""
    return oom.torch is None and bool(oom.fault.ids & _HANDLES) and in_pass(oom)


def in_compiled(oom: Oom) -> bool:
    """Did code that torch compiled ask for the memory?"""
    near = range(max(0, oom.fault.index - 6), oom.fault.index + 1)
    compiled = any(says(f, "call-inductor-cache") for f in oom.fault.files)
    return compiled or any(says(oom.run.lines[i].text, "call-inductor-cache") for i in near)


def in_model(oom: Oom) -> bool:
    """Did a module of the model work on tokens? Then it was a pass, of the start or of a step."""
    crash = oom.fault.crash
    frames = [frame for link in crash.links for frame in link.frames] if crash is not None else []
    return any(f.function.startswith("forward") and says(f.file, "call-of-module") for f in frames)


def in_sampler(oom: Oom) -> bool:
    """Did the dummy batch of the sampler or pooler fail?"""
    return dummy_batch(oom.fault)


def in_adapters(oom: Oom) -> bool:
    """Did it fail among the buffers of LoRA adapters, by its calls, or, where it has none, as who tells of it says?"""
    called = any(says(f, "call-adapters") for f in oom.fault.files[-4:])
    return called or "create_lora_weights" in oom.fault.functions or has_words(oom, ADAPTERS)


def weights_of(case: Case) -> tuple[float, str] | None:
    """Weights of one rank in GiB and where the figure stands: as the log prints them, else as the model's name counts
    its parameters, at two bytes each, where torch held at least as much and nothing says that they are quantized."""
    printed = case.weights_gib
    if printed is not None:
        return printed, "the log"
    model, torch = case.model or "", case.run.oom if case.run is not None else None
    each = weights_by_name(case)
    if each is None or torch is None or torch.allocated is None:
        return None
    if names_quantization(model) or case.effective("quantization") not in {None, "None"}:
        return None
    return (each, "the model's name × 2 B") if each <= torch.allocated / GIB else None


def weights_by_name(case: Case) -> float | None:
    """Weights of one rank in GiB, as the model's name counts its parameters, at two bytes each; None where it does
    not."""
    size = billions(case.model) if case.model else case.told_setup.billions
    parts = (case.count("tensor-parallel-size") or 1) * (case.count("pipeline-parallel-size") or 1)
    return size * 2e9 / GIB / parts if size is not None else None


def too_large_by_name(case: Case) -> tuple[float, float] | None:
    """GiB of one rank's weights at the least, as the model's name and the launch count parameters and bits, and the
    card's size, where the first is more than the second; None where not. What is offloaded lies on the host."""
    least, total, told = least_weights(case), case.total_gib, case.told_setup
    # Of several cards that a sentence names it may be all that the model is split over.
    split = case.count("tensor-parallel-size") is not None
    if least is None or total is None or not (case.launched if case.model else split or not told.several):
        return None
    return (least, total) if least > total else None


def least_weights(case: Case) -> float | None:
    """GiB of one rank's weights on its card at the least, as the model's name and the launch count parameters and
    bits; None where they do not."""
    each, bits = weights_by_name(case), _bits(case)
    if each is None or bits is None:
        return None
    return each * bits / 16 - (case.number("cpu-offload-gb") or 0.0)


def _bits(case: Case) -> float | None:
    """Bits of a weight at the least; None where it is quantized to a number of bits that nobody names."""
    if not case.model and case.effective("quantization") in {None, "None"}:
        return case.told_setup.bits
    named = bits_of_words(f"{case.model or ''} {case.effective('quantization') or ''}")
    if named is not None:
        return named
    quantized = names_quantization(case.model or "") or case.effective("quantization") not in {None, "None"}
    return None if quantized else 16


def weights_fill(case: Case) -> float | None:
    """The share of the card that the weights take, where it is so large that no pass fits beside them."""
    weights, total = weights_of(case), case.total_gib
    if weights is None or total is None or weights[0] / total < _FULL:
        return None
    return weights[0] / total
