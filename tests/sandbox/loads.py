"""Load on the sandbox's server, by load.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.sandbox.conftest import READY_S, Host

LOAD = Path(__file__).with_name("load.py").read_text()


def load(host: Host, *arguments: object) -> None:
    """Load until it is through, which other work beside it can make four times as long."""
    host.run(
        f"cat > /run/load.py <<'EOF'\n{LOAD}\nEOF\npython3 /run/load.py {' '.join(map(str, arguments))}",
        timeout_s=2 * READY_S,
    )


@contextmanager
def loaded(host: Host, *arguments: object) -> Iterator[None]:
    """Load in the background for as long as the block lasts, however slow the machine is."""
    host.run(
        f"cat > /run/load.py <<'EOF'\n{LOAD}\nEOF\n"
        f"systemd-run --quiet --collect --unit=test-load python3 /run/load.py 0 {' '.join(map(str, arguments))}"
    )
    try:
        yield
    finally:
        host.exec("systemctl stop test-load")
