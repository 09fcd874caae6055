"""NVML, read by the doctor on a real card, held against what nvidia-smi and torch say of the same card."""

import subprocess
import sys

import pytest

from vllm_doctor.gather import nvml
from vllm_doctor.knowledge import gpus
from vllm_doctor.records.host import Driver, Gpu
from vllm_doctor.records.reading import Known, Reading


def smi(query: str) -> list[list[str]]:
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return [[cell.strip() for cell in row.split(",")] for row in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def read() -> tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]:
    return nvml.read(deadline_s=10)


def test_every_card_is_named_as_nvidia_smi_names_it(read: tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]) -> None:
    cards, _ = read
    assert isinstance(cards, Known), cards
    assert [[g.name, g.uuid] for g in cards.value] == smi("name,uuid")


def test_memory_agrees_with_nvidia_smi_to_the_mebibyte(
    read: tuple[Reading[tuple[Gpu, ...]], Reading[Driver]],
) -> None:
    cards, _ = read
    assert isinstance(cards, Known), cards
    for card, (total,) in zip(cards.value, smi("memory.total"), strict=True):
        assert card.total_bytes is not None
        assert abs(card.total_bytes / 2**20 - float(total)) <= 1


def test_the_driver_is_the_loaded_one(read: tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]) -> None:
    _, driver = read
    assert isinstance(driver, Known), driver
    assert driver.value.library == smi("driver_version")[0][0]
    assert driver.value.module in {None, driver.value.library}


def test_the_planner_knows_the_card_and_its_total(read: tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]) -> None:
    """Torch's total is what vLLM multiplies with the utilization; it is a little less than NVML's."""
    cards, _ = read
    assert isinstance(cards, Known), cards
    said = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.mem_get_info()[1])"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if said.returncode != 0:
        pytest.skip("torch is not installed here: its total was not compared")
    card = gpus.find(cards.value[0].name)
    assert card is not None, cards.value[0].name
    assert card.total_gib == pytest.approx(int(said.stdout) / 2**30, rel=0.01)
