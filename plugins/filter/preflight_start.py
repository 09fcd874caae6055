"""How a run is played: from the first task of its playbook on, and each task on all hosts before the next."""

from collections.abc import Callable

from ansible import constants, context
from ansible.errors import AnsibleFilterError

# Each task on all hosts before the next; debug is the same, with a prompt where a task fails.
IN_STEP = {"linear", "debug"}


def in_order(hosts: str) -> str:
    """Give the hosts of a playbook's first play as they are; refuse a run that would not play its tasks in order.

    Ansible templates `hosts` of every play, also of those that --start-at-task passes over.
    """
    if task := context.CLIARGS.get("start_at_task"):
        raise AnsibleFilterError(
            f"--start-at-task {task!r} leaves out what stands before that task, and the checks are there, and "
            "what asks for consent. Nothing was changed. Run the playbook from its beginning: what is done already is "
            "passed over. Of site.yml, --tags STAGE plays one stage after the checks."
        )
    strategy = str(constants.DEFAULT_STRATEGY)
    if strategy.rpartition(".")[2] not in IN_STEP:
        raise AnsibleFilterError(
            f"The strategy is {strategy} (ANSIBLE_STRATEGY, or strategy in ansible.cfg); needed: linear. Hosts would "
            "not wait for each other, and none may be changed before all are judged. Nothing was changed."
        )
    return hosts


class FilterModule:
    """The filter of plays that others follow."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name it."""
        return {"preflight_in_order": in_order}
