"""How a run is played: from the first task of its playbook on, and each task on all hosts before the next."""

import sys
from collections.abc import Callable
from pathlib import Path

from ansible import constants, context
from ansible.errors import AnsibleFilterError

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.preflight import running  # noqa: E402

# Each task on all hosts before the next; debug is the same, with a prompt where a task fails.
IN_STEP = {"linear", "debug"}


def in_order(hosts: str) -> str:
    """Give the hosts of a playbook's first play as they are; refuse a run that would not play its tasks in order.

    Ansible templates `hosts` of every play, also of those that --start-at-task passes over; and in the run's own
    process, so this is where a run begins, before it takes a host.
    """
    if task := context.CLIARGS.get("start_at_task"):
        raise AnsibleFilterError(
            f"--start-at-task {task!r} leaves out what stands before that task, and the checks are there, and "
            "what asks for consent. Nothing was changed. Run the playbook from its beginning: what is done already is "
            "passed over. Of site.yml, --tags STAGE plays one stage after the checks."
        )
    if context.CLIARGS.get("step"):
        raise AnsibleFilterError(
            "--step asks before each task, and a No leaves that task out: a check, a question of consent, a drain. "
            "Nothing was changed. --check --diff shows what a run would do; of site.yml, --tags STAGE plays one stage."
        )
    strategy = str(constants.DEFAULT_STRATEGY)
    if strategy.rpartition(".")[2] not in IN_STEP:
        raise AnsibleFilterError(
            f"The strategy is {strategy} (ANSIBLE_STRATEGY, or strategy in ansible.cfg); needed: linear. Hosts would "
            "not wait for each other, and none may be changed before all are judged. Nothing was changed."
        )
    running.begin(", ".join(Path(name).name for name in context.CLIARGS.get("args") or ["a playbook"]))
    return hosts


class FilterModule:
    """The filter of plays that others follow."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name it."""
        return {"preflight_in_order": in_order}
