"""What the command line gives of the inputs, as readings: files that were named, a launch, a version, cards."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vllm_doctor.cli.command_line import STDIN
from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.gather.target import Target, target
from vllm_doctor.records.finding import Missing
from vllm_doctor.records.host import Driver, Gpu, Kernel, Launch, Metrics
from vllm_doctor.records.reading import NOT_GIVEN, Known, Reading, Unknown

_GIB = 1 << 30
_MOST_LAUNCH = 1 << 16


class Given(msgspec.Struct, frozen=True):
    """The options of the command, as typed."""

    logs: tuple[str, ...] = ()
    launch: str | None = None
    version: str | None = None
    gpu: str | None = None
    gpu_gib: float | None = None
    gpus: int | None = None
    metrics: str | None = None
    kernel_log: str | None = None
    nvidia_smi: str | None = None
    model_config: str | None = None
    bundle: str | None = None
    unit: str | None = None
    canary: bool | None = None
    why: bool = False
    path: bool = False
    memory: bool = False
    medium: str | None = None

    @property
    def files(self) -> tuple[tuple[str, str | None], ...]:
        """The options that name a file, with what they name."""
        return (
            *(("--log", name) for name in aimed(self.logs)[1]),
            ("--kernel-log", self.kernel_log), ("--metrics", self.metrics),
            ("--nvidia-smi", self.nvidia_smi), ("--model-config", self.model_config), ("--from", self.bundle),
        )  # fmt: skip

    @property
    def piped(self) -> list[str]:
        """The options that ask for standard input."""
        return [f"{option} -" for option, name in self.files if name == STDIN]

    @property
    def offline(self) -> bool:
        """Anything to judge was given, so this host is not asked."""
        read = (self.launch, self.metrics, self.kernel_log, self.nvidia_smi, self.bundle)
        return bool(self.logs) or any(one is not None for one in read)


def aimed(names: Sequence[str]) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    """The targets among the names, and the files. Raises UsageProblem for a target that cannot be one."""
    found = [(name, target(name)) for name in names]
    wrong = next((one for _, one in found if isinstance(one, str)), None)
    if wrong is not None:
        raise UsageProblem(wrong)
    return (
        tuple(one for _, one in found if isinstance(one, Target)),
        tuple(name for name, one in found if one is None),
    )


def unread(told: Mapping[str, Reading[Any]]) -> tuple[Missing, ...]:
    """What was named and gave nothing. Not every output of nvidia-smi names a driver: that one was read."""
    found = [
        Missing(name, reading.reason, reading.remedy)
        for name, reading in told.items()
        if isinstance(reading, Unknown) and name != "driver"
    ]
    log = told.get("log")
    of_log = log.value.unread if isinstance(log, Known) else ()
    return (*found, *(Missing("log", one.reason, one.remedy) for one in of_log))


def readings(given: Given) -> dict[str, Any]:
    """What the options tell, by the fields of a snapshot."""
    gpus, driver = _cards(given)
    launch, version = _launch(given)
    told: dict[str, Reading[Any]] = {
        "log": read_logs(given.logs) if given.logs else NOT_GIVEN,
        "launch": launch,
        "version": version,
        "gpus": gpus,
        "driver": driver,
        "model_config": _model_config(given.model_config),
        "kernel": _kernel(given),
        "metrics": _metrics(given),
    }
    return {name: reading for name, reading in told.items() if reading != NOT_GIVEN}


def _launch(given: Given) -> tuple[Reading[Launch], Reading[str]]:
    """The launch, and the release: the one given, else the tag of the image that the launch starts."""
    version: Reading[str] = Known(given.version, "--vllm-version") if given.version else NOT_GIVEN
    if given.launch is None:
        return NOT_GIVEN, version
    from vllm_doctor.knowledge.images import release_of
    from vllm_doctor.knowledge.versions import parse_version
    from vllm_doctor.launch.command import launch_of
    from vllm_doctor.launch.line import LaunchError
    from vllm_doctor.launch.source import read_source

    text, source = _launch_text(given.launch)
    try:
        told = read_source(text)
        tag = release_of(told.image)
        if tag is not None and not given.version:
            version = Known(tag, f"the image {told.image}")
        return Known(launch_of(told, parse_version(given.version or tag or "")), source), version
    except LaunchError as problem:
        return Unknown(f"--launch: {problem}", "give the command as it is typed, the model included"), version
    except ValueError as problem:
        raise UsageProblem(f"--launch: {problem}: give the command as a shell would read it") from None


def _launch_text(named: str) -> tuple[str, str]:
    """The launch itself, or what the file of this name holds (a compose or pod file, a script), and where it stood."""
    try:
        is_file = " " not in named and Path(named).is_file()
    except (OSError, ValueError):  # no name of a file: too long, or a NUL in it
        is_file = False
    if not is_file:
        return named, "--launch"
    from vllm_doctor.gather.bounded import whole_file

    read = whole_file(named, _MOST_LAUNCH)
    if not isinstance(read, Known):
        raise UsageProblem(f"--launch {read.reason}")
    return read.value.decode(errors="replace"), named


def _cards(given: Given) -> tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]:
    """What nvidia-smi told, else what the command line says of the cards."""
    if given.nvidia_smi is not None:
        from vllm_doctor.gather.nvidia_smi import read_both

        return read_both(given.nvidia_smi)
    if given.gpu is None and given.gpu_gib is None and given.gpus is None:
        return NOT_GIVEN, NOT_GIVEN
    size = round(given.gpu_gib * _GIB) if given.gpu_gib else None
    cards = tuple(Gpu(i, given.gpu or "", total_bytes=size) for i in range(given.gpus or 1))
    return Known(cards, "the command line"), NOT_GIVEN


def _model_config(name: str | None) -> Reading[dict[str, object]]:
    if name is None:
        return NOT_GIVEN
    from vllm_doctor.gather.release import read_model_config

    return read_model_config(name)


def _kernel(given: Given) -> Reading[Kernel]:
    if given.kernel_log is None:
        return NOT_GIVEN
    from vllm_doctor.gather.kernel import read_kernel_file

    return read_kernel_file(given.kernel_log)


def _metrics(given: Given) -> Reading[Metrics]:
    if given.metrics is None:
        return NOT_GIVEN
    from vllm_doctor.gather.metrics import read_file

    return read_file(given.metrics)
