"""A container's command line: what the runtime takes, and what vLLM gets."""

import re
import shlex
from collections.abc import Sequence

import msgspec

RUNTIMES = frozenset({"docker", "podman", "nerdctl"})
# Long options of `docker run` and `podman run` that stand alone; every other takes a value.
_SWITCHES = frozenset(
    (
        "detach", "disable-content-trust", "env-host", "help", "http-proxy", "init", "interactive", "no-healthcheck",
        "no-hosts", "oom-kill-disable", "passwd", "privileged", "publish-all", "quiet", "read-only", "replace", "rm",
        "rmi", "rootfs", "sig-proxy", "tls-verify", "tty",
    )
)  # fmt: skip
_SHORT_SWITCHES = re.compile(r"-[ditPq]+")
_OF_VLLM = re.compile(r"vllm", re.IGNORECASE)


class Contained(msgspec.Struct, frozen=True):
    """A `docker run`: `kept` are the words up to and with the image, `words` what follows it (behind the entry point
    that was given, if one was), `env` what was assigned, `serves` whether the image's own entry point serves."""

    kept: tuple[str, ...]
    image: str
    words: tuple[str, ...]
    env: dict[str, str]
    serves: bool


def split(argv: Sequence[str]) -> Contained | None:
    """The parts of a `docker run …` (sudo before it or not); None for any other command, or one without an image."""
    at = 1 if argv[:1] and argv[0].rsplit("/", 1)[-1] == "sudo" else 0
    program = argv[at].rsplit("/", 1)[-1] if at < len(argv) else ""
    if program not in RUNTIMES or "run" not in argv[at + 1 : at + 3]:
        return None
    at = list(argv).index("run", at) + 1
    env: dict[str, str] = {}
    entry: list[str] = []
    while at < len(argv) and argv[at].startswith("-"):
        name, value, at = _option(argv, at)
        if name in {"-e", "--env"} and "=" in value:
            variable, _, assigned = value.partition("=")
            env[variable] = assigned
        elif name == "--entrypoint":
            entry = shlex.split(value) if value else []
    if at >= len(argv):
        return None
    after = tuple(argv[at + 1 :])
    # The image of vLLM serves what stands after it, unless another entry point was given.
    serves = not entry and _OF_VLLM.search(argv[at]) is not None
    return Contained(tuple(argv[: at + 1]), argv[at], (*entry, *after), env, serves)


def _option(argv: Sequence[str], at: int) -> tuple[str, str, int]:
    """The option at `at`, its value, and where the next word stands."""
    word = argv[at]
    name, equals, value = word.partition("=")
    if equals:
        return name, value, at + 1
    if name.lstrip("-") in _SWITCHES or _SHORT_SWITCHES.fullmatch(name):
        return name, "", at + 1
    if not name.startswith("--") and len(name) > 2:
        return name[:2], name[2:], at + 1  # -p8000:8000
    return name, argv[at + 1] if at + 1 < len(argv) else "", at + 2
