"""What a part refuses, read of the sentence in which it does: what it does not support, know, find, or asks for.

The words are those of the exception as a finding may show them (what a client sent is hidden there), so a title made
of them holds no more than its evidence does.
"""

from collections.abc import Sequence

from vllm_doctor.knowledge.layers import Layer
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says, without
from vllm_doctor.records import excerpt
from vllm_doctor.redact.raised import exception_words
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.rules.case import Case

# Each shape of a refusal by its id in the catalogue, the more definite first, and how the problem is said.
_SHAPES = (
    ("refuses-all-but", "{part} supports only {what}"),
    ("refuses-all-but-before", "{part} supports only {what}"),
    ("refuses-all-but-after", "{part} supports only {what}"),
    # what stands before the verb is what is refused; "not supported for" is followed by whom it is refused to
    ("refuses-unsupported-before", "{part} does not support {what}"),
    ("refuses-unsupported", "{part} does not support {what}"),
    ("refuses-unknown", "{part} does not know this {what}"),
    ("refuses-invalid", "{part} does not take this {what}"),
    ("refuses-absent", "{part} does not find {what}"),
    ("refuses-division", "{part} cannot divide {what}"),
    ("refuses-required", "{part} requires {what}"),
    ("refuses-without", "{part} requires {what}"),
)
# Those that name a thing, and not a value of it.
_DEFINITE = frozenset(
    {"refuses-all-but", "refuses-all-but-before", "refuses-all-but-after", "refuses-unsupported"}
    | {"refuses-unsupported-before", "refuses-required", "refuses-without"}
)
# Words that say nothing of what a part wants where they stand alone.
_BARE = frozenset(
    {"same", "valid", "positive", "non-negative", "non-empty", "called", "set", "one", "be", "it", "them", "they"}
    | {"its", "only", "more", "yet", "you", "your", "to", "we", "this", "that", "which"}
)
# Words with which a sentence or a clause opens.
_OPENING = frozenset(
    {"the", "a", "an", "this", "that", "any", "all", "both", "but", "because", "since", "where", "when", "if", "for"}
    | {"each", "every"}
)
# Words after which a sentence goes on: none of them ends a title.
_GOES_ON = frozenset({"and", "or", "of", "for", "with", "to", "in", "on", "the", "a", "an", "that", "is", "are", "as"})
# Two sizes or types that do not agree: the figures stand in the line that is quoted, and the title names the kind.
_MIXED = "{part} got sizes or types that do not agree"
# How short what was read may be, and how many words of it a title holds.
_LEAST, _WORDS = 3, 6
# Words with which a condition opens, which says nothing without what follows its comma.
_CONDITION = frozenset({"for", "if", "when", "with", "while", "since", "because", "as"})
# How short a quoted sentence may be.
_SHORTEST = 12
# How many words say something.
_SAYS = 3
_QUOTES = ("'", '"', "`")


def problem(case: Case, fault: Fault, part: Layer, *, definite: bool = False) -> str:
    """The problem as the sentence names it; empty where its shape is none of those that the doctor knows.

    `definite`: only what is not supported or is required, by name.
    """
    if fault.crash is None or not part.voice:
        return ""
    first = first_words(case, fault)
    for shape, title in _SHAPES:
        if definite and shape not in _DEFINITE:
            continue
        found = read(shape, first)
        what = _plain(found["what"]) if found is not None else ""
        if len(what) >= _LEAST and what.lower() not in _BARE:
            if whole := _whole(first, part.voice):
                return whole
            # as much of the sentence as holds what it refuses says it with its subject and its condition
            if found is not None and found["what"].strip() in (told := begins(case, fault, part.voice)):
                return told
            return _at_a_word(title.format(part=part.voice, what=what))
    if definite:
        return ""
    # What a value must be, and which two do not agree, the sentence itself says best.
    value = read("refuses-value", first) is not None
    mixed = read("refuses-mixed", first) is not None
    told = begins(case, fault, part.voice) if value or mixed else ""
    return told or (_MIXED.format(part=part.voice) if mixed else "")


def _whole(first: str, by: str) -> str:
    """A short sentence as it stands: it names what is refused, and to whom, better than its own middle does. Beside
    who said it where a title holds both; empty where it is long, or hides what a client sent."""
    words = _closed(first) if len(f"{by}: {_closed(first)}") <= excerpt.TITLE else _first_sentence(first)
    if HIDDEN in first or len(words.split()) < _SAYS or len(words) > excerpt.TITLE or _goes_on(words):
        return ""
    told = f"{by}: {words}"
    return told if len(told) <= excerpt.TITLE else words


