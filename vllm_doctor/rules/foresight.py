"""What the offered changes lead to: each is planned, where release, card, launch and model are known.

A change with which the launch would not start is not offered as the remedy: a value that fits takes its place, or
another change of the same finding does.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from vllm_doctor.records.finding import Change, Finding, Scalar
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import Case

if TYPE_CHECKING:
    from vllm_doctor.plan.question.ask import Foresight, Outlook

# Options that the memory of a start depends on.
REMEDIES = frozenset(
    {
        "block-size",
        "cpu-offload-gb",
        "enable-chunked-prefill",
        "enable-lora",
        "enforce-eager",
        "gpu-memory-utilization",
        "kv-cache-dtype",
        "max-loras",
        "max-lora-rank",
        "max-model-len",
        "max-num-batched-tokens",
        "max-num-seqs",
        "pipeline-parallel-size",
        "quantization",
        "tensor-parallel-size",
    }
)
_SAYS = {
    "kv-too-small": "one request still does not fit the KV cache",
    "too-few-states": "there are still fewer state blocks than sequences",
    "oom-weights": "the weights still do not fit",
    "oom-profile": "the profile run still runs out of memory",
    "oom-cudagraph": "graph capture still runs out of memory",
    "oom-under-load": "the first full step still runs out of memory",
    "rejected": "vLLM would refuse the launch",
    "unknown": "nothing is known of such a model here",
}


def foreseen(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with their changes planned; as they were where nothing can be planned."""
    if not any(_is_remedy(change) for finding in findings for change in finding.changes):
        return list(findings)
    foresight = _foresight(case)
    if foresight is None:
        return list(findings)
    now = foresight.outlook({})
    starts = now is not None and now.outcome == "ok"
    return [
        # Where the plan did not see this failure coming, it cannot promise that a change ends it.
        msgspec.structs.replace(
            f, changes=_planned(foresight, f.changes, sure=not (starts and f.severity is Severity.BLOCKS_START))
        )
        for f in findings
    ]


def planned_kv_gib(case: Case) -> float | None:
    """The KV cache of one GPU as planned, to lay beside the logged one; None where no plan can be made."""
    foresight = _foresight(case)
    pool = foresight.now.available_kv_gib if foresight is not None else None
    return round(pool, 2) if pool is not None else None


def planned(case: Case) -> "Foresight | None":
    """The start as planned before anything of it was logged; None where no plan can be made."""
    return _foresight(case, logged=False)


def why_unplanned(case: Case) -> str:
    """What is missing for a plan of this start, as the reader may give it."""
    lacking = (
        ("the model's config.json: --model-config FILE", case.model_config),
        ("vLLM's release: --vllm-version V", case.version_text),
        ("the launch: --launch 'vllm serve …'", case.model),
        ("the GPU: --gpu NAME", case.total_gib or case.gpu_name),
    )
    return "; ".join(name for name, known in lacking if not known) or "this launch cannot be planned as it was read"


def _is_remedy(change: Change) -> bool:
    return change.kind is ChangeKind.FLAG and change.name in REMEDIES


def _planned(foresight: "Foresight", changes: tuple[Change, ...], *, sure: bool) -> tuple[Change, ...]:
    looked_at = [
        _looked_at(foresight, change, sure=sure) if _is_remedy(change) else (change, True) for change in changes
    ]
    enough = tuple(change for change, suffices in looked_at if suffices)
    return enough or tuple(change for change, _ in looked_at)


def _looked_at(foresight: "Foresight", change: Change, *, sure: bool) -> tuple[Change, bool]:
    """The change with what it leads to, and whether it is enough; with another value, where only that one is."""
    gone = change.direction is Direction.REMOVE or change.after is None
    seen = foresight.outlook({change.name: None if gone else _typed(change.after)})
    if seen is None:
        return change, True
    if not seen.hopeless:
        return _with(change, seen, sure=sure), True
    number = change.after if isinstance(change.after, int | float) and not isinstance(change.after, bool) else None
    better = foresight.further(change.name, number) if number is not None else None
    then = foresight.outlook({change.name: str(better)}) if better is not None else None
    if then is None:
        why = f"{change.why}; alone it is not enough: {_SAYS.get(seen.outcome, seen.outcome)}"
        return _with(msgspec.structs.replace(change, why=why), seen, sure=True), False
    why = f"with {change.after} {_SAYS.get(seen.outcome, seen.outcome)}; {better} is the nearest value that starts"
    return _with(msgspec.structs.replace(change, after=better, why=why, predicted={}), then, sure=sure), True


def _with(change: Change, seen: "Outlook", *, sure: bool) -> Change:
    told: dict[str, float | str] = {"available_kv_gib": round(seen.pool_gib, 2)}
    if sure:
        told["outcome"] = seen.outcome
    if seen.tokens is not None:
        told["kv_tokens"] = seen.tokens
    return msgspec.structs.replace(change, predicted={**change.predicted, **told})


def _typed(value: Scalar) -> str | bool | None:
    return value if isinstance(value, bool) or value is None else str(value)


def _foresight(case: Case, *, logged: bool = True) -> "Foresight | None":
    """`logged`: with the weights and the pool that the start logged in the place of planned ones."""
    config, version, model = case.model_config, case.version_text, case.model
    if config is None or version is None or model is None:
        return None
    from vllm_doctor.knowledge.gpus import find
    from vllm_doctor.plan.question.ask import KnownStart, foresee

    run = case.run
    card = find(case.gpu_name, case.total_gib) if case.gpu_name else None
    pools = [float(hit.fields["size"]) for hit in run.all("kv-available")] if run is not None else []
    return foresee(
        KnownStart(
            argv=_argv(case, model),
            version=version,
            config=config,
            gpu=card.name if card is not None else None,
            total_gib=case.total_gib or (card.total_gib if card is not None else None),
            gpus=max(len(case.gpus or ()), case.count("tensor-parallel-size") or 1),
            weights_gib=case.weights_gib if logged else None,
            pool_gib=min(pools, default=None) if logged else None,
        )
    )


def _argv(case: Case, model: str) -> tuple[str, ...]:
    """The launch as far as it is known: what the log printed wins over what was given."""
    words = [f"{name}={value}" for name, value in (case.launch.env if case.launch is not None else {}).items()]
    words += ["vllm", "serve", model]
    for name, value in case.flags.items():
        if name not in {"model", "model-tag"} and value is not False:
            words.append(f"--{name}" if value is True else f"--{name}={value}")
    return tuple(words)
