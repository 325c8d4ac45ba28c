"""Chromium without a window, spoken to through a pipe."""

import base64
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

__all__ = ["CHROMIUM", "Browser", "Tab"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next((found for name in _NAMES if (found := shutil.which(name))), None)
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--mute-audio"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe"),
)
_PATIENCE = 60.0  # seconds
_READY = "document.documentElement?.dataset.ready === 'yes'"


class Tab:
    """A page that is shown.

    Attributes:
        problems: What its scripts threw and what the browser logged: errors, and what the page's policy forbade.
        requests: Addresses that it asked for.
    """

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser = browser
        self._session = session
        self.problems: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Call a method of Chromium's protocol."""
        return self._browser.call(method, values, self._session)

    def run(self, script: str) -> Any:
        """Return what a script evaluates to; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a script evaluates to true."""
        end = time.monotonic() + _PATIENCE
        while not self.run(condition):
            assert time.monotonic() < end, f"not within {_PATIENCE} s: {condition}"
            time.sleep(0.02)

    def go(self, address: str, ready: str) -> None:
        """Show another page, and wait until a script says that it is ready."""
        self.call("Page.navigate", url=address)
        self.wait_for(ready)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page another size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def save_picture(self, path: Path) -> None:
        """Save what the whole page looks like."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))


class Browser:
    """A process of Chromium."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]
        nowhere = os.open(os.devnull, os.O_RDWR)
        # Chromium reads commands from file 3 and writes answers to file 4.
        places = [(nowhere, 1), (nowhere, 2), (ends[0], 3), (ends[1], 4)]
        actions = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in places]
        words = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}"]
        self._process = os.posix_spawn(CHROMIUM, words, os.environ, file_actions=actions)
        for end in (commands, answers, *ends, nowhere):
            os.close(end)
        self._rest = b""
        self._count = 0
        self._tabs: dict[str, Tab] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._from)

    def open(self, address: str, *, width: int = 1400, dark: bool = False, ready: str = _READY) -> Tab:
        """Open a page, and wait until a script says that it is ready."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.go(address, ready)
        return tab

    def call(self, method: str, values: Mapping[str, Any], session: str | None = None) -> dict[str, Any]:
        """Call a method of the protocol, and note what pages report meanwhile."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": values}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("sessionId") in self._tabs:
                _note(self._tabs[answer["sessionId"]], answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 20)
            assert part, "Chromium ended"
            self._rest += part
        line, self._rest = self._rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer


def _note(tab: Tab, event: Mapping[str, Any]) -> None:
    values = event["params"]
    if event["method"] == "Runtime.exceptionThrown":
        tab.problems.append(json.dumps(values["exceptionDetails"]))
    elif event["method"] == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
        tab.problems.append(values["entry"]["text"])
    elif event["method"] == "Runtime.consoleAPICalled":
        tab.problems.append(json.dumps(values["args"]))
    elif event["method"] == "Network.requestWillBeSent":
        tab.requests.append(values["request"]["url"])
