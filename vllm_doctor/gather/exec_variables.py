"""The variables of a unit's command line, replaced as systemd does it (systemd.service(5), "COMMAND LINES")."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from vllm_doctor.redact.text import HIDDEN

_ALONE = re.compile(r"\$([A-Za-z_]\w*)", re.ASCII)
_WITHIN = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}", re.ASCII)


def expanded(argv: Sequence[str], env: Mapping[str, str], *, all_seen: bool) -> tuple[str, ...]:
    """`argv` as the service gets it: `${X}` anywhere is its value, `$X` alone is the words of it, `$$` is a dollar.

    A variable that nobody set is empty for systemd. Where not every file that sets some could be read (`all_seen`
    False), it is not known, and stands as what may not be shown.
    """
    missing = "" if all_seen else HIDDEN
    return (*argv[:1], *(word for given in argv[1:] for word in _words(given, env, missing)))


def _words(given: str, env: Mapping[str, str], missing: str) -> Iterator[str]:
    alone = _ALONE.fullmatch(given)
    if alone is None:
        yield _WITHIN.sub(lambda found: env.get(found[1], missing) if found[1] else "$", given)
        return
    value = env.get(alone[1], missing)
    try:
        yield from shlex.split(value)
    except ValueError:  # a quote that does not close
        yield from value.split()
