"""A launch line as vLLM's own parser would take it: model, flags, variables; and what this version would refuse.

vLLM's FlexibleArgumentParser (utils/argparse_utils.py) accepts underscores for dashes, `--flag=value`, unambiguous
prefixes, `--no-flag` for booleans, `-O3`, and nested keys (`--compilation-config.mode 3`).
"""

from __future__ import annotations

import re
from difflib import get_close_matches

import msgspec

from vllm_doctor.knowledge.versions import FlagFact, Version, canonical, complete, env, flag, flag_names

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# Switches whose default vLLM resolves at start-up, so that the default does not show that they are switches.
_SWITCHES = frozenset(
    {
        "async-scheduling",
        "disable-hybrid-kv-cache-manager",
        "enable-chunked-prefill",
        "enable-prefix-caching",
        "enforce-eager",
        "trust-remote-code",
    }
)


class Refusal(msgspec.Struct, frozen=True):
    """Why this version's vLLM would not start with the line: the flag, what was given, what it takes."""

    flag: str
    found: str
    needed: str

    def __str__(self) -> str:
        return f"{self.flag}: found {self.found}; needed: {self.needed}"


class LaunchLine(msgspec.Struct, frozen=True):
    """A parsed launch. `flags` maps canonical long names to text, or True/False for switches; `unknown` are names that
    neither this version nor any sampled one is known to have."""

    model: str | None
    flags: dict[str, str | bool]
    env: dict[str, str]
    refusals: tuple[Refusal, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class LaunchError(Exception):
    """A line that is no vLLM launch."""


def _start(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split assignments and the program from the arguments."""
    variables: dict[str, str] = {}
    rest = list(argv)
    if rest and rest[0] == "env":
        rest.pop(0)
    while rest and _ASSIGNMENT.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    if not rest:
        raise LaunchError("no launch line after `--`; needed: -- [VAR=VALUE …] vllm serve MODEL [flags]")
    program = rest[0].rsplit("/", 1)[-1]
    if program.startswith("python"):
        if len(rest) >= 3 and rest[1] == "-m" and rest[2].startswith("vllm."):
            return variables, rest[3:]
        if len(rest) >= 4 and rest[1].endswith("/vllm") and rest[2] == "serve":
            return variables, rest[3:]
    elif program == "vllm" and len(rest) > 1 and rest[1] == "serve":
        return variables, rest[2:]
    elif program == "vllm":
        raise LaunchError(f"found `vllm {rest[1] if len(rest) > 1 else ''}`; needed: vllm serve MODEL [flags]")
    raise LaunchError(
        f"found {rest[0]!r}; needed: vllm serve MODEL [flags], or python -m vllm.entrypoints.openai.api_server "
        f"--model MODEL"
    )


def _resolve(name: str, version: Version) -> str:
    """The long name of a flag, completing an unambiguous prefix as argparse does."""
    known = canonical(name)
    if flag(known, version) is not None or known in _SWITCHES:
        return known
    longer = [n for n in flag_names(version) if n.startswith(known)]
    return longer[0] if len(longer) == 1 else known


def _is_switch(name: str, fact: FlagFact | None) -> bool:
    if name in _SWITCHES:
        return True
    return fact is not None and (isinstance(fact.default, bool) or fact.negatable)


_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def parse_launch(argv: list[str], version: Version) -> LaunchLine:  # noqa: PLR0912, PLR0915
    """Parse a launch for a version. Raises LaunchError for a line that is not `vllm serve`; what the version refuses is
    in `refusals`."""
    variables, rest = _start(argv)
    flags: dict[str, str | bool] = {}
    model: str | None = None
    refused: list[Refusal] = []
    unknown: list[str] = []
    notes: list[str] = []
    i = 0
    while i < len(rest):
        word = rest[i]
        i += 1
        if not word.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", word):
            if model is not None:
                refused.append(Refusal("vllm serve", repr(word), "flags after the model; two models were given"))
            model = model or word
            continue
        given, has_value, value = word.partition("=")
        if re.fullmatch(r"-O\d", given):
            given, has_value, value = "-O", "=", given[2:]
        bare, _, nested = given.partition(".")
        negated = bare.startswith("--no-") and flag(bare[5:], version) is not None
        name = _resolve(bare[5:] if negated else bare, version)
        fact = flag(name, version)
        before = flags.get(name)
        if negated:
            if fact is not None and not fact.negatable and name not in _SWITCHES:
                refused.append(
                    Refusal(
                        bare,
                        "this spelling",
                        f"a release where --{name} can be switched off this way; here --{name}=False or leave it out",
                    )
                )
            flags[name] = False
            _again(name, before, False, notes)
            continue
        if _is_switch(name, fact):
            if has_value and value.lower() not in _BOOLEANS:
                refused.append(Refusal(f"--{name}", repr(value), "no value, or true or false"))
            elif not has_value and i < len(rest) and rest[i].lower() in {"true", "false"}:
                has_value, value, i = "=", rest[i], i + 1
            flags[name] = _BOOLEANS.get(value.lower(), True) if has_value else True
        elif has_value:
            flags[name] = value
        elif i < len(rest) and (not rest[i].startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", rest[i])):
            flags[name], i = rest[i], i + 1
            while (
                name
                in {
                    "lora-modules",
                    "allowed-origins",
                    "api-key",
                    "served-model-name",
                    "cudagraph-capture-sizes",
                    "cuda-graph-sizes",
                    "device-ids",
                    "middleware",
                }
                and i < len(rest)
                and not rest[i].startswith("-")
            ):
                flags[name], i = f"{flags[name]},{rest[i]}", i + 1
        elif fact is None:
            flags[name] = True
        else:
            refused.append(Refusal(f"--{name}", "no value", "a value"))
        if nested:
            notes.append(f"--{name}.{nested} is passed on; the plan does not read nested keys of --{name}")
        if not nested:
            _again(name, before, flags.get(name), notes)
        _check(name, fact, flags.get(name), version, refused, unknown)
    if isinstance(flags.get("model"), str):
        model = str(flags["model"])
    for key in variables:
        known = env(key, version)
        if known is not None and known.exists is False:
            why = known.note or f"it was there from {known.first} to {known.last}"
            notes.append(f"{key} is not read by vLLM {version}: {why}")
    return LaunchLine(model, flags, variables, tuple(refused), tuple(unknown), tuple(notes))


def _again(name: str, before: str | bool | None, now: str | bool | None, notes: list[str]) -> None:
    if before is not None and before != now:
        notes.append(f"--{name} is given twice, as {before} and as {now}; vLLM takes the last one")


def _check(  # noqa: PLR0917
    name: str,
    fact: FlagFact | None,
    value: str | bool | None,
    version: Version,
    refused: list[Refusal],
    unknown: list[str],
) -> None:
    if fact is None:
        if complete(version) and name not in {"help", "config"}:
            close = get_close_matches(name, flag_names(version), 2, 0.6)
            near = f"; near: --{', --'.join(close)}" if close else ""
            refused.append(Refusal(f"--{name}", "a flag", f"a flag that vLLM {version} has{near}"))
        else:
            unknown.append(name)
        return
    if fact.exists is False:
        close = get_close_matches(name, flag_names(version), 2, 0.75)
        hint = f" (it was there from {fact.first} to {fact.last}{'; ' + fact.note if fact.note else ''})"
        refused.append(
            Refusal(
                f"--{name}",
                "a flag",
                f"a flag that vLLM {version} has{hint}{'; near: --' + ', --'.join(close) if close else ''}",
            )
        )
    elif fact.choices is not None and isinstance(value, str) and value not in {str(c) for c in fact.choices}:
        refused.append(Refusal(f"--{name}", repr(value), "one of " + ", ".join(str(c) for c in fact.choices)))
