"""A launch from what vLLM printed of it when it started.

Values stay text, as they would be typed; a bare switch is True. Names are vLLM's long options without dashes.
"""

from collections.abc import Iterator, Mapping

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.versions import canonical
from vllm_doctor.records.host import Launch

# A word processor's quotes, and those that a shell and Python know.
PLAIN_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
_PAIR = Pattern(r"""\s*(?:'([^']+)'|"([^"]+)"|([A-Za-z_]\w*))\s*[:=]\s*""")
_NEXT = Pattern(r"""(?<=,)\s+(?:'([^']+)'|"([^"]+)"|([A-Za-z_]\w*))\s*[:=]\s*""")
# Names under which a launch was printed for the model, in the order of trust.
_MODEL_KEYS = ("model", "model-tag")
# "Initializing … with config:" uses the engine's own words for these options.
_CONFIG_NAMES = {"max-seq-len": "max-model-len", "model": "model"}


def from_log_arguments(text: str) -> Launch | None:
    """The launch in `non-default args: {…}` or `args: Namespace(…)`; None if the text holds neither."""
    text = text.translate(PLAIN_QUOTES)
    for start, end, explicit in (("non-default args:", "}", True), ("args: Namespace(", ")", False)):
        place = text.find(start)
        if place < 0:
            continue
        body = text[place + len(start) :].strip()
        body = body.removeprefix("{").removesuffix(end)
        flags = {}
        for name, value in _pairs(body):
            given = _value(value)
            if given is not None and (explicit or given is not False):
                flags[canonical(name)] = given
        model = next((m for k in _MODEL_KEYS if isinstance(m := flags.get(k), str)), None)
        return Launch((), model, flags)
    return None


def from_engine_config(text: str) -> dict[str, str | bool]:
    """What the engine says it runs with (`Initializing a V1 LLM engine … with config:`), as options."""
    _, found, body = text.translate(PLAIN_QUOTES).partition("with config:")
    config: dict[str, str | bool] = {}
    if not found:
        return config
    for name, value in _pairs(body):
        given = _value(value)
        if given is not None:
            key = name.replace("_", "-")
            config[_CONFIG_NAMES.get(key, key)] = given
    return config


def _value(text: str) -> str | bool | None:
    text = text.strip()
    if text in {"None", ""}:
        return None
    if text in {"True", "False"}:
        return text == "True"
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _pairs(body: str) -> Iterator[tuple[str, str]]:
    """Top-level `name: value` or `name=value` pairs of a Python literal that may hold things which are no literals."""
    index = 0
    while index < len(body):
        pair = _PAIR.match(body, index) or _NEXT.search(body, index)  # a line that was cut goes on at the next name
        if pair is None:
            return
        start = pair.end()
        end = _end_of_value(body, start)
        value = body[start:end]
        if "[…" not in value:
            yield (pair[1] or pair[2] or pair[3]), value
            index = end + 1
        else:
            index = start + value.index("[…") + 2


def _end_of_value(body: str, start: int) -> int:
    depth = 0
    quote = ""
    for index in range(start, len(body)):
        char = body[index]
        if quote:
            if char == quote and body[index - 1] != "\\":
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                return index
            depth -= 1
        elif char == "," and depth == 0:
            return index
    return len(body)


def merged(*layers: Mapping[str, str | bool]) -> dict[str, str | bool]:
    """Layers of options, the later ones winning."""
    flags: dict[str, str | bool] = {}
    for layer in layers:
        flags.update(layer)
    return flags
