"""Which Xids are a fault of the hardware, and what is done about each: NVIDIA's Xid catalogue, "immediate action"."""

import pytest

from vllm_doctor.records.host import Gpu, Kernel, KernelEvent
from vllm_doctor.rules.gates import xid
from vllm_doctor.rules.gates.xid import Xid

# Of the application; of an earlier fault; healed or only worth watching; the driver's summary.
NOT_HARDWARE = {
    *(11, 13, 25, 31, 32, 69, 80),
    *(43, 45),
    *(37, 38, 44, 63, 66, 67, 92, 121, 137, 157, 160, 161),
    154,
}
RESET = {46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
LINKS = {74, 144, 145, 146, 147, 148, 149, 150}


def test_every_other_code_is_the_hardware_s() -> None:
    event = KernelEvent("x")
    assert {code for code in range(1, 200) if not Xid(event, "", code, "").hardware} == NOT_HARDWARE


def test_what_is_done_about_each() -> None:
    assert {code for code, what in xid.ACTIONS.items() if "--gpu-reset" in what} == RESET
    assert {code for code, what in xid.ACTIONS.items() if "links of both cards" in what} == LINKS
    assert set(xid.ACTIONS) - RESET - LINKS == {54, 79, 94}
    assert xid.ACTIONS[79].startswith("reboot the host")
    assert xid.ACTIONS[94].startswith("restart the service")


def test_each_code_that_is_explained_has_its_own_words() -> None:
    assert set(xid.MEANING) == {
        *(13, 31, 32, 46, 48, 54, 62, 63, 64, 69, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 140, 143, 168),
        *range(144, 151),
    }
    assert Xid(KernelEvent("x"), "", 79, "").meaning == "the GPU has fallen off the bus"
    assert Xid(KernelEvent("x"), "", 110, "").meaning == "security fault"
    assert Xid(KernelEvent("x"), "", 111, "").meaning.startswith("a code that the doctor's table lacks")


@pytest.mark.parametrize(
    ("bus", "name"),
    [
        ("PCI:0000:3b:00", "GPU 2 (H100, PCI:0000:3b:00)"),
        ("0000:3B:00.0", "GPU 2 (H100, 0000:3B:00.0)"),
        ("PCI:0000:2a:00", "GPU PCI:0000:2a:00"),
        ("", "a GPU"),
    ],
)
def test_a_card_is_found_by_its_bus_address(bus: str, name: str) -> None:
    cards = (Gpu(1, "A10"), Gpu(2, "H100", pci="00000000:3B:00.0"))
    assert xid.card(bus, cards) == name


def test_a_card_that_fell_off_without_an_xid_counts_as_79_and_the_driver_s_last_word_counts() -> None:
    lines = (
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python3, Ch 00000008",
    )
    found = xid.xids(Kernel(tuple(KernelEvent(line, number=n) for n, line in enumerate(lines))))
    assert [one.code for one in found] == [154, 79, 31]
    assert (found[2].process, found[2].ours) == ("python3", True)
    assert xid.recovery(found) == "GPU Reset Required"
    assert xid.xids(None) == ()


def test_an_error_that_a_link_survived_is_no_fault_unless_processes_were_ended_for_it() -> None:
    survived = "NVRM: Xid (PCI:0000:ba:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 03 (0x00000001 0x00000080)"
    ended = "NVRM: Xid (PCI:0000:ba:00): 45, pid=1818, name=python3, Ch 00000002 caused by previous Xid 145"
    assert [x.hardware for x in xid.xids(Kernel((KernelEvent(survived),)))] == [False]
    assert [x.hardware for x in xid.xids(Kernel((KernelEvent(survived), KernelEvent(ended))))] == [True, False]
    assert [x.hardware for x in xid.xids(Kernel((KernelEvent(survived.replace("Nonfatal", "Fatal")),)))] == [True]
