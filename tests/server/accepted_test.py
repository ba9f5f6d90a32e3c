"""What clients in the field send and `folio serve` must take: the fields of agents, SDKs and user interfaces with all
their nulls, extras and odd forms, and that what comes back is what was asked for."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))
from server import FOLIO, Server  # noqa: E402

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
USER = {"role": "user", "content": "x"}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather.", "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]}, "unit": {"type": ["string", "null"], "enum": ["C", "F", None]}},
                   "required": ["city", "unit"], "additionalProperties": False}}}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": None, "description": None}}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo", "unit": null}'}}
NULLS = {name: None for name in (
    "temperature", "top_p", "n", "stop", "max_completion_tokens", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "seed",
    "user", "response_format", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "stream", "stream_options", "metadata", "store",
    "service_tier", "audio", "modalities", "prediction", "verbosity", "web_search_options", "function_call", "functions", "thinking",
    "chat_template_kwargs", "min_p", "top_k", "repetition_penalty", "stop_token_ids", "bad_words", "allowed_token_ids", "structured_outputs",
    "truncate_prompt_tokens", "cache_salt", "priority", "prompt_logprobs", "logits_processors", "task", "extra_body")}

# (name, path, body): taken as they are.
ACCEPTED = [
    ("every field is null", CHAT, {"messages": [USER], **NULLS}),
    ("an agent's first turn", CHAT, {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}], "name": "ann"}],
                                     "tools": [WEATHER, TIME], "tool_choice": "auto", "parallel_tool_calls": True, "store": False, "metadata": {"a": "b"}}),
    ("an agent's history", CHAT, {"messages": [
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "audio": None, "function_call": None, "annotations": [], "reasoning_content": ""},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "rain"}]},
        {"role": "assistant", "content": "", "tool_calls": [], "reasoning": None},
        {"role": "user", "content": []},
        {"role": "system", "content": "later"}, USER], "tools": [WEATHER]}),
    ("arguments in every form", CHAT, {"messages": [
        USER, {"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}, {"id": "2", "function": {"name": "f", "arguments": ""}},
            {"id": "3", "type": "function", "index": 0, "function": {"name": "f", "arguments": '{"a": '}}, {"id": None, "type": None, "function": {"name": "f", "arguments": None}},
            {"id": "5", "function": {"name": "ns::f", "arguments": '"{\\"a\\": 1}"'}}]},
        {"role": "tool", "content": None}, {"role": "function", "name": "f", "content": "r"}]}),
    ("an empty list of tools", CHAT, {"messages": [USER], "tools": [], "tool_choice": "auto"}),
    ("no tools and none chosen", CHAT, {"messages": [USER], "tool_choice": "none"}),
    ("tools of the old kind", CHAT, {"messages": [USER], "functions": [WEATHER["function"]], "function_call": "auto"}),
    ("flat tools", CHAT, {"messages": [USER], "tools": [{"type": "function", **WEATHER["function"]}]}),
    ("an answer to go on with", CHAT, {"messages": [USER, {"role": "assistant", "content": "and", "prefix": True}]}),
    ("an older prefix", CHAT, {"messages": [USER, {"role": "assistant", "content": "and", "prefix": True}, USER]}),
    ("a budget of thinking", CHAT, {"messages": [USER], "thinking": {"type": "enabled", "budget_tokens": 1024}, "reasoning_effort": "xhigh"}),
    ("a template's fields", CHAT, {"messages": [USER], "chat_template_kwargs": {"enable_thinking": True, "thinking": True, "x": 1}, "include_reasoning": True, "skip_special_tokens": True, "add_special_tokens": False}),
    ("stops with nulls", CHAT, {"messages": [USER], "stop": ["###", "", None, "\n\n\n"]}),
    ("a stop as text", CHAT, {"messages": [USER], "stop": "###"}),
    ("numbers as doubles", CHAT, {"messages": [USER], "max_tokens": 3.0, "seed": 5.0, "top_k": -1, "n": 1.0}),
    ("limits of vLLM", CHAT, {"messages": [USER], "truncate_prompt_tokens": -1, "cache_salt": "mine", "priority": 0, "bad_words": ["the", " of"], "min_tokens": 1}),
    ("text and more", CHAT, {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "file", "file": {"file_id": "x"}}]}]}),
    ("Claude Code", MESSAGES, {
        "model": None, "max_tokens": 3, "metadata": {"user_id": "u"}, "service_tier": "auto", "context_management": {"edits": []}, "temperature": 1,
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc=1"}, {"type": "text", "text": "You are a helper.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}],
        "tools": [{"name": "Bash", "description": "Run it.", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"command": {"type": "string"}},
                                                                            "required": ["command"], "additionalProperties": False}, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "ls", "cache_control": {"type": "ephemeral"}, "citations": None}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "I look."},
                                             {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}, {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": [{"type": "text", "text": "no"}]},
                                         {"type": "tool_result", "tool_use_id": "toolu_1", "content": [], "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "go on"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone"}]}],
        "thinking": {"type": "enabled", "budget_tokens": 2000}, "stop_sequences": ["</end>"], "top_k": 5, "top_p": 0.9}),
    ("an empty system", MESSAGES, {"max_tokens": 2, "system": [], "messages": [USER], "stop_sequences": [], "tools": [], "tool_choice": {"type": "auto"}}),
    ("a system message among the messages", MESSAGES, {"max_tokens": 2, "system": "a", "messages": [{"role": "system", "content": "b"}, USER]}),
    ("an answer begun", MESSAGES, {"max_tokens": 2, "messages": [USER, {"role": "assistant", "content": "and"}]}),
    ("adaptive thinking", MESSAGES, {"max_tokens": 2, "messages": [USER], "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
    ("Codex", RESPONSES, {
        "model": None, "instructions": "You are Codex.", "store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "parallel_tool_calls": False, "max_output_tokens": 3,
        "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"}, "tool_choice": "auto", "service_tier": None, "truncation": "auto",
        "tools": [{"type": "function", "name": "shell", "description": "d", "strict": False, "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"]}},
                  {"type": "custom", "name": "apply_patch", "description": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
                  {"type": "web_search"}, {"type": "local_shell"}, {"type": "image_generation"}],
        "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
                  {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                  {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "content": None, "encrypted_content": None},
                  {"type": "function_call", "id": None, "call_id": "c", "name": "shell", "arguments": '{"command": ["ls"]}', "status": "completed"},
                  {"type": "custom_tool_call", "call_id": "d", "name": "apply_patch", "input": "*** Begin Patch"},
                  {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]},
                  {"type": "custom_tool_call_output", "call_id": "d", "output": "done"},
                  {"type": "web_search_call", "id": "ws_1", "status": "completed"},
                  {"role": "assistant", "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
                  {"role": "user", "content": "c"}]}),
    ("a response with nulls", RESPONSES, {"input": "x", "max_output_tokens": 2, **{name: None for name in (
        "instructions", "tools", "tool_choice", "previous_response_id", "reasoning", "text", "metadata", "store", "stream", "temperature", "top_p", "background", "include", "user")}}),
    ("allowed tools", RESPONSES, {"input": "x", "max_output_tokens": 2, "tools": [{"type": "function", "name": "f", "parameters": None}],
                                  "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}}),
    ("ids and nulls", TEXT, {"prompt": [[5, 6], [7]], "max_tokens": 2, "best_of": 1, "suffix": None, "user": "u", "logprobs": None, "echo": None, "stream": None, "logit_bias": {"5": -100}}),
    ("a form of a completion", TEXT, {"prompt": "x", "max_tokens": 40, "response_format": {"type": "json_object"}}),
]

FORM = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": {
    "$defs": {"step": {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "next": {"anyOf": [{"$ref": "#/$defs/step"}, {"type": "null"}]}},
                       "required": ["kind", "next"], "additionalProperties": False}},
    "type": "object", "properties": {"step": {"$ref": "#/$defs/step"}, "sure": {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 9}]}},
    "required": ["step", "sure"], "additionalProperties": False}}}


class Accepted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = os.path.join(cls.folder.name, "nano")
        subprocess.run([FOLIO, "make-checkpoint", "--preset", "nano", "--seed", "3", "--out", model], check=True, capture_output=True)
        cls.server = Server("--model", model, "--no-thinking", "--max-model-len", 4096)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.output()
        cls.folder.cleanup()

    def ask(self, path, body):
        small = {} if path in (MESSAGES, RESPONSES) else {"max_tokens": 3}
        return self.server.post(path, {**small, **body})

    def events(self, path, body):
        """The data of a stream's events."""
        request = urllib.request.Request(self.server.url + path, json.dumps({**body, "stream": True}).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as reply:
            lines = reply.read().decode().splitlines()
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]

    def chunks(self, body):
        events = self.events(CHAT, body)
        self.assertEqual(events[-1], "[DONE]")
        return [json.loads(event) for event in events[:-1]]

    def test_what_clients_send_is_taken(self):
        for name, path, body in ACCEPTED:
            with self.subTest(name):
                reply = self.ask(path, body)
                self.assertNotIn("error", {key for key, value in reply.items() if value is not None})
                kept = {**({} if path in (MESSAGES, RESPONSES) else {"max_tokens": 3}), **body}
                events = self.events(path, kept)
                self.assertTrue(events[-1] == "[DONE]" or json.loads(events[-1])["type"] in ("message_stop", "response.completed", "response.incomplete"))
                self.assertFalse([event for event in events if event.startswith('{"error"')])

    def test_usage_in_every_chunk_and_at_the_end(self):
        chunks = self.chunks({"messages": [USER], "max_completion_tokens": 5, "max_tokens": 1, "ignore_eos": True, "stream_options": {"include_usage": True}})
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 5)
        self.assertTrue(all(chunk["usage"] is None for chunk in chunks[:-1]))
        chunks = self.chunks({"messages": [USER], "max_tokens": 5, "ignore_eos": True,
                              "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], 5)

    def test_choices_of_a_stream_each_end_once(self):
        chunks = self.chunks({"messages": [USER], "max_tokens": 4, "n": 3, "logprobs": True, "top_logprobs": 2, "ignore_eos": True, "stop": ["###"]})
        for index in range(3):
            own = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
            self.assertEqual(own[0]["delta"], {"role": "assistant", "content": ""})
            self.assertEqual([choice["finish_reason"] for choice in own if choice["finish_reason"]], ["length"])
            tokens = [entry for choice in own for entry in (choice["logprobs"] or {"content": []})["content"]]
            self.assertEqual(len(tokens), 4)
            self.assertTrue(all(len(entry["top_logprobs"]) == 2 for entry in tokens))

    def test_a_schema_with_references(self):
        for seed in range(4):
            reply = self.ask(CHAT, {"messages": [USER], "max_tokens": 600, "seed": seed, "response_format": FORM})
            choice = reply["choices"][0]
            if choice["finish_reason"] == "stop":
                answer = json.loads(choice["message"]["content"])
                self.assertEqual(set(answer), {"step", "sure"})
                self.assertIn(answer["step"]["kind"], ("a", "b"))

    def test_forced_calls_stream_as_they_are_whole(self):
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            body = {"messages": [USER], "tools": [WEATHER], "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 600, "seed": 1}
            whole = self.ask(CHAT, body)["choices"][0]
            call = whole["message"]["tool_calls"][0]["function"]
            self.assertEqual(call["name"], "get_weather")
            self.assertIn(json.loads(call["arguments"])["city"], ("Oslo", "Lima"))
            self.assertEqual(whole["finish_reason"], "tool_calls" if choice == "required" else "stop")
            self.assertIsNone(whole["message"]["content"])
            deltas = [part for chunk in self.chunks(body) for part in chunk["choices"][0]["delta"].get("tool_calls", [])]
            self.assertEqual((deltas[0]["function"]["name"], deltas[0]["function"]["arguments"], deltas[0]["type"]), ("get_weather", "", "function"))
            self.assertTrue(all(set(part) == {"index", "function"} for part in deltas[1:]))
            self.assertEqual("".join(part["function"]["arguments"] for part in deltas), call["arguments"])

    def test_tools_of_a_message_are_tools(self):
        body = {"messages": [{"role": "system", "content": "s", "tools": [WEATHER]}, USER], "tool_choice": "required", "max_tokens": 600, "seed": 1}
        message = self.ask(CHAT, body)["choices"][0]["message"]
        self.assertEqual(message["tool_calls"][0]["function"]["name"], "get_weather")
        prompt = self.server.post(CHAT + "/render", {**body, "tool_choice": "none"})["prompt"]
        self.assertNotIn("get_weather", prompt)
        self.assertIn("get_weather", self.server.post(CHAT + "/render", {**body, "tool_choice": "auto"})["prompt"])

    def test_bad_words_do_not_come(self):
        body = {"prompt": [5, 6, 7], "max_tokens": 12, "temperature": 0, "return_token_ids": True}
        free = self.ask(TEXT, body)["choices"][0]
        words = [word for word in (self.server.post("/detokenize", {"tokens": [id]})["prompt"] for id in free["token_ids"]) if "\ufffd" not in word]
        held = self.ask(TEXT, {**body, "bad_words": words})["choices"][0]
        for word in words:
            self.assertNotIn(self.server.post("/tokenize", {"prompt": word, "add_special_tokens": False})["tokens"], [[id] for id in held["token_ids"]])

    def test_a_long_prompt_is_cut_at_its_beginning(self):
        ids = list(range(3, 203))
        cut = self.ask(TEXT, {"prompt": ids, "truncate_prompt_tokens": 50, "echo": True, "return_token_ids": True})
        self.assertEqual(cut["choices"][0]["prompt_token_ids"], ids[-50:])
        self.assertEqual(cut["usage"]["prompt_tokens"], 50)
        fits = self.ask(TEXT, {"prompt": [3] * 5000, "truncate_prompt_tokens": -1, "max_tokens": 10})
        self.assertEqual(fits["usage"]["prompt_tokens"], 4096 - 10)
        chat = self.ask(CHAT, {"messages": [{"role": "user", "content": "word " * 3000}], "truncate_prompt_tokens": 20})
        self.assertEqual(chat["usage"]["prompt_tokens"], 20)

    def test_a_salt_has_a_cache_of_its_own(self):
        body = {"prompt": [10 + i % 200 for i in range(600)], "max_tokens": 1}
        self.ask(TEXT, {**body, "cache_salt": "one"})

        def cached(**salt):
            return self.ask(TEXT, {**body, **salt})["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached(cache_salt="one"), 0)
        self.assertEqual(cached(cache_salt="two"), 0)
        self.assertEqual(cached(), 0)

    def test_log_probabilities_of_a_chat_s_prompt(self):
        reply = self.ask(CHAT, {"messages": [USER], "prompt_logprobs": 2, "return_token_ids": True})
        entries = reply["prompt_logprobs"]
        self.assertEqual(len(entries), reply["usage"]["prompt_tokens"])
        self.assertIsNone(entries[0])
        for id, entry in zip(reply["prompt_token_ids"][1:], entries[1:]):
            self.assertIn(str(id), entry)
            self.assertLess(entry[str(id)]["logprob"], 0)

    def test_the_first_event_of_a_message_knows_the_cache(self):
        body = {"max_tokens": 2, "messages": [{"role": "user", "content": "word " * 600}]}
        self.ask(MESSAGES, body)
        start, *_, delta, stop = map(json.loads, self.events(MESSAGES, body))
        usage = start["message"]["usage"]
        self.assertGreater(usage["cache_read_input_tokens"], 0)
        self.assertEqual({name: usage[name] for name in ("input_tokens", "cache_read_input_tokens")},
                         {name: delta["usage"][name] for name in ("input_tokens", "cache_read_input_tokens")})
        self.assertEqual(stop["type"], "message_stop")

    def test_items_can_be_referred_to(self):
        first = self.ask(RESPONSES, {"input": "one", "max_output_tokens": 3, "reasoning": {"effort": "none"}})
        items = [{"role": "user", "content": "one"}, *({"type": "item_reference", "id": item["id"]} for item in first["output"]), {"role": "user", "content": "two"}]
        second = self.ask(RESPONSES, {"input": items, "max_output_tokens": 2, "reasoning": {"effort": "none"}})
        third = self.ask(RESPONSES, {"input": "two", "previous_response_id": first["id"], "max_output_tokens": 2, "reasoning": {"effort": "none"}})
        self.assertEqual(second["usage"]["input_tokens"], third["usage"]["input_tokens"])


if __name__ == "__main__":
    unittest.main()
