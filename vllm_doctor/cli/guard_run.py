"""What `guard` does with its options."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import msgspec

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.span import stamp
from vllm_doctor.cli.streams import say
from vllm_doctor.operate.guard import policy as policies
from vllm_doctor.operate.guard.first_finding import Explanation
from vllm_doctor.operate.guard.hands import RealHands
from vllm_doctor.operate.guard.loop import Guard
from vllm_doctor.operate.history.store import Store
from vllm_doctor.operate.history.store_format import store_file
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Absent, Known, Unknown
from vllm_doctor.records.sample import Look
from vllm_doctor.render.machine import line


def run(*, policy: str | None, store: str | None, once: bool, check: bool, dry: bool, json: bool) -> int:
    """Watch until SIGTERM, or once; the exit code."""
    try:
        chosen = policies.load(Path(policy) if policy is not None else policies.FILE)
    except policies.PolicyProblem as problem:
        raise UsageProblem(str(problem)) from None
    named = ", ".join(chosen.units) or "no unit; the guard only watches"
    if check:
        say(f"guard: the policy is valid: {f'may restart {named}' if chosen.act else 'only watches'}\n")
        return Exit.OK
    hands = RealHands(chosen)
    if once:
        return _once(chosen, hands, json=json)
    path = Path(store) if store is not None else store_file()
    kept = None if dry else _store(path, chosen)
    signal.signal(signal.SIGTERM, _ended)
    acts = "dry run" if dry else f"may restart {named}" if chosen.act else "only watches"
    pace = f"looks at the services every {chosen.beat_s:g} s, at the GPUs every {chosen.every_s:g} s"
    _tell(f"guard: {pace}; {acts}; {'keeps nothing' if dry else f'a record a minute in {path}'}")
    watch = Guard(chosen, kept, hands, _tell, dry=dry, records=path)
    try:
        while True:
            watch.beat()
            watch.wait()
    except SystemExit:
        if kept is not None:
            kept.close()
        return Exit.OK


def _store(path: Path, chosen: policies.Policy) -> Store:
    """The store, opened to be written. Another user's is left alone, root's hand included: a file that root makes
    beside it keeps its owner from writing."""
    try:
        if path.parent.exists() and path.parent.stat().st_uid != os.geteuid():
            raise UsageProblem(
                f"guard: {path}: the folder is another user's; needed: the guard's user (systemctl start "
                "vllm-doctor-guard), --dry-run, or --store FILE"
            )
        return Store(path, keep_days=chosen.keep_days, keep_mib=chosen.keep_mib)
    except OSError as refused:
        raise UsageProblem(f"guard: {path}: {refused.strerror}; needed: a folder that this user may write") from None


def _ended(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit


def _tell(line: str) -> None:
    say(f"{line}\n")
    sys.stdout.flush()


def _once(policy: policies.Policy, hands: RealHands, *, json: bool) -> int:
    """One look: what is seen, and what that alone would make the guard do."""
    seen = hands.look(policy.units, cards=True, canaries={})
    if isinstance(seen, Absent):
        say(line({"schema_version": 1, "units": []}) if json else f"{seen.reason}\n")
        return Exit.INCOMPLETE
    if isinstance(seen, Unknown):
        raise UsageProblem(f"guard: {seen.reason}. {seen.remedy}")
    spoken: list[str] = []
    watch = Guard(policy, None, _Seen(hands, seen), spoken.append, dry=True)
    decisions = watch.beat()
    if json:
        told = {
            "schema_version": 1,
            "act": policy.act,
            "units": [
                msgspec.to_builtins(one) | {"at": stamp(one.at), "refused": hands.refused(one.unit)}
                for one in seen.value
            ],
            "decisions": [{"unit": one.unit} | msgspec.to_builtins(d) for one, d in decisions],
        }
        say(line(told))
    else:
        say("".join(_line(one, hands.refused(one.unit)) for one in seen.value) + "".join(f"{t}\n" for t in spoken))
    if any(d.restart for _, d in decisions):
        return Exit.FINDINGS
    unseen = [one for one in seen.value if one.active == "active" and not one.drained and one.counters is None]
    missing = set(policy.units) - {one.unit for one in seen.value}
    return Exit.INCOMPLETE if unseen or missing else Exit.OK


class _Seen(msgspec.Struct, frozen=True):
    """The hands after one look: what was seen is not looked at again."""

    hands: RealHands
    seen: Known[tuple[Look, ...]]

    def look(self, *_: object, **__: object) -> Known[tuple[Look, ...]]:
        """What was seen."""
        return self.seen

    def kernel(self, since: float) -> tuple[str, ...]:
        """The kernel's lines since that time."""
        return self.hands.kernel(since)

    def refused(self, unit: str) -> str | None:
        """Why it would not be restarted now."""
        return self.hands.refused(unit)

    def restart(self, _ask: object) -> None:
        """Nothing is done."""

    def explain(self, _unit: str) -> Explanation:
        """Nothing is asked."""
        return Explanation()


def _line(one: Look, refused: str | None) -> str:
    """One unit as a person reads it."""
    c = one.counters
    load = one.why or "no metrics"
    if c is not None:
        kv = "unknown" if c.kv is None else f"{c.kv:.0%}"
        load = f"{c.running or 0:.0f} running, {c.waiting or 0:.0f} waiting, KV cache {kv}"
    memory = f", host memory {one.host / (1 << 30):.2f} GiB" if one.host else ""
    gpus = "".join(f", {excerpt.short(g.uuid)} {g.own / (1 << 30):.2f} GiB" for g in one.cards if g.own is not None)
    may = f"the guard would not restart it: {refused}" if refused else "the guard is allowed to restart it"
    return f"{one.unit}: {one.active}, {one.state}; {load}{memory}{gpus}\n  {may}\n"
