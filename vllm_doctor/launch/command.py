"""A command line as the record that rules judge, and what is refused of it."""

from collections.abc import Sequence

import msgspec

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.line import begin
from vllm_doctor.launch.parse import LaunchError, LaunchLine, Refusal, parse_launch, parse_words
from vllm_doctor.launch.source import Source, read_source
from vllm_doctor.records.host import Launch


def parse_line(text: str, version: Version | None = None) -> Launch:
    """A launch as one text: a command in a shell's quoting, a compose or pod file, `LLM(…)`. Raises ValueError on an
    unclosed quote, LaunchError for a text that starts no server or names no model."""
    return launch_of(read_source(text), version)


def launch_of(source: Source, version: Version | None = None) -> Launch:
    """The launch that a text holds. Raises LaunchError where it starts no server or names no model."""
    line = parse_launch(source.words, version)
    found = _record(source.words, line)
    return msgspec.structs.replace(found, env={**source.env, **line.env}, medium=source.medium)


def parse_command(words: Sequence[str]) -> Launch:
    """The command of a unit or a process, whatever it is: of one that is no launch (a script), the options alone."""
    try:
        return _record(words, parse_launch(words, None))
    except LaunchError:
        return _record(words, _options_alone(words))


def _options_alone(words: Sequence[str]) -> LaunchLine:
    try:
        begun = begin(words)
    except LaunchError:
        return parse_words(words[1:], None)
    line = parse_words(begun.words, None)
    return LaunchLine(line.model, line.flags, begun.env)


def _record(words: Sequence[str], line: LaunchLine) -> Launch:
    return Launch(tuple(words), line.model, line.flags, line.env)


def refusals(launch: Launch, version: Version | None) -> tuple[Refusal, ...]:
    """What this release (None: any) would refuse of a launch. Raises LaunchError where it is none."""
    return parse_launch(launch.argv, version, launch.env).refusals
