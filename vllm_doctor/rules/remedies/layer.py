"""Which layer a failure belongs to that no rule knows, and what cures that layer's failures in general."""

import shlex
from collections.abc import Iterable

from msgspec.structs import replace

from vllm_doctor.knowledge.answers import Answer, applies
from vllm_doctor.knowledge.cuda_statuses import worded
from vllm_doctor.knowledge.functions import files_of
from vllm_doctor.knowledge.layers import Layer, features, layer_of, layers
from vllm_doctor.knowledge.layers.switches import ComponentSwitch, switches_of
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.log.startup_phase import StartupPhase, startup_phase_of
from vllm_doctor.log.traceback import LOOKUPS, Crash, Frame, Link, in_packages
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.remedies import library
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.attention_backend import other_attention
from vllm_doctor.rules.remedies.engine_needed import engine_needed
from vllm_doctor.rules.remedies.in_time import in_time
from vllm_doctor.rules.remedies.kernel_kind import called, crash_beside, kernel_kind, operators
from vllm_doctor.rules.remedies.library_place import changes_of_library_place, library_place, packages_and_variables
from vllm_doctor.rules.remedies.other_kernel import for_any_head, other_kernel
from vllm_doctor.rules.remedies.other_release import newer
from vllm_doctor.rules.remedies.runs_behind import without_its_feature
from vllm_doctor.rules.remedies.said_to_help import said_to_help, without_the_named
from vllm_doctor.rules.remedies.unfit_package import beside_vllm
from vllm_doctor.rules.say import set_flag, thing

# What Python raises where code did not expect its own state: no refusal of a value, so a defect of the release.
_DEFECTS = frozenset(
    {"AssertionError", "IndexError", "AttributeError", "UnboundLocalError", "KeyError", "TypeError", "NameError"}
    | {"ZeroDivisionError", "StopIteration", "RecursionError", "InvalidStateError"}
)
_OF_PYTHON = frozenset({"UnboundLocalError", "NameError", "ZeroDivisionError", "RecursionError", "StopIteration"})
# What is not there at all is missing in eager mode too.
_ABSENT = frozenset({"NameError", "ImportError", "ModuleNotFoundError"})
_CHANGES = 3
# So many files may have a function of one name.
_FEW = 3
# The end of a quantization's name that takes Marlin's kernels for it.
_MARLIN = "_marlin"
_COMPILER, _ATTENTION = "compiler", "attention"
# The part of errors that CUDA itself tells, whoever called it.
_CODES = "cuda"
# Parts that serve one option, without which the rest runs.
_FEATURES = frozenset({"speculative", "kv-transfer"})
# Parts whose calls stand in the tracebacks of all others.
_OF_ALL = frozenset({"engine", "runner", "system"})
# The calls of the command that serves, and of a parent that waits for what a child answers: whatever fails comes
# through them.
_COMMAND = frozenset(
    {"cmd", "main", "<module>", "run_server", "run_server_worker", "run_headless", "inner", "from_engine_args"}
    | {"build_async_engine_client", "build_async_engine_client_from_engine_args", "__init__"}
)
_WAITING = frozenset(
    {"_run_workers", "_run_workers_in_batch", "wait_for_ready", "launch_core_engines"}
    | {"wait_for_engine_startup", "_wait_for_engine_startup", "make_client", "make_async_mp_client"}
    | {"_init_workers_ray", "wait_for_completion_or_failure"}
)
# Parts whose code every request runs through, and the options that make it do more than a plain server's.
_SHARED = frozenset({"cache-blocks", "runner", "engine", "model-code"})
_EXTRAS = ("speculative-config", "kv-transfer-config", "kv-offloading-size")
# Only tells which kernel failed.
_TO_NAME_IT = frozenset({"CUDA_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"})
_OTHER_TENSORS = (
    "the checkpoint's tensors are not those that this code reads: compare its files with the model's page (is the "
    "download whole, is it the variant that this release names?), or take another checkpoint of the model"
)
# Crashes in native code whose line alone is left, and how far above it a component may have spoken.
_NATIVE = frozenset({"gpu-page-fault", "hsa-exception"})
_ABOVE = 400


