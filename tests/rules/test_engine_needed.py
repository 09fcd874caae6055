"""Code that runs in V1 alone, where an option that V1 lacks, or the variable, chose V0."""

from tests.rules.test_ends import diagnosed

CALL = (
    "Traceback (most recent call last):\n"
    '  File "/opt/v/lib/python3.12/site-packages/vllm/platforms/cpu.py", line 107, in get_attn_backend_cls\n'
    '    raise ValueError("CPU backend only supports V1.")\n'
    "ValueError: CPU backend only supports V1.\n"
)
WARNED = (
    "WARNING 08-09 10:11:12 [arg_utils.py:1693] --num-scheduler-steps is not supported by the V1 Engine. "
    "Falling back to V0. We recommend to remove --num-scheduler-steps from your config in favor of the V1 Engine.\n"
)


def test_the_option_that_the_warning_names_goes() -> None:
    first = diagnosed(WARNED + CALL).findings[0].changes[0]
    assert (first.direction.value, first.name) == ("remove", "num-scheduler-steps")


def test_without_the_warning_the_variable_makes_vllm_name_it() -> None:
    first = diagnosed(CALL).findings[0].changes[0]
    assert (first.direction.value, first.name, first.after) == ("set", "VLLM_USE_V1", "1")


def test_where_torch_says_it_for_vllms_own_code_a_newer_release_is_what_is_left() -> None:
    engine = "ERROR 08-09 10:11:12 [core.py:588] "
    text = (
        f'{engine}  File "/opt/v/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1938, in __getattr__\n'
        f"{engine}    raise AttributeError(\n"
        f"{engine}AttributeError: 'FusedMoE' object has no attribute 'rooms'\n"
    )
    assert [change.name for change in diagnosed(text).findings[0].changes] == ["vllm-version"]
