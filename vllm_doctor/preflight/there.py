"""The check of what a service reads on its host: a folder that the inventory names has to be there."""

from vllm_doctor.preflight.judged import Checked, HostToJudge, Result

_NAME = "model folder"


def models_there(case: HostToJudge) -> Checked:
    """16: each model that is a path is on the host. One of a hub is brought, and a generated one is made, later.

    A run that starts nothing is only warned: the driver may be there before the models are.
    """
    paths = [launch for launch in case.intent.launches if launch.model.startswith("/")]
    if not case.intent.vllm or case.intent.models_made or not paths:
        return Checked(_NAME, Result.NOT_APPLICABLE)
    absent = [launch for launch in paths if launch.folder in case.host.models_absent]
    if not absent:
        return Checked(_NAME, Result.OK, ", ".join(dict.fromkeys(launch.folder for launch in paths)))
    first = absent[0]
    return Checked(
        _NAME,
        Result.FAIL if case.intent.starts else Result.WARN,
        f"{first.name}: {first.folder} is not there",
        "the model's folder on the host",
        f"bring the model to {first.folder}, or correct vllm_model",
    )
