"""`folio bench serve` against a server of known behaviour, which writes its streams as awkwardly as the standard allows."""
import http.server
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

FOLIO = os.environ["FOLIO"]
FIRST, BETWEEN = 0.060, 0.015  # seconds


class Awkward(http.server.BaseHTTPRequestHandler):
    """Chats and completions of so many events as `max_tokens` says, every fourth prompt token cached."""
    protocol_version = "HTTP/1.1"
    seen = []
    connections = 0
    refuse = None

    def log_message(self, *unused):
        pass

    def setup(self):
        super().setup()
        Awkward.connections += 1

    def send(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.send(200, {"data": [{"id": "awkward"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = self.path.endswith("/chat/completions")
        text = " ".join(m["content"] for m in body["messages"]) if chat else body["prompt"]
        words = len(text.split())
        self.seen.append({**body, "key": self.headers.get("Authorization"), "path": self.path, "words": words, "text": text})
        usage = {"prompt_tokens": 7 + 2 * words, "completion_tokens": body["max_tokens"],
                 "prompt_tokens_details": {"cached_tokens": (7 + 2 * words) // 4}}
        if not body["stream"]:
            return self.send(200, {"choices": [], "usage": usage})
        if self.refuse == "status":
            return self.send(429, {"error": {"message": "the queue is full"}})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.write(": a comment\r\n\r\n", self.event(chat, ""))
        time.sleep(FIRST)
        for i in range(body["max_tokens"]):
            if i > 0:
                time.sleep(BETWEEN)
            if self.refuse == "reset" and i == 1:
                return self.connection.shutdown(socket.SHUT_RDWR)
            self.write(self.event(chat, f'"content": "{i}'))  # text that looks like a field
        self.write("data: " + json.dumps({"choices": [], "usage": usage}) + "\n\n")
        self.write("data: [DO", "NE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    @staticmethod
    def event(chat, text):
        choice = {"delta": {"content": text}} if chat else {"text": text}
        whole = json.dumps({"choices": [{"index": 0, **choice}]}, separators=(",", ":") if len(text) % 2 else None)
        return f"id: 1\r\ndata: {whole}\r\n\r\n"

    def write(self, *texts):
        """Each event in two chunks, cut in its middle."""
        for text in texts:
            half = len(text) // 2
            for part in (text[:half], text[half:]):
                self.wfile.write(f"{len(part):x}\r\n{part}\r\n".encode())
                self.wfile.flush()


class BenchServe(unittest.TestCase):
    def setUp(self):
        # Clients here leave in the middle on purpose.
        http.server.ThreadingHTTPServer.handle_error = lambda *unused: None
        Awkward.seen, Awkward.connections, Awkward.refuse = [], 0, None
        http.server.ThreadingHTTPServer.request_queue_size = 256
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Awkward)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    def bench(self, *arguments, status=0, url=None, **environment):
        done = subprocess.run([FOLIO, "bench", "serve", "--url", url or self.url, *map(str, arguments)],
                              capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def report(self, *arguments, **keywords):
        return json.loads(self.bench(*arguments, "--json", **keywords).stdout)

    def streamed(self):
        return [body for body in Awkward.seen if body["stream"]]

    def test_times_and_counts_are_those_of_the_server(self):
        report = self.report("--concurrency", 1, "--requests", 3, "--answer", 9, "--prompt", 50)
        level = report["levels"][0]
        self.assertEqual(report["model"], "awkward")
        self.assertEqual((level["answered"], level["failed"], level["output_tokens"]), (3, 0, 27))
        self.assertEqual(level["itl_seconds"]["count"], 3 * 8)
        # The server sleeps at least so long; it may sleep longer on a busy machine.
        self.assertGreaterEqual(level["ttft_seconds"]["p50"], FIRST)
        self.assertGreaterEqual(level["tpot_seconds"]["p50"], BETWEEN)
        self.assertLess(level["ttft_seconds"]["p50"], 1)
        self.assertGreaterEqual(level["latency_seconds"]["p50"], FIRST + 8 * BETWEEN)
        self.assertAlmostEqual(level["output_tokens_per_second"], 27 / level["seconds"])

    def test_prompts_are_as_long_as_asked_for_by_the_server_s_own_count(self):
        for endpoint in ("chat", "completions"):
            self.report("--concurrency", 1, "--requests", 2, "--answer", 1, "--prompt", 100, "--endpoint", endpoint)
            self.assertEqual([body["words"] for body in self.streamed()[-2:]], [50, 50])  # two tokens a word
        first, second = self.streamed()[:2]
        self.assertNotEqual(first["text"], second["text"])

    def test_requests_say_what_was_asked_for(self):
        self.report("--concurrency", 1, "--requests", 1, "--answer", 2, "--extra", '{"top_k": 3, "temperature": 0.5}',
                    "--api-key", "one", url=self.url + "/v1/")
        body = self.streamed()[0]
        self.assertEqual((body["key"], body["path"], body["top_k"], body["temperature"], body["ignore_eos"]),
                         ("Bearer one", "/v1/chat/completions", 3, 0.5, True))
        self.report("--requests", 1, "--concurrency", 1, "--answer", 1, "--no-ignore-eos", OPENAI_API_KEY="two",
                    url=self.url + "/behind/v1")
        body = self.streamed()[1]
        self.assertEqual((body["key"], body["path"], "ignore_eos" in body),
                         ("Bearer two", "/behind/v1/chat/completions", False))

    def test_a_seed_repeats_the_prompts(self):
        texts = []
        for seed in (5, 5, 6):
            self.report("--concurrency", 1, "--requests", 1, "--answer", 1, "--seed", seed)
            texts.append(self.streamed()[-1]["text"])
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_levels_and_connections(self):
        report = self.report("--concurrency", "1,6", "--answer", 3, "--ramp", 0.01)
        self.assertEqual([(level["concurrency"], level["answered"]) for level in report["levels"]], [(1, 4), (6, 24)])
        # The list of models, two measurements of words, and one a worker: connections are kept.
        self.assertEqual(Awkward.connections, 3 + 1 + 6)
        self.assertLess(report["levels"][1]["seconds"], 4 * report["levels"][0]["seconds"])

    def test_arrivals_at_a_rate(self):
        level = self.report("--rate", 40, "--requests", 20, "--concurrency", 100, "--answer", 2)["levels"][0]
        self.assertEqual(level["answered"], 20)
        self.assertGreater(level["seconds"], 0.15)  # the mean is half a second

    def test_shared_prefixes(self):
        self.report("--workload", "shared-prefix", "--groups", 2, "--prefix", 80, "--prompt", 20, "--requests", 12,
                    "--concurrency", 1, "--answer", 1)
        prefixes = {" ".join(body["text"].split()[:40]) for body in self.streamed()}
        self.assertEqual(len(prefixes), 2)
        self.assertEqual(len({body["text"] for body in self.streamed()}), 12)

    def test_an_agent_s_turns_hold_all_before_them(self):
        report = self.report("--workload", "agent", "--turns", 3, "--requests", 2, "--concurrency", 1, "--answer", 2,
                             "--prefix", 20, "--prompt", 10)
        self.assertEqual(len(report["levels"][0]["ttft_seconds_of_turn"]), 3)
        turns = self.streamed()[:3]
        roles = [[message["role"] for message in body["messages"]] for body in turns]
        self.assertEqual(roles[2], ["system", "user", "assistant", "user", "assistant", "user"])
        for before, after in zip(turns, turns[1:]):
            self.assertEqual(after["messages"][:len(before["messages"])], before["messages"])
        self.assertEqual(turns[1]["messages"][2]["content"], '"content": "0"content": "1')

    def test_lateness_is_against_the_schedule(self):
        level = self.report("--concurrency", 1, "--requests", 1, "--answer", 20, "--event-interval", 1000 * BETWEEN)["levels"][0]
        self.assertEqual(level["late_seconds"]["count"], 20)
        slow = self.report("--concurrency", 1, "--requests", 1, "--answer", 20, "--event-interval", 5)["levels"][0]
        self.assertGreaterEqual(slow["late_seconds"]["max"], 19 * (BETWEEN - 0.005))

    def test_failures_are_counted_by_reason(self):
        Awkward.refuse = "status"
        done = self.bench("--concurrency", 2, "--requests", 4, status=1)
        self.assertIn("failed 4 times: 429: the queue is full", done.stdout)
        self.assertIn("no request was answered", done.stderr)
        Awkward.refuse = "reset"
        done = self.bench("--concurrency", 1, "--requests", 1, "--answer", 5, status=1)
        self.assertIn("failed 1 times:", done.stdout)

    def test_disturbing_connections_are_made(self):
        before = Awkward.connections
        level = self.report("--concurrency", 1, "--requests", 2, "--answer", 2, "--slow-readers", 3, "--half-open", 4)["levels"][0]
        self.assertEqual((level["answered"], level["failed"]), (2, 0))
        self.assertEqual(Awkward.connections - before, 3 + 1 + 7)
        self.assertEqual(len([body for body in self.streamed() if body["max_tokens"] == 100000]), 3)

    @unittest.skipUnless(shutil.which("openssl"), "no openssl command here")
    def test_https(self):
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = os.path.join(folder, "key.pem"), os.path.join(folder, "certificate.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            port = self.server.server_port
            small = ("--concurrency", 2, "--requests", 4, "--answer", 3)
            for url, trust in ((f"https://localhost:{port}", ("--ca-file", certificate)), (f"https://127.0.0.1:{port}/v1", ("--insecure",))):
                level = self.report(*small, *trust, url=url)["levels"][0]
                self.assertEqual((level["answered"], level["failed"], level["output_tokens"]), (4, 0, 12))
            for url, trust in ((f"https://localhost:{port}", ()), (f"https://127.0.0.1:{port}", ("--ca-file", certificate))):  # not vouched for; another name
                self.assertIn("certificate verify failed", self.bench(*small, *trust, url=url, status=1).stderr)

    def test_a_silent_server_is_given_up(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            done = self.bench("--timeout", 0.3, url=f"http://127.0.0.1:{silent.getsockname()[1]}", status=1)
            self.assertIn("timed out", done.stderr)

    def test_chart(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "chart.svg"
            self.bench("--concurrency", "1,2", "--requests", 2, "--answer", 3, "--chart", path)
            root = xml.etree.ElementTree.parse(path).getroot()
            self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}path")), 6)
            self.bench("--concurrency", 1, "--requests", 1, "--chart", pathlib.Path(folder) / "no" / "chart.svg", status=2)

    def test_bad_use_is_refused(self):
        for arguments, says in (
                (["--url", "127.0.0.1:8000"], "does not begin with http://"),
                (["--url", "https://127.0.0.1:8000", "--ca-file", "nothing.pem"], "--ca-file nothing.pem"),
                (["--url", "https://127.0.0.1:8000", "--slow-readers", "1"], "over http:// alone"),
                (["--url", "http://127.0.0.1:notaport"], "notaport"),
                (["--extra", "[1]"], "is no JSON object"),
                (["--workload", "other"], "other"),
                (["--concurrency", "0"], "0")):
            done = subprocess.run([FOLIO, "bench", "serve", *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(says, done.stderr)
        done = subprocess.run([FOLIO, "bench", "serve", "--url", "http://127.0.0.1:9"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is the server up?", done.stderr)


if __name__ == "__main__":
    unittest.main()
