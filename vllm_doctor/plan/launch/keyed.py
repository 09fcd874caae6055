"""Values that a part of the configuration refuses of itself: keys of options of JSON, and options that need a switch or
a model beside them (config/kv_transfer.py, ec_transfer.py, multimodal.py, pooler.py, speculative.py, vllm.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch import synthetic
from vllm_doctor.plan.launch.flags import Flags, SettingError
from vllm_doctor.plan.model.architecture import Architecture

# What a transfer's own key may be.
_ROLES = {
    ("kv-transfer-config", "kv_role"): ("kv_producer", "kv_consumer", "kv_both"),
    ("ec-transfer-config", "ec_role"): ("ec_producer", "ec_consumer", "ec_both"),
}
_BUCKETS = ("s3://", "gs://", "az://")
# How a model in object storage is loaded.
_STREAMED = frozenset({"auto", "runai_streamer", "runai_streamer_sharded", "modelexpress"})
_SHARED_MB = 128  # of --mm-shm-cache-max-object-size-mb


def refusals(  # noqa: PLR0917
    flags: Flags, env: Mapping[str, str], model: str, a: Architecture, length: int, does: Behaviour
) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts."""
    for (option, key), known in _ROLES.items():
        role = _keys(flags, option).get(key)
        if role is not None and role not in known:
            yield Refusal(f"--{option}", f"{key} {role}", f"{', '.join(known[:-1])} or {known[-1]}")
    yield from synthetic.refusals(_keys(flags, "speculative-config"))
    drafted = _keys(flags, "speculative-config").get("max_model_len")
    if isinstance(drafted, int) and drafted > length:
        yield Refusal("--speculative-config", f"max_model_len {drafted}", f"at most --max-model-len, {length}")
    if flags.on("ray-workers-use-nsight", default=False) and flags.text("distributed-executor-backend") in {
        "mp",
        "uni",
    }:
        yield Refusal("--ray-workers-use-nsight", "set", "--distributed-executor-backend ray beside it")
    if flags.text("default-mm-loras") and a.known and not a.multimodal:
        yield Refusal("--default-mm-loras", "set", f"a multimodal model; {a.name or a.model_type} takes text alone")
    kind = flags.text("load-format") or "auto"
    stored = model.lower().startswith(_BUCKETS[: 3 if does.streams_from_all else 2])
    if does.streams_from_buckets and stored and kind not in _STREAMED:
        yield Refusal("--load-format", kind, "runai_streamer, or none: the model lies in object storage")
    yield from _items(flags, env, a)
    pooler = _keys(flags, "pooler-config")
    for key in ("seq_pooling_type", "tok_pooling_type"):
        if does.parts_pooling_types and pooler.get("pooling_type") and pooler.get(key) is not None:
            yield Refusal("--pooler-config", f"pooling_type beside {key}", "one of them")
    if does.renamed_normalize and "normalize" in pooler:
        yield Refusal("--pooler-config", "normalize", "use_activation, its name now")


def _items(flags: Flags, env: Mapping[str, str], a: Architecture) -> Iterator[Refusal]:
    """What is asked of images and other items of a prompt."""
    size = flags.values.get("mm-shm-cache-max-object-size-mb")
    if size is not None and str(size) != str(_SHARED_MB) and flags.text("mm-processor-cache-type") != "shm":
        yield Refusal("--mm-shm-cache-max-object-size-mb", str(size), "--mm-processor-cache-type shm beside it")
    spawned = env.get("VLLM_WORKER_MULTIPROC_METHOD") == "spawn"
    if flags.text("mm-tensor-ipc") == "torch_shm" and a.multimodal and not spawned:
        yield Refusal("--mm-tensor-ipc", "torch_shm", "VLLM_WORKER_MULTIPROC_METHOD=spawn beside it")


def _keys(flags: Flags, option: str) -> Mapping[str, object]:
    """The keys of an option of JSON; none for a value of another form, which is judged elsewhere."""
    try:
        return flags.object(option)
    except SettingError:
        return {}
