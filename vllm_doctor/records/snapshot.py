"""The one frozen picture that rules judge; live and offline diagnosis are the same code over it."""

from enum import StrEnum

import msgspec

from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Missing, Subject
from vllm_doctor.records.host import Driver, Gpu, Kernel, Launch, Machine, Metrics, Probe, Unit
from vllm_doctor.records.log import Log
from vllm_doctor.records.past import Past
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Reading


class Signal(StrEnum):
    """The inputs a rule may declare; each is the name of a `Snapshot` field."""

    LOG = "log"
    KERNEL = "kernel"
    UNIT = "unit"
    LAUNCH = "launch"
    VERSION = "version"
    METRICS = "metrics"
    GPUS = "gpus"
    DRIVER = "driver"
    MACHINE = "machine"
    PROBE = "probe"
    MODEL_CONFIG = "model_config"
    CONTAINER = "container"
    PAST = "past"


# A log alone, or a unit: what runs in no container has nothing to say about one.
NO_CONTAINER = Absent("no container was named")


class Snapshot(msgspec.Struct, frozen=True):
    """Everything that was read, at one moment. `unread` are the inputs that the caller named and that gave nothing."""

    taken_at: str
    subject: Subject = Subject()
    log: Reading[Log] = NOT_GIVEN
    kernel: Reading[Kernel] = NOT_GIVEN
    unit: Reading[Unit] = NOT_GIVEN
    launch: Reading[Launch] = NOT_GIVEN
    version: Reading[str] = NOT_GIVEN
    metrics: Reading[Metrics] = NOT_GIVEN
    gpus: Reading[tuple[Gpu, ...]] = NOT_GIVEN
    driver: Reading[Driver] = NOT_GIVEN
    machine: Reading[Machine] = NOT_GIVEN
    probe: Reading[Probe] = NOT_GIVEN
    model_config: Reading[dict[str, object]] = NOT_GIVEN
    container: Reading[Container] = NO_CONTAINER
    past: Reading[Past] = Absent("no guard's records were given")
    live: bool = False
    unread: tuple[Missing, ...] = ()
