"""What else a text offers against its first failure, where the rule that names it has no change for it.

A report names its failure twice: its log tells the calls, its title what its writer turned on. A rule of last resort
reads the one that says more; the other may name the switch.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from vllm_doctor.knowledge.functions import changed_since
from vllm_doctor.knowledge.layers import layers
from vllm_doctor.knowledge.layers.headings import named_in, part_of_title
from vllm_doctor.log.match import says
from vllm_doctor.log.report_title import report_title
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.layer import answers_to_any, cut_off_in, first_of_each, for_the_title
from vllm_doctor.rules.remedies.library import built_with
from vllm_doctor.rules.remedies.other_release import newer_on_the_way
from vllm_doctor.rules.remedies.own_model_code import own_model_code
from vllm_doctor.rules.remedies.said_to_help import said_to_help, without_the_named
from vllm_doctor.rules.say import upgrade

# The rules that name any failure by its part, its words or its end; the others know what cures theirs.
_OF_ANY = frozenset({"VD527", "VD528", "VD599", "VD601"})
# Parts whose failures another release of vLLM seldom mends: files, packages, the host and the client.
_OF_OTHERS = frozenset(
    {"requests", "engine", "system", "ray", "ranks", "hub", "weights", "libraries", "device", "cuda"}
)
# Parts that are Transformers' code under vLLM's: at a start they read the model's files, and no request.
_READ_BY_TRANSFORMERS = frozenset({"multimodal", "tokenizer", "model-config"})


def looked_at_again(case: Case, found: Sequence[Finding]) -> list[Finding]:
    """The findings; the first one with what its title, its part and its calls offer, where it has no change yet."""
    first = found[0] if found else None
    if first is None or first.code not in _OF_ANY or first.changes or first.confidence is Confidence.CONFIRMED:
        return list(found)
    changes = first_of_each(
        (
            own_model_code(case),
            *_of_the_title(case),
            *_of_the_part(case, first),
            _of_transformers(case, first),
            *_of_the_calls(case),
        )
    ) or _of_its_age(case, first)
    if not changes:
        return list(found)
    return [replace(first, changes=changes, confidence=Confidence.LIKELY), *found[1:]]


def _of_the_title(case: Case) -> tuple[Change, ...]:
    title = report_title(case.run.lines) if case.run is not None else None
    if title is None or title.words.endswith("?"):
        return ()
    part, named = part_of_title(title.words), named_in(title.words)
    if part is None:
        return (*said_to_help(case), *without_the_named(case, title.words))
    return for_the_title(case, part, title.words, named.calls if named is not None else "")


def _of_the_part(case: Case, first: Finding) -> tuple[Change, ...]:
    part = next((one for one in layers() if one.id == first.layer), None)
    return answers_to_any(case, part) if part is not None else ()


def _of_its_age(case: Case, first: Finding) -> tuple[Change, ...]:
    """A newer release, where not even the failing call is known: how many of those since then changed the part's code.
    Of a call that is known it is asked whether that very function changed."""
    part = next((one for one in layers() if one.id == first.layer), None)
    root = case.root
    refused = root is not None and root.crash is not None and says(root.crash.root.message, "refusal")
    known = refused or (root is not None and not root.cut and bool(root.files))
    if known or part is None or not part.files or part.id in _OF_OTHERS:
        return ()
    if case.version is None or case.plugin is not None:
        return ()
    changed, since = changed_since(case.version, part.files)
    why = f"{changed} of the {since} releases since {case.version_text} changed the code of this part: it may be fixed"
    change = upgrade(case, why) if changed else None
    return (change,) if change is not None else ()


def _of_transformers(case: Case, first: Finding) -> Change | None:
    """The Transformers of this release, where the calls of a start end in what it reads."""
    cut = cut_off_in(case)
    at_start = cut is not None and case.run is not None and not case.run.up_at(cut[0])
    return built_with(case, "transformers") if at_start and first.layer in _READ_BY_TRANSFORMERS else None


def _of_the_calls(case: Case) -> tuple[Change | None, ...]:
    cut = cut_off_in(case)
    return (newer_on_the_way(case, cut[0]),) if cut is not None else ()
