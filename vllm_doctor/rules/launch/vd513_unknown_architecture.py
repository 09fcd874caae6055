"""VD513: the architecture of the model is not known to this vLLM or its transformers."""

import json
from collections.abc import Iterator
from typing import Final

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.fallback import architecture_of, on_transformers_code
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.gates.refusals_with_rules import ARCHITECTURE
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.missing_module import fitting
from vllm_doctor.rules.remedies.python_environment import ON_LINUX
from vllm_doctor.rules.say import finding, release_to, set_flag, thing, upgrade

_MODELS: Final = "vllm.model_executor.models.registry"
NEWER: Final = "a newer release knows more architectures, and installs a newer `transformers`"


def judge(case: Case) -> Outcome:
    """Was the architecture refused?"""
    fault = named(case, *ARCHITECTURE)
    if isinstance(fault, NotHere | Unseen):
        return _fallen_back(case) or fault
    if fault.ids & {"module-missing", "import-name", "symbol-undefined"}:
        return Clear("an import failed while vLLM inspected the architecture")
    if fault.ids & frozenset(ARCHITECTURE) == {"arch-inspect"} or _listed(fault):
        return _crashed(case, fault) or _not_imported(case, fault)
    # Transformers reads GGUF files of fewer architectures than vLLM serves.
    gguf = "arch-gguf" in fault.ids
    of_transformers = "arch-transformers" in fault.ids and not gguf
    if "arch-gguf-type" in fault.ids:
        return finding(
            RULE,
            title="This release reads no GGUF file of this kind of model",
            severity=severity(case, fault),
            evidence=shown(case, fault, "arch-gguf-type"),
            changes=(_other_files(case),),
            refute="the gguf package here lists the name: python -c 'import gguf; print(gguf.MODEL_ARCH_NAMES)'",
        )
    return finding(
        RULE,
        title="Transformers does not read a GGUF file of this architecture"
        if gguf
        else "The installed Transformers does not know this type of model"
        if of_transformers
        else "",
        severity=severity(case, fault),
        evidence=shown(case, fault, *ARCHITECTURE),
        changes=(
            _other_files(case) if gguf else None,
            _with_head(case, fault),
            _release(case, fault),
            _transformers(case) if of_transformers else None,
            _draft(case, fault),
        ),
        refute="the installed Transformers lists it among GGUF_SUPPORTED_ARCHITECTURES (modeling_gguf_pytorch_utils.py)"
        if gguf
        else "the model card names this vLLM version or an older one",
    )


def _transformers(case: Case) -> Change:
    """A newer one under the same vLLM, which may have the model's code of its own."""
    why = "where this vLLM lists the architecture, a newer Transformers alone is enough: the newest that it permits"
    see = "pip show -v vllm | grep -i transformers; grep -E 'architectures|model_type' MODEL/config.json"
    to = fitting(case, "transformers")
    return thing(ChangeKind.PACKAGE, "transformers", Direction.UPGRADE, why, to=to, command=see)


def _other_files(case: Case) -> Change | None:
    why = "the same model as safetensors, in FP8, AWQ or GPTQ where memory is short: vLLM reads those by itself"
    return set_flag(case, "model", None, Direction.CHANGE, why)


def _listed(fault: Fault) -> bool:
    """Older releases say "not supported" of an architecture that they list as supported: the process that was to
    inspect it failed (model_executor/models/registry.py, before "failed to be inspected")."""
    told = fault.fields("arch-unsupported")
    wanted = told.get("architectures", "").strip("'")
    return bool(wanted) and f"'{wanted}'" in told.get("supported", "")


def _crashed(case: Case, fault: Fault) -> Finding | None:
    """The process that imports the model's code was ended by a signal: native code that it loaded crashed."""
    run = case.run
    at = next((hit for hit in run.all("inspection-signal") if hit.index < fault.index), None) if run else None
    if run is None or at is None:
        return None
    neo = run.first("intel-runtime-abort")
    return finding(
        RULE,
        title=f"The process that inspects the model's code crashed ({at.fields['signal']})",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=(*((case.line(neo.index),) if neo is not None else ()), case.line(at.index)),
        changes=(
            thing(
                ChangeKind.PACKAGE,
                "intel-compute-runtime",
                Direction.CHANGE,
                "Intel's compute runtime gave up in its own code: install a kernel driver and a compute runtime "
                "(libze-intel-gpu1, intel-opencl-icd) of one release that names this card",
                command="dpkg -l | grep -E 'intel-opencl-icd|libze'; uname -r; clinfo -l",
            )
            if neo is not None
            else thing(
                ChangeKind.PACKAGE,
                "python-env",
                Direction.REPAIR,
                "run what crashed by hand: the last library that it loads before the signal is the one to replace",
                command=f"python -X faulthandler -c 'import {_MODELS}'",
            ),
            upgrade(case, NEWER) if neo is None else None,
        ),
        refute="the same command ends without a signal when it is run by hand",
    )


