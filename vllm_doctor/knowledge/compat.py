"""GPU, driver, CUDA and vLLM releases that fit each other: the reader of `compat.json`, the one owner of these facts.
What a vLLM release asks for (torch, Python, glibc) is in history/packages.json, from the wheels' own metadata.

Standard library only: the roles load it on an Ansible controller that may have nothing else of this package's needs.
"""

import difflib
import functools
import json
import re
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path

from vllm_doctor.knowledge.history import history

DATA = Path(__file__).with_name("compat.json")

Numbers = tuple[int, ...]


@functools.lru_cache(maxsize=4096)
def numbers(version: str) -> Numbers:
    """The release numbers of a version: `580.105.08` is (580, 105, 8), `13.0` is (13, 0); () where there is none."""
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


class DriverFit(StrEnum):
    """How a driver and a CUDA runtime fit."""

    NATIVE = "native"
    MINOR = "minor"  # runs by minor-version compatibility; code compiled from PTX at run time may be refused
    FAIL = "fail"
    UNKNOWN = "unknown"


class Fabric(StrEnum):
    """What connects the GPUs, as far as it needs a daemon on the host."""

    NONE = "none"
    NVSWITCH = "nvswitch"  # fabric manager
    NVLINK5 = "nvlink5"  # fabric manager and the NVLink subnet manager
    NVL72 = "nvl72"  # the fabric is managed from outside the compute node; IMEX runs on it


@dataclass(frozen=True)
class Branch:
    """A driver branch. `cuda` is the newest CUDA that it runs natively, None where that is not established."""

    number: int
    kind: str | None
    end_of_life: date | None
    ended: bool
    cuda: str | None
    cuda_major: int

    def is_over(self, today: date) -> bool | None:
        """Whether NVIDIA still repairs it; None where no date is known."""
        if self.ended:
            return True
        return None if self.end_of_life is None else today > self.end_of_life


@dataclass(frozen=True)
class PciGpu:
    """A GPU as its PCI id tells it, before any driver exists. `name` is None for an unnamed card of a known chip;
    `mig` is how many compute slices it can be cut into, 0 where it cannot."""

    device: str
    name: str | None
    chip: str
    architecture: str
    compute: str
    fabric: Fabric
    flavours: tuple[str, ...]
    first_branch: int
    last_branch: int | None
    min_cuda: str
    mig: int = 0
    machine: str | None = None  # the architecture of a card that is one with its processor

    @property
    def label(self) -> str:
        """What to print: the marketing name, or the chip and the id."""
        return self.name or f"{self.chip} card [10de:{self.device}]"


@dataclass(frozen=True)
class Wheel:
    """A vLLM release on the Python index: its torch, CUDA runtime, Python range, glibc floor and compute floor."""

    version: str
    torch: str
    cuda: str
    python: str
    glibc: str
    compute_floor: str


@dataclass(frozen=True)
class Variant:
    """A build of vLLM for another CUDA than the default wheel's."""

    name: str
    cuda: str
    first: str
    last: str | None

    def exists_for(self, version: str) -> bool:
        """Whether releases of this age have it; a single release may still lack it."""
        wanted = numbers(version)
        return numbers(self.first) <= wanted and (self.last is None or wanted <= numbers(self.last))


