"""What the ramp may try: what the plan says is safe to start, and what the KV cache holds."""

from vllm_doctor.operate.tune.decide import Allowed, TrialSetting
from vllm_doctor.plan.advice.recommendation import Predict, safe


def allowance(
    predict: Predict | None, start: TrialSetting, *, pool_tokens: int | None, request_tokens: int, most_seqs: int | None
) -> Allowed:
    """The settings that may be tried. Without a plan only the pool speaks, and tokens of a step stay as they are.

    `pool_tokens` is the KV cache of one engine, `request_tokens` the load's prompt and output together.
    """

    def allowed(setting: TrialSetting) -> str | None:
        if most_seqs is not None and setting.seqs > most_seqs:
            return f"more than {most_seqs} sequences is above the limit that was asked for"
        if pool_tokens is not None and setting.seqs * request_tokens > pool_tokens:
            return f"{setting.seqs} requests of {request_tokens} tokens do not fit the KV cache of {pool_tokens} tokens"
        if predict is None:
            grown = setting.tokens != start.tokens
            return "without a plan the tokens of a step are not raised" if grown else None
        return _refused(predict, setting)

    return allowed


def _refused(predict: Predict, setting: TrialSetting) -> str | None:
    changes: dict[str, str | bool | None] = {"max-num-seqs": str(setting.seqs)}
    if setting.tokens is not None:
        changes["max-num-batched-tokens"] = str(setting.tokens)
    told = predict(changes)
    if safe(told):
        return None
    wanted = f"{setting.seqs} sequences" + ("" if setting.tokens is None else f" and {setting.tokens} tokens a step")
    if told.outcome != "ok" or told.margin_gib is None:
        return f"with {wanted} the plan predicts {told.outcome}"
    return (
        f"with {wanted} the plan leaves {told.margin_gib[0]:.2f} GiB for the KV cache at the low end of its range, "
        f"and one request needs {told.needed_kv_gib:.2f}"
    )
