"""How long a person waits for the doctor, against a Python that does nothing, in the same run.

    python benches/bench_cli.py

Target: `--version` within 0.15 s, `plan` within 0.3 s, `diagnose` of a small log within 1 s, on a machine at rest. The
ratio to the bare interpreter is what a slow or a busy machine leaves comparable.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 9
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
LOG = "INFO 03-14 09:00:00 [api_server.py:1] vLLM API server version 0.20.0\n"


def best(*command: str) -> float:
    """Wall seconds of the quickest of some runs."""
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=False)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def main() -> int:
    cli = shutil.which("vllm-doctor", path=str(Path(sys.executable).parent)) or "vllm-doctor"
    with tempfile.TemporaryDirectory() as folder:
        model, log = Path(folder) / "config.json", Path(folder) / "vllm.log"
        model.write_text(json.dumps(MODEL))
        log.write_text(LOG)
        card = ("--gpu", "NVIDIA H100 80GB HBM3", "--vllm-version", "0.32.0", "--model-config", str(model))
        rows = {
            "python -c pass": (best(sys.executable, "-c", "pass"), None),
            "vllm-doctor --version": (best(cli, "--version"), 0.15),
            "vllm-doctor plan": (best(cli, "plan", *card, "--", "vllm", "serve", "example/8b"), 0.3),
            "vllm-doctor diagnose --log": (best(cli, "diagnose", "--log", str(log)), 1.0),
        }
    bare = rows["python -c pass"][0]
    for name, (took, target) in rows.items():
        aim = f", aim {target:g} s" if target else ""
        print(f"{name}: {took:.3f} s, {took / bare:.1f} x the bare interpreter{aim}")
    return 0 if all(target is None or took <= target for took, target in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
