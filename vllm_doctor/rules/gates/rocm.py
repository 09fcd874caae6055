"""Does a run compute on AMD's GPUs?"""

from vllm_doctor.rules.case import Case

# What only AMD's runtime says.
_OWN = frozenset({"gpu-page-fault", "hsa-exception"})
_WORDS = ("HIP error", "hipError", "HSA_STATUS", "rocm", "aiter")


def on_rocm(case: Case) -> bool:
    """By vLLM's own word; else by what the first failure and the lines of choices say."""
    run = case.run
    if run is None:
        return False
    if (told := run.first("platform-name")) is not None:
        return told.fields["platform"].lower() == "rocm"
    root = run.root
    if root is not None and root.ids & _OWN:
        return True
    return root is not None and any(
        word in run.lines[i].text for i in range(root.index, root.last + 1)[:200] for word in _WORDS
    )
