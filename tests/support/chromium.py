"""A real Chromium without a window: pages as it builds them, and tabs that a test drives."""

import base64
import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from urllib.request import Request, urlopen

from support.patience import PATIENCE_SECONDS
from websocket import create_connection


def dom(address, profile):
    """Return the page of an address after its scripts, as HTML; profile: a folder for the browser's own files."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    call = ["chromium", *options, "--virtual-time-budget=5000", "--dump-dom", address]
    return subprocess.run(call, capture_output=True, text=True, check=True, timeout=120).stdout


class Tab:
    """A page in a running Chromium, driven over its DevTools protocol."""

    def __init__(self, port, dark=False):
        opened = json.loads(_http(port, "/json/new?about:blank", "PUT"))
        self._socket = create_connection(opened["webSocketDebuggerUrl"], timeout=60, suppress_origin=True)
        self._number, self.problems = 0, []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.dark(dark)

    def call(self, method, **parameters):
        """Send a command and return its result; errors of the page are kept in `problems`."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv())
            if told.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(told["params"])
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]

    def open(self, address):
        """Load a page, and wait until its script has come to its end."""
        self.call("Page.navigate", url=address)
        self.until("document.body && document.body.dataset.ready === 'yes'")

    def value(self, expression):
        """Return the value of a JavaScript expression, of a promise when it is settled."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.value(expression):
            shown = self.value("document.body.innerText.slice(0, 2000)")
            assert time.monotonic() < deadline, (expression, shown, self.problems)
            time.sleep(0.05)

    def text(self, selector):
        """Return the text of an element."""
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def key(self, key, text=""):
        """Press and release a key."""
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowDown": 40}[key]
        given = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def dark(self, wanted):
        """Ask for dark or light colours."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, target, width=1280, height=1500):
        """Write what the page looks like as a PNG."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        target.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        """Close the connection."""
        self._socket.close()


@contextmanager
def chromium(profile):
    """Give a function that opens a tab in a Chromium of its own; profile: a folder for the browser's own files."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    tabs = []
    with subprocess.Popen(["chromium", *options], start_new_session=True, **quiet) as process:
        try:
            port = _debugging_port(profile / "DevToolsActivePort", process)

            def tab(**settings):
                tabs.append(Tab(port, **settings))
                return tabs[-1]

            yield tab
        finally:
            for each in tabs:
                each.close()
            os.killpg(process.pid, signal.SIGKILL)


def _debugging_port(file, process):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        lines = file.read_text().split() if file.exists() else []
        if len(lines) > 1:
            return int(lines[0])
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def _http(port, path, method):
    asked = Request(f"http://127.0.0.1:{port}{path}", method=method)
    with urlopen(asked, timeout=60) as answer:
        return answer.read()
