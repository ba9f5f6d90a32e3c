"""curl against a running server: headers, streams, a wrong method, a body that ends early, a range of sizes."""
import json
import re
import shutil
import subprocess
import sys
import unittest

from server import SKIPPED, ServerTest

CHAT = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 12, "temperature": 0, "ignore_eos": True,
        "thinking": {"type": "disabled"}}


class Curl(ServerTest):
    def curl(self, path, *arguments, body=None, status=200):
        """Headers (lower case) and body of a reply that must have this status."""
        given = []
        if body is not None:
            given = ["--data-binary", "@-"]
            if not any("Content-Type" in argument for argument in arguments):
                given += ["-H", "Content-Type: application/json"]
        done = subprocess.run(["curl", "-sS", "-i", "--max-time", "60", *given, *arguments, self.server.url + path],
                              input=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(), capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        replies = re.split(rb"\r\n\r\n", done.stdout)
        while replies[0].startswith(b"HTTP/1.1 100"):
            replies.pop(0)
        head, *rest = replies
        first, *lines = head.decode().split("\r\n")
        self.assertEqual(int(first.split()[1]), status, done.stdout)
        return dict(line.lower().split(": ", 1) for line in lines), b"\r\n\r\n".join(rest).decode()

    def test_the_page(self):
        headers, body = self.curl("/")
        self.assertTrue(headers["content-type"].startswith("text/html"))
        self.assertIn("default-src 'none'", headers["content-security-policy"])
        self.assertEqual(headers["x-content-type-options"], "nosniff")
        for path in re.findall(r'(?:src|href)="([^"#]+)"', body):
            self.curl("/" + path)
        self.curl("/", "-H", f"If-None-Match: {headers['etag']}", status=304)

    def test_chat_whole_and_streamed(self):
        whole = json.loads(self.curl("/v1/chat/completions", body=CHAT)[1])
        headers, text = self.curl("/v1/chat/completions", "-N", body={**CHAT, "stream": True})
        self.assertTrue(headers["content-type"].startswith("text/event-stream"))
        self.assertEqual(headers["cache-control"], "no-cache")
        events = text.split("\n\n")
        self.assertEqual(events[-2:], ["data: [DONE]", ""])
        chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
        self.assertEqual("".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks), whole["choices"][0]["message"]["content"])

    def test_small_questions(self):
        self.curl("/health")
        self.assertTrue(json.loads(self.curl("/version")[1])["version"])
        self.assertIn("vllm:num_requests_running", self.curl("/metrics")[1])
        self.assertIn("pages", json.loads(self.curl("/debug/cache_stats")[1]))
        tokens = json.loads(self.curl("/tokenize", body={"prompt": "naïve 日本語 🙂"})[1])["tokens"]
        self.assertEqual(json.loads(self.curl("/detokenize", body={"tokens": tokens})[1])["prompt"].removeprefix("<｜begin▁of▁sentence｜>"), "naïve 日本語 🙂")

    def test_what_is_refused(self):
        for arguments, body, status in (
                (["-X", "PUT"], CHAT, 405), ([], b"{", 400), ([], b"\xff\xfe", 400), ([], b'{"messages": ' + b"[" * 5000, 400),
                (["-H", "Content-Type: text/plain"], CHAT, 415), ([], {"messages": "hello"}, 400)):
            with self.subTest(arguments=arguments, status=status):
                reply = json.loads(self.curl("/v1/chat/completions", *arguments, body=body, status=status)[1])
                self.assertEqual(reply["error"]["code"], status)
                self.assertTrue(reply["error"]["message"])
        self.curl("/nothing/here", status=404)
        self.curl("/health")

    def test_a_large_body_and_a_compressed_reply_are_no_trouble(self):
        long = {**CHAT, "messages": [{"role": "user", "content": "word " * 100_000}]}
        self.assertIn("maximum context length", self.curl("/v1/chat/completions", body=long, status=400)[1])
        self.curl("/v1/models", "--compressed", "--http1.0")

    def test_one_connection_serves_many_requests(self):
        done = subprocess.run(["curl", "-sS", "-v", *[self.server.url + "/v1/models"] * 5], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall("Re-using existing connection", done.stderr)), 4)


if __name__ == "__main__":
    if shutil.which("curl") is None:
        print("skipped: there is no curl here (scripts/setup clients installs it)", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()
