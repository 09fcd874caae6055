"""Refusals that have a rule of their own (VD207, VD511, VD513), which the rule of a refused value passes over."""

HUB = (
    "hub-gated",
    "hub-status",
    "hub-status-httpx",
    "hub-unreachable",
    "hub-offline",
    "repo-id-invalid",
    "hub-unknown-model",
    "hub-folder-missing",
    "hub-server-error",
    "hub-cas",
    "name-unresolved",
    "name-unknown",
    "harmony-vocab",
)
ARCHITECTURE = (
    "arch-unsupported",
    "arch-inspect",
    "arch-transformers",
    "arch-none",
    "arch-backend",
    "arch-module",
    "arch-dropped",
    "arch-gguf",
    "arch-gguf-type",
)
# An item of a prompt that is larger than the pool which it must fit.
ITEM_POOLS = ("encoder-cache-exceeded", "decode-pool-exceeded")
