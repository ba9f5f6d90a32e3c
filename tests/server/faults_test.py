"""What `folio serve` does with requests that are wrong, too large, too slow or cut off: the right status, the right
shape, and a server that is as good as before."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))
from server import FOLIO, Server  # noqa: E402

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
USER = [{"role": "user", "content": "x"}]
TOOL = {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": {}}}}
LONG = {"prompt": "a", "max_tokens": 3000, "ignore_eos": True}
_model = tempfile.TemporaryDirectory()
MODEL = os.path.join(_model.name, "nano")
FLAGS = ("--model", MODEL, "--no-thinking", "--max-model-len", 4096)


def setUpModule():
    subprocess.run([FOLIO, "make-checkpoint", "--preset", "nano", "--seed", "3", "--out", MODEL], check=True,
                   capture_output=True)


def chat(**fields):
    return {"messages": USER, "max_tokens": 4, **fields}


def text(**fields):
    return {"prompt": "ab", "max_tokens": 4, **fields}


def message(**fields):
    return {"messages": USER, "max_tokens": 4, **fields}


def nested(depth):
    return b'{"prompt": "a", "x": ' + b"[" * depth + b"]" * depth + b"}"


# (path, body, status, words of the message or None). A body is JSON, or bytes as they are.
REFUSED = [
    # JSON that is none
    (CHAT, b"", 400, None),
    (CHAT, b"{", 400, None),
    (CHAT, b"nonsense", 400, None),
    (CHAT, b"[1]", 400, "object"),
    (CHAT, b'"text"', 400, "object"),
    (CHAT, b"null", 400, "object"),
    (CHAT, b'{"messages": [}', 400, None),
    (CHAT, b'{"messages": []} trailing', 400, None),
    (CHAT, b"{'messages': []}", 400, None),
    (CHAT, b'{"prompt": NaN}', 400, None),
    (TEXT, b'{"prompt": "a", "temperature": Infinity}', 400, None),
    (TEXT, b'{"prompt": "a\xff"}', 400, "UTF-8"),
    (TEXT, b'{"prompt": "\xc3("}', 400, "UTF-8"),
    (TEXT, b'{"prompt": "\xed\xa0\x80"}', 400, "UTF-8"),
    (TEXT, b'\xef\xbb\xbf{"prompt"', 400, None),
    (TEXT, nested(129), 400, None),
    (TEXT, nested(100000), 400, None),
    (TEXT, b'{"prompt": "a", "x": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}", 400, None),
    # wrong types
    (CHAT, {"messages": "hello"}, 400, "messages"),
    (CHAT, {"messages": [5]}, 400, "messages[0]"),
    (CHAT, {"messages": [{"role": 5, "content": "x"}]}, 400, "role"),
    (CHAT, {"messages": [{"role": "user", "content": {"a": 1}}]}, 400, "content"),
    (CHAT, chat(temperature="hot"), 400, "temperature"),
    (CHAT, chat(temperature=True), 400, "temperature"),
    (CHAT, chat(max_tokens="4"), 400, "max_tokens"),
    (CHAT, chat(max_tokens=2.5), 400, "max_tokens"),
    (CHAT, chat(stream="yes"), 400, "stream"),
    (CHAT, chat(stop=5), 400, "stop"),
    (CHAT, chat(stop=[5]), 400, "stop"),
    (CHAT, chat(logit_bias=[1]), 400, "logit_bias"),
    (CHAT, chat(tools="all"), 400, "tools"),
    (CHAT, chat(tools=[{"type": "function"}]), 400, "tools[0]"),
    (CHAT, chat(n="2"), 400, "`n`"),
    (TEXT, {"prompt": 5, "max_tokens": 4}, 400, "prompt"),
    (TEXT, {"prompt": [5, "a"], "max_tokens": 4}, 400, "prompt"),
    (TEXT, {"prompt": [[5], {"a": 1}], "max_tokens": 4}, 400, "prompt"),
    (TEXT, {"prompt": [5.5], "max_tokens": 4}, 400, "prompt"),
    ("/tokenize", {"prompt": 5}, 400, "prompt"),
    ("/detokenize", {"tokens": "5"}, 400, "tokens"),
    # huge numbers
    (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 99999999999999999999999}', 400, "max_tokens"),
    (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}', 400, "temperature"),
    (CHAT, chat(max_tokens=9223372036854775807), 400, "maximum context length"),
    (CHAT, chat(seed=1 << 63), 400, "seed"),
    (CHAT, chat(seed=-(1 << 63) - 1), 400, "seed"),
    (CHAT, chat(n=10**9), 400, "`n`"),
    (CHAT, chat(top_k=1 << 40), 400, "top_k"),
    (TEXT, {"prompt": [4294967296], "max_tokens": 4}, 400, "prompt"),
    (TEXT, {"prompt": [-1], "max_tokens": 4}, 400, "prompt"),
    (TEXT, {"prompt": [5, 512], "max_tokens": 4}, 400, "512"),
    ("/detokenize", {"tokens": [1 << 40]}, 400, "tokens"),
    ("/detokenize", {"tokens": [512]}, 400, "512"),
    # out of range
    (CHAT, chat(temperature=-1), 400, "temperature"),
    (CHAT, chat(temperature=2.5), 400, "temperature"),
    (CHAT, chat(top_p=0), 400, "top_p"),
    (CHAT, chat(top_p=1.5), 400, "top_p"),
    (CHAT, chat(min_p=-0.1), 400, "min_p"),
    (CHAT, chat(presence_penalty=3), 400, "presence_penalty"),
    (CHAT, chat(frequency_penalty=-3), 400, "frequency_penalty"),
    (CHAT, chat(repetition_penalty=0), 400, "repetition_penalty"),
    (CHAT, chat(max_tokens=0), 400, "max_tokens"),
    (CHAT, chat(n=0), 400, "`n`"),
    (CHAT, chat(logit_bias={"512": 1}), 400, "logit_bias"),
    (CHAT, chat(logit_bias={"5": 101}), 400, "logit_bias"),
    (CHAT, chat(logit_bias={"five": 1}), 400, "logit_bias"),
    (CHAT, chat(stop_token_ids=[512]), 400, "stop_token_ids"),
    (CHAT, chat(top_logprobs=21, logprobs=True), 400, "top_logprobs"),
    (CHAT, chat(min_tokens=5), 400, "min_tokens"),
    (CHAT, chat(reasoning_effort="medium-rare"), 400, "reasoning_effort"),
    (CHAT, chat(allowed_token_ids=[]), 400, "allowed_token_ids"),
    (TEXT, text(logprobs=21), 400, "logprobs"),
    (TEXT, text(max_tokens=0), 400, "max_tokens"),
    # missing or contradictory
    (CHAT, {"model": None}, 400, "messages"),
    (CHAT, {"messages": []}, 400, "messages"),
    (CHAT, {"messages": [{"role": "banana", "content": "x"}]}, 400, "banana"),
    (CHAT, chat(stream_options={"include_usage": True}), 400, "stream_options"),
    (CHAT, chat(top_logprobs=3), 400, "top_logprobs"),
    (CHAT, chat(tool_choice="required"), 400, "tool_choice"),
    (CHAT, chat(tool_choice="auto"), 400, "tool_choice"),
    (CHAT, chat(tool_choice="sometimes", tools=[TOOL]), 400, "tool_choice"),
    (CHAT, chat(tools=[], tool_choice="required"), 400, "tool_choice"),
    (CHAT, chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "b"}}), 400, '"b"'),
    (CHAT, chat(response_format={"type": "json_schema"}), 400, "response_format"),
    (CHAT, chat(response_format={"type": "xml"}), 400, "response_format"),
    (CHAT, chat(continue_final_message=True), 400, "continue_final_message"),
    (CHAT, chat(continue_final_message=True, add_generation_prompt=True), 400, "continue_final_message"),
    (CHAT, chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]),
     400, "mages are not supported"),
    (TEXT, {"max_tokens": 4}, 400, "prompt"),
    (TEXT, {"prompt": [], "max_tokens": 4}, 400, "prompt"),
    (TEXT, {"prompt": [[]], "max_tokens": 4}, 400, "prompt"),
    (TEXT, {"prompt_embeds": "AA=="}, 501, "prompt_embeds"),
    (TEXT, text(bad_words="a" * 300), 400, "bad_words"),
    (TEXT, text(bad_words=[5]), 400, "bad_words"),
    (RESPONSES, {"model": "nano", "input": [{"type": "item_reference"}]}, 400, "id"),
    (TEXT, text(priority=1), 400, "priority"),
    (TEXT, text(cache_salt=""), 400, "cache_salt"),
    (CHAT, chat(truncate_prompt_tokens=0), 400, "truncate_prompt_tokens"),
    (CHAT, chat(prompt_logprobs=21), 400, "prompt_logprobs"),
    (CHAT, chat(prompt_logprobs=1, stream=True), 400, "prompt_logprobs"),
    (CHAT, chat(structured_outputs={"grammar": "root ::= 1"}), 400, "grammar"),
    (CHAT, chat(structured_outputs={"regex": "a", "choice": ["a"]}), 400, "structured_outputs"),
    (MESSAGES, {"messages": USER}, 400, "max_tokens: field required"),
    (MESSAGES, message(max_tokens=0), 400, "max_tokens"),
    (MESSAGES, message(messages=[]), 400, "messages"),
    (MESSAGES, message(messages=[{"role": "tool", "content": "x"}]), 400, "role"),
    (MESSAGES, message(tools=[{"type": "web_search_20250305", "name": "web_search"}]), 400, "web_search"),
    (MESSAGES, message(messages=[{"role": "user", "content": [{"type": "video"}]}]), 400, "type"),
    (MESSAGES, b"{", 400, None),
    (RESPONSES, {"model": None}, 400, "input"),
    (RESPONSES, {"input": 5}, 400, "input"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "hologram"}]}]}, 400, "type"),
    (RESPONSES, {"input": "x", "background": True}, 400, "background"),
    (RESPONSES, {"input": "x", "previous_response_id": "resp_none"}, 404, "resp_none"),
    # unknown
    (CHAT, chat(model="x"), 404, "The model `x` does not exist."),
    (TEXT, text(model="x"), 404, "The model `x` does not exist."),
    (MESSAGES, message(model="x"), 404, "The model `x` does not exist."),
    (RESPONSES, {"model": "x", "input": "x"}, 404, "The model `x` does not exist."),
    ("/v1/nothing", {}, 404, "/v1/nothing"),
    # longer than the context
    (CHAT, chat(max_tokens=5000), 400, "This model's maximum context length is 4096 tokens."),
    (CHAT, chat(messages=[{"role": "user", "content": "word " * 6000}]), 400, "This model's maximum context length is"),
    (TEXT, {"prompt": [5] * 4096, "max_tokens": 1}, 400, "This model's maximum context length is"),
    (TEXT, {"prompt": [5] * 4090, "max_tokens": 7}, 400, "you requested 7 output tokens and your prompt contains 4090"),
    (TEXT, {"prompt": "a" * 600000, "max_tokens": 1}, 400, "This model's maximum context length is"),
    (MESSAGES, message(max_tokens=5000), 400, "This model's maximum context length is"),
]

# What looks wrong and is not: (path, body).
ACCEPTED = [
    (CHAT, chat(no_such_field=1)),
    (CHAT, chat(stop=None, tools=None, tool_choice=None, logit_bias=None, seed=None, stream=None)),
    (CHAT, chat(stop=["", None], tools=[], tool_choice="auto", metadata={"a": 1})),
    (CHAT, chat(max_tokens=4.0, seed=-5, top_k=-1)),
    (CHAT, chat(messages=[{"role": "system", "content": [{"type": "text", "text": "s"}]}, *USER])),
    (CHAT, chat(messages=[*USER, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "a", "arguments": {"b": 1}}}]}, {"role": "tool", "content": "r"}])),
    (CHAT, chat(messages=[{"role": "developer", "content": "d"}, {**USER[0], "name": "me", "cache_control": {}}])),
    (CHAT, b'{"messages": [{"role": "user", "content": "first"}], "messages": [{"role": "user", "content": "second"}], "max_tokens": 2}'),
    (CHAT, b'{"max_tokens": 2, "messages": [{"role": "user", "content": "\\ud800 \\u0000 \\ud83d\\ude00"}]}'),
    (CHAT, chat(messages=[{"role": "user", "content": "<\uff5cAssistant\uff5c><think>"}])),
    (CHAT, chat(messages=[*USER, {"role": "assistant", "content": "Yes"}], continue_final_message=True)),
    (CHAT, chat(reasoning_effort="high", thinking={"type": "enabled"})),
    (TEXT, nested(100)),
    (TEXT, text(suffix="c")),
    (TEXT, {"prompt": [[5, 6], [7]], "max_tokens": 1, "echo": True, "logprobs": 1}),
    (TEXT, text(max_tokens=0, echo=True)),
    (TEXT, {"prompt": [5] * 4095, "max_tokens": 1}),
    (MESSAGES, message(system=[{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "s"}])),
    (RESPONSES, {"input": "x", "max_output_tokens": 4, "tools": [{"type": "web_search"}], "include": ["x"]}),
]

# What is no HTTP, and the status that comes back.
RAW = [
    (b"nonsense\r\n\r\n", 400),
    (b"GET\r\n\r\n", 400),
    (b"GET /health HTTP/9.9\r\n\r\n", 400),
    (b"GET health HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nBad Header: x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431),
    (b"GET /health HTTP/1.1\r\n" + b"X: a\r\n" * 10000 + b"\r\n", 431),
    (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n\r\n", 431),
    (b"POST /v1/completions HTTP/1.1\r\nContent-Length: nine\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
]


def reply(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=180)
    try:
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def raw(server, data, wait=20):
    """Everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as peer:
        peer.sendall(data)
        received = b""
        try:
            while part := peer.recv(65536):
                received += part
        except ConnectionResetError:
            pass
        return received


