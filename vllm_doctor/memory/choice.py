"""The choice: the largest launch that is safe, each flag with its reason and its sum.

Safe means that the low end of the predicted range still holds one request of the chosen length, and that no later
step of the start runs out of memory. The order follows the start: where the weights go, how much of the card, how
long, how wide a step, how many requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor

from msgspec.structs import replace

from vllm_doctor.knowledge.versions import Version, flag
from vllm_doctor.memory.flags import SettingError
from vllm_doctor.memory.history import History
from vllm_doctor.memory.launch import LaunchError
from vllm_doctor.memory.plan import GIB, Prediction, held_before_start
from vllm_doctor.memory.question import Planner, PlanProblem
from vllm_doctor.memory.recommendation import Changes, Choice, Profile, Reason, Sum, Workload, safe, table_tokens

# Tokens of the shortest request that is worth a service; a launch that cannot take it is no recommendation.
LEAST = 1024
# Where the user asks for no length, a wide step is worth more than a request beyond this many tokens.
USEFUL = 8192


class Chooser:
    """Walks from the user's launch to the recommended one."""

    def __init__(self, planner: Planner, work: Workload, profile: Profile) -> None:
        self.planner, self.work, self.profile = planner, work, profile
        self.changes: Changes = {}
        self.reasons: list[Reason] = []
        self.arch = planner.arch
        self.useful = True

    def predict(self, **more: str | bool | None) -> Prediction:
        """Predict with the choices so far and some more (underscores for dashes)."""
        return self.planner.predict({**self.changes, **{k.replace("_", "-"): v for k, v in more.items()}})

    def keep(self, name: str, value: float | str | bool, why: str, *sums: Sum) -> None:
        """Settle a flag."""
        self.changes[name] = value if isinstance(value, bool) else str(value)
        self.reasons = [r for r in self.reasons if r.flag != name] + [Reason(name, why, sums)]

    def choose(self) -> Choice:
        """Settle every flag in turn."""
        asked = self.planner.settings()
        length = self._wanted(asked.length, auto=asked.auto_length)
        length = self._spread(length)
        self._utilization()
        self._length(length)
        self._tokens()
        self._seqs()
        self._tokens()  # fewer requests may have left room for a wider step
        if (
            self.planner.version >= Version((0, 9))
            and not self.arch.hybrid
            and asked.engine == "V1"
            and "enable-prefix-caching" not in self.planner.line.flags
        ):
            self.keep(
                "enable-prefix-caching",
                True,
                "shared prompt beginnings are computed once; it takes no memory beyond the pool",
            )
        final = self.planner.predict(self.changes)
        return Choice(_values(self.changes), final, tuple(self.reasons), safe(final) and self.useful)

    def _wanted(self, asked: int, *, auto: bool) -> int:
        if self.work.context:
            longest = max(self.arch.context, asked)
            if self.work.mean_tokens is not None:  # measured: the bound of a bucket, which no request need have reached
                return min(self.work.context, longest)
            if self.work.context > longest:
                raise PlanProblem(
                    f"--context: found {self.work.context}; needed: at most {longest}, the longest request of the model"
                )
            return self.work.context
        if self.profile == "conservative" and "max-model-len" not in self.planner.line.flags:
            return min(2048, self.arch.context)
        return self.arch.context if auto else asked

    def _spread(self, length: int) -> int:
        """TP x PP: the fewest cards on which weights, activations and one request of `length` fit, tensor parallelism
        before stages; where nothing holds all of it, a shorter one. The length to go on with, shorter where weights had
        to leave the card."""
        flags, gpus = self.planner.line.flags, self.planner.gpus
        tp_now, pp_now = self.planner.settings().parallel.tp, self.planner.settings().parallel.pp
        splits = [
            (tp, pp)
            for tp in range(1, gpus + 1)
            for pp in range(1, gpus // tp + 1)
            if pp <= len(self.arch.layers) and self._divides(tp)
        ]
        # Stages only where tensor parallelism alone does not do: they add latency. Fewest cards first.
        splits.sort(key=lambda split: (split[1] > 1, split[0] * split[1], split[1]))
        if tp_now * pp_now <= gpus:
            splits.insert(0, (tp_now, pp_now))
        tensor = [split for split in splits if split[1] == 1 or split == (tp_now, pp_now)]
        asked, useful = self._asks_length(), min(length, USEFUL)
        tries = [(length, tensor, False), *([(length, splits, True)] if asked else []), (useful, tensor, False)]
        for most, among, narrow in (*tries, (useful, splits, True), (min(length, LEAST), splits, True)):
            for tp, pp in among:
                if self._holds(tp, pp, most, narrow=narrow):
                    if gpus > 1 or "tensor-parallel-size" in flags:
                        self._spread_reason(tp, pp)
                    return length
        widest = max(tp for tp, pp in tensor if pp == 1)
        return next((n for tp in (widest, 1) if (n := self._offload(length, tp))), length)

    def _divides(self, tp: int) -> bool:
        heads, kv = self.arch.heads, self.arch.kv_heads
        return not (heads and heads % tp) and not (kv and self.arch.mla is None and kv % tp and tp % kv)

    def _offload(self, length: int, tp: int) -> int:
        """The last resort: a part of the weights stays in host memory, for few and short requests; 0 if that does not
        do either. Of several cards, which read from the same host memory, a smaller part."""
        short = min(length, 4096)
        small: Changes = {
            **({"tensor-parallel-size": str(tp), "pipeline-parallel-size": None} if tp > 1 else {}),
            "max-model-len": str(short),
            "max-num-seqs": "8",
            "max-num-batched-tokens": str(max(2048, short)),
        }
        p = self.planner.predict({**self.changes, **small})
        fact = flag("cpu-offload-gb", self.planner.version)
        if fact is None or not fact.exists or p.margin_gib is None or p.settings.refusals:
            return 0
        for size in range(
            max(1, ceil(p.needed_kv_gib - p.margin_gib[0])), int((0.7 if tp == 1 else 0.4) * p.weights_gib) + 1
        ):
            if safe(self.planner.predict({**self.changes, **small, "cpu-offload-gb": str(size)})):
                self.changes["max-num-seqs"] = small["max-num-seqs"]
                if tp > 1:
                    self._spread_reason(tp, 1)
                self.keep(
                    "cpu-offload-gb",
                    size,
                    "nothing else makes the weights fit; every step reads this part over PCIe, so it is slow: a "
                    "larger card or a quantised checkpoint is better",
                    Sum("weights left on the card", p.weights_gib - size, "GiB", f"{p.weights_gib:.2f} − {size}", ""),
                )
                return short
        return 0

    def _asks_length(self) -> bool:
        return bool(self.work.context) or "max-model-len" in self.planner.line.flags

    def _holds(self, tp: int, pp: int, length: int, *, narrow: bool) -> bool:
        """Does this split hold one request of `length`, with whatever else the choice may still change?"""
        kept = dict(self.changes)
        self.changes.update({"tensor-parallel-size": str(tp), "pipeline-parallel-size": str(pp)})
        try:
            return any(safe(self.predict(max_model_len=str(length), **more)) for more in self._ways(narrow=narrow))
        except (SettingError, LaunchError):
            return False
        finally:
            self.changes = kept

    def _ways(self, *, narrow: bool) -> Iterator[dict[str, str]]:
        """What may make room for a request, least painful first: nothing; slots for requests that the pool would not
        hold anyway; the rest of the card; narrower steps, if `narrow`. Nothing that the user set is given up but the
        width."""
        flags, total = self.planner.line.flags, self.planner.total_gib
        s = self.planner.settings(self.changes)
        if narrow or total is None:
            yield {}
        if total is None:
            return
        free = "max-num-seqs" not in flags and not self.work.concurrency
        seqs = [n for n in (256, 64, 16) if n < s.seqs] if free else []
        table = table_tokens(total)
        widths = sorted({n for n in (table, 8192, 4096, 2048) if n <= table}, reverse=True)
        if self.profile == "conservative":
            widths = [n for n in widths if n <= max(2048, table // 2)]
        asked = [] if "max-num-batched-tokens" not in flags or s.batched > table else [s.batched]
        shares: list[dict[str, str]] = [{}]
        if "gpu-memory-utilization" not in flags and self.profile == "balanced":
            shares.append({"gpu_memory_utilization": str(self._highest(total))})
        for share in shares:
            for width in (asked or widths)[:1]:
                for n in (s.seqs, *(seqs if share == shares[-1] else seqs[:2])):
                    yield {**share, "max_num_batched_tokens": str(width), "max_num_seqs": str(n)}
        if not narrow:
            return
        for width in (asked or widths)[1:]:
            yield {**shares[-1], "max_num_batched_tokens": str(width), "max_num_seqs": str(([s.seqs, *seqs])[-1])}
        yield {**shares[-1], **({"max_num_seqs": str(seqs[-1])} if seqs else {})}

    def _spread_reason(self, tp: int, pp: int) -> None:
        gpu = self.planner.gpu
        p = self.predict(tensor_parallel_size=str(tp), pipeline_parallel_size=str(pp), max_model_len="16")
        why = f"{tp} × {pp} card(s) hold the weights: {p.weights_gib:.2f} GiB on each"
        if self.arch.kv_heads and self.arch.mla is None and tp > self.arch.kv_heads:
            why += f"; beyond TP {self.arch.kv_heads} the KV heads are copied, so a request's cache does not shrink"
        if tp > 1 and gpu is not None and gpu.link == "pcie":
            why += "; the cards talk over PCIe, where every layer's all-reduce costs time"
        if self.planner.gpus // (tp * pp) > 1:
            why += f"; the host has room for {self.planner.gpus // (tp * pp)} such copies (data parallel)"
        self.keep(
            "tensor-parallel-size",
            tp,
            why,
            Sum(
                "weights per card",
                p.weights_gib,
                "GiB",
                "every tensor, split as vLLM splits it",
                "model_executor/layers",
            ),
        )
        if pp > 1:
            self.keep(
                "pipeline-parallel-size",
                pp,
                f"{len(self.arch.layers)} layers in {pp} stages; tensor parallelism alone does not divide or does "
                f"not fit",
            )

    def _utilization(self) -> None:
        s = self.planner.settings()
        if (
            "gpu-memory-utilization" in self.planner.line.flags
            and self.profile == "balanced"
            and safe(self.predict(max_model_len="256"))
        ):
            return
        total = self.planner.total_gib
        if total is None:
            return
        default = (
            s.utilization
            if "gpu-memory-utilization" in s.defaulted
            else (0.92 if self.planner.version >= Version((0, 20)) else 0.9)
        )
        if self.profile == "conservative":
            value, why = 0.80, "the cautious start: a fifth of the card stays free for what comes at run time"
        elif self.profile == "balanced":
            value, why = (
                default,
                "the release's own default: what lies above it absorbs graphs, libraries and fragmentation",
            )
        else:
            value, why = (
                self._highest(total),
                "the most that still leaves room for graphs, the sampler's warm-up and 0.5 GiB of run-time growth",
            )
        p = self.predict(gpu_memory_utilization=str(value), max_model_len="256")
        if p.outcome != "ok" and value < 0.95:
            value = self._highest(total)
            why = "less leaves no pool: the most that the card allows"
        self._share(value, why)

    def _share(self, value: float, why: str) -> None:
        total = self.planner.total_gib or 0.0
        budget = Sum("budget", total * value, "GiB", f"{total:g} × {value:g}", "v1/worker/utils.py request_memory")
        self.keep("gpu-memory-utilization", round(value, 3), why, budget)

    def _highest(self, total: float) -> float:
        p = self.predict(gpu_memory_utilization="0.5", max_model_len="256")
        free = total - held_before_start(p.settings, self.planner.gpu)
        charged = p.cudagraph_budget_gib
        outside = max(p.cudagraph_gib * 1.25 - charged, 0.0) + 0.5
        return max(0.5, min(0.97, floor((free - outside) / total * 100) / 100))

    def _reach(self, wanted: int, more: dict[str, str]) -> int:
        """The longest request, up to `wanted`, that the launch with these further changes safely takes; 0 is none."""
        # A long length may widen the profile itself (videos of a vision model), so shorter ones are looked at as well.
        for most in (wanted, *(n for n in (4 * USEFUL, USEFUL, LEAST) if n < wanted)):
            p = self.predict(max_model_len=str(most), **more)
            if safe(p) or p.checked is None or p.margin_gib is None:
                return most
            fitting = p.checked.longest(max(p.margin_gib[0], 0.0) * GIB - p.checked.block_bytes, most)
            fitting = fitting if fitting < 1024 else fitting // 256 * 256
            if fitting and safe(self.predict(max_model_len=str(fitting), **more)):
                return fitting
        return 0

    def _make_room(self, wanted: int) -> int:
        """The length that is recommended: `wanted`, or what the first way that gives one of use reaches; that way is
        taken over."""
        asked = self._asks_length()
        whole = asked or any(self._reach(wanted, more) >= wanted for more in self._ways(narrow=False))
        goal = wanted if whole else min(wanted, USEFUL)
        best, taken, last = -1, {}, None
        for more in list(self._ways(narrow=True))[0 if asked else 1 :]:
            place = {k: v for k, v in more.items() if k != "max_num_seqs"}
            if best >= goal and place != last:
                break
            reach = self._reach(wanted, more)
            # Slots are given up for a much longer request, not for a little.
            if reach > best * (1.25 if best >= goal else 1):
                best, taken = reach, more
            last = place
        share = taken.get("gpu_memory_utilization")
        if share is not None:
            self._share(float(share), "one request needs it: the most that the card allows")
        self.changes.update({k.replace("_", "-"): v for k, v in taken.items() if k != "gpu_memory_utilization"})
        return best

    def _length(self, wanted: int) -> None:
        limited = self._make_room(wanted)
        if limited < wanted and self._asks_length() and self._fp8_helps(wanted):
            limited = self._make_room(wanted)
        limited = max(limited, 1)
        self.useful = limited >= min(wanted, LEAST)
        shrunk = f" (asked: {wanted}; more does not fit even once)" if limited < wanted else ""
        named = (
            f"the workload's longest request, {self.work.context}, {self.work.source}"
            if self.work.context
            else "one request of this length must fit at start-up"
        )
        q = self.predict(max_model_len=str(limited))
        self.keep(
            "max-model-len",
            limited,
            named + shrunk,
            Sum(
                "KV of one request",
                q.needed_kv_gib,
                "GiB",
                f"{q.checked.request_blocks(limited)} blocks × {q.checked.block_bytes} B" if q.checked else "no cache",
                "v1/kv_cache_interface.py",
            ),
            *(
                ()
                if q.available_kv_gib is None
                else (
                    Sum(
                        "pool",
                        q.available_kv_gib,
                        "GiB",
                        "budget − weights − non-torch − activation − charged graphs",
                        "v1/worker/gpu_worker.py",
                    ),
                )
            ),
        )

    def _fp8_helps(self, wanted: int) -> bool:
        """fp8 KV halves the cache; offered only when the length does not fit without."""
        fact = flag("kv-cache-dtype", self.planner.version)
        gpu = self.planner.gpu
        if (
            "kv-cache-dtype" in self.planner.line.flags
            or fact is None
            or not fact.exists
            or gpu is None
            or (gpu.capability or 0) < (8.9 if self.arch.mla is None else 9.0)
        ):
            return False
        plain = self.predict(max_model_len=str(wanted))
        small = self.predict(max_model_len=str(wanted), kv_cache_dtype="fp8")
        if small.needed_kv_gib >= plain.needed_kv_gib:
            return False
        self.keep(
            "kv-cache-dtype",
            "fp8",
            f"{wanted} tokens need {plain.needed_kv_gib:.2f} GiB in {plain.settings.dtype} and "
            f"{small.needed_kv_gib:.2f} GiB in fp8, which {gpu.name} computes natively",
            Sum("KV of one request", small.needed_kv_gib, "GiB", "1 byte an element", "config/cache.py CacheDType"),
        )
        return True

    def _tokens(self) -> None:
        total = self.planner.total_gib
        if total is None:
            return
        floor_ = table_tokens(total)
        asked = self.planner.settings().batched if "max-num-batched-tokens" in self.planner.line.flags else None
        if asked is not None and asked <= floor_ and safe(self.predict()) and self.profile == "balanced":
            return
        best = self._least()
        for tokens in sorted({2048, 4096, 8192, 16384, floor_}):
            narrow = self.profile == "conservative" and tokens > max(2048, floor_ // 2)
            if (
                self._least() < tokens <= floor_
                and not narrow
                and safe(self.predict(max_num_batched_tokens=str(tokens)))
            ):
                best = tokens
        p = self.predict(max_num_batched_tokens=str(best))
        peak = p.activation.peak / GIB
        forbidden: tuple[Sum, ...] = ()
        if best < floor_:
            wide = self.predict(max_num_batched_tokens=str(floor_))
            left = wide.margin_gib[0] if wide.margin_gib is not None else wide.available_kv_gib or 0.0
            forbidden = (
                Sum(
                    f"pool left at {floor_}",
                    left,
                    "GiB",
                    f"at the low end of the range; one request of {wide.length} tokens needs {wide.needed_kv_gib:.2f}"
                    + (f"; predicted {wide.outcome}" if wide.outcome != "ok" else ""),
                    "v1/worker/gpu_worker.py",
                ),
            )
        self.keep(
            "max-num-batched-tokens",
            best,
            "prefill is fastest in wide steps, up to what pays on a card of this size; every token of width is paid "
            "from the pool",
            Sum(
                "activation peak",
                peak,
                "GiB",
                next((t.formula for t in p.terms if t.name == p.activation.winner), p.activation.winner),
                "profile_run",
            ),
            Sum("pool left", p.available_kv_gib or 0.0, "GiB", "at this width", "v1/worker/gpu_worker.py"),
            *forbidden,
        )

    def _least(self) -> int:
        """Below this vLLM refuses or changes the launch."""
        s = self.planner.settings(self.changes)
        return s.length if not s.chunked else min(2048, max(s.length, 256))

    def _seqs(self) -> None:
        flags = self.planner.line.flags
        p = self.predict()
        default = p.settings.seqs
        if self.work.concurrency:
            wanted = max(1, min(self.work.concurrency, p.settings.batched))
            why = f"the workload's {self.work.concurrency} requests at once" + (
                ""
                if wanted == self.work.concurrency
                else f", of which a step of {p.settings.batched} tokens takes {wanted}"
            )
        elif self.profile == "conservative":
            wanted = 8
            why = "the cautious start: few requests at once, raised after a look at the server under load"
        elif "max-num-seqs" in flags:
            return
        else:
            mean = self.work.mean_tokens or min(p.length, 2048)
            fits = max(1, int((p.kv_tokens or 0) // mean))
            wanted = max(1, min(default, 1 << (fits - 1).bit_length()))
            held = f"the pool of {p.kv_tokens} tokens holds about {fits} requests of {mean} tokens"
            why = f"{held}; more slots would only pay for logits and wait for blocks"
        for candidate in (wanted, wanted // 2, wanted // 4, wanted // 8, 1):
            if candidate >= 1 and safe(self.predict(max_num_seqs=str(candidate))):
                wanted = candidate
                break
        q = self.predict(max_num_seqs=str(wanted))
        sampler = next((t for t in q.terms if t.name == "logits and sampler"), None)
        sums = (
            (Sum("logits and sampler", sampler.bytes / GIB, "GiB", sampler.formula, sampler.source),)
            if sampler is not None
            else ()
        )
        self.keep("max-num-seqs", wanted, why, *sums)


def _values(changes: Changes) -> dict[str, int | float | str | bool]:
    out: dict[str, int | float | str | bool] = {}
    for name, value in changes.items():
        if isinstance(value, bool) or value is None:
            out[name] = bool(value)
        elif value.isdigit():
            out[name] = int(value)
        else:
            try:
                out[name] = float(value)
            except ValueError:
                out[name] = value
    return out


def choose(planner: Planner, work: Workload, profile: Profile) -> Choice | None:
    """The recommended launch for a workload on these cards; None when nothing that was tried is safe.

    What earlier starts on this host logged judges the choice, and makes another only where it turns out not to be safe:
    a launch that serves is not restarted for a few hundred tokens more. `tune` is for that.
    """
    if planner.history.starts:
        first = _choose(replace(planner, history=History()), work, profile)
        if first is not None:
            measured = _mended(planner).predict(
                {k: v if isinstance(v, bool) else str(v) for k, v in first.launch.items()}
            )
            if safe(measured):
                return replace(first, predicted=measured)
    return _choose(planner, work, profile)


def _choose(planner: Planner, work: Workload, profile: Profile) -> Choice | None:
    choice = Chooser(_mended(planner), work, profile).choose()
    return choice if choice.fits else None


def _mended(planner: Planner) -> Planner:
    """The launch without what this release or these cards refuse."""
    if any(r.flag in {"--tensor-parallel-size", "--pipeline-parallel-size"} for r in planner.settings().refusals):
        planner = replace(
            planner,
            line=replace(
                planner.line,
                flags={
                    k: v
                    for k, v in planner.line.flags.items()
                    if k not in {"tensor-parallel-size", "pipeline-parallel-size"}
                },
            ),
        )
    if planner.line.refusals:
        dropped = {r.flag.lstrip("-") for r in planner.line.refusals}
        planner = replace(
            planner,
            line=replace(
                planner.line, refusals=(), flags={k: v for k, v in planner.line.flags.items() if k not in dropped}
            ),
        )
    return planner
