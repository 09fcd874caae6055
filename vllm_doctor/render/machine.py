"""The diagnosis for programs: JSON of a published schema, which only grows."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vllm_doctor.records.finding import Diagnosis

SCHEMA_FILE = Path(__file__).with_name("diagnosis.schema.json")


def dumps(diagnosis: Diagnosis, others: Sequence[Diagnosis] = ()) -> str:
    """One JSON object, indented, in ASCII: nothing in it can act on a terminal. `others` are the host's other units."""
    told = msgspec.structs.replace(diagnosis, others=(*diagnosis.others, *others))
    return json.dumps(msgspec.to_builtins(told), indent=2, ensure_ascii=True) + "\n"


def line(value: object) -> str:
    """Any records as one line of JSON, in ASCII for the same reason; what is no number is null."""
    return json.dumps(json.loads(msgspec.json.encode(value)), separators=(",", ":"), ensure_ascii=True) + "\n"


def schema() -> dict[str, object]:
    """The JSON Schema (2020-12) of `dumps`, made from the records themselves."""
    (reference,), definitions = msgspec.json.schema_components([Diagnosis], ref_template="#/$defs/{name}")
    made: dict[str, object] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "vllm-doctor diagnosis",
        **reference,
        "$defs": definitions,
    }
    from inspect import cleandoc

    for one in definitions.values():  # Python 3.13 takes the indentation out of docstrings, those before it leave it in
        if "description" in one:
            one["description"] = cleandoc(one["description"])
    return msgspec.json.decode(msgspec.json.encode(made), type=dict[str, object])


def write_schema() -> None:
    """Write the shipped copy; a test proves that it is up to date."""
    SCHEMA_FILE.write_text(json.dumps(schema(), indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_schema()
