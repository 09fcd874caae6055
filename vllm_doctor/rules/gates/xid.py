"""What an Xid means: NVIDIA's own bucket and our reading; consequences are told from causes.

The buckets are those of NVIDIA's Xid catalogue (its column "immediate action"). A code that is not listed is shown
with its text and counts as a fault of its own: newer drivers have codes that no table here knows.
"""

from dataclasses import dataclass, replace

from vllm_doctor.log.match import read, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.host import Gpu, Kernel, KernelEvent

_OURS = ("vllm", "python", "ray::", "pt_main", "unknown")
# Of a kernel or an application; restarting the service is enough.
APPLICATION = frozenset({13, 31, 32, 11, 25, 69, 80})
# Follow from something else: a process that was killed, an earlier fault.
CONSEQUENCE = frozenset({43, 45})
# Healed, or only worth watching.
HARMLESS = frozenset({38, 37, 44, 63, 66, 67, 92, 121, 137, 157, 160, 161})
SUMMARY = 154
# One for each part of the NVLink of Blackwell and later; the line says whether the link survived.
LINKS = range(144, 151)
MEANING = {
    13: "a kernel of the application used the GPU wrongly",
    31: "a kernel of the application touched an address that is not mapped",
    32: "a command buffer arrived damaged",
    46: "the GPU stopped answering",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    62: "internal micro-controller halted",
    63: "a memory row is recorded for remapping; the next reset applies it",
    64: "a memory row could not be replaced",
    69: "a kernel of the application used the GPU wrongly",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    110: "security fault",
    119: "the GPU's system processor (GSP) does not answer",
    120: "the GPU's system processor (GSP) failed",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "the GPU could not be initialised",
    **dict.fromkeys(LINKS, "NVLink error"),
    168: "the GPU has less memory than it should have",
}
_RESET = "stop every process on the GPU, then run nvidia-smi --gpu-reset -i INDEX"
_REBOOT = "reboot the host; if the fault comes back, check the GPU, its slot and its power"
ACTIONS = {
    48: _RESET,
    54: "check the power cables of the card",
    64: f"{_RESET}; if the fault comes back, replace the GPU",
    79: _REBOOT,
    94: "restart the service; reset the GPU at the next window, so that the row is replaced",
    **dict.fromkeys((46, 62, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158), _RESET),
    **dict.fromkeys((74, *LINKS), "look at the links of both cards (nvidia-smi nvlink -e), then reset them"),
}


@dataclass(frozen=True)
class Xid:
    """One Xid line: the GPU's bus address, the code, and the rest of the text."""

    event: KernelEvent
    bus: str
    code: int
    text: str
    blamed: bool = False  # the driver ended processes for it

    @property
    def hardware(self) -> bool:
        """Neither an application's fault, nor a consequence, nor harmless, nor an error that a link survived."""
        if self.code in APPLICATION | CONSEQUENCE | HARMLESS | {SUMMARY}:
            return False
        return self.code not in LINKS or self.blamed or not says(self.text, "xid-nonfatal")

    @property
    def process(self) -> str | None:
        """The process that the driver names, where it names one."""
        found = read("xid-process", self.text)
        return found["name"].strip() if found is not None else None

    @property
    def ours(self) -> bool:
        """May the process that the driver names be vLLM's? Where it names none, it may."""
        name = (self.process or "").lower()
        return not name or any(word in name for word in _OURS)

    @property
    def meaning(self) -> str:
        """The code in words."""
        return MEANING.get(self.code, "a code that the doctor's table lacks; the evidence has the driver's text")


def xids(kernel: Kernel | None, run: AnalysedRun | None = None) -> tuple[Xid, ...]:
    """Every Xid of this boot, in order, from the kernel's log or from kernel lines in the service's own.

    A GPU that fell off the bus without an Xid counts as 79.
    """
    events = kernel.events if kernel is not None else ()
    if not events and run is not None:
        at = sorted({h.index for h in (*run.all("xid"), *run.all("gpu-off-bus"))})
        told = (run.lines[index] for index in at)
        events = tuple(KernelEvent(line.text, line.at, line.number) for line in told)
    found: list[Xid] = []
    for event in events:
        line = read("xid", event.text)
        if line is not None:
            found.append(Xid(event, line["bus"], int(line["code"]), line.get("rest", "")))
        elif says(event.text, "gpu-off-bus"):
            found.append(Xid(event, "", 79, event.text))
    blamed = {int(cause["code"]) for x in found if (cause := read("xid-blamed", x.text)) is not None}
    return tuple(replace(x, blamed=True) if x.code in blamed else x for x in found)


def recovery(found: tuple[Xid, ...]) -> str | None:
    """The recovery action that the driver itself named last (Xid 154), in its own words; None if that is none."""
    named = [m["action"] for x in found if x.code == SUMMARY and (m := read("xid-recovery", x.text)) is not None]
    return named[-1] if named and named[-1].lower() != "none" else None


def card(bus: str, gpus: tuple[Gpu, ...] | None) -> str:
    """A GPU by its bus address: index and name where NVML told them."""
    wanted = bus.lower().partition(".")[0][-7:]
    for gpu in gpus or ():
        if gpu.pci is not None and wanted and wanted in gpu.pci.lower():
            return f"GPU {gpu.index} ({gpu.name}, {bus})"
    return f"GPU {bus}" if bus else "a GPU"
