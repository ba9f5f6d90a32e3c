"""A `folio serve` of its own for each test class, and what the tests of clients share."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

FOLIO = os.environ["FOLIO"]
SKIPPED = 77  # to ctest: this suite has skipped itself


def need(*packages):
    """Ends the suite as skipped, saying so, if one of the client packages is not installed."""
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            print(f"skipped: {error} (scripts/setup clients installs it)", file=sys.stderr)
            sys.exit(SKIPPED)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def use_noise():
    """Makes a small random model the default one of folio: it writes on and on, as these tests want."""
    directory = os.path.join(tempfile.gettempdir(), f"folio-noise-{os.getuid()}")
    if not os.path.exists(os.path.join(directory, "config.json")):
        with tempfile.TemporaryDirectory(dir=os.path.dirname(directory)) as partial:
            path = os.path.join(partial, "model")
            subprocess.run([FOLIO, "make-checkpoint", "--preset", "mini", "--seed", "1", "--out", path], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                os.rename(path, directory)
            except OSError:  # another suite was faster
                pass
    os.environ["FOLIO_MODEL"] = directory


use_noise()


class Server:
    """A running server on the random model of use_noise(), or on the one that the flags name."""

    def __init__(self, *flags, environment=None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [FOLIO, "serve", "--port", str(self.port), *map(str, flags)], stderr=self.log, stdout=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})})
        deadline = time.monotonic() + 300  # the default model may have to be made first
        while True:
            try:
                if self.get("/health")[0] == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"folio serve did not come up:\n{self.output()}")
            time.sleep(0.05)

    def output(self):
        """What the server has written to stderr so far."""
        if not self.log.closed:
            self.log.seek(0)
            self.text = self.log.read()
        return self.text

    def get(self, path, key=None):
        """Status and text of a GET."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {key}"} if key else {})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path, body):
        """The JSON reply to a POST that succeeds."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.load(reply)

    def metric(self, name):
        """The sum of a metric over its labels."""
        found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        if not found:
            raise KeyError(name)
        return sum(map(float, found))

    def wait_for(self, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not true after {seconds} s")
            time.sleep(0.05)

    def memory(self):
        """Bytes of memory that the server holds by itself, without mapped files."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return 1024 * int(re.search(r"RssAnon:\s+(\d+)", status.read()).group(1))

    def stop(self):
        """Ends the server as an init system does. It must then end well."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.output()
        self.log.close()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()


class ServerTest(unittest.TestCase):
    """Tests of one client against one server, `self.server`, that runs with `flags`."""
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", 4096, *cls.flags)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, f"folio serve ended with status {status}:\n{cls.server.output()}"

    def assert_idle(self):
        """Nothing runs, waits or holds a page any more."""
        idle = ("vllm:num_requests_running", "vllm:num_requests_waiting", "folio:pages_used", "folio:state_slots_used")
        self.server.wait_for(lambda: all(self.server.metric(name) == 0 for name in idle))
