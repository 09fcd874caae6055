"""The programs of a host, as the tests of gather put them on PATH."""

from tests.gather.conftest import on_path

__all__ = ["on_path"]
