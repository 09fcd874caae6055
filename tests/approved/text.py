"""How an approved answer is written: YAML in the order of the answer, numbers as a person compares them."""

import yaml


def number(value: object) -> object:
    """A float to seven digits, a whole one without its point; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, float):
        return value
    return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.7g}")


def written(answers: dict[str, object]) -> str:
    """One block a name, a blank line between."""
    return "\n".join(
        yaml.dump({name: answer}, Dumper=yaml.CSafeDumper, width=1_000_000, allow_unicode=True, sort_keys=False)
        for name, answer in answers.items()
    )
