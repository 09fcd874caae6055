"""Two commands from nothing to a served and diagnosed model; the second time changes nothing."""

from make_up.conftest import Sandbox


def test_it_ends_with_a_diagnosis_and_something_to_try(sandbox: Sandbox) -> None:
    tail = sandbox.first_up.output.splitlines()[-12:]
    assert any("vllm-doctor diagnose" in line for line in sandbox.first_up.output.splitlines())
    assert any(f"http://127.0.0.1:{sandbox.port}/v1" in line for line in tail)
    assert "curl" in tail[-1]


def test_the_model_answers_through_the_published_port(sandbox: Sandbox) -> None:
    assert sandbox.complete()


def test_the_doctor_on_the_host_finds_nothing_wrong(sandbox: Sandbox) -> None:
    diagnosis = sandbox.run("vllm-doctor", "diagnose")
    assert diagnosis.code == 0, diagnosis.output


def test_a_second_run_changes_nothing_and_says_so(sandbox: Sandbox) -> None:
    second = sandbox.make("up")
    assert second.code == 0, second.output
    assert "nothing changed" in second.output


def test_the_plan_of_a_finished_host_is_empty(sandbox: Sandbox) -> None:
    plan = sandbox.site_check()
    assert plan.code == 0, plan.output
    assert "changed=0" in plan.output
