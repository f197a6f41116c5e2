"""A real Chromium without a window, driven over its debugging pipe: no port, no driver package, a fresh profile."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page: commands go in, answers and events come out; ``problems`` collects what its console complains about."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], 60)
            piece = os.read(self._in, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("Chromium went away or does not answer")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def open(self, path: Path | str, *, width: int, scheme: str = "light", height: int = 900) -> None:
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    @property
    def problems(self) -> list[str]:
        """Errors and exceptions of the console, and every request for anything but the file itself."""
        self.value("1")
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
                found.append(str(params["args"]))
            elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
                found.append("requests " + params["request"]["url"])
        return found

    def picture(self, path: Path | str, *, full: bool = False) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full, **self._clip(full))["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def _clip(self, full: bool) -> dict[str, Any]:
        if not full:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}


@contextmanager
def chromium(binary: str) -> Iterator[Page]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        # The browser takes its commands from descriptor 3 and answers on 4.
        shell = 'exec "$0" "$@" 3<&"$IN" 4>&"$OUT"'
        process = subprocess.Popen(
            ["bash", "-c", shell, binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            env={**os.environ, "IN": str(read_in), "OUT": str(write_out)},
            pass_fds=(read_in, write_out),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(read_in)
        os.close(write_out)
        try:
            yield Page(write_in, read_out)
        finally:
            os.close(write_in)
            os.close(read_out)
            process.terminate()
            process.wait(30)
