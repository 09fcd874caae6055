"""What the server and the host say while a load runs: the peaks, and the preemptions from begin to end."""

import threading
import time
from collections.abc import Iterable

import msgspec

from vllm_doctor.gather import nvml, procfs
from vllm_doctor.gather.http import NO_PASS, Pass
from vllm_doctor.gather.metrics import scrape_twice
from vllm_doctor.knowledge import serving
from vllm_doctor.records.host import Metrics, Scrape
from vllm_doctor.records.reading import Known

MEMORY_EVERY_S = 5.0
# A server under its full load answers late; what it then says are the peaks. Less than the end waits for the thread.
_LATEST_S = 8.0


class ScrapePeaks(msgspec.Struct, frozen=True):
    """Peaks and growth over the scrapes; None is what this server does not tell."""

    kv_peak: float | None
    running_peak: float | None
    waiting_peak: float | None
    preemptions: float | None
    memory_free: float | None
    scrapes: int


class Watch:
    """Scrapes in a thread of its own between `with` and its end."""

    def __init__(self, base: str, interval_s: float = 0.5, given: Pass = NO_PASS) -> None:
        self._base, self._interval, self._given = base, interval_s, given
        self._scrapes: list[Scrape] = []
        self._free: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        looked = 0.0
        while not self._over.is_set():
            told = scrape_twice(self._base, deadline_s=_LATEST_S, interval_s=self._interval, given=self._given)
            if isinstance(told, Known):
                self._scrapes.extend(told.value.scrapes)
            else:
                self._over.wait(self._interval)
            if time.monotonic() - looked > MEMORY_EVERY_S:
                looked = time.monotonic()
                free = memory_free()
                if free is not None:
                    self._free.append(free)

    def seen(self) -> ScrapePeaks:
        """What was seen so far."""
        scrapes = tuple(self._scrapes)
        ends = Metrics(self._base, (scrapes[0], scrapes[-1])) if len(scrapes) > 1 else None
        return ScrapePeaks(
            kv_peak=_peak(serving.highest(s, serving.KV_USE) for s in scrapes),
            running_peak=_peak(serving.total(s, serving.RUNNING) for s in scrapes),
            waiting_peak=_peak(serving.total(s, serving.WAITING) for s in scrapes),
            preemptions=serving.increase(ends, serving.PREEMPTIONS) if ends else None,
            memory_free=min(self._free, default=None),
            scrapes=len(scrapes),
        )


def _peak(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def memory_free() -> float | None:
    """The least free share of memory among the cards, or of the host where no card has memory of its own."""
    cards, _ = nvml.read()
    shares = [
        g.free_bytes / g.total_bytes
        for g in (cards.value if isinstance(cards, Known) else ())
        if g.total_bytes and g.free_bytes is not None
    ]
    if shares:
        return min(shares)
    host = procfs.meminfo()
    total, available = host.get("MemTotal"), host.get("MemAvailable")
    return available / total if total and available is not None else None
