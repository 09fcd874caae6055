"""What the V0 engine kept of latent attention's weights multiplied with one another, for decoding: 0.7.2 and 0.7.3.

Source: attention/backends/mla/utils.py process_weights_after_loading, MLACommonImpl.
"""

from __future__ import annotations

from vllm_doctor.plan.launch.settings import Products, Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import Scheme, unquantized_format


def products(a: Architecture, s: Settings, fmt: Scheme, stage: int) -> float:
    """Bytes on one rank of this stage: of each layer W_Q_UK, W_UV_O, and the copy of the queries' part that turns,
    which is never quantized."""
    m = a.mla
    if m is None or not s.latents or s.products is None:
        return 0.0
    plain = unquantized_format(s.element)
    stored = fmt.choose(f"{a.text_prefix}.layers.0.self_attn.o_proj", False)
    wide = s.products is Products.WIDE or not stored.name.startswith("fp8")
    kept = plain if wide else stored
    heads, asked = a.heads // s.parallel.tp, m.q_rank or a.hidden
    latent = heads * m.kv_rank
    one = kept.bytes(latent, asked) + kept.bytes(a.hidden, latent) + plain.bytes(heads * m.rope, asked)
    if stored == plain:
        one -= plain.bytes(heads * (m.nope + m.value), m.kv_rank)  # views of kv_b_proj, not copies of it
    return one * s.parallel.stages(len(a.layers))[stage]
