"""Does each rank hold the vision tower whole: --mm-encoder-tp-mode data, in the classes that know it? Of the others
vLLM warns, and splits the tower (config/model.py supports_multimodal_encoder_tp_data). Mistral's own classes split none
(models/pixtral.py VisionTransformer, of plain linear layers): what is read in its format has the tower whole."""

from __future__ import annotations

from vllm_doctor.knowledge.traits import has_trait
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.model.architecture import Architecture


def whole_tower(flags: Flags, a: Architecture, version: Version) -> bool:
    """Does each tensor parallel rank of this launch hold it whole?"""
    if a.vision is None:
        return False
    if a.vision.kind == "moonvit" and behaviour(version).keeps_moonvit_whole:
        return True
    if a.vision.kind == "pixtral" and in_own_format(flags, version):
        return True
    before = flags.on("enable-multimodal-encoder-data-parallel", default=False)  # as 0.12 and earlier spell it
    asked = before or flags.text("mm-encoder-tp-mode") == "data"
    return asked and may_be_whole(a, version)


def may_be_whole(a: Architecture, version: Version) -> bool:
    """Does the class know towers that are whole on each rank?"""
    return has_trait(a.name, "supports_encoder_tp_data", version)


# Who publishes models in Mistral's format, params.json and consolidated tensors, beside the common one.
_PUBLISHER = "mistralai/"


def in_own_format(flags: Flags, version: Version) -> bool:
    """Is the model read in Mistral's own format: where that is asked for, and unasked where a release looks for it
    first and the repository has it (transformers_utils/config.py get_config)?"""
    asked = flags.text("config-format") or "auto"
    published = flags.model.startswith(_PUBLISHER)
    return asked == "mistral" or (asked == "auto" and published and behaviour(version).own_format_first)
