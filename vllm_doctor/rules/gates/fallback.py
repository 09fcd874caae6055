"""Did vLLM run an architecture that it has no code for on Transformers' code?"""

from vllm_doctor.knowledge.history import history
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.rules.case import Case

# `Qwen3VLMoeConfig`: the classes that a model's architecture is called after have the same beginning.
_CONFIG = "Config"


def on_transformers_code(case: Case, fault: Fault) -> bool:
    """A name is missing after vLLM said that it falls back, or in vLLM's adapter of Transformers' models itself."""
    if "transformers-attribute" not in fault.ids or case.run is None:
        return False
    lacking = case.run.first("arch-fallback")
    if lacking is not None and lacking.index < fault.index:
        return True
    own = [file for file in fault.files if says(file, "call-of-vllm")]
    return bool(own) and says(own[-1], "call-transformers-adapter")


def architecture_of(fault: Fault) -> str | None:
    """The architecture by its configuration's class, where one release or another lists it."""
    kind = fault.fields("transformers-attribute").get("kind", "")
    family = kind.removesuffix(_CONFIG)
    if family == kind or not family:
        return None
    known = [name for name in history("models", "architectures").names() if name.startswith(f"{family}For")]
    return next((name for name in known if "Generation" in name or "CausalLM" in name), None)
