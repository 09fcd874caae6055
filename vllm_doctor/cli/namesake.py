"""Another project's package of this command's name: installed beside this one, the later of the two has the files."""

import sys
from pathlib import Path

from vllm_doctor.gather.extras import DISTRIBUTION
from vllm_doctor.records import excerpt

_OURS = "Summary: Deploy vLLM on GPU hosts"
_HEAD = 4096


def warn() -> None:
    """One line on standard error where both are installed: then each upgrade of the one breaks the other."""
    found = beside(Path(__file__).resolve().parents[2])
    if found is not None:
        print(
            f"vllm-doctor: another project's package {found} is installed here, and both have the command vllm-doctor "
            f"and the module vllm_doctor: pip uninstall vllm-doctor; pip install --force-reinstall . in "
            f"the checkout of {DISTRIBUTION}",
            file=sys.stderr,
        )


def beside(packages: Path) -> str | None:
    """Name and version of the other project's package in this folder of packages; None where there is none."""
    for folder in packages.glob("vllm_doctor-*.dist-info"):
        try:
            with (folder / "METADATA").open(encoding="utf-8", errors="replace") as file:
                told = file.read(_HEAD)
        except OSError:
            continue
        if _OURS not in told:
            return f"vllm-doctor {excerpt.word(folder.name.removesuffix('.dist-info').partition('-')[2])}"
    return None
