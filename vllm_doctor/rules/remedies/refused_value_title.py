"""The problem where a value of the launch is refused: which value meets which limit, else vLLM's own sentence.

Figures and names are fields of the message; a title that lacks one, or would be too long, is not said.
"""

from collections.abc import Sequence

from vllm_doctor.knowledge.answers import filled_in
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies import allowed_value
from vllm_doctor.rules.remedies.sentence import as_it_stands

# By the message's id in the catalogue.
_TITLES = {
    "device-ordinal": "A rank asks for a GPU that is not there",
    "length-above-model": "--max-model-len {length} is above the {derived} that the model allows",
    "tokens-below-length": "--max-num-batched-tokens {tokens} is below {other} {limit}",
    "chat-template-path": "The file that --chat-template names is not there",
    "utilization-range": "--gpu-memory-utilization {value} is not a fraction from 0 to 1",
    "heads-divisible": "{heads} attention heads cannot be split evenly over {size} GPUs",
    "world-size": "The launch asks for {size} GPUs, and this host has {gpus}",
    "parallel-size": "The launch asks for {size} GPUs, and this host has {gpus}",
    "lora-rank": "The adapter's rank {rank} is above --max-lora-rank {limit}",
    "quantization-unknown": "This release knows no quantization {method}",
    "quantization-differs": "--quantization {asked} is not the checkpoint's ({model})",
    "dtype-of-quantization": "The quantization {method} does not compute in {dtype}",
    "quant-config-missing": "The checkpoint has no configuration of its quantization ({method})",
    "tool-parser-unknown": "This release has no tool parser {value}",
    "tool-parser-not-found": "This release has no tool parser {value}",
    "tool-parser-needed": "--enable-auto-tool-choice needs --tool-call-parser",
    "reasoning-parser-unknown": "This release has no reasoning parser {value}",
    "remote-code-needed": "The model brings code, and --trust-remote-code is not given",
    "item-above-step": "An item has {item} tokens, and --max-num-batched-tokens is {tokens}",
    "block-above-step": "A block has {block} tokens, and --max-num-batched-tokens is {tokens}",
}
# Ways to write an option in a sentence are many; the letters are the same.
_SIGNS = str.maketrans("_ ", "--")


def named_by_message(fault: Fault) -> str:
    """Which value meets which limit; empty where the catalogue has no message of it, or the figures are not known."""
    for told, title in _TITLES.items():
        if told in fault.ids:
            whole = filled_in(title, fault.fields(told)) or ""
            if whole and len(whole) <= excerpt.TITLE:
                return whole
    return ""


def refused_option(case: Case, fault: Fault, message: str, changes: Sequence[Change]) -> str:
    """What the sentence says of the option that a change is made to; empty where none is."""
    options = [change for change in changes if change.kind is ChangeKind.FLAG]
    plain = message.lower().translate(_SIGNS)
    named = [change for change in options if change.name in plain]
    missing = next((c for c in named if c.direction is Direction.ADD and case.effective(c.name) is None), None)
    if missing is not None:
        others = [c.name for c in options if c is not missing and c.name in plain]
        asking = f"--{others[0]}" if others else "the launch"
        whole = f"{asking} needs --{missing.name}".replace("the launch", "The launch")
        return whole if len(whole) <= excerpt.TITLE else f"The launch needs --{missing.name}"
    if options and "validation-error" in fault.ids and allowed_value.allowed(message):
        value = allowed_value.refused(message)
        told = f"--{options[0].name} does not take {value}" if value else ""
        return told if told and len(told) <= excerpt.TITLE else f"vLLM refuses the value of --{options[0].name}"
    if named:
        return as_it_stands(case, fault, f"--{named[0].name}") or f"vLLM refuses the value of --{named[0].name}"
    variable = next((change.name for change in changes if change.kind is ChangeKind.ENV), "")
    unset = read("variable-not-set", message)
    if variable and unset is not None and unset["variable"] == variable and case.env(variable) is None:
        told = f"The environment variable {variable} is not set"
        return told if len(told) <= excerpt.TITLE else "An environment variable that is needed is not set"
    if variable and variable in message:
        return f"vLLM asks for another value of {variable}"
    if options:
        name = options[0].name
        return as_it_stands(case, fault, f"--{name}") or f"vLLM refuses what --{name} asks for"
    return ""
