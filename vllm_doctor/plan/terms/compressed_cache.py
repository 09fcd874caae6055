"""DeepSeek V4's cache: what its layers keep has pages of seven sizes, and one block holds a page of every layer of a
group.

Follows models/deepseek_v4/attention.py and compressor.py, v1/attention/backends/mla/sparse_swa.py (the caches) and
v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_groups, from 0.29 on _get_packed_kv_cache_groups (the groups).
"""

from __future__ import annotations

from math import ceil

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Compressed
from vllm_doctor.plan.terms.kv import Group, Pool, Rules, Spec, request_blocks

_ALIGNED = 576  # bytes on a multiple of which a page lies (FlashMLA's)
_ENTRY = 584  # bytes of a token or of a compressed one: 448 in 8 bits, 64 rotated in 16, 8 of scales
_BLOCK = 256  # tokens
_WINDOW_BLOCK = 64
_FINE = 4  # tokens that an indexed layer makes one of
# Of what a compressor has not made one of yet: tokens of a block, and twice as many keys where its spans overlap.
_STATES = {_FINE: (4, 2), 128: (8, 1)}


class PackedPool(Pool, frozen=True):
    """A pool whose groups have pages of different sizes: `charged` is what a request's block counts before it is
    served, and to 0.26 a request takes what its bytes are, in blocks of the first group."""

    charged: int
    in_bytes: bool

    def needed(self, length: int) -> int:
        """As Pool.needed."""
        return self.request_blocks(length) * self.charged

    def concurrency(self, blocks: int, length: int) -> float:
        """As Pool.concurrency."""
        if not self.in_bytes:
            return super().concurrency(blocks, length)
        held = sum(request_blocks(g.spec, length, self.rules) * g.spec.page for g in self.groups)
        return blocks / max(1, ceil(held / self.groups[0].spec.page))


def _page(content: int) -> int:
    return ceil(content / _ALIGNED) * _ALIGNED


def _states(ratio: int, width: int) -> int:
    """A page of a compressor's states: keys and weights in float32 (compressor.py CompressorStateCache)."""
    block, spans = _STATES[ratio]
    return _page(block * 2 * spans * width * 4)


def _tuples(counts: list[int]) -> int:
    """How many layers of a size a group has: what leaves the fewest places empty (_approximate_gcd)."""
    return min(range(counts[0], max(counts) + 1), key=lambda d: (sum(-x % d for x in counts), -d))


def packed_pool(a: Architecture, c: Compressed, s: Settings, layers: range, rules: Rules) -> PackedPool | None:
    """The pool of these layers; None where none is compressed, or by another number of tokens than is known."""
    ratios = [c.ratios[i] if i < len(c.ratios) else 0 for i in layers]
    fine, coarse = ratios.count(_FINE), ratios.count(128)
    if not fine or not coarse or any(x not in {0, 1, _FINE, 128} for x in ratios):
        return None
    drafted = max(1, a.mtp_layers) if s.speculative == "mtp" and layers.stop == len(a.layers) else 0
    windows = len(ratios) + drafted
    block = s.block or _BLOCK
    latents, thin = _page(block // _FINE * _ENTRY), _page(block // 128 * _ENTRY)
    keys = _page(block // _FINE * (c.indexer_dim + c.indexer_dim // 128 * 4))
    sizes = (latents, keys, thin)
    size = _tuples([max(fine, coarse), windows, fine, coarse])
    parts = ceil(windows / size)
    head = a.layers[layers.start].head_dim
    # Each group: bytes of its layers' pages, what a request of it takes.
    full = Group(max(fine, coarse), Spec("mla", block, padded=fine * (latents + keys) + coarse * thin))
    swa = _page(_WINDOW_BLOCK * _ENTRY)
    states = {
        _FINE: fine * (_nearest(_states(_FINE, head), sizes) + _nearest(_states(_FINE, c.indexer_dim), sizes)),
        128: coarse * _nearest(_states(128, head), sizes),
    }
    groups = (
        full,
        *(
            Group(n, Spec("sliding", _WINDOW_BLOCK, window=c.window, padded=n * _nearest(swa, sizes)))
            for n in (len(range(i, windows, parts)) for i in range(parts))
        ),
        *(
            Group(n, Spec("sliding", _STATES[r][0], window=r * _STATES[r][1], padded=states[r]))
            for r, n in ((_FINE, fine), (128, coarse))
        ),
    )
    most = max(g.layers for g in groups)
    tuples = most * sum(sizes)
    if s.does.overlays_groups:
        held = max(g.spec.page for g in groups)
    elif s.does.packs_pages_by_size:
        held = most * latents + fine * keys + coarse * thin
    else:
        held = tuples
    charged = held if s.does.charges_block_bytes else tuples
    return PackedPool(held, groups, rules, charged, not s.does.overlays_groups)


def _nearest(page: int, sizes: tuple[int, ...]) -> int:
    """The page of the first group in whose place it lies: the smallest that is no smaller."""
    return min((x for x in sizes if x >= page), default=page)
