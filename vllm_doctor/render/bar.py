"""A memory as a bar: who has how much of it, and what was asked for."""

from vllm_doctor.records.finding import Memory, Part
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.page import Page

# Darkest first; what is free or missing is always the lightest.
_SIGNS = ("█", "▓", "▒", "▞", "▚")
_FREE = "░"
_STYLES = ("red", "blue", "magenta", "cyan", "yellow")
_LIGHT = frozenset({"free", "missing"})
# Stands for a space at which no line ends.
_TIED = "\u00a0"


def draw(page: Page, memory: Memory) -> None:
    """The bar over the page's width, and under it what is what, GiB."""
    title = f"{visible(memory.of, 40)}, {memory.total_gib:.2f} GiB"
    if memory.asked is not None:
        title += f": {visible(memory.asked.name, 40)} {memory.asked.gib:.2f}"
    page.line((title, "bold"))
    width = min(page.width - 2, 72)
    cells = columns(memory, width)
    signs = signed(memory.parts)
    page.line(("  ", ""), *((sign * count, style) for (sign, style), count in zip(signs, cells, strict=True)))
    shown = [f"{sign} {visible(p.name, 40)} {p.gib:.2f}" for (sign, _), p in zip(signs, memory.parts, strict=True)]
    styles = {text: style for text, (_, style) in zip(shown, signs, strict=True)}
    for line in page.wrapped("   ".join(text.replace(" ", _TIED) for text in shown), 2):
        told = [part.replace(_TIED, " ") for part in line.split("   ")]
        page.line(
            *(span for part in told for span in (("  ", ""), (part[:1], styles.get(part, "")), (f"{part[1:]} ", "")))
        )


def columns(memory: Memory, width: int) -> list[int]:
    """How many of `width` columns each part takes; together all of them, and none that is there takes nothing."""
    total = sum(part.gib for part in memory.parts) or 1.0
    cells = [max(1, round(part.gib / total * width)) for part in memory.parts]
    cells[cells.index(max(cells))] += width - sum(cells)
    return cells


def signed(parts: tuple[Part, ...]) -> list[tuple[str, str]]:
    """The sign and the colour of each part."""
    found: list[tuple[str, str]] = []
    used = 0
    for part in parts:
        if part.name in _LIGHT:
            found.append((_FREE, "green" if part.name == "free" else "red"))
        else:
            found.append((_SIGNS[used % len(_SIGNS)], _STYLES[used % len(_STYLES)]))
            used += 1
    return found
