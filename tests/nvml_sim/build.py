"""Builds the simulated libnvidia-ml.so.1, and libcuda.so.1 beside it.

`python tests/nvml_sim/build.py DIR [SYMBOL_TO_LEAVE_OUT …]` prints the path of the first.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_sim.c")
SONAME = "libnvidia-ml.so.1"


def build(folder: Path, absent: Iterable[str] = ()) -> Path:
    """Compile into `folder` and return the library's path. `absent` symbols are not exported, as by an old driver.

    Raises FileNotFoundError where there is no `cc`: without it these tests fail, they are not skipped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / SONAME
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{SONAME}"]
    if hidden := tuple(absent):
        script = folder / "exports.map"
        script.write_text(f"{{ local: {' '.join(f'{name};' for name in hidden)} }};\n")
        command.append(f"-Wl,--version-script={script}")
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True)
    return library


def build_cuda(folder: Path) -> Path:
    """Compile the simulated libcuda.so.1 into `folder`; it exports the names of CUDA alone."""
    folder.mkdir(parents=True, exist_ok=True)
    library, script = folder / "libcuda.so.1", folder / "cuda.map"
    script.write_text("{ global: cu*; local: *; };\n")
    words = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcuda.so.1"]
    source = SOURCE.with_name("cuda_sim.c")
    subprocess.run([*words, f"-Wl,--version-script={script}", "-o", str(library), str(source)], check=True)
    return library


if __name__ == "__main__":
    build_cuda(Path(sys.argv[1]))
    print(build(Path(sys.argv[1]), sys.argv[2:]))
