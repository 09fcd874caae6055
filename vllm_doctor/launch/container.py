"""A container's command line: what the runtime takes, and what vLLM gets."""

import re
import shlex
from collections.abc import Collection, Iterator, Sequence

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
# Switches of one letter in one word, and the option behind them with its value.
_SHORT = re.compile(r"-(?!-)[ditPq]*([^-ditPq]?)(.*)", re.DOTALL)
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


# What names a place, and where in the container it appears.
_VOLUMES = frozenset({"-v", "--volume"})
_TARGET = re.compile(r"(?:^|,)(?:target|destination|dst)=([^,]+)")
# With these the home folder, the variables or the places are not those that the line shows.
_ELSEWHERE = frozenset({"-u", "--user", "--env-file", "--volumes-from", "--userns"})


def forgets(contained: Contained) -> bool:
    """Does what vLLM compiles end with this container? No volume holds ~/.cache/vllm (envs.py VLLM_CACHE_ROOT), and no
    policy starts the same container once more."""
    env = contained.env
    home = env.get("XDG_CACHE_HOME") or f"{env.get('HOME') or '/root'}/.cache"
    root = env.get("VLLM_CACHE_ROOT") or f"{home}/vllm"
    for name, value, _ in options(contained.kept):
        found = _TARGET.search(value) if name == "--mount" else None
        place = found[1] if found else value.split(":")[min(1, value.count(":"))] if name in _VOLUMES else ""
        place = place.rstrip("/") or place
        if name in _ELSEWHERE or (name == "--restart" and value != "no") or "$" in place:
            return False
        if place and (f"{root}/".startswith(f"{place.rstrip('/')}/") or place.startswith(f"{root}/")):
            return False
    return "$" not in root


def options(kept: Sequence[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Of the words up to and with the image each option: its name, its value and its words; the words before the
    options have neither."""
    at = list(kept).index("run") + 1
    yield "", "", tuple(kept[:at])
    while at < len(kept) - 1:
        name, value, following = _option(kept, at)
        yield name, value, tuple(kept[at:following])
        at = following


def assigned(kept: Sequence[str], variable: str, value: str | None) -> tuple[str, ...]:
    """The words up to and with the image with a variable set, None: without it; one that stood there is replaced."""
    words: list[str] = []
    for name, given, whole in options(kept):
        if name not in {"-e", "--env"} or given.partition("=")[0] != variable:
            words += whole
        if not name and value is not None:
            words += ["-e", f"{variable}={value}"]
    return (*words, kept[-1])


def given(kept: Sequence[str], words: Sequence[str], without: Collection[str] = ()) -> tuple[str, ...]:
    """The words up to and with the image with the runtime's own options `words`, and without those of these names."""
    told: list[str] = []
    for name, _, whole in options(kept):
        if name not in without:
            told += whole
        if not name:
            told += words
    return (*told, kept[-1])


def _option(argv: Sequence[str], at: int) -> tuple[str, str, int]:
    """The option at `at`, its value, and where the next word stands."""
    word = argv[at]
    if (short := _SHORT.fullmatch(word)) is not None:
        name, value = f"-{short[1]}", short[2]
        if value or not short[1]:  # -p8000:8000, -eA=1; -it
            return name, value.removeprefix("="), at + 1
    else:
        name, equals, value = word.partition("=")
        if equals:
            return name, value, at + 1
        if name.lstrip("-") in _SWITCHES:
            return name, "", at + 1
    return name, argv[at + 1] if at + 1 < len(argv) else "", at + 2
