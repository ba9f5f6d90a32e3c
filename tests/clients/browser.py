"""A headless Chromium, driven over its DevTools protocol."""
import base64
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import websocket  # websocket-client


class BrowserError(Exception):
    """The page, or the browser, reports an error."""


class Browser:
    """One page in a browser of its own. Errors of the page (exceptions, refused resources) are kept in `problems`."""

    def __init__(self, width=1280, height=860, dark=False):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise BrowserError("there is no chromium here (scripts/setup clients installs it)")
        # Its helper processes write for a moment after it has ended.
        self.profile = tempfile.TemporaryDirectory(prefix="folio-browser-", ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
             "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={self.profile.name}",
             "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.socket = websocket.create_connection(self._page_address(), timeout=30, suppress_origin=True)
        self.sent = 0
        self.problems = []
        self.requested = []  # the address of everything that the page asked for
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.colours("dark" if dark else "light")

    def _page_address(self):
        port_file = pathlib.Path(self.profile.name) / "DevToolsActivePort"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise BrowserError(f"chromium ended with status {self.process.returncode}")
            if port_file.exists() and len(port_file.read_text().split()) == 2:
                break
            time.sleep(0.05)
        port, browser = port_file.read_text().split()
        whole = websocket.create_connection(f"ws://127.0.0.1:{port}{browser}", timeout=30, suppress_origin=True)
        whole.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
        targets = json.loads(whole.recv())["result"]["targetInfos"]
        whole.close()
        page = next(target for target in targets if target["type"] == "page")
        return f"ws://127.0.0.1:{port}/devtools/page/{page['targetId']}"

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    def call(self, method, **params):
        """Calls a method of the protocol and returns its result."""
        self.sent += 1
        self.socket.send(json.dumps({"id": self.sent, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.sent:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._note(message)

    def colours(self, scheme):
        """Sets what the system prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script):
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def wait(self, condition, seconds=60):
        """Waits until a JavaScript expression is true, and returns its value."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = self.run(condition)
            if value:
                return value
            time.sleep(0.05)
        raise BrowserError(f"not true after {seconds} s: {condition}")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def click(self, selector):
        """Clicks with the mouse in the middle of an element, so a covered or hidden one is not clicked."""
        box = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
                       " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text):
        """Types into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, code=None, alt=False, shift=False):
        """Presses one key."""
        text = "\r" if key == "Enter" else key if len(key) == 1 and not alt else None
        virtual = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37}.get(key, ord(key[0].upper()))
        common = {"key": key, "code": code or key, "windowsVirtualKeyCode": virtual,
                  "modifiers": (1 if alt else 0) | (8 if shift else 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=20)
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()