def layer(case: Case, fault: Fault) -> Layer | None:
    """The part that failed; None where neither its words nor its calls tell."""
    if fault.crash is None:
        return layer_of((text(case, fault)[:2000],), ())
    here = library_place(case, fault)
    if here is not None and here.layer:
        return next(one for one in layers() if one.id == here.layer)
    said = [worded(f"{link.kind}: {link.message[:2000]}") for link in fault.crash.links]
    files = [*(in_packages(f.file) for f in fault.crash.root.frames), *operators(fault), *_of_cut_call(fault)]
    found = layer_of(said, [*_of_logger(case, fault), *files])
    if found is not None or fault.crash.root.frames:
        return found
    # Of an exception whose calls are gone its module tells where its class does not, as a word and as a file.
    modules = [link.name.rpartition(".")[0].replace(".", "/") for link in fault.crash.links]
    files = [f"/site-packages/{module}/" for module in modules if module]
    told = layer_of([f"{link.name}: " for link in fault.crash.links], files)
    return told or _beside(case, fault)


def _beside(case: Case, fault: Fault) -> Layer | None:
    """The part of the calls that stand beside a failure which has none; None of calls that any failure goes through."""
    crash = crash_beside(case, fault)
    if crash is None or _leads_on(replace(fault, crash=crash)):
        return None
    part = layer_of((), [in_packages(file) for file in crash.files])
    return part if part is not None and part.id not in _OF_ALL else None


def _of_logger(case: Case, fault: Fault) -> tuple[str, ...]:
    """The file that a record is signed with, where the calls that were kept of it are Python's own alone."""
    root = fault.crash.root if fault.crash is not None else None
    if case.run is None or root is None or root.at is None or not root.frames:
        return ()
    module = case.run.lines[root.at].module
    others = any(says(one.file, "call-of-vllm") or in_packages(one.file) != one.file for one in root.frames)
    return (f"/{module.partition(':')[0]}",) if module is not None and not others else ()


def _of_cut_call(fault: Fault) -> tuple[str, ...]:
    """A file of the function that the last line of a cut traceback calls, where all that vLLM has of its name are of
    one part."""
    frames = fault.crash.root.frames if fault.cut and fault.crash is not None else ()
    if not frames or fault.functions[-1:] == (frames[-1].function,):
        return ()
    files = [f"/vllm/{file}" for file in files_of(fault.functions[-1])]
    parts = {part.id for file in files if (part := layer_of((), (file,))) is not None}
    return tuple(files[:1]) if len(parts) == 1 and len(files) <= _FEW else ()


def cut_off_in(case: Case) -> tuple[Fault, Layer] | None:
    """Where every traceback ends before its exception: one, and the part that its calls are of. None where those are
    calls that any failure goes through."""
    cut = case.run.cut_root if case.run is not None else None
    part = layer(case, cut) if cut is not None and not _leads_on(cut) else None
    return (cut, part) if cut is not None and part is not None and part.id not in _OF_ALL else None


def waits_for_another(fault: Fault) -> bool:
    """Does the last of vLLM's own calls wait for another process, which has the error itself?"""
    own = _last_own_call(fault)
    return own is not None and own.function in _WAITING


def _leads_on(fault: Fault) -> bool:
    """Is the last of vLLM's own calls one through which every failure comes: the command's, or one that waits?"""
    own = _last_own_call(fault)
    leads = own is not None and own.function in _COMMAND and says(own.file, "call-that-leads-on")
    return leads or waits_for_another(fault)


def _last_own_call(fault: Fault) -> Frame | None:
    frames = fault.crash.root.frames if fault.crash is not None else ()
    return next((one for one in reversed(frames) if says(one.file, "call-of-vllm")), None)


def cures(case: Case, fault: Fault, part: Layer) -> tuple[Change, ...]:
    """What cures failures of this part, as far as the release has it."""
    # what is refused in a sentence is about a value: a feature goes only where nothing else is known
    by_source = without_its_feature(case, fault) if _is_check(fault) or not library.raised_by_hand(fault) else ()
    if library_place(case, fault) is not None:
        return first_of_each((*changes_of_library_place(case, fault), *by_source))
    offered: list[Change | None] = [divisor(case, fault), *packages_and_variables(case, fault)]
    offered += engine_needed(case, fault)
    if part.id == _CODES:
        offered.append(eager_mode(case, fault))
        # the kernel that failed has a switch of its own: that comes before what the code says
        offered += off(case, fault)
        offered += other_kernel(case, fault) if kernel_kind(case, fault) is not None else ()
    offered += changes_of(case, in_time(case, fault, _turned_on(case, part)), text(case, fault))[:_CHANGES]
    offered += off(case, fault)
    offered += by_source
    if _in(part, fault):
        offered.append(other_attention(case, fault, "another attention backend does not run this code"))
    name = library.library(fault)
    kernels = part.kernels and (not _of_python(fault) or name is not None or _checked_by_kernel(fault))
    if kernels and kernel_kind(case, fault) is not None:
        others = other_kernel(case, fault)
        late = says(text(case, fault), "names-late-error") and not any(offered)
        offered += [c for c in others if c is not None and (c.name not in _TO_NAME_IT or late)]
    offered += _around(case, fault, part)
    if fault.cut and part.id in _FEATURES:
        offered += _without(case, fault, part)
    if unforeseen(fault):
        offered += _asked_for(case, part)
    if _defect(fault):
        offered += _by_its_words(case, fault)
        why = "vLLM's own code did not expect this: a defect of the release; a newer one may have fixed it"
        offered.append(newer(case, fault, why))
        offered.append(_of_its_maker(fault))
    offered += _other_code(case, fault, part)
    if name is not None and answer_of(case, fault) is None and not _asked_by_client(case, fault):
        offered.append(library.built_with(case, name))
    return first_of_each(offered)


