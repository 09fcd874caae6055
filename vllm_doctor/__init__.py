"""Deploy vLLM on GPU hosts, and know why it ran out of memory."""

import sys

__version__ = "0.2.0"

if sys.version_info < (3, 11, 5):  # Debian 12 has 3.11.2; here, as every module of the package is imported behind it
    from vllm_doctor.knowledge import possessive

    possessive.install()
