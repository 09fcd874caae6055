"""Where a server's GPU memory went, as a table: each term measured beside planned, and who holds each GPU."""

from vllm_doctor.records.finding import GpuHolders, MemoryUse
from vllm_doctor.render.page import Page
from vllm_doctor.render.text import visible

_NOTHING = "nothing of it was seen: neither a start's log nor a GPU with the server's processes"


def draw(page: Page, use: MemoryUse | None) -> None:
    """The table, GiB of one GPU; what was not measured says why."""
    page.heading("Where the GPU's memory went (GiB of one GPU)")
    if use is None:
        page.text(_NOTHING, indent=2)
        return
    rows = [("", "measured", "planned", "")]
    rows += [(term.name, _size(term.measured), _size(term.planned), visible(term.source, 200)) for term in use.terms]
    wide = max(len(planned) for _, _, planned, _ in rows)
    page.table([(name, measured, planned.rjust(wide), source) for name, measured, planned, source in rows])
    for gpu in use.gpus:
        page.text(_held(gpu), indent=2)
    if use.why_no_plan:
        page.text(f"not planned; to give: {visible(use.why_no_plan, 300)}", indent=2)


def _held(gpu: GpuHolders) -> str:
    total = "" if gpu.total is None else f" of {gpu.total:.2f} GiB"
    others = "others not told" if gpu.others is None else f"{gpu.others:.2f} by others"
    own = "not told how much by this server" if gpu.own is None else f"{gpu.own:.2f}{total} held by this server"
    free = "" if gpu.free is None else f", {gpu.free:.2f} free"
    return f"GPU {visible(gpu.gpu, 20)}: {own}, {others}{free} (NVML)"


def _size(gib: float | None) -> str:
    return "-" if gib is None else f"{gib:.2f}"