def as_it_stands(case: Case, fault: Fault, by: str) -> str:
    """The sentence on something that a change names as well: beside it where a title holds both, else alone."""
    words = _closed(_first_sentence(first_words(case, fault).partition(HIDDEN)[0]))
    if len(words) < _SHORTEST:
        return ""
    told = f"{by}: {words}"
    if by in words or len(told) > excerpt.TITLE:
        return words if len(words) <= excerpt.TITLE else _begun(words)
    return told


def _first_sentence(first: str) -> str:
    """Up to where another sentence or a bracket begins."""
    ends = [i for i in range(len(first) - 2) if first[i : i + 2] in {". ", "; "} and first[i + 2].isupper()]
    bracket = first.find(" (")
    end = min((*ends, *((bracket,) if bracket > 0 else ())), default=len(first))
    return first[:end].rstrip(" .:;,")


def _goes_on(words: str) -> bool:
    """Does a word end it that another has to follow?"""
    return words.rpartition(" ")[2].lower() in _GOES_ON


def _closed(words: str) -> str:
    """Without what opens what was cut off: a bracket, a sign, a quote that nothing closes."""
    words = words.rstrip(" .:;,(=")
    last = words[-1:]
    return words[:-1].rstrip(" .:;,(=") if last in _QUOTES and words.count(last) % 2 else words


def begins(case: Case, fault: Fault, by: str) -> str:
    """Who said it, and how the sentence begins: where its shape is none of those, it still says more than its part."""
    words = _closed(first_words(case, fault).partition(HIDDEN)[0])
    if not by or len(words) < _SHORTEST:
        return ""
    whole = f"{by}: {words}"
    if len(whole) <= excerpt.TITLE:
        return whole
    told = words if len(words) <= excerpt.TITLE else _begun(words)
    return f"{by}: {told}" if told != words and len(f"{by}: {told}") <= excerpt.TITLE else told


def beside(head: str, words: str) -> str:
    """A head, and as much of a sentence behind it as a title holds."""
    room = excerpt.TITLE - len(head)
    words = _closed(words)
    return f"{head}{words if len(words) <= room else _begun(words, room)}"


def _begun(words: str, room: int = excerpt.TITLE) -> str:
    """As much of a sentence as a title holds: up to a clause's end, else to a word's. Who said it stands before it only
    where it takes no room of its verb."""
    least = room if words.split(" ", 1)[0].lower() in _CONDITION else _SHORTEST
    ends = [at for sign in (". ", "; ", ", ", ": ", " (") if (at := words[: room + 1].find(sign)) >= least]
    ends = [at for at in ends if words.count("(", 0, at) == words.count(")", 0, at)]  # none within parentheses
    if ends and not _goes_on(words[: max(ends)]):
        return words[: max(ends)]
    cut = words[: room - len(" …")]
    kept = cut.split(" ") if words[len(cut)] == " " else cut.split(" ")[:-1]
    while kept and kept[-1].lower() in _GOES_ON:
        kept = kept[:-1]
    return f"{' '.join(kept)} …"


def first_words(case: Case, fault: Fault) -> str:
    """The first line of what the exception says, as a finding may show it."""
    if fault.crash is None:
        return ""
    root = fault.crash.root
    message = exception_words(case.run.lines, fault.crash, root) if case.run is not None else root.message
    said = [line.strip() for line in message.splitlines() if line.strip()]
    return excerpt.said(_checked(said) if said and says(said[0], "validation-error") else "".join(said[:1]))


def _checked(lines: Sequence[str]) -> str:
    """pydantic's first line counts what failed and names the class; what failed stands below it: a sentence of vLLM's,
    or a field and what its value should be."""
    told = next((line for line in lines if says(line, "pydantic-value-error")), None)
    told = told or (f"{lines[1]}: {lines[2]}" if len(lines) > 2 else "".join(lines[1:2])) or lines[0]
    return without("exception-head", without("pydantic-tail", told))


def _plain(what: str) -> str:
    """What was read, without quotes and what a sentence begins with."""
    words = what.replace("`", "").replace('"', "").replace("'", "").split()
    while words and words[0].lower() in _OPENING:
        words = words[1:]
    kept = words[:_WORDS]
    while kept and kept[-1].lower() in _GOES_ON:
        kept = kept[:-1]
    return " ".join(kept).strip(" .,:;-")


def _at_a_word(title: str) -> str:
    """No longer than a title, and cut where a word ends."""
    if len(title) <= excerpt.TITLE:
        return title
    return title[: excerpt.TITLE].rsplit(" ", 1)[0]
