"""What a table or a description above the log says of its server: that it fails, however well the log below it ends.

People paste `kubectl get pods` or `docker ps -a` and then the log of what stands there. The table is the newer of both:
the log of a container that is started again and again is that of one of its starts.
"""

from collections.abc import Sequence

from vllm_doctor.log.match import says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.log import LogLine


def state_above(run: AnalysedRun) -> LogLine | None:
    """The line, of a container of this log; None where nothing above the server's lines speaks of one that fails, or
    where it stands between two of its runs."""
    if run.log.earlier_runs:
        return None
    own = next((i for i, line in enumerate(run.lines) if line.module is not None or line.process is not None), 0)
    above = run.lines[:own]
    for index, line in enumerate(above):
        of_one = says(line.text, "described-in-trouble")
        if of_one or (says(line.text, "container-in-trouble") and _of_this_log(above, index)):
            return line
    return None


def _of_this_log(above: Sequence[LogLine], index: int) -> bool:
    """Is it the server's, by its name or its image, or by the command below the table that asked for its log?"""
    text = above[index].text
    words = text.split()
    asked = (line.text for line in above[index + 1 :])
    return "vllm" in text.lower() or any(name in text for text in asked for name in {words[0], words[-1]})
