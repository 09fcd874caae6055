"""Saved outputs of nvidia-smi in its three forms; written by hand in its format."""

from pathlib import Path

import pytest

from vllm_doctor.gather.nvidia_smi import driver_of, gpus, read_both, read_file
from vllm_doctor.records.reading import Known, Unknown

MIB = 1 << 20

TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.105.08             Driver Version: 580.105.08     CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   34C    P0             70W /  700W |   61440MiB /  81559MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:2A:00.0 Off |                    0 |
| N/A   35C    P0             71W /  700W |       4MiB /  81559MiB |      0%      Default |
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|    0   N/A  N/A            4242      C   VLLM::EngineCore                      61430MiB |
+-----------------------------------------------------------------------------------------+
"""

SPARK = """\
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
| N/A   40C    P8              4W /  N/A  |          Not Supported |      0%      Default |
"""

QUERY = """\
==============NVSMI LOG==============
Driver Version                            : 570.172.08
CUDA Version                              : 12.8
Attached GPUs                             : 1
GPU 00000000:18:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    GPU UUID                              : GPU-aaaa
    GPU Recovery Action                   : Reset
    FB Memory Usage
        Total                             : 81920 MiB
        Reserved                          : 600 MiB
        Used                              : 1000 MiB
        Free                              : 80320 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : Yes
        Remapping Failure Occurred        : No
"""

CSV = "index, name, memory.total [MiB], memory.free [MiB], uuid\n0, NVIDIA L4, 23034 MiB, 22000 MiB, GPU-bbbb\n"


def test_the_table() -> None:
    found = gpus(TABLE, "f")
    assert isinstance(found, Known)
    first, second = found.value
    assert (first.name, first.total_bytes, first.free_bytes) == ("NVIDIA H100 80GB HBM3", 81559 * MIB, 20119 * MIB)
    assert [(p.pid, p.used_bytes, p.name) for p in first.processes] == [(4242, 61430 * MIB, "VLLM::EngineCore")]
    assert second.processes == ()


def test_unified_memory_has_no_total() -> None:
    found = gpus(SPARK, "f")
    assert isinstance(found, Known)
    assert (found.value[0].name, found.value[0].total_bytes, found.value[0].unified_memory) == (
        "NVIDIA GB10",
        None,
        True,
    )


def test_the_long_form() -> None:
    found = gpus(QUERY, "f")
    assert isinstance(found, Known)
    (one,) = found.value
    assert (one.total_bytes, one.free_bytes, one.reserved_bytes) == (81920 * MIB, 80320 * MIB, 600 * MIB)
    assert (one.remap_pending, one.remap_failed, one.recovery_action) == (True, False, "reset")


def test_comma_separated() -> None:
    found = gpus(CSV, "f")
    assert isinstance(found, Known)
    assert (found.value[0].name, found.value[0].total_bytes, found.value[0].uuid) == (
        "NVIDIA L4",
        23034 * MIB,
        "GPU-bbbb",
    )


def test_the_driver(tmp_path: Path) -> None:
    path = tmp_path / "smi"
    path.write_text(TABLE)
    found = read_both(str(path))[1]
    assert isinstance(found, Known)
    assert (found.value.module, found.value.cuda) == ("580.105.08", "13.0")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "couldn't communicate"),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95", "mismatch"),
        ("No devices were found", "No devices"),
        ("", "no GPU in it"),
        ("hello", "no GPU in it"),
        ("a, b\n1", "no GPU in it"),
    ],
)
def test_failures_are_unknown_in_its_own_words(text: str, word: str) -> None:
    found = gpus(text, "f")
    assert isinstance(found, Unknown)
    assert word in found.reason


def test_a_missing_file() -> None:
    assert isinstance(read_file("/no/such/file"), Unknown)
    assert isinstance(read_both("/no/such/file")[1], Unknown)


def test_an_output_without_a_driver_says_so_of_its_source() -> None:
    told = driver_of("GPU 0: NVIDIA L4", "nvidia-smi.txt")
    assert isinstance(told, Unknown)
    assert told.reason == "nvidia-smi.txt: it names no driver version"
