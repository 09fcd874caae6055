"""On a host with a card: the recommended launch starts at the first try, and its pool lies in the claimed range.

Needs $VLLM_DOCTOR_GPU_VLLM (the `vllm` program) and $VLLM_DOCTOR_GPU_MODEL (a model folder).
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

VLLM, MODEL = os.environ.get("VLLM_DOCTOR_GPU_VLLM"), os.environ.get("VLLM_DOCTOR_GPU_MODEL")
READY_S = 900

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not VLLM or not MODEL, reason="needs VLLM_DOCTOR_GPU_VLLM and VLLM_DOCTOR_GPU_MODEL on a host with a card"
    ),
]


def recommended(profile="balanced"):
    """The plan of this host for the model, as JSON."""
    run = subprocess.run(
        [
            str(Path(sys.executable).with_name("vllm-doctor")),
            "plan",
            "--profile",
            profile,
            "--format",
            "json",
            "--",
            VLLM,
            "serve",
            MODEL,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(run.stdout)["recommended"]


def start(flags, log: Path):
    """Start the launch, wait until the engine is ready or gone, and return (started, log)."""
    words = [
        w for name, value in flags.items() for w in ([f"--{name}"] if value is True else [f"--{name}", str(value)])
    ]
    with log.open("wb") as out:
        child = subprocess.Popen(
            [VLLM, "serve", MODEL, "--port", "18999", *words], stdout=out, stderr=out, start_new_session=True
        )
    end = time.monotonic() + READY_S
    try:
        while time.monotonic() < end and child.poll() is None:
            if "Application startup complete" in log.read_text(errors="replace"):
                return True, log.read_text(errors="replace")
            time.sleep(1)
        return False, log.read_text(errors="replace")
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
            child.wait(120)


def test_the_recommended_launch_starts_and_its_pool_is_as_claimed(tmp_path):
    plan = recommended()
    assert plan is not None
    started, log = start(plan["launch"], tmp_path / "log")
    assert started, log[-4000:]
    pool = float(re.search(r"Available KV cache memory: (\d+\.\d+) GiB", log)[1])
    low, high = plan["margin"]["available_kv_gib"]
    assert low <= pool <= high


def test_no_setting_by_hand_holds_much_more(tmp_path):
    flags = dict(recommended("max")["launch"])
    pools = []
    for step in range(6):
        started, log = start(
            {**flags, "gpu-memory-utilization": round(flags["gpu-memory-utilization"] + 0.01 * step, 3)},
            tmp_path / f"log{step}",
        )
        if not started:
            break
        pools.append(float(re.search(r"Available KV cache memory: (\d+\.\d+) GiB", log)[1]))
    assert pools
    assert pools[0] >= 0.97 * max(pools)