def for_the_title(case: Case, part: Layer, title: str, calls: str) -> tuple[Change, ...]:
    """What turns off that which a person's title names, where no line of the log says what failed: the component's
    switch (`calls` as it stands in its files), and the feature of this part."""
    words = title.lower().replace(" ", "_").replace("-", "_")
    of_component = changes_of(case, switches_of((calls,), title), title)[:1] if calls else ()
    said = f"{title}\n{title.lower()}"  # a title is written in capitals where a sentence is not
    known = [answer for answer in part.answers if answer.said and applies(answer, said)]
    if any(answer.title for answer in known):
        known = [answer for answer in part.answers if applies(answer, said)]  # it has a name of its own
    of_feature = [one for one in features() if applies(one, words)]
    return first_of_each(
        (
            *said_to_help(case),
            *without_the_named(case, title),
            *of_component,
            *changes_of(case, known, said),
            *changes_of(case, of_feature, words),
            *answers_to_any(case, part),
            _other_attention(case, calls, title) if part.id == _ATTENTION else None,
        )
    )


def answers_to_any(case: Case, part: Layer) -> tuple[Change, ...]:
    """What goes round any failure of this part: its answers that ask for no words, for the compiler eager mode."""
    plain = changes_of(case, [one for one in part.answers if not one.said and not one.messages], "")
    eager = _eager(case) if part.id == _COMPILER else None
    return (*plain, eager) if eager is not None else plain


def _other_attention(case: Case, calls: str, title: str) -> Change | None:
    """Another backend than the one that a title names."""
    named = Fault(0, 0, Crash((Link("", "", (Frame(calls, 0, ""),)),), None, None, 0, 0, None), (), StartupPhase.READY)
    if says(title, "head-size-refused"):
        return for_any_head(case, named)
    return other_attention(case, named, "the title names this backend's attention as what fails") if calls else None


def _eager(case: Case) -> Change | None:
    why = "eager mode compiles and captures nothing of the model; decoding of small batches becomes slower"
    return (
        set_flag(case, "enforce-eager", True, Direction.ADD, why)
        if case.effective("enforce-eager") is not True
        else None
    )


def divisor(case: Case, fault: Fault) -> Change | None:
    """The option that is 0 where the failing line divides by what it is called; None where that is no option's name."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or root.kind != "ZeroDivisionError" or not root.frames:
        return None
    by = read("divides-by", root.frames[-1].code)
    if by is None:
        return None
    why = "it is 0 here: some programs put in the number of GPUs that they saw; 1 or more divides"
    return set_flag(case, by["what"].replace("_", "-"), 1, Direction.RAISE, why)


def _turned_on(case: Case, part: Layer) -> tuple[Answer, ...]:
    """Its answers; the calls of a part that serves one option show that it is on, where the launch is not shown."""
    if part.id not in _FEATURES or case.shows_launch or case.flags:
        return part.answers
    return tuple(replace(a, given="") if a.given and a.or_unknown else a for a in part.answers)


def _asked_by_client(case: Case, fault: Fault) -> bool:
    """Did a library refuse, with a sentence, what a client sent? Another release of it would do the same."""
    run = case.run
    return run is not None and run.up_at(fault) and not library.does_not_fit(fault)


def _asked_for(case: Case, part: Layer) -> tuple[Change | None, ...]:
    """What the launch turns on beyond a plain server, where the code that all of it runs through failed."""
    if part.id not in _SHARED:
        return ()
    why = "the launch turns this on; without it the code takes another path, which also shows where the defect is"
    asked = (name for name in _EXTRAS if case.effective(name) is not None)
    return tuple(set_flag(case, name, None, Direction.REMOVE, why) for name in asked)


def _by_its_words(case: Case, fault: Fault) -> tuple[Change, ...]:
    """What turns off the feature that the failing line of vLLM's own code is about: its words are names of the code; a
    check's message is the code's too, and what Python says of a value may hold a user's text."""
    inner = library.innermost(fault)
    root = fault.crash.root if fault.crash is not None else None
    if root is None or inner is None or says(root.message, "of-another-release"):
        return ()  # an object or a function that is not as its caller knows it is of another release
    said = root.message[:200] if root.kind == "AssertionError" else ""
    return changes_of(case, in_time(case, fault, features()), f"{inner.function} {inner.code} {said}")[:_CHANGES]


