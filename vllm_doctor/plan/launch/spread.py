"""How many ranks this host starts, which layers each stage has, and what cannot be divided so."""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import Architecture


def local_ranks(flags: Flags) -> int:
    """Data-parallel ranks that this host starts: all, but where the launch says how many, or is one of them, or Ray or
    other nodes take some: of --nnodes each has as many (engine/arg_utils.py create_engine_config)."""
    told = flags.int("data-parallel-size-local", 0, 0, 4096)
    elsewhere = flags.text("data-parallel-backend") == "ray"
    if told or elsewhere or flags.text("data-parallel-rank") or flags.on("data-parallel-external-lb", default=False):
        return max(told, 1)
    return max(flags.int("data-parallel-size", 1, 1, 4096) // nodes(flags), 1)


def nodes(flags: Flags) -> int:
    """Hosts that the launch says it is started on."""
    return flags.int("nnodes", 1, 1, 4096)


def hosts_of_a_copy(flags: Flags) -> int:
    """Hosts that share the ranks of one copy of the model (config/parallel.py nnodes_within_dp, local_world_size)."""
    groups = max(flags.int("data-parallel-size", 1, 1, 4096) // local_ranks(flags), 1)
    return max(nodes(flags) // groups, 1)


def over_ray(par: Parallel, flags: Flags, gpus: int, does: Behaviour) -> Parallel:
    """The ranks spread over the hosts of Ray's cluster, where it is asked to spread them and this host has too few
    cards: it takes any in the cluster and warns that they are not of one host (executor/ray_utils.py,
    later v1/executor/ray_utils.py)."""
    asked = flags.text("distributed-executor-backend") == "ray" and par.hosts == 1 and not does.ray_on_one_host
    return replace(par, hosts=ceil(par.cards / max(gpus, 1))) if asked else par


def of_the_cluster(par: Parallel, flags: Flags) -> list[str]:
    """What is taken for granted where Ray spreads the ranks."""
    if par.hosts == 1 or nodes(flags) > 1:
        return []
    ranks = par.tp * par.pp * par.prefill * par.local
    told = (
        f"Ray takes cards of any host of its cluster for the {ranks} ranks: {par.hosts} hosts with {par.cards} such as "
        "this one are taken for granted, and with fewer the launch does not start"
    )
    return [told]


def partition(env: dict[str, str]) -> tuple[int, ...]:
    """Layers of each pipeline stage, as VLLM_PP_LAYER_PARTITION lists them (distributed/utils.py get_pp_indices)."""
    parts = env.get("VLLM_PP_LAYER_PARTITION", "").split(",")
    return tuple(int(n) for n in parts) if all(n.strip().isdecimal() for n in parts) else ()


# Rows on a multiple of which the vocabulary is padded (vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE).
_PADDED = 64


def _rows(arch: Architecture) -> int:
    return -(-arch.vocab // _PADDED) * _PADDED


def divides_vocabulary(arch: Architecture, ranks: int) -> bool:
    """Has each rank as many rows of the embedding (vocab_parallel_embedding.py divide: read in 0.4.2 to 0.33.0)?"""
    return _rows(arch) % ranks == 0


def _check_vocabulary(par: Parallel, arch: Architecture, refusals: list[Refusal]) -> None:
    """Add what the rows of the vocabulary refuse, where the heads do not already."""
    flag = "--tensor-parallel-size"
    if not divides_vocabulary(arch, par.tp) and all(r.flag != flag for r in refusals):
        needed = f"a divisor of the vocabulary's {_rows(arch)} rows, padded to {_PADDED}"
        refusals.append(Refusal(flag, str(par.tp), needed))


def check_parallel(
    par: Parallel, arch: Architecture, gpus: int, refusals: list[Refusal], *, adapters: bool = False
) -> None:
    """Add what vLLM refuses of these sizes with this model, and ranks for which the host has no GPU."""
    if arch.heads and arch.heads % par.tp:
        good = [n for n in range(1, arch.heads + 1) if arch.heads % n == 0]
        refusals.append(
            Refusal(
                "--tensor-parallel-size",
                str(par.tp),
                f"a divisor of the model's {arch.heads} attention heads ({', '.join(map(str, good[:8]))}…)",
            )
        )
    if arch.kv_heads and arch.mla is None and arch.kv_heads % par.tp and par.tp % arch.kv_heads:
        refusals.append(
            Refusal(
                "--tensor-parallel-size",
                str(par.tp),
                f"a divisor or a multiple of the model's {arch.kv_heads} KV heads",
            )
        )
    if arch.model_type == "gpt_oss" and par.tp > arch.kv_heads:
        # Every other model copies KV heads to more ranks (gpt_oss.py OAIAttention divides them alone).
        refusals.append(Refusal("--tensor-parallel-size", str(par.tp), f"at most the model's {arch.kv_heads} KV heads"))
    if not adapters:  # to 0.11 they may add rows
        _check_vocabulary(par, arch, refusals)
    if par.pp > len(arch.layers):
        refusals.append(
            Refusal("--pipeline-parallel-size", str(par.pp), f"at most the model's {len(arch.layers)} layers")
        )
    if par.layers and (len(par.layers), sum(par.layers)) != (par.pp, len(arch.layers)):
        refusals.append(
            Refusal(
                "VLLM_PP_LAYER_PARTITION",
                ",".join(map(str, par.layers)),
                f"{par.pp} numbers whose sum is the model's {len(arch.layers)} layers",
            )
        )
    if par.cards > gpus:
        more = [
            (f"--{name}-size", size)
            for name, size in (("prefill-context-parallel", par.prefill), ("data-parallel", par.local))
            if size > 1
        ]
        refusals.append(
            Refusal(
                " × ".join(("--tensor-parallel-size", "--pipeline-parallel-size", *(flag for flag, _ in more))),
                " × ".join(map(str, (par.tp, par.pp, *(size for _, size in more)))),
                f"at most the {gpus} GPU(s) of the host (--gpus)"
                if par.hosts == 1
                else f"at most the {gpus} GPU(s) of each of {par.hosts} hosts (--gpus)",
            )
        )
