"""A folder in which everything that the doctor might import, load or start by mistake tells that it ran."""

import pwd
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.nvml_sim.build import build

REPO = Path(__file__).parents[2]
LAUNCHER = Path(sys.executable).with_name("vllm-doctor")
PROGRAMS = (
    "systemctl", "journalctl", "systemd-run", "dmesg", "nvidia-smi", "nvidia-settings", "vllm", "guidellm", "python",
    "python3", "sh", "bash", "env", "uname", "hostname", "readlink", "dirname", "realpath", "sed", "ldconfig", "gcc",
    "cc", "ld", "objdump", "ps", "which", "locale", "less", "more", "stty", "tput", "git", "lspci", "lsof",
)  # fmt: skip
NOBODY = pwd.getpwnam("nobody").pw_uid
# An ordinary user who may nevertheless read a home where the interpreter happens to lie (pyenv of root).
_ORDINARY = [f"--reuid={NOBODY}", f"--regid={pwd.getpwnam('nobody').pw_gid}", "--clear-groups"]
_READS = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


class Traps:
    """`folder` is where one stands, `ran` where a trap that sprang leaves its name."""

    def __init__(self, base: Path) -> None:
        base.chmod(0o755)
        self.folder, self.ran, self.driver = base / "here", base / "ran", base / "driver"
        for made in (self.folder, self.ran):
            made.mkdir()
            made.chmod(0o777)
        self._modules()
        self._programs()
        self._libraries()

    def _modules(self) -> None:
        names = {*sys.stdlib_module_names, *packages_distributions(), "sitecustomize", "usercustomize", "vllm", "torch"}
        # An interpreter that finds another of these does not even come to its first line.
        first = subprocess.run(
            [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"], capture_output=True, check=True
        )
        ours = {path.stem for path in (REPO / "vllm_doctor").rglob("*.py")}
        user = self.folder / f".local/lib/python3.{sys.version_info.minor}/site-packages"
        user.mkdir(parents=True)
        needed = {*first.stdout.decode().split()} - {"sitecustomize"}  # Debian's own is none of them
        for name in sorted({*names, *ours} - {"__main__", "__init__", *needed}):
            (self.folder / f"{name}.py").write_text(self._tells(name))
        (user / "usercustomize.py").write_text(self._tells("usercustomize-of-the-home"))
        (user / "evil.pth").write_text(f"import sys; {self._tells('pth-of-the-home')}")
        package = self.folder / "vllm_doctor"
        package.mkdir()
        for name in ("__init__", "__main__"):
            (package / f"{name}.py").write_text(self._tells(f"vllm_doctor.{name}"))

    def _tells(self, name: str) -> str:
        return f"open({str(self.ran / name)!r}, 'w')\n"

    def _programs(self) -> None:
        for name in PROGRAMS:
            program = self.folder / name
            program.write_text(f"#!/bin/sh\n: >{self.ran / ('program-' + name)}\n")
            program.chmod(0o755)

    def _libraries(self) -> None:
        """A driver that answers, and before it, in the folder we stand in, one that is not the driver."""
        build(self.driver).with_name("nvml-sim").write_text((REPO / "tests/nvml_sim/profiles/h100x2.txt").read_text())
        source = self.folder / "evil.c"
        source.write_text(
            "#include <fcntl.h>\n"
            f'__attribute__((constructor)) static void ran(void) {{ creat("{self.ran}/library", 0666); }}\n'
        )
        command = ["cc", "-shared", "-fPIC", "-o", self.folder / "libnvidia-ml.so.1", source]
        subprocess.run(command, check=True)
        # What Python loads itself, as soon as a module asks for it: that module then fails, which is seen as well.
        for name in ("libsqlite3.so.0", "libssl.so.3", "libz.so.1", "libexpat.so.1"):
            shutil.copy(self.folder / "libnvidia-ml.so.1", self.folder / name)

    @property
    def environment(self) -> dict[str, str]:
        """All that names the folder to Python, to the loader and to whoever looks for a program."""
        return {
            "PATH": f".:{self.folder}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "LD_LIBRARY_PATH": f":{self.folder}:.:{self.driver}",
            "PYTHONPATH": str(self.folder),
            "PYTHONUSERBASE": str(self.folder / ".local"),
            "PYTHONSTARTUP": str(self.folder / "sitecustomize.py"),
            "PYTHONWARNINGS": "error::sitecustomize.Warned",
            "PYTHONBREAKPOINT": "sitecustomize.stop",
            "PYTHONPYCACHEPREFIX": str(self.folder),
            "PYTHONINSPECT": "1",
            "PAGER": str(self.folder / "less"),
            "SYSTEMD_PAGER": str(self.folder / "less"),
            "BASH_ENV": str(self.folder / "sh"),
            "ENV": str(self.folder / "sh"),
        }

    def run(
        self, *words: str, ordinary: bool = False, program: str | Path = LAUNCHER, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it here, with all that; as an ordinary user if it is so wanted."""
        setpriv = shutil.which("setpriv") or "setpriv"
        return subprocess.run(
            [*([setpriv, *_ORDINARY, *_READS] if ordinary else []), program, *words],
            cwd=self.folder,
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def sprung(self) -> list[str]:
        """What ran since the last time we looked."""
        found = sorted(path.name for path in self.ran.iterdir())
        for name in found:
            (self.ran / name).unlink()
        return found