def _not_imported(case: Case, fault: Fault) -> Finding:
    """The release has a file for the architecture, and importing it failed; why stands in lines that are cut off."""
    windows = any(says(file, "call-of-windows") for file in _files_before(case, fault))
    wanted = f"vllm=={case.version}" if case.version is not None else "vllm==VERSION"
    return finding(
        RULE,
        title="The code of the model's architecture could not be imported",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, "arch-inspect", "arch-unsupported"),
        changes=(
            ON_LINUX if windows else None,
            thing(
                ChangeKind.PACKAGE,
                "python-env",
                Direction.REPAIR,
                "the release has the architecture; a package that its code imports is missing or of another version",
                command=f"python -m vllm.model_executor.models.registry; pip check; pip install {wanted}",
            ),
            upgrade(case, NEWER),
        ),
        refute="a line above names the import that failed",
    )


def _files_before(case: Case, fault: Fault) -> Iterator[str]:
    """The files of the calls up to this failure."""
    for earlier in case.run.faults if case.run is not None else ():
        if earlier.index <= fault.index:
            yield from earlier.files


def _fallen_back(case: Case) -> Finding | None:
    """Transformers' code stood in for an architecture that this release lacks, and did not carry it."""
    fault = named(case, "transformers-attribute")
    if isinstance(fault, NotHere | Unseen) or case.run is None or not on_transformers_code(case, fault):
        return None
    hit = case.run.first("arch-fallback")
    name = hit.fields["name"] if hit is not None else architecture_of(fault)
    return finding(
        RULE,
        title=f"This release has no code for {name or 'the model'}",
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=(
            *((case.line(hit.index),) if hit is not None else ()),
            *shown(case, fault, "transformers-attribute"),
        ),
        changes=(_with(case, name),),
        refute="the model card names this vLLM version or an older one",
    )


def _draft(case: Case, fault: Fault) -> Change | None:
    """The architecture may be the draft model's: the server does without it."""
    if fault.fields("validation-error").get("what") != "SpeculativeConfig":
        return None
    why = "the draft model has this architecture: use another draft model or method, or no draft"
    return set_flag(case, "speculative-config", None, Direction.CHANGE, why)


def _release(case: Case, fault: Fault) -> Change | None:
    """The release that has it: an older one where vLLM says that it was dropped; a newer one where one is known."""
    until = fault.fields("arch-dropped").get("until")
    if until is not None:
        return _older(case, until, "vLLM says that this is the last release with this architecture")
    if "arch-gguf" in fault.ids:  # llama.cpp's name of it, not that of the model's class
        return upgrade(case, NEWER)
    return _with(case, _first_of(fault))


def _first_of(fault: Fault) -> str | None:
    """The first architecture that the message names."""
    listed = next(
        (text for id_ in ARCHITECTURE if (text := fault.fields(id_).get("architectures"))), ""
    )  # as Python prints it
    return next(iter(listed.replace("'", " ").replace(",", " ").split()), None)


def _with_head(case: Case, fault: Fault) -> Change | None:
    """The class that writes text, where the checkpoint was saved from the bare one: Transformers' AutoModel writes
    `MistralModel` where AutoModelForCausalLM writes `MistralForCausalLM`."""
    name = _first_of(fault) or ""
    whole = f"{name.removesuffix('Model')}ForCausalLM"
    if not name.endswith("Model") or whole not in history("models", "architectures"):
        return None
    why = (
        f"the checkpoint was saved from the bare class, without the layer that makes words: to write text it is "
        f"{whole}, if lm_head is among its weights or the model shares it with the embeddings"
    )
    return set_flag(case, "hf-overrides", json.dumps({"architectures": [whole]}), Direction.SET, why)


def _with(case: Case, name: str | None) -> Change | None:
    """A release that lists this architecture (the wheels' own registries); where none does, that is said."""
    if name is None:
        return upgrade(case, NEWER)
    newest = versions.newest_known()
    table = history("models", "architectures")
    if name not in table:
        why = (
            f"no release up to {newest} lists {name}: its model card names the release, nightly build or plugin "
            f"that serves it"
        )
        look = f"pip index versions vllm   # a release after {newest}"
        return thing(ChangeKind.PACKAGE, "vllm-version", Direction.UPGRADE, why, before=case.version_text, command=look)
    first, last = table.span(name)
    if as_version(last) < newest:
        return _older(case, last, f"the last release that lists {name}")
    return upgrade(case, f"vLLM has {name} since {first}; each release installs a `transformers` that fits it")


def _older(case: Case, until: str, why: str) -> Change:
    last = versions.parse_version(until)
    newer = case.version is not None and last is not None and case.version < last
    return release_to(case, until, Direction.UPGRADE if newer else Direction.DOWNGRADE, why)


RULE = rule("VD513", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)
