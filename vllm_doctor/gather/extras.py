"""What an optional part of the doctor needs beside it, as its own metadata says.

The doctor's distribution is in no package index, so its extras cannot be asked for by its name there: whoever took that
name would be installed in its place.
"""

DISTRIBUTION = "vllm-host-doctor"


def brings(extra: str) -> str:
    """The command that installs what this extra needs into the doctor's environment."""
    # Every start of the doctor reads the name above, and few come here.
    import shlex
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement

    try:
        asked = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:  # a folder of sources on the path of some Python
        return f"pip install '.[{extra}]' in the checkout"
    own = [f"{r.name}{r.specifier}" for r in asked if r.marker is not None and r.marker.evaluate({"extra": extra})]
    return f"pip install {shlex.join(own)} in the doctor's environment"
