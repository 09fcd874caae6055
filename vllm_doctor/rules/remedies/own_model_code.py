"""A model that this release runs by Transformers' code, and a later one by its own: what fails between them is gone."""

from vllm_doctor.knowledge.history import history
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import upgrade

# What Transformers and vLLM put behind a model's name: the class within it, its configuration, what it is for.
_ENDS = ("Model", "Config")
_FOR = "For"


def own_model_code(case: Case) -> Change | None:
    """The upgrade; None where vLLM's own code runs the model, no class of it is named, or no later release has more."""
    run, root = case.run, case.root
    link = root.crash.root if root is not None and root.crash is not None else None
    if run is None or link is None or link.kind != "AttributeError":
        return None
    by_transformers = run.first("runs-transformers-code") is not None
    if not by_transformers and not any(says(frame.file, "call-of-transformers-model") for frame in link.frames):
        return None
    known = history("models", "architectures")
    owner = link.message.partition("'")[2].partition("'")[0]
    stem = next((owner.removesuffix(end) for end in _ENDS if owner.endswith(end)), "")
    name = next((one for one in known.names() if stem and one.startswith(stem + _FOR)), None)
    if name is None or (case.version is not None and known.exists(name, case.version) is not False):
        return None
    return upgrade(case, f"Transformers' code runs this model here; in later releases vLLM's code runs {name}")
