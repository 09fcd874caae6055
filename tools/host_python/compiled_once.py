"""Python on a throw-away host compiles what it reads from a zip once, and not for each task anew.

Ansible sends every module as a zip of source, and importing it costs half of a task's processor time on the host. What
was compiled lies in a folder that all hosts of this machine's checkouts have, under the hash of the source, so that the
first host pays. Nothing else differs: a host without this folder runs the same code.
"""

import _frozen_importlib_external as external  # no import of importlib.util, which each start of Python would pay
import os
import zipimport

FOLDER = "/var/cache/vllm-doctor-compiled"
_compile = zipimport._compile_source  # type: ignore[attr-defined]  # no interface: tests/tools holds it


def _compile_once(path: str, source: bytes) -> object:
    import hashlib
    import marshal

    digest = hashlib.sha256(external.MAGIC_NUMBER + source).hexdigest()
    kept = f"{FOLDER}/{digest}"
    try:
        with open(kept, "rb") as file:
            return marshal.load(file)  # only root of a test host writes there
    except (OSError, EOFError, ValueError, TypeError):
        code = _compile(path, source)
    own = f"{kept}.{os.uname().nodename}.{os.getpid()}"
    try:
        with open(own, "wb") as file:
            marshal.dump(code, file)
        os.replace(own, kept)
    except OSError:
        pass  # not root, or no such folder
    return code


zipimport._compile_source = _compile_once  # type: ignore[attr-defined]
