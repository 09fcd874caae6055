"""What needs a real GPU runs only where there is one, and says so where there is none."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    missing = pytest.mark.skip(reason="no NVIDIA GPU here: /dev/nvidiactl is missing; this check did not run")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not Path("/dev/nvidiactl").exists():
                item.add_marker(missing)
