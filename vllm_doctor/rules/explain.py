"""The pages of the rules, what is said about them and true of a release, and the flowchart drawn from the order."""

from collections.abc import Sequence

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.claims import Claim, as_text, claims_about, claims_of, replacements
from vllm_doctor.knowledge.history import ReleaseHistory, history
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import FlagFact, Version
from vllm_doctor.rules.chart import NODES, Node
from vllm_doctor.rules.order import INTERNAL, OrderRow, Retired, by_code, retired

HEADINGS = ("What it is", "How it is recognised", "What to do", "What is often said", "Sources")


_PREVIEW = "This rule is in preview: `diagnose` asks it only with VLLM_DOCTOR_PREVIEW=1, and it may still change."
_OURS = f"""\
# {INTERNAL} A rule of vllm-doctor failed

The other rules have answered, and what they found stands. What this one would have said is not known, so the verdict
is never ok; without another finding the exit code is 4. Please report it with the bundle: vllm-doctor bundle."""


def page(rule: OrderRow) -> str:
    """The rule's page in Markdown. Raises FileNotFoundError if it has none."""
    return rule.page.read_text(encoding="utf-8")


def meaning(rule: OrderRow) -> str:
    """What the finding is, in a sentence or two: the first paragraph of its page."""
    told = page(rule).partition("\n## What it is\n")[2].partition("\n## ")[0].strip()
    return " ".join(told.partition("\n\n")[0].split())


def explained_rule(rule: OrderRow, at: Version | None) -> str:
    """The page, with what articles say of it put right: for every release, or for the one that is asked about."""
    text = page(rule).rstrip("\n") + ("\n\n" + _PREVIEW if rule.preview else "")
    told = [_claim(claim, at) for claim in claims_of(rule.code)]
    told = [t for t in told if t]
    if not told:
        return text
    head, mark, sources = text.partition("\n## Sources\n")
    return "\n".join([head.rstrip("\n"), *told]) + "\n" + mark + sources


def about(name: str, at: Version | None) -> str | None:
    """What an option, an environment variable or a metric is, release by release; None for a name nobody knows."""
    if name.upper() == INTERNAL:
        return _OURS
    if name.upper() in retired():
        return _retired(retired()[name.upper()])
    release = at or versions.newest_known()
    option = versions.flag(name, release)
    variable = versions.env(name, release)
    bare = versions.canonical(name)
    gone, other = replacements()
    lines: list[str] = []
    if option is not None:
        lines += [f"# --{option.name}", "", *_history(option, at)]
        if option.exists is False and bare in gone:
            lines.append(f"- What to do: {as_text(gone[bare])}.")
    elif variable is not None:
        lines += [f"# {name}", "", *_history(variable, at)]
    elif bare in other:
        lines += [f"# --{bare}", "", f"- No release of vLLM has it; {as_text(other[bare])}."]
    else:
        lines += _named(name, at)
    said = [_claim(claim, at) for claim in claims_about(name)]
    if not lines and not said:
        return None
    return "\n".join(
        [*(lines or [f"# {name}", ""]), *(["", "## What is often said", "", *filter(None, said)] if said else [])]
    )


def _retired(old: Retired) -> str:
    """What became of a code that no rule has any more."""
    if old.replaced_by not in by_code():
        return f"# {old.code} {old.title}\n\nThis code was retired in {old.release}, and no other one replaced it."
    now = by_code()[old.replaced_by]
    return (
        f"# {old.code} {old.title}\n\nThis code was retired in {old.release}. {now.code} replaced it: {now.title}.\n\n"
        f"{page(now)}"
    )


_KINDS = {
    ("models", "architectures"): "An architecture of models",
    ("models", "quantizations"): "A quantization",
    ("kernels", "attention"): "An attention backend",
    ("kernels", "moe"): "A kernel for mixtures of experts (--moe-backend)",
}


def _named(name: str, at: Version | None) -> list[str]:
    """What a metric, an architecture, a quantization or a backend is, and which releases have it."""
    exported = name.replace("vllm_", "vllm:", 1) if name.startswith("vllm_") else name
    end = next((e for e in ("_total", "_bucket", "_sum", "_count") if exported.endswith(e)), "")
    bare = exported.removesuffix(end)
    metrics = history("metrics", "metrics")
    # vLLM's V1 names a counter without the _total that the client library adds: a page has both as one name.
    spelt = [metric for metric in dict.fromkeys((bare, exported)) if metric in metrics]
    if spelt:
        known = metrics.value(spelt[0], at or versions.newest_known())
        labels = known.get("labels")
        told = f", with the labels {', '.join(map(str, labels))}" if isinstance(labels, list) and labels else ""
        notes = dict.fromkeys(filter(None, map(versions.metric_note, spelt)))
        more = [f"- {note[:1].upper()}{note[1:]}" for note in notes]
        name = exported if exported in spelt or known.get("kind") == "counter" else spelt[0]
        return [f"# {name}", "", f"- A {known.get('kind')}{told}.", *_releases(metrics, spelt, at), *more]
    for (file, section), what in _KINDS.items():
        facts = history(file, section)
        if name in facts:
            known = facts.value(name, at or versions.newest_known())
            asks = f"; it asks for compute capability {known['capability']}" if "capability" in known else ""
            types = known.get("dtypes")
            also = f"; activations in {', '.join(map(str, types))}" if isinstance(types, list) else ""
            return [f"# {name}", "", f"- {what}{asks}{also}.", *_releases(facts, [name], at)]
    return []


