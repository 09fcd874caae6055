"""VD103: memory became free while vLLM measured its own peak, so the measurement is void."""

from vllm_doctor.knowledge.version import Version
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Arithmetic, Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Phase, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.named_fault import exception_line
from vllm_doctor.rules.gates.unified import shares_memory
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.say import environment, finding, gib, thing, upgrade, upgrade_to

# The first release that goes on where the free memory is the same before and after.
_EQUAL_PASSES = Version((0, 16))


def judge(case: Case) -> Outcome:
    """Did the assertion about free memory end the profile run?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is not None and "sleep-grew" in root.ids:
        return _taken_in_sleep(case, root)
    if root is None or "profile-free-rose" not in root.ids:
        return NotHere("no other process disturbed the profile run")
    at = next(h.index for h in root.hits if h.id == "profile-free-rose")
    told = root.fields("profile-free-rose")
    if _nothing_moved(told):
        return _on_another_device(case, at)
    if _none_was_freed(told):
        return _as_free_as_before(case, at)
    if case.weights_gib == 0:
        return _without_weights(case, at, told)
    if shares_memory(case):
        return _freed_by_the_host(case, at, told)
    return _freed_by_another(case, at, told)


def _on_another_device(case: Case, at: int) -> Finding:
    return finding(
        RULE,
        title="The profile run measured a GPU on which nothing was allocated",
        confidence=Confidence.POSSIBLE,
        evidence=(case.line(at),),
        refute=_none_ended(case),
        then="find the device on which the model was loaded: the program that embeds vLLM may have moved the "
        "model to another GPU, or patched the call that measures",
    )


def _as_free_as_before(case: Case, at: int) -> Finding:
    strict = case.version is not None and case.version < _EQUAL_PASSES
    why = "up to 0.15.1 the start ends where as much memory is free after the profile run as before it"
    return finding(
        RULE,
        title="The profile run left as much memory free as it found",
        confidence=Confidence.LIKELY if strict else Confidence.POSSIBLE,
        evidence=(case.line(at),),
        changes=(upgrade_to(case, _EQUAL_PASSES, why),),
        refute="the same failure happens with vLLM 0.16.0 or newer",
        then="find the device on which the model was loaded, or what frees memory while it is measured",
    )


def _without_weights(case: Case, at: int, told: dict[str, str]) -> Finding:
    return finding(
        RULE,
        title="The profile run measured a GPU to which no weights were loaded",
        confidence=Confidence.LIKELY,
        evidence=(case.line(at),),
        arithmetic=_sum(told),
        changes=(
            environment(
                "CUDA_VISIBLE_DEVICES",
                Direction.SET,
                "show the engine one GPU alone, before anything calls CUDA: 0 GiB of weights means that the model "
                "went to another GPU than vLLM measures",
                command="CUDA_VISIBLE_DEVICES=N python …   # N: the GPU of the engine, by nvidia-smi -L",
            ),
            stop_others(case, "another process held this memory before the engine was made, and freed it"),
        ),
        refute=_none_ended(case),
        then="if a program makes the engine in its own process (a trainer), free its models first (del, "
        "torch.cuda.empty_cache()), or give vLLM a separate GPU",
    )


def _freed_by_the_host(case: Case, at: int, told: dict[str, str]) -> Finding:
    return finding(
        RULE,
        title="The host freed memory that the GPU shares while it was measured",
        confidence=Confidence.LIKELY,
        evidence=(case.line(at),),
        arithmetic=_sum(told),
        changes=(_caches_first(),),
        refute="the same failure comes again right after the page cache was dropped, with nothing else running",
    )


def _freed_by_another(case: Case, at: int, told: dict[str, str]) -> Finding:
    return finding(
        RULE,
        evidence=(case.line(at),),
        arithmetic=_sum(told),
        changes=(
            thing(
                ChangeKind.OS,
                "start-order",
                Direction.SERIALIZE,
                (
                    "start engines that share a GPU one after another: order the units with After=, and let "
                    "the first unit's start wait until it is ready (ExecStartPost= that waits for /health)"
                ),
                command="systemctl edit SECOND-UNIT   # [Unit] After=FIRST-UNIT",
            ),
            stop_others(case, "another process freed the memory, often the previous engine as it ended"),
        ),
        refute="the same failure happens on a GPU that nothing else uses",
    )


def _none_ended(case: Case) -> str:
    return f"{maker_tool(case).name} shows that another process on this GPU ended in that minute"


def _caches_first() -> Change:
    why = "cached pages that the host frees during the profile run count as free: drop the page cache before the start"
    command = "sync; echo 3 > /proc/sys/vm/drop_caches   # as root, then start"
    return thing(ChangeKind.OS, "page-cache", Direction.REMOVE, why, command=command)


def _taken_in_sleep(case: Case, root: Fault) -> Finding:
    """The engine gave its pool back, and less of the card is free than before."""
    return finding(
        RULE,
        title="Another process took GPU memory while the engine went to sleep",
        phase=Phase.RUNTIME_LEAK_OR_FRAGMENTATION,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=(exception_line(case, root),),
        changes=(
            stop_others(case, "the engine may sleep only while no other process of this GPU takes more memory"),
            upgrade(case, "some releases keep buffers of the pool that they give back"),
        ),
        refute="the same failure happens on a GPU that nothing else uses",
    )


def _nothing_moved(fields: dict[str, str]) -> bool:
    """To the byte the same before and after: no process took or gave back anything."""
    return fields.get("unit") != "GiB" and fields.get("initial") == fields.get("current") is not None


def _none_was_freed(fields: dict[str, str]) -> bool:
    """As printed the same before and after: what was freed is below the last digit, and an equal value failed too as
    long as vLLM asked for less (`>`, gpu_worker.py up to 0.15.1; `>=` from 0.16.0 on, after vllm#33358 on XPU)."""
    return fields.get("unit") == "GiB" and fields.get("initial") == fields.get("current")


def _sum(fields: dict[str, str]) -> tuple[Arithmetic, ...]:
    if "initial" not in fields:
        return ()
    scale = 1.0 if fields.get("unit") == "GiB" else 1 / GIB
    before, after = float(fields["initial"]) * scale, float(fields["current"]) * scale
    return (
        gib(
            "memory that other processes freed", abs(after - before), f"|{after:.2f} − {before:.2f}|", "the error line"
        ),
    )


RULE = rule("VD103", reads=frozenset({Signal.LOG, Signal.VERSION, Signal.GPUS}), judge=judge)
