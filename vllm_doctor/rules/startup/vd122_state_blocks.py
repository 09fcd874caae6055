"""VD122: a hybrid model has fewer state blocks than sequences: each running sequence needs one."""

from vllm_doctor.knowledge.versions import HIGHEST_UTILIZATION
from vllm_doctor.records.finding import Arithmetic
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.say import finding, set_flag

# What one step of the fraction is worth trying with, GiB, where nothing says how large a block is.
_STEP_GIB = 1.0
# Of the budget, what the weights and the KV cache leave to the profile run and to contexts.
_BESIDE = 1.25


def judge(case: Case) -> Outcome:
    """Did the check of state blocks before the capture of graphs fail?"""
    root = case.root
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    if root is None or "state-blocks" not in root.ids:
        return NotHere("the check of state blocks did not fail")
    hit = next(h for h in root.hits if h.id == "state-blocks")
    seqs, blocks = int(hit.fields["seqs"]), int(hit.fields["blocks"])
    pool = case.run.number("kv-available", "size")
    missing = pool * (seqs / blocks - 1) if pool is not None and blocks > 0 else _STEP_GIB
    return finding(
        RULE,
        title=f"{seqs} sequences need one state block each; only {blocks} exist",
        evidence=(case.line(hit.index),),
        arithmetic=(Arithmetic("state blocks missing", seqs - blocks, "", f"{seqs} − {blocks}", "the error line"),),
        changes=(
            set_flag(
                case,
                "max-num-seqs",
                blocks,
                Direction.LOWER,
                "each sequence needs one block, so more sequences could not run at once",
            )
            if blocks > 0
            else None,
            raise_utilization(case, missing) if _may_be_there(case, missing) else None,
        ),
        refute="the same start fails in the same check with the smaller number of sequences",
    )


def _may_be_there(case: Case, missing: float) -> bool:
    """Is so much outside the budget of a card that holds these weights and this KV cache within it?"""
    pool, weights = case.run.number("kv-available", "size") if case.run is not None else None, case.weights_gib
    fraction, total = case.utilization[0], case.total_gib
    if total is None and pool is not None and weights is not None:
        total = (weights + pool) * _BESIDE / fraction
    return total is None or missing <= (HIGHEST_UTILIZATION - fraction) * total


RULE = rule("VD122", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)