def _releases(facts: ReleaseHistory, names: Sequence[str], at: Version | None) -> list[str]:
    """Where it is under any of these names."""
    spans = [facts.span(name) for name in names]
    first = min((span[0] for span in spans), key=as_version)
    last = max((span[1] for span in spans), key=as_version)
    lines = [f"- In vLLM {first} to {last} (of the releases that were read)."]
    if at is not None:
        word = {True: "has it", False: "does not have it", None: "lies between two releases that disagree"}
        here = {facts.exists(name, at) for name in names}
        lines.append(f"- vLLM {at} {word[True if True in here else None if None in here else False]}.")
    return lines


def nearest_option(name: str) -> str | None:
    """The known option that the name comes nearest to."""
    import difflib

    found = difflib.get_close_matches(name.lstrip("-"), versions.flag_names(versions.newest_known()), 1, 0.7)
    return found[0] if found else None


def _history(fact: FlagFact, at: Version | None) -> list[str]:
    lines = [f"- In vLLM {fact.first} to {fact.last} (of the releases that were read)."] if fact.first else []
    if at is not None and fact.first:
        word = {True: "has it", False: "does not have it", None: "lies between two releases that disagree"}[fact.exists]
        default = f"; its default there is {fact.default}" if fact.exists and fact.default is not None else ""
        lines.append(f"- vLLM {at} {word}{default}.")
    if fact.aliases:
        lines.append(f"- Also written {', '.join(fact.aliases)}.")
    if fact.note:
        lines.append(f"- {fact.note[:1].upper()}{fact.note[1:]}")
    return lines


def _claim(claim: Claim, at: Version | None) -> str:
    """One claim with the truth: of one release, or span by span."""
    if at is not None:
        span = claim.at(at)
        return f'- "{claim.claim}": {"true" if span.true else "false"} in vLLM {at}. {span.say}' if span else ""
    spans = [
        f"  - {s.first} {f'to {s.last}' if s.last else 'and later'}: {'true' if s.true else 'false'}. {s.say}"
        for s in claim.said
    ]
    return "\n".join([f'- "{claim.claim}"', *spans])


def listing() -> list[tuple[str, str, str, str]]:
    """(code, cause, phase, title) of every rule, by code."""
    return [(r.code, r.cause.value, r.phase.value, r.title) for r in by_code().values()]


def chart() -> str:
    """The whole flowchart as indented text: boxes in the order of asking, with the rules that answer them."""
    lines: list[str] = []
    for node in (n for n in NODES if n.under is None):
        lines += [node.question, *_answers(node, "  ")]
        for inner in (n for n in NODES if n.under == node.id):
            lines += [f"  yes ↘ {inner.question}", *_answers(inner, "      ")]
        lines.append("  no ↓")
    lines.append("nothing is wrong: ok; what could not be seen: unknown")
    return "\n".join(lines) + "\n"


def _answers(node: Node, indent: str) -> list[str]:
    return [f"{indent}yes → {r.code} {r.title} [{r.cause.value}]" for r in by_code().values() if r.node == node.id]


def mermaid() -> str:
    """The same as a Mermaid diagram."""
    lines = ["flowchart TD"]
    main = [n for n in NODES if n.under is None]
    lines.extend(f'  {_id(node.id)}{{"{_text(node.question)}"}}' for node in NODES)
    lines.append('  ok(["ok, or unknown where something could not be seen"])')
    for this, following in zip(main, [*main[1:], None], strict=True):
        lines.append(f"  {_id(this.id)} -- no --> {_id(following.id) if following is not None else 'ok'}")
    lines.extend(f"  {_id(n.under)} -- yes --> {_id(n.id)}" for n in NODES if n.under is not None)
    for rule in by_code().values():
        lines.append(f'  {rule.code}["{rule.code} {_text(rule.title)}"]')
        lines.append(f"  {_id(rule.node)} -- yes --> {rule.code}")
    return "\n".join(lines) + "\n"


def _id(node: str) -> str:
    return node.replace("-", "_")


def _text(text: str) -> str:
    return text.replace('"', "'").replace("[", "(").replace("]", ")")