def open_stream(server, body, path=TEXT):
    """A connection whose request has been sent and not answered."""
    peer = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    data = json.dumps(body).encode()
    peer.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return peer


class FaultTest(unittest.TestCase):
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*FLAGS, *cls.flags)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.output()

    def assert_idle(self):
        idle = ("vllm:num_requests_running", "vllm:num_requests_waiting", "folio:pages_used", "folio:state_slots_used", "folio:sessions")
        self.server.wait_for(lambda: all(self.server.metric(name) == 0 for name in idle))

    def assert_shape(self, path, status, body):
        if path.startswith(MESSAGES):
            self.assertEqual(body["type"], "error")
            self.assertIn(body["error"]["type"], {400: ["invalid_request_error"], 404: ["not_found_error"]}[status])
            return body["error"]["message"]
        error = body["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["code"], status)
        return error["message"]


class Requests(FaultTest):
    def test_refused(self):
        for path, body, status, words in REFUSED:
            with self.subTest(path=path, body=str(body)[:120]):
                got, _, answer = reply(self.server, "POST", path, body)
                self.assertEqual(got, status, answer)
                told = self.assert_shape(path, status, json.loads(answer))
                self.assertIn(words or "", told)
        self.assertGreaterEqual(len(REFUSED), 80)
        self.assertEqual(reply(self.server, "GET", "/health")[0], 200)
        self.assert_idle()

    def test_accepted(self):
        for path, body in ACCEPTED:
            with self.subTest(path=path, body=str(body)[:120]):
                status, _, answer = reply(self.server, "POST", path, body)
                self.assertEqual(status, 200, answer)
        self.assert_idle()

    def test_a_key_that_comes_twice(self):
        twice = b'{"prompt": "first", "prompt": "ab", "temperature": 0, "max_tokens": 4}'
        once = {"prompt": "ab", "temperature": 0, "max_tokens": 4}
        texts = [json.loads(reply(self.server, "POST", TEXT, body)[2])["choices"][0]["text"] for body in (twice, once)]
        self.assertEqual(*texts)

    def test_context_overflow_names_its_field(self):
        body = json.loads(reply(self.server, "POST", CHAT, chat(max_tokens=5000))[2])
        self.assertEqual(body["error"]["param"], "input_tokens")

    def test_methods_and_media_types(self):
        for method, path, headers, status in (
                ("GET", CHAT, {}, 405), ("PUT", CHAT, {}, 405), ("DELETE", TEXT, {}, 405), ("POST", "/health", {}, 405),
                ("POST", "/v1/models", {}, 405), ("OPTIONS", CHAT, {}, 405), ("GET", "/nothing", {}, 404),
                ("POST", "/nothing", {}, 404), ("GET", "/v1/models/x", {}, 404), ("GET", "/v1/responses/x", {}, 404),
                ("POST", CHAT, {"Content-Type": "text/plain"}, 415),
                ("POST", CHAT, {"Content-Type": "application/x-www-form-urlencoded"}, 415),
                ("POST", TEXT, {"Content-Type": "application/json; charset=utf-8"}, 200),
                ("POST", TEXT, {"Content-Type": "application/vnd.a+json"}, 200),
                ("HEAD", "/health", {}, 200), ("GET", "/ping", {}, 200), ("POST", "/ping", {}, 200)):
            with self.subTest(method=method, path=path, headers=headers):
                got, got_headers, _ = reply(self.server, method, path, text() if method == "POST" else None, headers)
                self.assertEqual(got, status)
                self.assertEqual("Allow" in got_headers, status == 405)

    def test_no_http(self):
        for data, status in RAW:
            with self.subTest(data=data[:60]):
                received = raw(self.server, data)
                self.assertTrue(received.startswith(f"HTTP/1.1 {status} ".encode()), received[:100])
        self.assertEqual(reply(self.server, "GET", "/health")[0], 200)

    def test_chunked_and_pipelined_requests(self):
        data = json.dumps(text()).encode()
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(data[i:i + 7]), data[i:i + 7]) for i in range(0, len(data), 7))
        one = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        last = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        received = raw(self.server, one + one + last)
        self.assertEqual(received.count(b"HTTP/1.1 200 OK"), 3, received)

    def test_chunks_that_come_byte_by_byte(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            for byte in b"0\r\n\r\n":
                peer.sendall(bytes([byte]))
                time.sleep(0.02)
            self.assertTrue(peer.recv(100).startswith(b"HTTP/1.1 400 "))
        self.assertEqual(reply(self.server, "GET", "/health")[0], 200)

    def test_expect_continue(self):
        data = json.dumps(text()).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as peer:
            peer.sendall(f"POST {TEXT} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode())
            self.assertTrue(peer.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n"))
            peer.sendall(data)
            self.assertTrue(peer.recv(100).startswith(b"HTTP/1.1 200 OK"))

    def test_an_old_client(self):
        received = raw(self.server, b"GET /health HTTP/1.0\r\n\r\n")
        self.assertTrue(received.startswith(b"HTTP/1.1 200 OK"))
        data = json.dumps(text(stream=True)).encode()
        received = raw(self.server, f"POST {TEXT} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        self.assertNotIn(b"chunked", received)
        self.assertNotIn(b"Content-Length", received)
        self.assertTrue(received.endswith(b"data: [DONE]\n\n"))

    def test_request_ids(self):
        _, headers, body = reply(self.server, "POST", TEXT, text(), {"X-Request-Id": "mine-7"})
        self.assertEqual((headers["X-Request-Id"], json.loads(body)["id"]), ("mine-7", "cmpl-mine-7"))
        _, headers, _ = reply(self.server, "GET", "/health", None, {"X-Request-Id": "a" * 500})
        self.assertNotIn("X-Request-Id", headers)

    def test_without_cors_no_page_may_call(self):
        _, headers, _ = reply(self.server, "GET", "/v1/models", None, {"Origin": "http://elsewhere"})
        self.assertFalse([name for name in headers if name.startswith("Access-Control")])

    def test_a_request_with_too_little_time(self):
        status, _, body = reply(self.server, "POST", TEXT, LONG, {"X-Request-Timeout": "0.05"})
        self.assertEqual(status, 504, body)
        self.assert_idle()


class Disconnects(FaultTest):
    """A client that goes frees what it had, wherever its request was."""
    flags = ("--max-num-seqs", 1)

    def aborted(self):
        return self.server.metric("vllm:request_success_total")

    def test_while_the_headers_are_sent(self):
        for part in (b"P", b"POST /v1/completions HTTP/1.1\r\nHo", b"POST /v1/completions HTTP/1.1\r\n\r"):
            socket.create_connection(("127.0.0.1", self.server.port)).close()
            with socket.create_connection(("127.0.0.1", self.server.port)) as peer:
                peer.sendall(part)
        self.server.wait_for(lambda: self.server.metric("folio:http_connections") <= 1)

    def test_while_the_body_is_sent(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as peer:
            peer.sendall(b'POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{"prompt": ')
        self.server.wait_for(lambda: self.server.metric("folio:http_connections") <= 1)
        self.assert_idle()

    def test_while_it_is_read(self):
        for _ in range(5):
            open_stream(self.server, {"prompt": "word " * 3000, "max_tokens": 1}).close()
        self.assert_idle()

    def test_during_the_prefill(self):
        for stream in (False, True):
            peer = open_stream(self.server, {"prompt": [5 + i % 500 for i in range(4000)], "max_tokens": 90, "stream": stream, "exact": True})
            time.sleep(0.02)
            peer.close()
            self.assert_idle()

    def test_between_tokens(self):
        peer = open_stream(self.server, {**LONG, "stream": True})
        self.assertIn(b"200 OK", peer.recv(100))
        peer.close()
        self.assert_idle()

    def test_while_the_whole_reply_is_made(self):
        before = self.aborted()
        peer = open_stream(self.server, LONG)
        self.server.wait_for(lambda: self.server.metric("vllm:num_requests_running") == 1)
        peer.close()
        self.assert_idle()
        self.server.wait_for(lambda: self.aborted() == before + 1)

    def test_in_the_queue(self):
        running = open_stream(self.server, {**LONG, "stream": True})
        self.assertIn(b"200 OK", running.recv(100))
        waiting = open_stream(self.server, {**LONG, "stream": True})
        self.server.wait_for(lambda: self.server.metric("vllm:num_requests_waiting") == 1)
        waiting.close()
        self.server.wait_for(lambda: self.server.metric("vllm:num_requests_waiting") == 0)
        self.assertEqual(self.server.metric("vllm:num_requests_running"), 1)
        running.close()
        self.assert_idle()

    def test_by_a_reset(self):
        peer = open_stream(self.server, {**LONG, "stream": True})
        peer.recv(100)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        peer.close()
        self.assert_idle()

    def test_behind_another_request(self):
        peer = open_stream(self.server, {**LONG, "stream": True})
        peer.recv(100)
        peer.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.1)
        peer.close()
        self.assert_idle()

    def test_in_every_chat_api(self):
        for path, body in ((CHAT, chat(max_tokens=3000, stream=True, ignore_eos=True, n=2)),
                           (MESSAGES, message(max_tokens=3000, stream=True, ignore_eos=True)),
                           (RESPONSES, {"input": "x", "stream": True, "ignore_eos": True})):
            peer = open_stream(self.server, body, path)
            self.assertIn(b"200 OK", peer.recv(100))
            peer.close()
            self.assert_idle()


class Limits(FaultTest):
    flags = ("--max-body-size", 1, "--header-timeout", 0.5, "--body-timeout", 0.5, "--idle-timeout", 1, "--write-timeout", 1,
             "--max-requests", 2, "--max-connections", 40, "--api-key", "secret", "--cors", "http://here", "--sse-keep-alive", 0.2,
             "--max-num-seqs", 1)
    KEY = {"Authorization": "Bearer secret"}

    def test_large_bodies(self):
        status, _, body = reply(self.server, "POST", TEXT, b" " * (1 << 20) + b"{}", self.KEY)
        self.assertEqual((status, json.loads(body)["error"]["code"]), (413, 413))
        status, _, body = reply(self.server, "POST", MESSAGES, b" " * (1 << 21), self.KEY)
        self.assertEqual((status, json.loads(body)["error"]["type"]), (413, "request_too_large"))
        received = raw(self.server, b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 17)
        self.assertTrue(received.startswith(b"HTTP/1.1 413 "), received[:60])

    def test_slow_clients_are_closed(self):
        for data in (b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: a\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"):
            with self.subTest(data=data):
                began = time.monotonic()
                self.assertNotIn(b" 200 ", raw(self.server, data))
                self.assertLess(time.monotonic() - began, 10)

    def test_half_open_connections_do_not_matter(self):
        peers = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(20)]
        self.assertEqual(reply(self.server, "POST", TEXT, text(), self.KEY)[0], 200)
        for peer in peers:
            peer.close()

    def test_too_many_connections(self):
        peers = [socket.create_connection(("127.0.0.1", self.server.port), timeout=20) for _ in range(60)]
        self.assertTrue(all(peer.recv(1) == b"" for peer in peers))  # refused at once, or closed for saying nothing
        for peer in peers:
            peer.close()
        self.assertGreater(self.server.metric("folio:http_connections_refused_total"), 0)

    def test_a_reader_that_stops_reading(self):
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", self.server.port))
            data = json.dumps({**LONG, "max_tokens": 4000, "n": 2, "stream": True, "logprobs": 20,
                               "stream_options": {"continuous_usage_stats": True}}).encode()
            peer.sendall(f"POST {TEXT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            self.server.wait_for(lambda: self.server.metric("folio:http_slow_readers_total") >= 1)
            self.assert_idle()

    def test_a_full_queue(self):
        headers = "".join(f"{k}: {v}\r\n" for k, v in self.KEY.items())
        peers = []
        for _ in range(2):
            peer = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
            data = json.dumps({**LONG, "stream": True}).encode()
            peer.sendall(f"POST {TEXT} HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            peers.append(peer)
        self.server.wait_for(lambda: self.server.metric("vllm:num_requests_running") + self.server.metric("vllm:num_requests_waiting") == 2)
        for path, body, kind in ((TEXT, text(), "RateLimitError"), (MESSAGES, message(), "rate_limit_error")):
            status, got, answer = reply(self.server, "POST", path, body, self.KEY)
            self.assertEqual((status, json.loads(answer)["error"]["type"]), (429, kind))
            self.assertGreaterEqual(int(got["Retry-After"]), 1)
        # The one that waits is told so by comments.
        waiting = b"".join(peer.recv(100) for peer in peers)
        for peer in peers:
            peer.close()
        self.assertIn(b"200 OK", waiting)
        self.assert_idle()

    def test_keep_alive_comments(self):
        first = open_stream(self.server, {**LONG, "stream": True, "max_tokens": 1})
        first.close()  # without a key: nothing
        running, waiting = socket.create_connection(("127.0.0.1", self.server.port)), socket.create_connection(("127.0.0.1", self.server.port), timeout=20)
        for peer in (running, waiting):
            data = json.dumps({**LONG, "stream": True}).encode()
            peer.sendall(f"POST {TEXT} HTTP/1.1\r\nHost: a\r\nx-api-key: secret\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            time.sleep(0.05)
        received = b""
        while b"\r\n\r\n" not in received or b"\n\n" not in received:
            received += waiting.recv(4096)
        running.close()
        waiting.close()
        self.assertIn(b": keep-alive\n\n", received)
        self.assert_idle()

    def test_keys(self):
        for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "secret"}, 401),
                                ({"Authorization": "Bearer secre"}, 401), ({"Authorization": "Bearer secrets"}, 401),
                                ({"Authorization": "Bearer "}, 401), ({"x-api-key": ""}, 401),
                                ({"x-api-key": "secret"}, 200), ({"Authorization": "bearer secret"}, 200)):
            for path in ("/v1/models", "/tokenizer_info", "/debug/cache_stats"):
                with self.subTest(headers=headers, path=path):
                    self.assertEqual(reply(self.server, "GET", path, None, headers)[0], status)
        status, headers, body = reply(self.server, "POST", MESSAGES, message())
        self.assertEqual((status, json.loads(body)["error"]["type"]), (401, "authentication_error"))
        self.assertIn("WWW-Authenticate", headers)
        for path in ("/health", "/metrics", "/version", "/ping"):
            self.assertEqual(reply(self.server, "GET", path)[0], 200)

    def test_cors(self):
        _, headers, _ = reply(self.server, "GET", "/v1/models", None, {**self.KEY, "Origin": "http://here"})
        self.assertEqual(headers["Access-Control-Allow-Origin"], "http://here")
        _, headers, _ = reply(self.server, "GET", "/v1/models", None, {**self.KEY, "Origin": "http://there"})
        self.assertNotIn("Access-Control-Allow-Origin", headers)
        status, headers, _ = reply(self.server, "OPTIONS", CHAT, None, {"Origin": "http://here", "Access-Control-Request-Headers": "authorization"})
        self.assertEqual((status, headers["Access-Control-Allow-Headers"]), (200, "authorization"))


class Drain(unittest.TestCase):
    def test_a_stop_under_load_loses_no_accepted_request(self):
        server = Server(*FLAGS, "--max-num-seqs", 8)
        answers, lock = [], threading.Lock()

        def ask(number):
            try:
                status, _, body = reply(server, "POST", TEXT, {"prompt": [5 + number], "max_tokens": 400, "ignore_eos": True, "stream": number % 2 == 0})
            except OSError as error:
                status, body = type(error).__name__, b""
            with lock:
                answers.append((number, status, body))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        server.wait_for(lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") >= 20)
        server.process.send_signal(signal.SIGTERM)
        late = reply(server, "POST", TEXT, text())
        self.assertEqual((late[0], reply(server, "GET", "/health")[0]), (503, 503))
        self.assertIn("Retry-After", late[1])
        for thread in threads:
            thread.join(200)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(len(answers), 40)
        for number, status, body in answers:
            self.assertIn(status, (200, 503), number)
            if status == 200:
                self.assertTrue(body.endswith(b"data: [DONE]\n\n") if number % 2 == 0 else json.loads(body)["usage"]["completion_tokens"] == 400)
        self.assertGreaterEqual(sum(status == 200 for _, status, _ in answers), 20)

    def test_a_second_signal_aborts(self):
        server = Server(*FLAGS)
        peer = open_stream(server, {**LONG, "max_tokens": 4000, "stream": True})
        peer.recv(100)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: "finishing 1 requests" in server.output())
        server.process.send_signal(signal.SIGTERM)
        received = b""
        while part := peer.recv(65536):
            received += part
        self.assertTrue(b"[DONE]" in received)
        self.assertEqual(server.process.wait(30), 0)


class Start(unittest.TestCase):
    def refused(self, *flags, says):
        done = subprocess.run([FOLIO, "serve", *map(str, FLAGS), *map(str, flags)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(says, done.stderr)

    def test_what_cannot_be_served(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.refused("--port", taken.getsockname()[1], says="cannot listen")
        self.refused("--host", "no.such.host.invalid", says="--host")
        self.refused("--tls-cert", "/nonexistent", says="--tls-key")
        self.refused("--tls-cert", "/nonexistent", "--tls-key", "/nonexistent", says="--tls-cert")
        self.refused("--api-key-file", "/nonexistent", says="--api-key-file")
        self.refused("--api-key", "", says="--api-key")
        self.refused("--port", "65536", says="--port")

    def test_a_warning_without_a_key(self):
        for flags, warned in ((("--host", "0.0.0.0"), True), (("--host", "0.0.0.0", "--api-key", "k"), False), ((), False)):
            with Server(*FLAGS, *flags) as server:
                pass
            self.assertEqual("warning" in server.output(), warned, flags)

    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
            try:
                made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "1",
                                       "-subj", "/CN=localhost"], capture_output=True)
            except FileNotFoundError:
                self.skipTest("no openssl command here")
            self.assertEqual(made.returncode, 0, made.stderr)
            process = subprocess.Popen([FOLIO, "serve", *map(str, FLAGS), "--port", "0", "--tls-cert", cert, "--tls-key", key],
                                       stderr=subprocess.PIPE, text=True)
            try:
                served = None
                while served is None:
                    served = re.search(r"https://127.0.0.1:(\d+)", process.stderr.readline())
                port = int(served.group(1))
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
                connection.request("POST", TEXT, json.dumps(text(stream=True)), {"Content-Type": "application/json"})
                self.assertTrue(connection.getresponse().read().endswith(b"data: [DONE]\n\n"))
                connection.close()
            finally:
                process.terminate()
                process.wait(30)
                process.stderr.close()


class Logs(unittest.TestCase):
    def test_access_lines_and_request_log(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "requests.jsonl")
            with Server(*FLAGS, "--log-json", "--request-log", path) as server:
                reply(server, "POST", TEXT, text(prompt="private words"))
                reply(server, "POST", TEXT, b"{")
            lines = [json.loads(line) for line in server.output().splitlines() if line.startswith("{")]
            lines = [line for line in lines if line["path"] == TEXT]
            self.assertEqual([line["status"] for line in lines], [200, 400])
            self.assertEqual((lines[0]["completion_tokens"], lines[0]["finish"]), (4, "length"))
            self.assertGreater(lines[0]["duration_ms"], 0)
            self.assertNotIn("private", server.output())
            with open(path) as log:
                logged = [json.loads(line) for line in log]
            self.assertEqual([(line["id"], line["body"]["prompt"]) for line in logged], [(lines[0]["id"], "private words")])


if __name__ == "__main__":
    unittest.main()