def eager_mode(case: Case, fault: Fault) -> Change | None:
    """Eager mode runs nothing of what measures or captures CUDA graphs, so a start that fails there gets past it."""
    kind = fault.crash.root.kind if fault.crash is not None else ""
    graphs = startup_phase_of(fault.functions) is StartupPhase.GRAPHS
    if not graphs or kind in _ABSENT or case.effective("enforce-eager") is True:
        return None
    why = "vLLM then measures and captures no graphs; decoding of small batches becomes slower"
    return set_flag(case, "enforce-eager", True, Direction.ADD, why)


def first_of_each(offered: Iterable[Change | None]) -> tuple[Change, ...]:
    """The first change of each thing, in the order given; no more than somebody reads at once."""
    once: dict[tuple[ChangeKind, str], Change] = {}
    for change in offered:
        if change is not None:
            once.setdefault((change.kind, change.name), change)
    return tuple(once.values())[:_CHANGES]


def _other_code(case: Case, fault: Fault, part: Layer) -> tuple[Change | None, ...]:
    """Another code of the model, where vLLM's own failed or refuses: a newer release's, or Transformers' (0.7.2 on)."""
    inner = library.innermost(fault)
    own = inner is not None and says(inner.file, "call-of-model-code")
    of_draft = fault.crash is not None and says(fault.crash.root.message, "names-draft")
    asked = library.raised_by_hand(fault) and case.run is not None and case.run.up_at(fault)
    if part.id != "model-code" or not own or of_draft or asked or fault.cut:
        return ()  # a server that is up has loaded the model: what its code refuses then is what a request holds
    later = newer(case, fault, "a newer release's code of this model may take it")
    if library.raised_by_hand(fault) and inner is not None and says(inner.function, "call-that-loads-weights"):
        return (_plain_kernels(case), later, thing(ChangeKind.FLAG, "model", Direction.CHANGE, _OTHER_TENSORS))
    if case.effective("model-impl") == "transformers" or (
        inner is not None and says(inner.file, "call-of-vendors-model")
    ):
        return (later,)  # a model in a package with kernels for each vendor has no second code
    why = "runs Transformers' code of this model in place of vLLM's, slower; Transformers must know the model"
    return (later, set_flag(case, "model-impl", "transformers", Direction.SET, why))


def _plain_kernels(case: Case) -> Change | None:
    """The same checkpoint by the kernels of its own format, where the launch names Marlin's for it."""
    named = case.effective("quantization")
    if not isinstance(named, str) or not named.endswith(_MARLIN):
        return None
    why = "Marlin's layers add tensors that no checkpoint has; these kernels read the same files, slower"
    return set_flag(case, "quantization", named.removesuffix(_MARLIN), Direction.SET, why)


def _around(case: Case, fault: Fault, part: Layer) -> tuple[Change, ...]:
    """What turns off the feature for which the failing code ran, where the code itself belongs to another part."""
    files = called(case, fault)
    outer = (layer_of((), (file,)) for file in reversed(files))
    feature = next((one for one in outer if one is not None and one.id in _FEATURES), None)
    return _without(case, fault, feature) if feature is not None and feature.id != part.id else ()


def _without(case: Case, fault: Fault, feature: Layer) -> tuple[Change, ...]:
    """What turns a part off that serves one option."""
    plain = [a for a in feature.answers if not a.said and a.direction is Direction.REMOVE]
    return changes_of(case, plain, text(case, fault))


