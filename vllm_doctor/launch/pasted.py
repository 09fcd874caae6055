"""The command that somebody pasted above a log: `vllm serve …`, `python -m …`, `docker run …`, over several lines."""

import shlex
from collections.abc import Sequence

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.launch.command import parse_line, refusals
from vllm_doctor.launch.line import LaunchError
from vllm_doctor.launch.parse import parse_words
from vllm_doctor.launch.shell import first_command, without_prompts
from vllm_doctor.records.host import Launch

# What every command that starts a server holds.
_COMMANDS = ("vllm serve", "vllm.entrypoints.", "vllm/vllm-openai", "docker run ", "podman run ")
# The calls of a program that makes an engine itself: the second is AsyncEngineArgs's end, too.
_CALLS = ("LLM(", "EngineArgs(")
_STARTS = (*_COMMANDS, *_CALLS)
# What another program of a container has not: without it, it is no launch of vLLM.
_OF_VLLM = ("vllm", "--model")
_CALL = Pattern(r"(?:^|[\s=.(])(LLM\(|(?:Async)?EngineArgs\()")
# What people set before a command, in a few words of any language (`usage:` is a program's own, of any command), and
# the signs with which they go on behind it.
_LABEL = Pattern(
    r"^(?![Uu]sage)[^\s\-/'\"][^\-/'\"=\n]{0,40}[:\uff1a]\s{0,4}"
    r"(?=(?:[A-Z][A-Z0-9_]{2,60}=\S{1,200} ){0,20}(?:vllm serve|python3? -m vllm|docker run|podman run)\s)"
)
# A command within a sentence, as Markdown marks code.
_CODE = Pattern(r"`(?P<code>[^`\n]{8,4000})`")
# `vllm serve starts, then …`: vLLM takes one model, so a second word is a sentence's.
_SENTENCE = Pattern(r"vllm serve [^\W\d]{1,20},? [^\W\d]{1,20}\b(?!=)")
_GOES_ON = Pattern("[\uff0c\u3002\uff1b]")
# A line of options alone, and how many make a launch.
_OPTION, _OPTIONS = Pattern(r"\s{0,16}--[a-z][a-z0-9_-]{1,60}(?:[\s=]|$)"), 2
# The same behind somebody's word for it, to the line's end; a parser lists what it refuses behind its own.
_TOLD_OPTIONS = Pattern(
    r"[A-Za-z)*_\u4e00-\u9fff](?<!arguments)(?<!error)[:\uff1a][*_ ]{0,6}`?(?P<code>--[a-z][^`\n]{8,2000}?)`?\s{0,8}$"
)
_OWN_SCRIPT = Pattern(r"\bpython3? (?:-[a-z] )?[\w./-]{1,200}\.py ")
# A blank behind the `=` of an option: an option without its value would have ended the start before the log began.
_BLANK = Pattern(r"(--[a-z][a-z0-9_-]{1,60}=) {1,4}(?=[\w./'\"{\[])")
# The line of a compose file, a pod or a deployment that names an image of vLLM's.
_IMAGE = Pattern(r"( {1,24})(- )?image: {1,4}\S{0,200}vllm")
_ENGINES = ("--model", "--gpu-memory-utilization")
# Lines of one command at most, and characters of one line that is read as a command.
_LINES, _LONG = 60, 4000


def command_in(lines: Sequence[str]) -> Launch | None:
    """The launch in these lines. None where there is none, or where several differ: nobody can tell which one ran."""
    lines = [_joined(line) if len(line) <= _LONG else line for line in lines]
    found: Launch | None = None
    read = -1
    for index, line in enumerate(lines):
        if index <= read or len(line) > _LONG or not any(mark in line for mark in _STARTS):
            continue
        text, read = _whole(lines, index)
        launch = _parsed(text)
        if launch is None:
            continue
        if found is not None and (launch.flags, launch.model) != (found.flags, found.model):
            return None
        found = launch
    if found is None and (contained := _containers(lines)):
        one, *others = contained
        same = one is not None and all(o is not None and (o.flags, o.model) == (one.flags, one.model) for o in others)
        return one if same else None
    return found or _options_alone(lines) or _script(lines)


def calls_engine(lines: Sequence[str]) -> bool:
    """Does a program make its engine itself, by a call that stands in these lines?"""
    return any(_CALL.search(line) is not None for line in lines if len(line) <= _LONG)


def made_by_calls(lines: Sequence[str]) -> tuple[Launch, ...]:
    """The engines that a pasted program makes itself, each by a call of its own; those alone that differ."""
    found: dict[tuple[str | None, str], Launch] = {}
    for index, line in enumerate(lines):
        if len(line) > _LONG or not any(call in line for call in _CALLS):
            continue
        launch = _parsed(_whole(lines, index)[0])
        if launch is not None and launch.model is not None:
            found.setdefault((launch.model, str(launch.flags)), launch)
    return tuple(found.values())


def _containers(lines: Sequence[str]) -> list[Launch | None]:
    """The containers of vLLM's in a compose file, a pod or a deployment that stands beside the log; None for one whose
    options vLLM would refuse as they are written."""
    found: list[Launch | None] = []
    for index, line in enumerate(lines):
        image = _IMAGE.match(line) if len(line) <= _LONG else None
        if image is None:
            continue
        try:
            launch = parse_line(_mapping(lines, index, len(image[1]) + len(image[2] or "")))
            found.append(None if refusals(launch, None) else launch)
        except (ValueError, LaunchError):
            continue
    return found


