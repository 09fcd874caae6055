"""A snapshot as rules read it: each signal by name, with a record of what was touched."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.launchline import merged
from vllm_doctor.knowledge.version import as_version, built_on
from vllm_doctor.knowledge.versions import FlagFact, Version
from vllm_doctor.launch.numbers import number
from vllm_doctor.launch.pasted import command_in
from vllm_doctor.launch.prose import ToldLaunch, told_options
from vllm_doctor.log.clock import day_of
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.helping_words import without_help
from vllm_doctor.log.last_run import judged
from vllm_doctor.log.match import read
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.sentence_call import last_to_say, last_with_its_calls
from vllm_doctor.log.told_setup import ToldSetup, told_setup
from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Evidence, Subject
from vllm_doctor.records.host import Driver, Gpu, Kernel, Launch, Machine, Metrics, Probe, Unit
from vllm_doctor.records.past import Past
from vllm_doctor.records.reading import Known, Reading
from vllm_doctor.records.snapshot import Signal, Snapshot

GIB = 1 << 30
# No option of vLLM takes a number of this size; what has one was not read right.
_ABSURD = 1e15
# Lines of a log in which a command may stand above what vLLM prints first.
_ABOVE = 60
# The distributions of platforms whose entry point has another name.
_PLUGINS = {"hpu": "vllm-gaudi"}


class Case:
    """One snapshot. `touched` says which signals were read through it since it was made or since `forget`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.touched: set[Signal] = set()

    def forget(self) -> None:
        """Begin a new record of what is touched."""
        self.touched.clear()

    @property
    def live(self) -> bool:
        """Was this read from a running host, rather than from files?"""
        return self._snapshot.live

    @property
    def taken_at(self) -> str:
        """When this was read, as ISO 8601."""
        return self._snapshot.taken_at

    @property
    def subject(self) -> Subject:
        """Whom the snapshot is about."""
        return self._snapshot.subject

    def reading(self, signal: Signal) -> Reading[object]:
        """A signal as it was read, with the reason where it was not."""
        self.touched.add(signal)
        found: Reading[object] = getattr(self._snapshot, signal.value)
        return found

    @cached_property
    def _run(self) -> AnalysedRun | None:
        log = self._snapshot.log
        told = isinstance(self._snapshot.launch, Known) or isinstance(self._snapshot.gpus, Known)
        return judged(log.value, of_server=told) if isinstance(log, Known) else None

    @property
    def run(self) -> AnalysedRun | None:
        """The run that the log tells; None if there is no log."""
        self.touched.add(Signal.LOG)
        return self._run

    @property
    def root(self) -> Fault | None:
        """What failed first in the log; None if nothing did or there is no log."""
        run = self.run
        return run.root if run is not None else None

    @property
    def launch(self) -> Launch | None:
        """The launch that was given or read from the unit."""
        self.touched.add(Signal.LAUNCH)
        given = self._snapshot.launch
        return given.value if isinstance(given, Known) else None

    @cached_property
    def _flags(self) -> dict[str, str | bool]:
        run = self._run
        given = self._snapshot.launch
        printed = run.launch.flags if run is not None and run.launch is not None else {}
        return merged(given.value.flags if isinstance(given, Known) else self._typed_flags, printed or self._told.flags)

    @cached_property
    def _typed(self) -> Launch | None:
        """The command as it was typed above the log, where vLLM itself printed no launch."""
        run = self._run
        if run is None or run.launch is not None:
            return None
        return command_in([line.text for line in run.lines])

    @cached_property
    def _told(self) -> ToldLaunch:
        """What sentences beside the log name of the launch, where no command stands there and none was printed."""
        run = self._run
        if run is None or run.launch is not None or self._typed is not None:
            return ToldLaunch()
        return told_options(self._sentences(run))

    @staticmethod
    def _sentences(run: AnalysedRun) -> Iterator[str]:
        """The lines that no program signed; a traceback's are code, and its sentences advise."""
        traced = (crash for crash in run.crashes if any(link.frames for link in crash.links))
        code = {i for crash in traced for i in range(crash.first, crash.last + 1)}
        for i, line in enumerate(run.lines[:_ABOVE]):
            if i not in code and line.module is None and line.level is None:
                yield without_help(line.text)

    @cached_property
    def told_setup(self) -> ToldSetup:
        """The model and the card that sentences name, where no program wrote a line and no host is asked."""
        run = self._run
        if run is None or not run.by_a_person or isinstance(self._snapshot.launch, Known):
            return ToldSetup()
        return told_setup(self._sentences(run))

    @property
    def shows_launch(self) -> bool:
        """Does the log itself show the launch, printed by the server or typed above it?"""
        return self._typed is not None or (self._run is not None and self._run.launch is not None)

    @property
    def _typed_flags(self) -> dict[str, str | bool]:
        """What was typed, without what the engine said otherwise: then it was another start."""
        if self._typed is None or self._run is None:
            return {}
        said = self._run.config
        return {k: v for k, v in self._typed.flags.items() if k not in said or str(said[k]) == str(v)}

    def flag(self, name: str) -> str | bool | None:
        """An option of this run: what the log printed, else what was given; None if absent from both."""
        self.touched.update({Signal.LOG, Signal.LAUNCH})
        return self._flags.get(name)

    @property
    def flags(self) -> dict[str, str | bool]:
        """All options of this run that are known: what the log printed over what was given."""
        self.touched.update({Signal.LOG, Signal.LAUNCH})
        return self._flags

    def effective(self, name: str) -> str | bool | None:
        """As `flag`, and where that is silent what the engine itself said it runs with."""
        given = self.flag(name)
        if given is not None:
            return given
        return self._run.config.get(name) if self._run is not None else None

    @property
    def model(self) -> str | None:
        """The model's name or folder, where anything says it."""
        told = self.effective("model")
        if isinstance(told, str):
            return told
        launch = self.launch or self._typed
        if launch is not None and launch.model is not None:
            return launch.model
        loads = self._run.first("weights-start") if self._run is not None else None
        return loads.fields.get("model") if loads is not None else None

    def number(self, name: str) -> float | None:
        """An option's value as a number (`8k` and `1e4` as vLLM reads them); None if it is absent or no number."""
        value = self.effective(name)
        if not isinstance(value, str):
            return None
        read = number(value)
        return read if read is not None and abs(read) < _ABSURD else None

    def count(self, name: str) -> int | None:
        """An option's value as a number of things; None if it is absent or counts nothing."""
        value = self.number(name)
        return int(value) if value is not None and value >= 1 else None

    def env(self, name: str) -> str | None:
        """A variable of the launch's environment."""
        return self.variables.get(name)

    @property
    def variables(self) -> Mapping[str, str]:
        """The launch's environment, as far as it is known."""
        launch = self.launch or self._typed or self._typed_above
        return launch.env if launch is not None else self._told.env

    @cached_property
    def _typed_above(self) -> Launch | None:
        """The command above what vLLM printed of the same model: vLLM prints its options, and no variable."""
        printed = self._run.launch if self._run is not None else None
        if self._run is None or printed is None:
            return None
        typed = command_in([line.text for line in self._run.lines[:_ABOVE]])
        return typed if typed is not None and typed.model == printed.model else None

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of the launch, a container's own among them; empty where no command is known."""
        launch = self.launch or self._typed
        return launch.argv if launch is not None else ()

    @property
    def version_text(self) -> str | None:
        """The version as the server printed it, else as given or installed, else as the text tells beside the log, else
        by where its code stands."""
        self.touched.update({Signal.LOG, Signal.VERSION})
        run = self._run
        if run is not None and run.version is not None:
            return run.version
        given = self._snapshot.version
        if isinstance(given, Known):
            return given.value
        if run is None or run.told_version is not None:
            return run.told_version if run is not None else None
        by_code = run.releases_by_code
        # Of two minor releases the options differ; of one the newest stands for all.
        return by_code[-1] if len({as_version(one).release[:2] for one in by_code}) == 1 else None

    @property
    def version_by_code(self) -> tuple[str, ...]:
        """The releases that the version is one of, where nothing but its line numbers tells it."""
        run = self._run
        if run is None or run.version or run.told_version or isinstance(self._snapshot.version, Known):
            return ()
        return run.releases_by_code if self.version_text is not None else ()

    @property
    def version(self) -> Version | None:
        """The same, parsed. A build whose number says nothing (0.1.dev16040) is None."""
        text = self.version_text
        parsed = versions.parse_version(text) if text else None
        return parsed if parsed is not None and parsed.release[:2] >= (0, 2) else None

    @cached_property
    def plugin(self) -> str | None:
        """The platform's plugin that vLLM runs on, by the calls of the failure or by vLLM's own word."""
        run = self._run
        files = run.root.files if run is not None and run.root is not None else ()
        called = next((told["package"] for file in files if (told := read("call-of-plugin", file)) is not None), None)
        if called is not None:
            return called.replace("_", "-")
        named = run.first("platform-plugin") if run is not None else None
        return _PLUGINS.get(named.fields["plugin"], f"vllm-{named.fields['plugin']}") if named is not None else None

    @cached_property
    def _last_to_say(self) -> Version | None:
        root = (self._run.root or self._run.cut_root) if self._run is not None else None
        if root is None:
            return None
        return min(filter(None, (last_to_say(root), last_with_its_calls(root))), default=None)

    @cached_property
    def _out_then(self) -> Version | None:
        """The newest release of the day on which an unnumbered build was made, or on which the log was written: a later
        one did not run. None where no day is told with its year."""
        built = built_on(self.version_text or "")
        if built is not None:
            return versions.newest_on(built)
        told = (day_of(line.at) for line in reversed(self._run.lines)) if self._run is not None else ()
        day = next(filter(None, told), None)
        return versions.newest_on(day) if day is not None else None

    @cached_property
    def last_to_take(self) -> Version | None:
        """The last release that has each option of the launch: a later one had refused it, which is not what failed."""
        root = self._run.root if self._run is not None else None
        if root is None or root.crash is None or "unrecognized-arguments" in root.ids:
            return None
        facts = (versions.flag(name, versions.newest_known()) for name in self._flags)
        ended = (fact.last for fact in facts if fact is not None and fact.exists is False)
        return min(filter(None, map(versions.parse_version, ended)), default=None)

    @property
    def _last_by_code(self) -> Version | None:
        by_code = self._run.releases_by_code if self._run is not None else ()
        return as_version(by_code[-1]) if by_code else None

    @property
    def release(self) -> Version:
        """The release whose names and values an answer uses: the server's own; where nothing tells that, the last one
        that raises in the words of what failed, has the files of its calls and its code where the log says, takes the
        launch's options and was out when it ran, else the newest known."""
        if self.version is not None:
            return self.version
        told = (self._last_to_say, self.last_to_take, self._out_then, self._last_by_code)
        return min(filter(None, told), default=versions.newest_known())

    def has_flag(self, name: str, until: Version | None = None) -> FlagFact | None:
        """What this version knows of an option; None where it has none of that name, or where that is not known.

        Without a version `release` stands in, or `until`: the last one that writes what the log says.
        """
        fact = versions.flag(name, self.version or until or self.release)
        return fact if fact is not None and fact.exists else None

    def has_env(self, name: str) -> FlagFact | None:
        """What this version knows of an environment variable that it reads; otherwise as `has_flag`."""
        fact = versions.env(name, self.release)
        return fact if fact is not None and fact.exists else None

    @property
    def utilization(self) -> tuple[float, str]:
        """The fraction asked for, and where it stands."""
        given = self.number("gpu-memory-utilization")
        if given is not None:
            return given, "the launch"
        printed = self._printed_utilization
        if printed is not None:
            return printed, "the log"
        at = self.release
        return versions.default_utilization(at), f"the default of vLLM {at}"

    @cached_property
    def _printed_utilization(self) -> float | None:
        """What vLLM itself printed beside the size of its budget."""
        run = self._run
        if run is None:
            return None
        told = (
            run.number(message, "util")
            for message in ("profile-took", "profile-results", "memory-breakdown", "free-below-wanted", "gaudi-share")
        )
        printed = next((value for value in told if value is not None and value > 0), None)
        if printed is not None:
            return printed
        asked = run.number("caller-share", "util") or run.number("rollout-share", "util")
        percent = run.number("unsloth-share", "percent")
        return asked or (percent / 100 if percent else None)

    @property
    def budgeted(self) -> bool:
        """Is the fraction in use known: printed, set, or the default of a release that is known?"""
        if self._printed_utilization is not None or self.number("gpu-memory-utilization") is not None:
            return True
        return self.launched and self.version is not None

    @property
    def fraction_told(self) -> bool:
        """May the fraction enter a sum: is it told, or the release known whose default it says to be?"""
        return self.budgeted or self.version is not None

    @property
    def launched(self) -> bool:
        """Is anything known of the launch? Without it no value can be said to be the one in use."""
        self.touched.update({Signal.LOG, Signal.LAUNCH})
        if bool(self._flags) or bool(self._run is not None and self._run.config):
            return True
        # A command with a model and no option is a launch whose options are all at their defaults.
        launch = self.launch or self._typed
        return launch is not None and launch.model is not None

    @property
    def gpu_name(self) -> str:
        """The card's name where anything says it; as given before what the log prints of its environment."""
        self.touched.update({Signal.LOG, Signal.GPUS})
        gpus = self._snapshot.gpus
        if isinstance(gpus, Known) and gpus.value:
            return gpus.value[0].name
        said = self._run.first("gpu-listed", "gpu-in-table") if self._run is not None else None
        return said.fields["card"].strip() if said is not None else self.told_setup.card

    @property
    def gpus(self) -> tuple[Gpu, ...] | None:
        """The GPUs; None where they could not be read."""
        self.touched.add(Signal.GPUS)
        gpus = self._snapshot.gpus
        return gpus.value if isinstance(gpus, Known) else None

    @property
    def total_gib(self) -> float | None:
        """Memory of one card in GiB as the log prints it, else as given, else None."""
        self.touched.update({Signal.LOG, Signal.GPUS})
        run = self._run
        if run is not None:
            if run.oom is not None and run.oom.total:
                return run.oom.total / GIB
            for message in ("free-below-wanted", "memory-breakdown", "profile-took", "profile-results"):
                if total := run.number(message, "total"):
                    return total
        gpus = self._snapshot.gpus
        if isinstance(gpus, Known) and gpus.value:
            sizes = [g.cuda_bytes for g in gpus.value if g.cuda_bytes]
            return min(sizes) / GIB if sizes else None
        return self._in_table or self.told_setup.total_gib

    @property
    def _in_table(self) -> float | None:
        """GiB of a card of the table that somebody pasted beside the log, where all its cards are of one size."""
        run = self._run
        sizes = {h.fields["total"] for h in run.all("memory-in-table")} if run is not None else set()
        total = int(sizes.pop()) << 20 if len(sizes) == 1 else 0
        return (Gpu(0, self.gpu_name, total_bytes=total).cuda_bytes or 0) / GIB or None

    @property
    def weights_gib(self) -> float | None:
        """Weights of one rank in GiB, as the log prints them after loading."""
        run = self.run
        if run is None:
            return None
        found = [float(h.fields["size"]) for h in run.all("weights-took")]
        return max(found) if found else run.number("profile-breakdown", "weights")

    @property
    def model_config(self) -> dict[str, object] | None:
        """The model's config.json where it was given."""
        self.touched.add(Signal.MODEL_CONFIG)
        config = self._snapshot.model_config
        return config.value if isinstance(config, Known) else None

    @property
    def kernel(self) -> Kernel | None:
        """The kernel's log lines that matter."""
        self.touched.add(Signal.KERNEL)
        found = self._snapshot.kernel
        return found.value if isinstance(found, Known) else None

    @property
    def unit(self) -> Unit | None:
        """The systemd unit."""
        self.touched.add(Signal.UNIT)
        found = self._snapshot.unit
        return found.value if isinstance(found, Known) else None

    @property
    def container(self) -> Container | None:
        """The container that the server runs in."""
        self.touched.add(Signal.CONTAINER)
        found = self._snapshot.container
        return found.value if isinstance(found, Known) else None

    @property
    def metrics(self) -> Metrics | None:
        """One or two scrapes of /metrics."""
        self.touched.add(Signal.METRICS)
        found = self._snapshot.metrics
        return found.value if isinstance(found, Known) else None

    @property
    def machine(self) -> Machine | None:
        """The host's memory, disks and processes."""
        self.touched.add(Signal.MACHINE)
        found = self._snapshot.machine
        return found.value if isinstance(found, Known) else None

    @property
    def driver(self) -> Driver | None:
        """Driver versions."""
        self.touched.add(Signal.DRIVER)
        found = self._snapshot.driver
        return found.value if isinstance(found, Known) else None

    @property
    def past(self) -> Past | None:
        """What the guard's records say; None where there are none."""
        self.touched.add(Signal.PAST)
        found = self._snapshot.past
        return found.value if isinstance(found, Known) else None

    @property
    def probe(self) -> Probe | None:
        """What the server answered."""
        self.touched.add(Signal.PROBE)
        found = self._snapshot.probe
        return found.value if isinstance(found, Known) else None

    def line(self, index: int) -> Evidence:
        """A line of the log as evidence."""
        run = self.run
        if run is None:
            raise ValueError("no log was read")
        line = run.lines[index]
        return Evidence(run.log.source, f"line {line.number}", line.excerpt or line.text, line.at)
