"""VD502: the launch uses an option that no release has: mistyped, or of another program."""

from collections.abc import Iterator

from vllm_doctor.knowledge.claims import added_by
from vllm_doctor.launch.numbers import typed
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, shown
from vllm_doctor.rules.gates.refused_options import (
    RefusedOptions,
    foreign,
    has,
    hints,
    meant,
    refused,
    remove,
    together,
)
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.container_words import before_the_image, of_the_runtime
from vllm_doctor.rules.say import finding, inventory_var, set_flag, thing

# Mistyped options whose right names are looked for; nobody mistypes more in one launch.
_RENAMED = 4
# Options that no release has, behind a word: one alone is a slip.
_STRANGE = 2
# A command that was given to an image whose entry point is the server already.
_COMMANDS = frozenset({"serve", "vllm", "python", "python3", "bash", "/bin/bash", "sh", "/bin/sh"})


def judge(case: Case) -> Outcome:
    """Was a word refused that no release knows?"""
    positional = named(case, "model-positional")
    if isinstance(positional, Fault):
        return _positional(case, positional)
    got = refused(case)
    if isinstance(got, NotHere | Unseen):
        return got
    if got.words and got.words[0] in _COMMANDS:
        return _words(got)  # what follows it are options of that command, not of the server
    if got.dashed:
        return _dashed(case, got)
    if not got.unknown and (got.known or not got.words):
        return Clear("other releases have what was refused" if got.known else "no option was refused")
    if not got.unknown:
        return _words(got)
    if got.joined:
        return _joined(got)
    if got.paired and {option for option, _ in got.paired} == set(got.unknown):
        return _paired(case, got)
    if all(added_by(option) for option in got.unknown):
        return _of_package(case, got)
    if all(of_the_runtime(option) for option in got.unknown):
        return _of_container(got)
    if _of_another_command(case, got):
        return _command(got)
    if got.letters:
        return _letters(got)
    told = hints(case, got.unknown)
    first = got.unknown[0]
    return finding(
        RULE,
        title=f"--{first} was refused; {told[first]}"
        if has(case, first)
        else f"vLLM has no {_written(first)}: {told[first]}",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=together(
            (*_other_server(case), *(remove(option, why) for option, why in told.items()), *_renamed(case, got))
        ),
        refute="`vllm serve --help=all` of this very environment lists the option",
    )


def _other_server(case: Case) -> Iterator[Change]:
    """vLLM's server with OpenAI's interface, where its small one was started, which has the engine's options alone
    (vllm/entrypoints/api_server.py)."""
    if case.run is not None and any(says(line.text, "starts-small-server") for line in case.run.lines):
        yield thing(
            ChangeKind.FLAG,
            "command",
            Direction.CHANGE,
            "vllm.entrypoints.api_server is an example server with few options; this one has the option",
            command="python -m vllm.entrypoints.openai.api_server --model MODEL",
        )


def _renamed(case: Case, got: RefusedOptions) -> Iterator[Change]:
    """The value of a mistyped option, or of another program's, under vLLM's own name, where the launch does not have
    that one, too."""
    said = dict(got.values)
    for option in got.unknown[:_RENAMED]:
        near, value = foreign(option) or meant(case, option), case.flag(option) or said.get(option)
        if near is not None and near != option and isinstance(value, str) and case.flag(near) is None:
            renamed = set_flag(case, near, typed(value), Direction.SET, f"instead of --{option}")
            if renamed is not None:
                yield renamed


def _positional(case: Case, fault: Fault) -> Finding:
    """`vllm serve` of these releases takes the model as its first word alone."""
    why = "the first word after `vllm serve`, without --model"
    return finding(
        RULE,
        title="`vllm serve` of this release takes the model as its first word, not with --model",
        evidence=shown(case, fault, "model-positional"),
        changes=(thing(ChangeKind.FLAG, "model", Direction.CHANGE, why),),
        refute="the same launch with the model as the first argument is refused as well",
    )


def _joined(got: RefusedOptions) -> Finding:
    """An option of this release: what refuses it is that the value came in the same word."""
    why = "write the option and its value as two items of the list (or as --option=value), without shell quotes"
    return finding(
        RULE,
        title=f"--{got.joined[0]} and its value are one word, which argparse takes for the name of an option",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=tuple(
            thing(ChangeKind.FLAG, option, Direction.CHANGE, why, inventory=inventory_var(option))
            for option in got.joined
        ),
        refute="the same list with two items is refused as well",
    )


def _of_package(case: Case, got: RefusedOptions) -> Finding:
    """The option of a package that adds its own to `vllm serve`, and did not: it is not there, or does not fit."""
    option = got.unknown[0]
    package = added_by(option) or ""
    release = "==" + ".".join(map(str, case.version.key[:2])) + ".*" if case.version is not None else ""
    return finding(
        RULE,
        title=f"--{option} is an option of {package}, which did not add it here",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=(
            thing(
                ChangeKind.PACKAGE,
                package,
                Direction.CHANGE,
                "it adds its options where its release is made for this vLLM: their first two numbers are the same",
                to=f"{package}{release}" if release else None,
                command=f"pip show vllm {package} | grep -E '^(Name|Version)'; pip install '{package}{release}'",
            ),
            *together(remove(one, f"it belongs to {package}") for one in got.unknown),
        ),
        refute=f"`vllm serve --help=all` lists the option where {package} is installed",
    )


