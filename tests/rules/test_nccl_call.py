"""nccl_call.toml: each row names messages of the catalogue and changes of the table, in titles of one line."""

import pytest

from vllm_doctor.log.match import catalogue
from vllm_doctor.rules.remedies.nccl_call import NcclCall, nccl_calls
from vllm_doctor.rules.say import MEMLOCK, TITLE


@pytest.mark.parametrize("call", nccl_calls().calls, ids=lambda c: "-".join((c.message, *c.files)))
def test_a_call_names_a_message_and_changes_that_there_are(call: NcclCall) -> None:
    assert call.message in catalogue()
    assert call.changes
    assert set(call.changes) <= set(nccl_calls().changes)
    assert 0 < len(call.title) <= TITLE


def test_no_change_is_left_over() -> None:
    assert set(nccl_calls().changes) == {name for call in nccl_calls().calls for name in call.changes}


def test_a_row_behind_one_that_asks_the_same_is_never_reached() -> None:
    calls = nccl_calls().calls
    for at, call in enumerate(calls):
        before = [one for one in calls[:at] if one.message == call.message]
        assert not any(not one.files or set(one.files) >= set(call.files or ("any",)) for one in before)


def test_the_limit_of_locked_memory_is_raised_by_the_command_of_the_other_rules() -> None:
    assert nccl_calls().changes["memory-lock"].command == MEMLOCK
