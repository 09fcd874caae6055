"""What an answer is laid beside: the GPU's memory as it was divided, the launch in effect, and what starts it."""

import ast
import json
from itertools import islice

from vllm_doctor.launch import container
from vllm_doctor.launch.write import option
from vllm_doctor.log.match import says
from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.records.container import Made
from vllm_doctor.records.finding import Finding, Memory, Part
from vllm_doctor.records.verdict import Cause, Phase
from vllm_doctor.redact.launch import scrub_argv
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.free_memory import shortage
from vllm_doctor.rules.gates.kv_cache import left_over, too_small

# Where the memory of a GPU is the subject.
_PHASES = frozenset(phase for phase in Phase if phase.value.startswith(("startup-", "runtime-"))) | {
    Phase.OTHER_PROCESS_ON_GPU,
    Phase.MULTIMODAL_ENCODER,
}
# Parts smaller than this are not drawn (GiB), nor those of a smaller portion of the whole, but for what is free.
_LEAST, _DRAWN = 0.01, 0.005
# Lines at either end of a run in which a launcher's own words are looked for.
_ENDS = 200


def memory(case: Case, findings: list[Finding]) -> Memory | None:
    """Who had how much of the memory that failed, GiB; None where memory is not the subject, or nothing tells."""
    if not findings or (findings[0].phase not in _PHASES and findings[0].cause is not Cause.GPU_SHARED):
        return None
    run = case.run
    if run is None:
        return None
    if (short := shortage(case)) is not None:
        of = short.device if short.device != "the GPU" else "GPU"
        return _picture(of, short.total, (("free", short.free),), _held(case, short.held), ("vLLM asks", short.want))
    if run.oom is not None:
        return _of_torch(case, run.oom)
    small = too_small(case)
    if small is not None and small.need is not None and small.have is not None:
        parts = (("there", small.have), ("missing", small.need - small.have))
        return _picture("KV cache for one request", small.need, parts)
    return _of_budget(case)


def _of_torch(case: Case, oom: TorchOom) -> Memory | None:
    if oom.total is None or oom.free is None:
        return None
    parts: list[tuple[str, float]] = []
    others = oom.held_by_others
    if others:
        parts.append(("others", others / GIB))
    if oom.allocated is not None:
        weights = case.weights_gib
        mine = oom.allocated / GIB
        if weights is not None and _LEAST < weights < mine:
            parts += [("weights", weights), ("other tensors", mine - weights)]
        else:
            parts.append(("torch's tensors", mine))
    if oom.unused is not None:
        parts.append(("torch, unused", oom.unused / GIB))
    gpu = f"GPU {oom.gpu}" if oom.gpu is not None else "GPU"
    return _picture(gpu, oom.total / GIB, (*parts, ("free", oom.free / GIB)), (), ("asked", oom.asked / GIB))


def _of_budget(case: Case) -> Memory | None:
    """Nothing is left for the KV cache: the budget, and what uses it up."""
    total, weights = case.total_gib, case.weights_gib
    left = left_over(case)
    if total is None or weights is None or left is None or left > 0:
        return None
    budget = case.utilization[0] * total
    used = budget - left
    return _picture("GPU", total, (("weights", weights), ("peak and the rest", used - weights)), (), ("budget", budget))


def _held(case: Case, held: float) -> tuple[tuple[str, float], ...]:
    """What others hold, by name where the host's cards were read and their processes explain it."""
    named = [
        (f"{process.name or 'process'} {process.pid}", process.used_bytes / GIB)
        for gpu in case.gpus or ()
        for process in gpu.processes
        if process.used_bytes
    ]
    return tuple(named) if named and abs(sum(size for _, size in named) - held) < 1 else (("others", held),)


def _picture(
    of: str,
    total: float,
    parts: tuple[tuple[str, float], ...],
    first: tuple[tuple[str, float], ...] = (),
    asked: tuple[str, float] | None = None,
) -> Memory | None:
    """The parts, with what no part explains as the rest; None where they are more than the whole."""
    drawn = (*first, *((name, size) for name, size in parts if name == "free" or size >= _DRAWN * total))
    told = [Part(name, round(size, 2)) for name, size in drawn if size >= _LEAST]
    rest = total - sum(part.gib for part in told)
    if rest < -0.05 * total or total <= 0:
        return None
    if rest > 0.005 * total:
        free = next((at for at, part in enumerate(told) if part.name == "free"), len(told))
        told.insert(free, Part("rest", round(rest, 2)))
    return Memory(of, round(total, 2), tuple(told), Part(asked[0], round(asked[1], 2)) if asked is not None else None)


def launch(case: Case) -> tuple[str, ...]:
    """The command line in effect: as it was given or read, else from what the log printed of it; () where it is not
    known whole."""
    given = case.launch
    if given is not None and given.argv:
        return scrub_argv(given.argv)
    run = case.run
    printed = run.launch if run is not None else None
    if printed is None or printed.model is None or _typed(printed.model) is None:
        return ()
    words: list[str] = ["vllm", "serve", printed.model]
    for name, value in printed.flags.items():
        if name in {"model", "model-tag", "api-key"} or _is_default(case, name, value):
            continue
        text = _typed(value) if isinstance(value, str) else value
        if text == "":
            continue
        if text is None:
            return ()  # cut, or printed as an object: nobody can type it
        words += option(name, text, case.version)
    return scrub_argv(words)


def made(case: Case) -> Made | None:
    """How the container was made whose own description told the launch."""
    container, given = case.container, case.launch
    told = container.made if container is not None else None
    if told is None or given is None or given.medium != "docker" or given.argv[:1] != told.words[-2:-1]:
        return None
    return told


def _is_default(case: Case, name: str, value: str | bool) -> bool:
    """Old releases print every option; one at its default need not be typed."""
    fact = case.has_flag(name)
    return fact is not None and (str(fact.default) == str(value) or (value is False and not fact.negatable))


def _typed(text: str) -> str | None:
    """A value that was printed as Python writes it, as it would be typed; None for an object."""
    if text[:1] in {"{", "["}:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
        if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
            return ",".join(map(str, value))
        return json.dumps(value)
    an_object = text.partition("(")[0].isidentifier() and text[-1:] == ")"
    return None if an_object or text[:1] in {"<", "'", '"'} else text


def medium(case: Case) -> str:
    """What starts this vLLM, as far as its surroundings show it; `command` where nothing does."""
    if case.unit is not None:
        return "unit"
    given = case.launch
    program = given.argv[0].rpartition("/")[2] if given is not None and given.argv else ""
    if given is not None and given.medium not in {"", "command"}:
        return given.medium
    if program in container.RUNTIMES:
        return "docker"
    run = case.run
    if run is None:
        return "command"
    ends = (*islice(run.lines, _ENDS), *run.lines[-_ENDS:])
    stream = next((line.stream for line in ends if line.stream is not None), None)
    if stream is not None:
        return "pod" if stream.startswith("pod/") else "compose"
    if any(says(line.text, "slurm-line") for line in ends):
        return "slurm"
    if run.is_script or any(f.endswith("entrypoints/llm.py") for c in run.crashes[:8] for f in c.files):
        return "python"
    return "command"