def off(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The switch that turns off the smallest component which failed and has a substitute; empty where none did."""
    return changes_of(case, _switches(case, fault), text(case, fault))[:1]


def answer_of(case: Case, fault: Fault) -> Answer | None:
    """The answer that gives this failure a name of its own; None where its part has none."""
    if library_place(case, fault) is not None:
        return None
    part = layer(case, fault)
    said = text(case, fault)
    answers = in_time(case, fault, part.answers) if part is not None else ()
    return next((answer for answer in answers if answer.title and applies(answer, said)), None)


def component(case: Case, fault: Fault) -> str:
    """The problem, where a component failed that has a substitute in this release; empty otherwise."""
    offered = off(case, fault)
    told = (one for one in _switches(case, fault) if offered and offered[0].name in one.options)
    return next((one.title for one in told), "")


def _switches(case: Case, fault: Fault) -> tuple[ComponentSwitch, ...]:
    # a library of C++ that names its own source line in what it raises was called last
    source = ("/deep_gemm/",) if says(text(case, fault), "source-deep-gemm") else ()
    files = (*called(case, fault), *spoken_last(case, fault), *source)
    return switches_of(files, text(case, fault)) if _of_the_release(fault) else ()


def spoken_last(case: Case, fault: Fault) -> tuple[str, ...]:
    """Where a crash in native code left no calls: the component whose words stand last above it, or that the run says
    it chose, written as a path of it. AMD's AITER names each kernel that it starts."""
    run = case.run
    at = next((hit.index for hit in fault.hits if hit.id in _NATIVE), None)
    if run is None or at is None:
        return ()
    above = run.lines[max(0, at - _ABOVE) : at]
    told = next((line.text for line in reversed(above) if says(line.text, "names-aiter")), None)
    return (f"/aiter/{told.lower().replace(' ', '_')}",) if told is not None else ()


def _of_the_release(fault: Fault) -> bool:
    """A package that is not there, and a value that was refused, are other matters than the component's failure."""
    kind = fault.crash.root.kind if fault.crash is not None else ""
    return kind not in {"ImportError", "ModuleNotFoundError"}


def unforeseen(fault: Fault) -> bool:
    """Did code of vLLM fail on its own state, in a way that nobody wrote a sentence for?

    A bare `assert`, a name that was never bound, a key that another part should have put there. What has a sentence of
    its own was thought of: it may be about the launch.
    """
    root = fault.crash.root if fault.crash is not None else None
    if root is None or not _defect(fault):
        return False
    if not root.message.strip():
        return True
    foreseen = root.kind == "AssertionError" or (library.raised_by_hand(fault) and root.kind not in LOOKUPS)
    return not foreseen


def _is_check(fault: Fault) -> bool:
    return fault.crash is not None and fault.crash.root.kind == "AssertionError"


def _in(part: Layer, fault: Fault) -> bool:
    """Was the innermost call one of an attention backend, which another one replaces whole?"""
    root = fault.crash.root if fault.crash is not None and fault.crash.root.frames else None
    return (
        _of_python(fault)
        and part.id == _ATTENTION
        and root is not None
        and says(root.frames[-1].file, "call-attention-backend")
    )


def _of_python(fault: Fault) -> bool:
    """Did Python fail before any kernel ran?"""
    return fault.crash is not None and fault.crash.root.kind in _DEFECTS


def _checked_by_kernel(fault: Fault) -> bool:
    """Does the call of a kernel check what it is given? Another kernel may take that."""
    root = fault.crash.root if fault.crash is not None else None
    asserted = root is not None and root.kind == "AssertionError" and bool(root.frames)
    part = layer_of((), (in_packages(root.frames[-1].file),)) if asserted and root is not None else None
    return part is not None and part.kernels


def _of_its_maker(fault: Fault) -> Change | None:
    """A program that makes the engine hands it settings of its own, which another vLLM may read differently."""
    who = beside_vllm(fault.crash.root) if fault.crash is not None else None
    if who is None:
        return None
    why = f"or {who} gave vLLM what it does not expect: the release of it that its documentation lists for this vLLM"
    return thing(ChangeKind.PACKAGE, who, Direction.CHANGE, why, command=f"pip show vllm {shlex.quote(who)}")


def _defect(fault: Fault) -> bool:
    """Did code of vLLM fail on its own state?"""
    if fault.crash is None or not fault.crash.root.frames:
        return False
    root, inner = fault.crash.root, library.innermost(fault)
    # A sentence that says what is not supported was foreseen, unless Python itself wrote it.
    refusal = root.kind not in _OF_PYTHON and says(root.message, "refusal")
    return root.kind in _DEFECTS and not refusal and inner is not None and says(inner.file, "call-of-vllm")
