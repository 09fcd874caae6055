"""What failed: the lines, the traceback and the messages in them, and how far the start had come."""

import msgspec

from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.traceback import Crash

# Functions that take the ranks' groups down: what fails in them comes after what ended the server.
_TEARDOWN = frozenset(
    {
        "destroy_process_group",
        "destroy_model_parallel",
        "destroy_distributed_environment",
        "cleanup_dist_env_and_memory",
        "_shutdown_backend",
    }
)


class Fault(msgspec.Struct, frozen=True):
    """What failed first: the lines `index` to `last`, with its traceback and the messages in it."""

    index: int
    last: int
    crash: Crash | None
    hits: tuple[Hit, ...]
    startup_phase: StartupPhase

    @property
    def bare(self) -> bool:
        """Is it only an exception's own line, that nothing here knows?"""
        return not self.hits and self.crash is not None and not any(k.frames for k in self.crash.links)

    @property
    def cut(self) -> bool:
        """Does its traceback end before its exception?"""
        return not self.hits and self.crash is not None and not self.crash.root.name

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the messages in it."""
        return frozenset(h.id for h in self.hits)

    def fields(self, message: str) -> dict[str, str]:
        """The fields of its first message of this id; empty if there is none."""
        return next((h.fields for h in self.hits if h.id == message), {})

    @property
    def functions(self) -> tuple[str, ...]:
        """Functions of its traceback, outermost first."""
        return self.crash.functions if self.crash is not None else ()

    @property
    def at_end(self) -> bool:
        """Did it fail while the ranks' groups were taken down?"""
        return not _TEARDOWN.isdisjoint(self.functions)

    @property
    def files(self) -> tuple[str, ...]:
        """Files of its traceback, outermost first."""
        return self.crash.files if self.crash is not None else ()

    @property
    def of_a_request(self) -> bool:
        """Did it fail while a request was handled? Only a server that is up takes one."""
        frames = [frame for link in self.crash.links for frame in link.frames] if self.crash is not None else []
        if any(says(frame.file, "call-of-the-command") for frame in frames):
            return False  # it left the command itself, while the server was set up
        return any(_of_a_request(frame.file, frame.function) for frame in frames)


def _of_a_request(file: str, function: str) -> bool:
    """Is this call one of a web server's, or of vLLM's own code for requests? At a start that is loaded and set up."""
    return says(file, "call-of-http") or (says(file, "call-of-a-request") and says(function, "function-of-a-request"))