class Table:
    """The compatibility table. All look-ups return None for what it does not know; nothing is guessed."""

    def __init__(self, path: Path = DATA) -> None:
        self._data = json.loads(path.read_text(encoding="utf-8"))

    @property
    def checked(self) -> date:
        """The day on which the facts were last compared with their sources."""
        return date.fromisoformat(self._data["checked"])

    @property
    def default_driver(self) -> str:
        """The driver that a host gets unless its inventory says otherwise: the LTS branch."""
        return str(self._data["default_driver"])

    @property
    def first_unsuffixed_branch(self) -> int:
        """From this branch on, package names carry no branch number (and the default rolls to the newest)."""
        return int(self._data["first_unsuffixed_branch"])

    def branches(self) -> tuple[Branch, ...]:
        """All known branches, oldest first."""
        return tuple(self._branch(int(number)) for number in sorted(self._data["branches"], key=int))

    def branch(self, version: str) -> Branch | None:
        """The branch of a driver version or of a bare branch number."""
        parts = numbers(version)
        return self._branch(parts[0]) if parts and str(parts[0]) in self._data["branches"] else None

    def _branch(self, number: int) -> Branch:
        raw = self._data["branches"][str(number)]
        end = raw["end_of_life"]
        major = numbers(raw["cuda"])[0] if raw["cuda"] else int(raw["cuda_major"])
        return Branch(
            number, raw["class"], date.fromisoformat(end) if end else None, raw.get("ended", False), raw["cuda"], major
        )

    def driver_releases(self, branch: int) -> tuple[str, ...]:
        """The drivers that NVIDIA published in a branch, oldest first; empty for a branch without a list."""
        return tuple(self._data["driver_releases"]["branches"].get(str(branch), ()))

    @property
    def releases_until(self) -> date:
        """The day until which the lists of drivers and toolkits are complete; a later release may be missing."""
        return date.fromisoformat(self._data["driver_releases"]["complete_until"])

    def gpu(self, device: str) -> PciGpu | None:
        """The GPU of a PCI device id (four hexadecimal digits); None for an id of no known chip."""
        device = device.lower().removeprefix("0x").zfill(4)
        for first, last, chip in self._data["pci_blocks"]:
            if int(first, 16) <= int(device, 16) <= int(last, 16):
                return self._gpu(device, chip)
        return None

    def gpu_named(self, name: str) -> PciGpu | None:
        """The GPU with this marketing name, in any case."""
        for device, raw in self._data["gpus"].items():
            if raw["name"].casefold() == name.strip().casefold():
                return self.gpu(device)
        return None

    def gpu_like(self, name: str) -> str | None:
        """The card that somebody meant by a name that no card has: by the words of the name, the model's before all.

        Letters in common say nothing here: "H100 SXM 80GB" has more of them with an A100 than with an H100.
        """
        cards = [(raw["name"], _words(f"{raw['name']} {raw.get('form', '')}")) for raw in self._data["gpus"].values()]
        said = _words(name)
        models = {word for _, words in cards for word in words if _is_model(word)}
        meant = {word for word in said if _is_model(word)} & models
        if not meant:
            close = (difflib.get_close_matches(word, sorted(models), n=1, cutoff=0.7) for word in sorted(said))
            meant = {found[0] for found in close if found}
        fits = [(len(words & (said | meant)), -len(words - said), card) for card, words in cards if words & meant]
        return max(fits)[2] if fits else None

    def gpu_names(self) -> tuple[str, ...]:
        """All marketing names of the table."""
        return tuple(sorted({raw["name"] for raw in self._data["gpus"].values()}))

    def _gpu(self, device: str, chip: str) -> PciGpu:
        facts = self._data["chips"][chip]
        family = self._data["architectures"][facts["architecture"]]
        named = self._data["gpus"].get(device, {})
        return PciGpu(
            device,
            named.get("name"),
            chip,
            facts["architecture"],
            facts["compute"],
            Fabric(named.get("fabric", "none")),
            tuple(family["flavours"]),
            facts["first_branch"],
            family["last_branch"],
            facts["cuda"],
            named.get("mig", facts.get("mig", 0)),
            named.get("machine"),
        )

    def is_nvswitch(self, device: str) -> bool:
        """Whether a PCI device id is an NVSwitch, which only works behind a fabric manager."""
        return device.lower().removeprefix("0x") in self._data["nvswitches"]

    def wheel(self, version: str) -> Wheel | None:
        """The facts of a published vLLM release; a local label (`+cpu`) is ignored."""
        public = version.split("+", 1)[0].removeprefix("v")
        packages = history("packages", "packages")
        pinned = (packages.exact("torch", public) or "").removeprefix("==")
        torch = self._data["torch"].get(pinned)
        floors = [row for row in self._data["vllm_compute_floor"] if numbers(row["from"]) <= numbers(public)]
        if torch is None or not floors:
            return None
        glibc = (packages.exact("glibc", public) or "").removeprefix(">=") or torch["glibc"]
        return Wheel(
            public,
            pinned,
            torch["cuda"],
            packages.exact("python", public) or "",
            max(glibc, torch["glibc"], key=numbers),
            floors[-1]["floor"],
        )

    def wheels(self) -> tuple[str, ...]:
        """All vLLM releases whose torch is in the table, oldest first."""
        packages = history("packages", "packages").texts
        return tuple(v for v in packages if self.wheel(v) is not None)

    def torch_cuda(self, torch: str) -> str | None:
        """The CUDA that a torch on the Python index is made for; None for one that is not in the table."""
        found = self._data["torch"].get(torch)
        return None if found is None else str(found["cuda"])

    def torch_code(self, torch: str) -> dict[str, tuple[str, str]]:
        """The least and the newest compute capability that the published builds of a torch have code for: `index` is
        the build on the Python index, the others are named by their CUDA. Empty for one that is not in the table."""
        found = self._data["torch"].get(torch, {}).get("code", {})
        return {name: (least, newest) for name, (least, newest) in found.items()}

    def variant(self, name: str) -> Variant | None:
        """A wheel variant by its label, such as `cu129`."""
        raw = self._data["variants"].get(name)
        return None if raw is None else Variant(name, raw["cuda"], raw["from"], raw["through"])

    def variants(self) -> tuple[str, ...]:
        """The labels of all wheel variants, oldest CUDA first."""
        return tuple(self._data["variants"])

    def family_floor(self, cuda: str) -> str | None:
        """The oldest driver that runs any CUDA of this major."""
        floor = self._data["cuda_families"].get(str(numbers(cuda)[0]))
        return None if floor is None else str(floor)

    def fit(self, driver: str, cuda: str) -> DriverFit:
        """Whether this driver runs this CUDA runtime, and how (NVIDIA, CUDA compatibility; DESIGN of the check).

        A newer driver always runs an older runtime: the "maximum" column of NVIDIA's table is not a ban.
        """
        floor, branch = self.family_floor(cuda), self.branch(driver)
        if floor is None or not numbers(driver):
            return DriverFit.UNKNOWN
        if numbers(driver) < numbers(floor):
            return DriverFit.FAIL
        if branch is None:
            return DriverFit.UNKNOWN
        if branch.cuda is None:
            return DriverFit.NATIVE if branch.cuda_major > numbers(cuda)[0] else DriverFit.MINOR
        return DriverFit.NATIVE if numbers(branch.cuda) >= numbers(cuda)[:2] else DriverFit.MINOR

    def toolkit_driver(self, toolkit: str) -> str | None:
        """The driver inside NVIDIA's installer of this CUDA toolkit; None for a toolkit that is not known."""
        found = self._data["toolkits"].get(toolkit)
        return None if found is None else str(found)

    def toolkits(self) -> tuple[str, ...]:
        """All CUDA toolkits of the table, oldest first."""
        return tuple(self._data["toolkits"])

    def forward_compatible(self, gpu: PciGpu, driver: str) -> bool:
        """Whether `cuda-compat` may carry a newer CUDA major on this card and driver: data-centre cards only."""
        rule = self._data["forward_compat"]
        named = gpu.name or ""
        allowed = gpu.architecture in rule["architectures"] and not any(word in named for word in rule["not_names"])
        return bool(allowed and gpu.name is not None and numbers(driver)[:1] >= (rule["from_branch"],))

    @property
    def device_uuids_from(self) -> str:
        """The first release known to take UUIDs in CUDA_VISIBLE_DEVICES."""
        return str(self._data["device_uuids"]["from"])

    def reads_device_uuids(self, version: str) -> bool | None:
        """Whether a release takes UUIDs in CUDA_VISIBLE_DEVICES; older ones end at them. None where nobody looked."""
        if numbers(version) >= numbers(self.device_uuids_from):
            return True
        return False if () < numbers(version) <= numbers(self._data["device_uuids"]["never_until"]) else None

    @property
    def ptx_only_from(self) -> str:
        """From this compute capability on, part of the wheel is compiled from PTX by the driver."""
        return str(self._data["ptx_only_from"])

    def platform(self, name: str) -> tuple[str, str] | None:
        """(glibc, Python) that a distribution such as `debian-12` ships."""
        raw = self._data["platforms"].get(name)
        return None if raw is None else (raw["glibc"], raw["python"])

    def disk_gib(self, what: str) -> int:
        """Disk in GiB of one installed vLLM: `environment` is a rule of thumb, `cpu` (2.3 measured) its CPU build."""
        return int(self._data["disk_gib"][what])


@functools.cache
def table() -> Table:
    """The table that is shipped with this package, read once."""
    return Table()


def _words(name: str) -> frozenset[str]:
    """The words of a card's name that tell it from others."""
    text = re.sub(r"(\d) +gb\b", r"\1gb", name.casefold())
    words = (re.sub(r"^sxm\d$", "sxm", word) for word in re.findall(r"[a-z0-9]+", text))
    return frozenset(words) - {"nvidia", "tesla", "geforce", "quadro"}


def _is_model(word: str) -> bool:
    """Whether a word of a name is a model, such as l40s, gb200 or 4090, and no size or kind of memory."""
    return re.fullmatch(r"[a-z]{1,2}\d+[a-z]*|\d{4}", word) is not None


def nearest_torch(wrong: str, known: tuple[str, ...]) -> str | None:
    """The most similar known word, None where nothing is close.

    Two letters that changed places, and a word that breaks off, go before what merely has many letters in common.
    """
    folded = {word.casefold(): word for word in known}
    asked = wrong.casefold()
    close = difflib.get_close_matches(asked, list(folded), n=8, cutoff=0.6)
    best = max(close, key=lambda word: sorted(word) == sorted(asked) or word.startswith(f"{asked} "), default=None)
    return None if best is None else folded[best]
