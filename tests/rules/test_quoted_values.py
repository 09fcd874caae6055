"""A refusal quotes a value that several options have: the one whose words it speaks of comes first."""

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/site-packages"


def test_the_option_that_the_message_speaks_of_comes_first() -> None:
    lines = [
        "INFO 03-14 09:11:58 [api_server.py:1043] vLLM API server version 0.8.5",
        (
            "INFO 03-14 09:11:58 [utils.py:233] non-default args: {'model': 'example/model-8b', "
            "'tokenizer_mode': 'mistral', 'config_format': 'mistral'}"
        ),
        "Traceback (most recent call last):",
        f'  File "{SITE}/vllm/transformers_utils/config.py", line 656, in load_params_config',
        "    raise ValueError(",
        (
            "ValueError: Failed to load mistral 'params.json' config for model example/model-8b. Please check if the "
            "model is a mistral-format model and if the config file exists."
        ),
    ]
    judged = diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log")))
    assert judged.findings[0].changes[0].name == "config-format"
