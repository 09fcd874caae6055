"""What a host said to `diagnose`, in the words of the fleet's page and of a refusal."""

import json

from tests.roles.vllm.plugins import load

plugin = load("plugins/filter/vllm_doctor_answer.py")
# As Ansible's command answers for a program that is not on the host.
ABSENT = {"rc": 2, "stdout": "", "stderr": "", "msg": "Error executing command.", "failed": True}
WHAT_TO_DO = "the host has no vllm-doctor: play site.yml, or its stage doctor (--tags doctor)"


def test_a_host_without_the_doctor_is_told_how_it_gets_one() -> None:
    assert plugin.verdicts(ABSENT) == WHAT_TO_DO
    assert json.loads(plugin.answer(ABSENT, "gpu01")) == {"host": "gpu01", "state": "failed", "said": WHAT_TO_DO}


def test_what_a_doctor_itself_refuses_with_the_same_number_stays_its_own_words() -> None:
    assert plugin.verdicts({**ABSENT, "stderr": "vllm-doctor: diagnose: no such option"}) == (
        "vllm-doctor: diagnose: no such option"
    )
