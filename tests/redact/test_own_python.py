"""The Python of the distribution hides what ours does: its `re` may be older than the one of these tests.

Only one of the same minor version can load our packages; on Debian 12 that is 3.11.2 beside a newer 3.11.
"""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.redact.test_canaries import ALL
from vllm_doctor.redact.text import without_secrets

OWN = Path(f"/usr/bin/python3.{sys.version_info.minor}")
REPO = Path(__file__).parents[2]
HIDE = """
import json, sys
sys.path[:0] = sys.argv[1:]
from vllm_doctor.redact.text import without_secrets
json.dump([without_secrets(line) for line in json.load(sys.stdin)], sys.stdout)
"""


@pytest.mark.skipif(not OWN.exists(), reason=f"the distribution has no Python 3.{sys.version_info.minor}")
def test_each_canary_is_hidden_as_here() -> None:
    packages = Path(msgspec.__file__).parents[1]
    told = subprocess.run(
        [OWN, "-I", "-c", HIDE, REPO, packages], input=json.dumps(ALL), capture_output=True, text=True, check=True
    )
    assert json.loads(told.stdout) == [without_secrets(line) for line in ALL]
