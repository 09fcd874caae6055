"""A real browser that shows a page: Chromium over its debugging pipe, so nothing is installed or listened on."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

_ANSWER_S = 60


class Browser:
    """One tab. Raises OSError where Chromium ended."""

    def __init__(self, program: str, folder: Path) -> None:
        to_it, ours = os.pipe(), os.pipe()
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        shell = f'exec "$@" 3<&{to_it[0]} 4>&{ours[1]}'  # the browser reads from 3 and writes to 4
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", program, *words, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_it[0], ours[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it[0])
        os.close(ours[1])
        self._to, self._from = os.fdopen(to_it[1], "wb"), os.fdopen(ours[0], "rb")
        self._number, self._session, self._rest = 0, "", b""
        tab = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        self._ask("Page.enable")

    def show(self, page: Path, *, width: int, height: int, dark: bool) -> None:
        """Open a file at this size, in pixels of CSS."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=page.as_uri())
        self._until("Page.loadEventFired")

    def ask(self, script: str) -> Any:
        """The value of an expression of JavaScript; the page's own policy does not apply to it."""
        return self._ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def picture(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=_ANSWER_S)
        self._to.close()
        self._from.close()

    def _ask(self, method: str, **words: object) -> dict[str, Any]:
        self._number += 1
        told = {"id": self._number, "method": method, "params": words}
        if self._session:
            told["sessionId"] = self._session
        self._to.write(json.dumps(told).encode() + b"\0")
        self._to.flush()
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result

    def _until(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._from.read1(1 << 16)
            if not more:
                raise OSError("the browser ended")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        said: dict[str, Any] = json.loads(line)
        return said


def browser() -> Browser:
    """A browser of its own profile; skips the test where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed here")
    return Browser(program, Path(tempfile.mkdtemp(prefix="vllm-doctor-browser-")))
