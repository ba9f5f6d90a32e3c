"""The anthropic package against a running server: messages, streams, tools, counting, errors."""
import unittest

from server import ServerTest, need

need("anthropic")
import anthropic  # noqa: E402

QUESTION = [{"role": "user", "content": "Name a colour."}]
OFF = {"type": "disabled"}
GREEDY = {"temperature": 0}  # a field of the API that the package has no argument for
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Bergen", "Lima"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Anthropic(ServerTest):
    flags = ("--api-key", "secret")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.with_key("secret")
        cls.model = cls.server.get("/v1/models", key="secret")[1].split('"id":"')[1].split('"')[0]

    @classmethod
    def with_key(cls, key):
        return anthropic.Anthropic(base_url=cls.server.url, api_key=key, max_retries=0)

    def message(self, messages=QUESTION, **fields):
        fields = {"max_tokens": 24, "thinking": OFF, "extra_body": GREEDY, **fields}
        return self.client.messages.create(model=self.model, messages=messages, **fields)

    def test_message(self):
        reply = self.message(system="Be brief.")
        self.assertEqual((reply.type, reply.role), ("message", "assistant"))
        self.assertIn(reply.stop_reason, ("end_turn", "max_tokens"))
        self.assertEqual([block.type for block in reply.content], ["text"])
        self.assertGreater(reply.usage.input_tokens + reply.usage.cache_read_input_tokens, 0)
        self.assertGreater(reply.usage.output_tokens, 0)

    def test_thinking(self):
        reply = self.message(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1100)
        self.assertEqual(reply.content[0].type, "thinking")
        self.assertTrue(reply.content[0].thinking)

    def test_a_stream_is_the_message_in_parts(self):
        for fields in ({}, {"thinking": {"type": "adaptive"}, "max_tokens": 40}):
            whole = self.message(**fields)
            with self.client.messages.stream(model=self.model, messages=QUESTION, extra_body=GREEDY,
                                             **{"max_tokens": 24, "thinking": OFF, **fields}) as stream:
                events = list(stream)
                final = stream.get_final_message()
            self.assertEqual([block.model_dump() for block in final.content], [block.model_dump() for block in whole.content])
            self.assertEqual((final.stop_reason, final.usage.output_tokens), (whole.stop_reason, whole.usage.output_tokens))
            self.assertEqual(events[0].type, "message_start")
            self.assertEqual(events[-1].type, "message_stop")

    def test_tools_round_trip(self):
        question = {"role": "user", "content": "Will it rain in Lima?"}
        reply = self.message([question], tools=[WEATHER], max_tokens=400,
                             tool_choice={"type": "any", "disable_parallel_tool_use": True})
        self.assertEqual(reply.stop_reason, "tool_use")
        call = next(block for block in reply.content if block.type == "tool_use")
        self.assertEqual(call.name, "get_weather")
        self.assertIn(call.input["city"], ("Bergen", "Lima"))
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "No."}]}
        after = self.message([question, {"role": "assistant", "content": reply.content}, result], tools=[WEATHER],
                             tool_choice={"type": "none"})
        self.assertNotIn("tool_use", [block.type for block in after.content])

    def test_a_tool_call_in_a_stream(self):
        with self.client.messages.stream(model=self.model, messages=QUESTION, max_tokens=400, thinking=OFF, tools=[WEATHER],
                                         tool_choice={"type": "tool", "name": "get_weather"}) as stream:
            final = stream.get_final_message()
        self.assertIn(next(block for block in final.content if block.type == "tool_use").input["city"], ("Bergen", "Lima"))

    def test_counted_tokens_are_those_of_the_message(self):
        counted = self.client.messages.count_tokens(model=self.model, messages=QUESTION, system="Be brief.", thinking=OFF)
        usage = self.message(system="Be brief.").usage
        self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_a_stop_sequence(self):
        text = self.message().content[0].text
        stop = text[len(text) // 2:][:3]
        reply = self.message(stop_sequences=[stop])
        self.assertEqual((reply.stop_reason, reply.stop_sequence), ("stop_sequence", stop))
        self.assertEqual("".join(block.text for block in reply.content), text[:text.index(stop)])

    def test_errors(self):
        with self.assertRaises(anthropic.AuthenticationError) as caught:
            self.with_key("wrong").messages.create(model=self.model, messages=QUESTION, max_tokens=4)
        self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")
        for fields in ({"max_tokens": 0}, {"messages": []}, {"extra_body": {"temperature": -1}}):
            with self.subTest(fields=fields), self.assertRaises(anthropic.BadRequestError) as caught:
                self.message(**fields)
            self.assertEqual(caught.exception.body["type"], "error")
            self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.create(model="other", messages=QUESTION, max_tokens=4)

    def test_leaving_a_stream_ends_the_request(self):
        with self.client.messages.stream(model=self.model, messages=QUESTION, max_tokens=3000, thinking=OFF) as stream:
            next(iter(stream))
        self.assert_idle()


if __name__ == "__main__":
    unittest.main()