def _mapping(lines: Sequence[str], index: int, indent: int) -> str:
    """The YAML mapping that a line belongs to: what stands at its indent or further right, before and after it."""
    first = last = index

    def within(at: int) -> bool:
        return 0 <= at < len(lines) and len(lines[at]) <= _LONG and not lines[at][:indent].strip()

    if within(index):
        while index - first < _LINES and within(first - 1):
            first -= 1
        if first > 0 and indent > 1 and lines[first - 1][:indent].strip() == "-":
            first -= 1  # the first key of a list's item stands behind its dash
    while last - index < _LINES and within(last + 1):
        last += 1
    return "\n".join(line[indent:] for line in lines[first : last + 1])


def _script(lines: Sequence[str]) -> Launch | None:
    """A script of somebody's own that takes vLLM's options by their names, with the model and the fraction among them:
    what it does not know of them is its own."""
    told = [
        line for line in lines if len(line) <= _LONG and _OWN_SCRIPT.search(line) and all(w in line for w in _ENGINES)
    ]
    try:
        words = shlex.split(told[0]) if len(set(told)) == 1 else []
    except ValueError:
        return None
    begin = next((i for i, word in enumerate(words) if word.endswith(".py")), None)
    if begin is None:
        return None
    line = parse_words(words[begin + 1 :], None)
    model = line.flags.get("model")
    if line.refusals or not isinstance(model, str):
        return None
    return Launch(tuple(words), model, line.flags, {})


def _options_alone(lines: Sequence[str]) -> Launch | None:
    """The options of a command whose beginning nobody pasted, from a line that begins with one on; None where it has
    fewer than two that vLLM knows, and none of them an object, or holds one that it does not."""
    first = next((i for i, line in enumerate(lines) if _OPTION.match(line) and len(line) <= _LONG), None)
    if first is None:
        told = [found["code"] for line in lines if len(line) <= _LONG and (found := _TOLD_OPTIONS.search(line))]
        return _options_alone(told) if len(told) == 1 else None
    last = first
    while last + 1 < len(lines) and last - first < _LINES and _OPTION.match(lines[last + 1]):
        last += 1
    try:
        words = shlex.split(" ".join(line.strip().removesuffix("\\") for line in lines[first : last + 1]))
    except ValueError:
        return None
    line = parse_words(words, None)
    # No sentence holds an option with a JSON object behind it.
    enough = len(line.flags) >= _OPTIONS or any(str(value).startswith("{") for value in line.flags.values())
    if line.unknown or line.refusals or not enough:
        return None
    return Launch(tuple(words), line.model, line.flags, {})


def _whole(lines: Sequence[str], index: int) -> tuple[str, int]:
    """The command of which a line is a part, what a backslash joins before and after it, and its last line."""
    first = last = index
    if any(call in lines[index] for call in _CALLS) and "vllm serve" not in lines[index]:
        while last + 1 < len(lines) and last - index < _LINES and _open(lines[first : last + 1]):
            last += 1
        return "\n".join(line.rstrip() for line in lines[first : last + 1]), last
    while first > 0 and index - first < _LINES and lines[first - 1].rstrip().endswith("\\"):
        first -= 1
    while last + 1 < len(lines) and last - index < _LINES and lines[last].rstrip().endswith("\\"):
        last += 1
    return "\n".join(line.rstrip() for line in lines[first : last + 1]), last


def _open(lines: Sequence[str]) -> bool:
    """Is a bracket open that these lines do not close?"""
    return sum(line.count("(") - line.count(")") for line in lines) > 0


def _parsed(text: str) -> Launch | None:
    if any(call in text for call in _CALLS) and not any(mark in text for mark in _COMMANDS):
        return _called(text)
    if " run " in text and not all(mark in text for mark in _OF_VLLM) and not any(m in text for m in _STARTS[:3]):
        return None
    told = _unlabelled(without_prompts(_marked(text).strip(), _BEGINS, _STARTS))
    if _SENTENCE.match(told) or (not told.startswith(_BEGINS) and "=" not in told.split(" ", 1)[0]):
        return None
    try:
        return parse_line(first_command(told))
    except (ValueError, LaunchError):
        return None


def _marked(text: str) -> str:
    """What stands in the text between backticks, where that is the command; else the whole text."""
    codes = [found["code"] for found in _CODE.compiled.finditer(text)] if text.count("`") > 1 else []
    return next((code for code in codes if any(mark in code for mark in _STARTS[:-1])), text)


def _unlabelled(text: str) -> str:
    """The command behind a word and a colon (`command: vllm serve …`), up to where a sentence in full-width signs goes
    on."""
    found = _LABEL.search(text)
    command = text[found.end() :] if found is not None else text
    return command if any(quote in command for quote in "'\"") else _GOES_ON.compiled.split(command, maxsplit=1)[0]


def _called(text: str) -> Launch | None:
    """`LLM(model="m", tensor_parallel_size=2)` alone, as a script, a traceback or a notebook shows it; EngineArgs is
    what the engine of an asynchronous program is made of."""
    begun = _CALL.search(text)
    try:
        return parse_line(_balanced(text[begun.start(1) :])) if begun is not None else None
    except (ValueError, LaunchError):
        return None


def _joined(text: str) -> str:
    """Each option with its value, where a blank parts them behind the `=`."""
    return _BLANK.sub(r"\1", text)


def _balanced(text: str) -> str:
    """Up to the bracket that closes the first one; the whole where none does."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and sign == ")":
            return text[: at + 1]
    return text


_BEGINS = ("vllm ", "python", "docker ", "podman ", "nerdctl ", "sudo ", "env ", "nohup ", "exec ", "/", "uv ", "srun ")
