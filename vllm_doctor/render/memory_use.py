"""Where a server's GPU memory went, as a table: each term as measured and as planned, and who holds each GPU."""

from vllm_doctor.records.finding import GpuHolders, MemoryUse
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.page import Page

_NOTHING = "nothing was read: neither the log of a start nor a GPU with the server's processes"


HEADING = "Where the GPU's memory went (GiB of one GPU)"
HEAD = ("", "measured", "planned", "")


def draw(page: Page, use: MemoryUse | None) -> None:
    """The table, GiB of one GPU; what was not measured says why."""
    page.heading(HEADING)
    if use is None:
        page.text(_NOTHING, indent=2)
        return
    told = [HEAD, *rows(use)]
    wide = max(len(planned) for _, _, planned, _ in told)
    page.table([(name, measured, planned.rjust(wide), source) for name, measured, planned, source in told])
    for line in beside(use):
        page.text(line, indent=2)


def rows(use: MemoryUse) -> list[tuple[str, str, str, str]]:
    """Each term with its figures of two decimals, "-" for none, and where the measured one stands."""
    return [(t.name, _size(t.measured), _size(t.planned), visible(t.source, 200)) for t in use.terms]


def beside(use: MemoryUse) -> list[str]:
    """Who holds each GPU now, a line each, and what a plan lacks."""
    lacks = [f"not planned; to give: {visible(use.why_no_plan, 300)}"] if use.why_no_plan else []
    return [_held(gpu) for gpu in use.gpus] + lacks


def _held(gpu: GpuHolders) -> str:
    total = "" if gpu.total is None else f" of {gpu.total:.2f} GiB"
    others = "others unknown" if gpu.others is None else f"{gpu.others:.2f} by others"
    own = "this server unknown" if gpu.own is None else f"{gpu.own:.2f}{total} held by this server"
    free = "" if gpu.free is None else f", {gpu.free:.2f} free"
    return f"GPU {visible(gpu.gpu, 20)}: {own}, {others}{free} (NVML)"


def _size(gib: float | None) -> str:
    return "-" if gib is None else f"{gib:.2f}"