def _dashed(case: Case, got: RefusedOptions) -> Finding:
    """An option of this release behind one dash, or behind a dash that is no hyphen."""
    option, written, _ = got.dashed[0]
    why = f"with two hyphens in front; the launch says {written}"
    one = written.startswith("-")
    return finding(
        RULE,
        title=f"--{option} is written with one hyphen"
        if one
        else f"--{option} is written with a dash, not two hyphens",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=together(
            set_flag(case, name, typed(value) if value else True, Direction.SET, why)
            or thing(ChangeKind.FLAG, name, Direction.CHANGE, why, command=f"vllm serve … --{name}   # not {written}")
            for name, written, value in got.dashed
        ),
        refute=f"the same launch with --{option} is refused as well",
    )


def _of_container(got: RefusedOptions) -> Finding:
    """Options of `docker run` that stand behind the image's name."""
    return finding(
        RULE,
        title=f"{_written(got.unknown[0])} is the container program's option, not vLLM's",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=(before_the_image(),),
        refute="vLLM accepts the same command, started by hand in the same image",
    )


def _written(option: str) -> str:
    """As a command line has it: one letter stands behind one hyphen."""
    return f"--{option}" if len(option) > 1 else f"-{option}"


def _of_another_command(case: Case, got: RefusedOptions) -> bool:
    """Does a word that is no option stand first, and no option behind it is vLLM's in any release, nor a name for one?
    Whoever mistypes has some right."""
    strange = len(got.unknown) >= _STRANGE and not got.known
    return bool(got.words) and strange and not any(has(case, o) or meant(case, o) for o in got.unknown)


def _command(got: RefusedOptions) -> Finding:
    """The whole command line of another program, which was given to the image or the program that is vLLM."""
    program = excerpt.word(got.words[0])
    why = (
        "give vLLM the model and its own options; where a tool wrote this line, take a release of the tool that knows "
        "vLLM"
    )
    return finding(
        RULE,
        title=f"The command of another program is given to vLLM: {program}",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=(thing(ChangeKind.OS, "command", Direction.CHANGE, why, command="vllm serve MODEL --max-model-len N"),),
        refute="vLLM accepts the same command, started by hand in the same image",
    )


def _letters(got: RefusedOptions) -> Finding:
    """A letter that vLLM has not: a shell's `-c`, the `-f` of `tail`. The program itself passed for the model."""
    option = f"-{got.unknown[0]}"
    why = (
        f"an image whose entry point is the server takes each word behind its name for vLLM's own: another program is "
        f"named with --entrypoint, before the image. If nobody meant another program, leave {option} out"
    )
    command = "docker run --entrypoint sh IMAGE -c 'COMMAND'   # a pod: command: instead of args:"
    return finding(
        RULE,
        title=f"{option} is no option of vLLM's: another program's command became its arguments",
        confidence=Confidence.LIKELY,
        evidence=got.evidence,
        changes=(thing(ChangeKind.OS, "command", Direction.CHANGE, why, command=command),),
        refute="the command of the container, or of the shell, has the server's own options alone",
    )


def _paired(case: Case, got: RefusedOptions) -> Finding:
    """argparse takes an option that its release has, unless its value stands in the same word; a release that the log
    does not name may lack the option as well."""
    why = "write the option and its value as two items of the list, or as --option=value: a list is not split at blanks"
    first, given = got.paired[0]
    at = case.release
    apart = f'"--{first}", "{given}"   # or "--{first}={given}"'
    return finding(
        RULE,
        title=f"--{first} and its value seem to be one word, which argparse does not split",
        detail=f"vLLM {at} has --{first}",
        confidence=Confidence.LIKELY,
        evidence=got.evidence,
        # where the launch was read from the list itself its values are right, and the words alone are not
        changes=together(set_flag(case, option, typed(value), Direction.CHANGE, why) for option, value in got.paired)
        or (thing(ChangeKind.OS, "command", Direction.CHANGE, why, command=apart),),
        refute="the option and its value are two items: then another release, or another program, read this launch",
    )


def _words(got: RefusedOptions) -> Finding:
    """No option at all: a word too many, mostly the command itself given again to an image that already runs it."""
    command = got.words[0] in _COMMANDS
    why = (
        "the entry point of the image is already the server: give arguments only, the model first"
        if command
        else "name the model once: as the first word after `vllm serve`, or with --model for api_server.py"
    )
    return finding(
        RULE,
        title=f"The launch has arguments that vLLM does not expect: {excerpt.word(' '.join(got.words))}",
        confidence=got.confidence,
        evidence=got.evidence,
        changes=(_right(got, why),),
        refute="vLLM accepts the same command, started by hand in the same image",
    )


def _right(got: RefusedOptions, why: str) -> Change:
    """What stays of `vllm serve MODEL …` for an image that is the server; of other words nobody knows."""
    rest = list(got.words)
    while rest and rest[0] in {"vllm", "serve"}:
        rest.pop(0)
    if rest and rest[0] in _COMMANDS:
        alone = f"{why}; a shell or another program is named with --entrypoint, before the image"
        told = (
            f"docker run --entrypoint {rest[0].rpartition('/')[2]} IMAGE ARGUMENTS   # a pod: command: instead of args:"
        )
        return thing(ChangeKind.OS, "command", Direction.CHANGE, alone, command=told)
    if not rest or len(rest) == len(got.words):
        return thing(ChangeKind.OS, "command", Direction.CHANGE, why)
    # `vllm serve` takes the model as its first word; api_server.py of most releases as an option alone.
    option = any(says(shown.excerpt, "refused-by-api-server") for shown in got.evidence)
    return thing(ChangeKind.OS, "arguments", Direction.CHANGE, why, to=" ".join(["--model", *rest] if option else rest))


RULE = rule("VD502", reads=frozenset({Signal.LOG, Signal.VERSION, Signal.LAUNCH}), judge=judge)
