"""Options that exclude or need each other when the engine's configuration is made (engine/arg_utils.py
create_engine_config, create_speculative_config), and a switch of the allocator that a connector refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture

# An option, the option of JSON that has the same as a key, and the key. Where the release has no such option, the line
# is refused already.
_TWICE = (
    ("attention-backend", "attention-config", "backend"),
    ("enable-flashinfer-autotune", "kernel-config", "enable_flashinfer_autotune"),
    ("cudagraph-capture-sizes", "compilation-config", "cudagraph_capture_sizes"),
    ("max-cudagraph-capture-size", "compilation-config", "max_cudagraph_capture_size"),
    ("spec-method", "speculative-config", "method"),
    ("spec-model", "speculative-config", "model"),
    ("spec-tokens", "speculative-config", "num_speculative_tokens"),
)
_EXTERNAL, _HYBRID = "data-parallel-external-lb", "data-parallel-hybrid-lb"


def refusals(
    flags: Flags, env: Mapping[str, str], a: Architecture, par: Parallel, does: Behaviour
) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts."""
    yield from _twice(flags)
    if does.checks_data_parallel_options:
        yield from _data_parallel(flags, par)
    ranked = flags.on(_EXTERNAL, default=False) or "data-parallel-rank" in flags.values
    if does.refuses_external_ranks_of_dense and ranked and par.dp > 1 and a.moe is None and a.known:
        option = _EXTERNAL if _EXTERNAL in flags.values else "data-parallel-rank"
        yield Refusal(
            f"--{option}",
            str(flags.values[option]) if option != _EXTERNAL else "set",
            f"a model with experts: of {a.name or a.model_type} start one server for each rank, without data parallel",
        )
    ids = [one.strip() for one in (flags.text("device-ids") or "").split(",") if one.strip()]
    if len(set(ids)) != len(ids):
        yield Refusal("--device-ids", ",".join(ids), "each card once")
    elif len({one.isdigit() for one in ids}) > 1:  # _resolve_device_ids, since there is such an option
        yield Refusal("--device-ids", ",".join(ids), "numbers alone, or UUIDs alone")
    rank, launcher = flags.int("data-parallel-rank", 0, -(10**5), 10**5), flags.text("distributed-executor-backend")
    if does.bounds_data_parallel_rank and par.dp > 1 and not 0 <= rank < par.dp and launcher != "external_launcher":
        yield Refusal("--data-parallel-rank", str(rank), f"from 0 to {par.dp - 1}: ranks are counted from 0")
    hosts = flags.int("nnodes", 1, 1, 10**5)
    if hosts > 1 and launcher == "ray":  # config/parallel.py, since there is such an option
        yield Refusal(
            "--nnodes", str(hosts), "1 with Ray, which spreads the ranks itself, or --distributed-executor-backend mp"
        )
    transfer = flags.object("kv-transfer-config")
    grows = "expandable_segments:True" in env.get("PYTORCH_CUDA_ALLOC_CONF", "")
    sleeps = flags.on("enable-sleep-mode", default=False)
    if does.sleep_refuses_growing_segments and sleeps and grows:
        told = env["PYTORCH_CUDA_ALLOC_CONF"]
        yield Refusal("PYTORCH_CUDA_ALLOC_CONF", told, "no expandable_segments:True beside --enable-sleep-mode")
    if flags.on("enable-reasoning", default=False) and flags.text("reasoning-parser") is None:
        yield Refusal("--enable-reasoning", "set", "--reasoning-parser beside it")
    pinned = sleeps or flags.on("enable-cumem-allocator", default=False)
    if does.refuses_growing_segments and transfer.get("kv_connector") and grows and not pinned:
        yield Refusal(
            "PYTORCH_CUDA_ALLOC_CONF",
            env["PYTORCH_CUDA_ALLOC_CONF"],
            f"no expandable_segments:True beside {transfer['kv_connector']}, or --enable-sleep-mode",
        )


def _twice(flags: Flags) -> Iterator[Refusal]:
    for option, other, key in _TWICE:
        text = flags.text(other) or ""
        if option in flags.values and text.lstrip().startswith("{") and flags.object(other).get(key) is not None:
            yield Refusal(f"--{option}", str(flags.values[option]), f"it alone, or {key} of --{other}")


def _data_parallel(flags: Flags, par: Parallel) -> Iterator[Refusal]:
    hybrid, external = flags.on(_HYBRID, default=False), flags.on(_EXTERNAL, default=False)
    ranked = external or "data-parallel-rank" in flags.values
    nodes, here = flags.int("nnodes", 1, 1, 10**5), flags.values.get("data-parallel-size-local")
    if hybrid and external:
        yield Refusal(f"--{_HYBRID}", "set", f"it alone, or --{_EXTERNAL}")
    backend = flags.text("data-parallel-backend") or "mp"
    if nodes > 1 and backend != "mp":
        yield Refusal("--data-parallel-backend", backend, "mp, which --nnodes asks for")
    ranks = par.tp * par.pp * par.dp * par.prefill
    if ranks % nodes:
        yield Refusal("--nnodes", str(nodes), f"a divisor of {ranks}, the ranks of this launch")
    node = flags.int("node-rank", 0, 0, 10**5)
    if nodes > 1 and node >= nodes:
        yield Refusal("--node-rank", str(node), f"at most {nodes - 1}: nodes are counted from 0")
    if flags.on("enable-fault-tolerance", default=False) and not ranked:
        yield Refusal("--enable-fault-tolerance", "set", f"--{_EXTERNAL} or --data-parallel-rank beside it")
    inferred = nodes > 1 and par.dp > 1 and nodes % par.dp == 0
    if external and "data-parallel-rank" not in flags.values and not inferred:
        yield Refusal(f"--{_EXTERNAL}", "set", "--data-parallel-rank beside it")
    if ranked and here is not None and str(here) != "1":
        yield Refusal("--data-parallel-size-local", str(here), "1, or none: each external rank is a server")
    if hybrid and not ranked and here is None and nodes == 1:
        yield Refusal(f"--{_HYBRID}", "set", "--data-parallel-size-local beside it")
