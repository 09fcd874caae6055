"""A test host keeps one Python with Ansible's common code imported, and forks it for each module.

A module comes as a script on Python's standard input; starting Python and importing `ansible.module_utils` is four
fifths of what an ordinary task costs a host. The first module of root runs as ever and leaves a server that has
imported what that module's archive has; each later one is handed to it with its descriptors, environment and folder,
and runs in a fork. What was imported counts only where the later archive has the same bytes: otherwise it is imported
anew and the server ends. Where there is no server, nothing differs.
"""

import marshal
import os
import sys

FOLDER = "/run/ready-python"
MARK = b"_ANSIBALLZ_WRAPPER = True"
BEFORE, AFTER = "zip_data='", "',"
OURS = ("ansible", "ansible.")
IDLE_S = 30.0


def taken_over() -> None:
    """Hand the module on standard input to the server and end as it ended; return if Python is to go on by itself."""
    if sys.orig_argv[1:] or os.getuid() != 0 or os.isatty(0):
        return
    script = b"".join(iter(lambda: os.read(0, 1 << 20), b""))
    pipe(script)  # Python reads it, if we return; what a module starts sees the end of a pipe, as ever
    if MARK not in script[:400] or any(name.startswith("PYTHON") for name in os.environ):
        return
    import _socket  # what `socket` adds takes longer than the module

    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        server.connect(f"{FOLDER}/socket")
    except OSError:
        begin(script)
        return
    umask = os.umask(0o022)
    os.umask(umask)
    told = marshal.dumps((dict(os.environb), os.getcwdb(), umask))
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2)))
    server.sendmsg([len(told).to_bytes(4, "big")], [rights])
    server.sendall(told)
    code = server.recv(1)
    os._exit(code[0] if code else 137)


def pipe(script: bytes) -> None:
    """Make standard input a pipe that has all of this in it and no writer any more."""
    import fcntl

    reads, writes = os.pipe()
    try:
        fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, max(len(script), 1 << 16))
        os.write(writes, script)
        os.dup2(reads, 0)
    except OSError:  # larger than this machine's pipes may be: a file of no name
        copy = os.memfd_create("script")
        os.write(copy, script)
        os.lseek(copy, 0, os.SEEK_SET)
        os.dup2(copy, 0)
        os.close(copy)
    os.close(reads)
    os.close(writes)


def begin(script: bytes) -> None:
    """Leave a server behind: a grandchild that nobody waits for, with this module's archive on its standard input."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    pipe(script)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.closerange(3, 1 << 16)
    os.chdir("/")
    os.execv(sys.executable, [sys.executable, os.path.abspath(__file__)])  # noqa: S606


def archive_of(script: str) -> bytes:
    """The zip that a packed module brings."""
    import base64

    start = script.index(BEFORE) + len(BEFORE)
    return base64.b64decode(script[start : script.index(AFTER, start)])


def common(archive: bytes) -> dict[str, int]:
    """{file: checksum} of what modules share in this archive."""
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
        return {
            item.filename: item.CRC
            for item in zipped.infolist()
            if item.filename.startswith("ansible/module_utils/") or item.filename == "ansible/__init__.py"
        }


class Here(list):  # type: ignore[type-arg]
    """A package's folder in the archive of the module that runs, which Ansible lays first on sys.path."""

    def __init__(self, package: str) -> None:
        super().__init__([package.replace(".", "/")])

    def __iter__(self) -> object:  # type: ignore[override]
        return iter([f"{sys.path[0]}/{place}" for place in list.__iter__(self)])


def imported(archive: bytes) -> dict[str, int]:
    """Import what modules share in this archive, and of the standard library what they open with; its checksums."""
    import importlib
    import platform
    import runpy  # noqa: F401 (what a packed module imports before anything else, as the next two)
    import shutil  # noqa: F401
    import tempfile  # noqa: F401

    kept = f"{FOLDER}/{os.getpid()}.zip"
    with open(kept, "wb") as file:
        file.write(archive)
    there = common(archive)
    sys.path[0] = kept  # which was this file's folder; a script on standard input has none
    for name in sorted(there):
        try:
            importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        except Exception:  # noqa: BLE001, S112 (imported by the module that needs it, which says so)
            continue
    sys.path.remove(kept)
    os.unlink(kept)
    platform._uname_cache = None  # type: ignore[attr-defined]
    return there


def serve() -> None:
    """Fork for each module until another server has taken the place."""
    import gc
    import signal
    import socket

    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    there = imported(archive_of(sys.stdin.read()))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place := f"{FOLDER}/{os.getpid()}")
    listening.listen(64)
    own = os.stat(place).st_ino
    os.rename(place, f"{FOLDER}/socket")
    listening.settimeout(IDLE_S)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for forks
    gc.freeze()  # what is here now is not copied by each fork's collector
    while True:
        try:
            asked, _ = listening.accept()
        except TimeoutError:
            if os.path.exists(f"{FOLDER}/socket") and os.stat(f"{FOLDER}/socket").st_ino == own:
                continue
            return
        if os.fork():
            asked.close()
            continue
        listening.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = 1
        try:
            asked.settimeout(None)
            code = run(asked, there)
        finally:
            count()
            asked.sendall(bytes([code & 0xFF]))
            os._exit(code & 0xFF)


def count() -> None:
    """Add what this module took of the processors to what tools/host.py reads: no other process counts a fork."""
    import time

    of_children = os.times()
    used = time.process_time() + of_children.children_user + of_children.children_system
    try:
        with open(f"{FOLDER}/cpu", "a") as file:
            file.write(f"{used:.3f}\n")
    except OSError:  # a full disk is what some modules are about
        return


def run(asked: object, there: dict[str, int]) -> int:
    """In a fork: become what the client is, and run its script as Python runs what it reads; the exit code."""
    import array
    import atexit
    import signal
    import time
    import types

    size, rights, _, _ = asked.recvmsg(4, 64)  # type: ignore[attr-defined]
    told = b""
    while len(told) < int.from_bytes(size, "big"):
        told += asked.recv(1 << 16)  # type: ignore[attr-defined]
    environment, folder, umask = marshal.loads(told)
    for own, given in enumerate(array.array("i", rights[0][2])):
        os.dup2(given, own)
        os.close(given)
    os.environb.clear()
    os.environb.update(environment)
    os.chdir(folder)
    os.umask(umask)
    time.tzset()
    with open(0, "rb", closefd=False) as file:
        script = file.read().decode()
    has = common(archive_of(script))
    if all(there[name] == checksum for name, checksum in has.items() if name in there):
        for name, module in list(sys.modules.items()):
            if name.startswith(OURS) and hasattr(module, "__path__"):
                module.__path__ = Here(name)
    else:
        os.kill(os.getppid(), signal.SIGTERM)  # the checkout is another by now
        for name in [name for name in sys.modules if name == OURS[0] or name.startswith(OURS[1])]:
            del sys.modules[name]
    sys.argv, sys.path[:0] = [""], [""]
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    code = 0
    try:
        exec(compile(script, "<stdin>", "exec"), main.__dict__)  # noqa: S102
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 (as Python does with what nobody caught)
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    serve()
else:
    taken_over()
