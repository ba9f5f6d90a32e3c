"""The openai package against a running server: chats, streams, tools, responses, completions, structured output, errors."""
import asyncio
import json
import math
import unittest
from typing import Literal

from server import Server, ServerTest, need

need("openai", "pydantic")
import openai  # noqa: E402
import pydantic  # noqa: E402

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a colour."}]
PLAIN = {"thinking": {"type": "disabled"}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Bergen", "Lima"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


class Verdict(pydantic.BaseModel):
    colour: Literal["red", "green", "blue"]
    sure: bool
    shades: list[Literal["light", "dark"]] = pydantic.Field(max_length=2)


class OpenAi(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="unused", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    def chat(self, messages=QUESTION, extra=PLAIN, **fields):
        fields = {"max_tokens": 24, "temperature": 0, **fields}
        return self.client.chat.completions.create(model=self.model, messages=messages, extra_body=extra, **fields)

    # -- models ---------------------------------------------------------------------------------------

    def test_models(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("no-such-model")

    # -- chat -----------------------------------------------------------------------------------------

    def test_chat(self):
        reply = self.chat()
        choice = reply.choices[0]
        self.assertEqual(reply.object, "chat.completion")
        self.assertTrue(reply.id.startswith("chatcmpl-"))
        self.assertEqual(choice.message.role, "assistant")
        self.assertIn(choice.finish_reason, ("stop", "length"))
        self.assertEqual(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens)
        self.assertLessEqual(reply.usage.completion_tokens, 24)
        self.assertEqual(self.chat().choices[0].message.content, choice.message.content)

    def test_thinking_is_apart_from_the_answer(self):
        message = self.chat(extra={"thinking": {"type": "enabled"}, "reasoning_effort": "low"}).choices[0].message
        self.assertTrue(message.reasoning_content)
        for text in (message.reasoning_content, message.content or ""):
            self.assertNotIn("think>", text)

    def test_a_stream_is_the_answer_in_parts(self):
        for thinking in ("enabled", "disabled"):
            extra = {"thinking": {"type": thinking}, "ignore_eos": True}
            whole = self.chat(extra=extra).choices[0]
            chunks = list(self.chat(extra=extra, stream=True, stream_options={"include_usage": True}))
            deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
            self.assertEqual(deltas[0].role, "assistant")
            self.assertEqual("".join(delta.content or "" for delta in deltas), whole.message.content or "")
            self.assertEqual("".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas),
                             getattr(whole.message, "reasoning_content", None) or "")
            self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason],
                             [whole.finish_reason])
            self.assertEqual(len({chunk.id for chunk in chunks}), 1)
            self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 24))

    def test_choices_logprobs_and_seeds(self):
        fields = {"n": 2, "temperature": 1.0, "seed": 7, "logprobs": True, "top_logprobs": 3, "max_tokens": 6,
                  "extra": {**PLAIN, "ignore_eos": True}}
        first, again = self.chat(**fields), self.chat(**fields)
        self.assertEqual([choice.index for choice in first.choices], [0, 1])
        self.assertEqual([choice.message.content for choice in first.choices], [choice.message.content for choice in again.choices])
        for choice in first.choices:
            self.assertEqual(len(choice.logprobs.content), 6)
            for token in choice.logprobs.content:
                self.assertEqual(len(token.top_logprobs), 3)
                self.assertGreaterEqual(token.top_logprobs[0].logprob, token.logprob)

    def test_a_stop_string_ends_the_answer(self):
        text = self.chat(extra={**PLAIN, "ignore_eos": True}).choices[0].message.content
        stop = text[len(text) // 2:][:3]
        choice = self.chat(extra={**PLAIN, "ignore_eos": True}, stop=[stop]).choices[0]
        self.assertEqual((choice.message.content, choice.finish_reason), (text[:text.index(stop)], "stop"))

    def test_leaving_a_stream_ends_the_request(self):
        before = self.server.metric("vllm:request_success_total")
        stream = self.chat(extra={**PLAIN, "ignore_eos": True}, max_tokens=3000, stream=True)
        next(iter(stream))
        stream.close()
        self.assert_idle()
        self.server.wait_for(lambda: self.server.metric("vllm:request_success_total") == before + 1)

    def test_many_at_once(self):
        async def ask(client, i):
            reply = await client.chat.completions.create(
                model=self.model, messages=[{"role": "user", "content": f"Count to {i}."}], max_tokens=8, temperature=0, extra_body=PLAIN)
            return reply.choices[0].message.content

        async def ask_all(count, together):
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="unused", max_retries=0) as client:
                if together:
                    return await asyncio.gather(*(ask(client, i) for i in range(count)))
                return [await ask(client, i) for i in range(count)]

        self.assertEqual(asyncio.run(ask_all(12, True)), asyncio.run(ask_all(12, False)))

    # -- tools ----------------------------------------------------------------------------------------

    def assert_weather_call(self, call):
        self.assertEqual(call.function.name, "get_weather")
        arguments = json.loads(call.function.arguments)
        self.assertIn(arguments["city"], ("Bergen", "Lima"))
        self.assertTrue(1 <= arguments["days"] <= 7)

    def test_tools_round_trip(self):
        messages = [{"role": "user", "content": "Will it rain in Bergen?"}]
        tools = {"tools": [WEATHER], "max_tokens": 400}
        first = self.chat(messages, tool_choice="required", parallel_tool_calls=False, **tools).choices[0]
        self.assertEqual(first.finish_reason, "tool_calls")
        self.assertEqual(len(first.message.tool_calls), 1)
        self.assert_weather_call(first.message.tool_calls[0])
        messages += [first.message, {"role": "tool", "tool_call_id": first.message.tool_calls[0].id, "content": "Rain."}]
        second = self.chat(messages, tool_choice="none", **tools).choices[0]
        self.assertIsNone(second.message.tool_calls)
        self.assertNotIn("DSML", second.message.content or "")

    def test_a_named_tool_in_a_stream(self):
        chunks = list(self.chat([{"role": "user", "content": "Rain?"}], tools=[WEATHER], max_tokens=400, stream=True,
                                tool_choice={"type": "function", "function": {"name": "get_weather"}}, parallel_tool_calls=False))
        parts = [part for chunk in chunks if chunk.choices for part in chunk.choices[0].delta.tool_calls or []]
        self.assertEqual([part.function.name for part in parts if part.function.name], ["get_weather"])
        self.assertEqual(len([part.id for part in parts if part.id]), 1)
        arguments = json.loads("".join(part.function.arguments or "" for part in parts))
        self.assertIn(arguments["city"], ("Bergen", "Lima"))
        self.assertEqual(chunks[-1].choices[0].finish_reason if chunks[-1].choices else None, "stop")

    # -- structured output ----------------------------------------------------------------------------

    def test_a_pydantic_class(self):
        for extra in (PLAIN, {"thinking": {"type": "disabled"}, "temperature": 1.0, "seed": 3}):
            reply = self.client.chat.completions.parse(model=self.model, messages=QUESTION, response_format=Verdict, max_tokens=400,
                                                       extra_body=extra)
            self.assertIsInstance(reply.choices[0].message.parsed, Verdict)

    def test_json_object_and_choices(self):
        content = self.chat(response_format={"type": "json_object"}, max_tokens=600, extra={**PLAIN, "temperature": 1, "seed": 5}).choices[0]
        if content.finish_reason == "stop":
            self.assertIsInstance(json.loads(content.message.content), dict)
        picked = self.chat(extra={**PLAIN, "structured_outputs": {"choice": ["red", "green"]}}).choices[0].message.content
        self.assertIn(picked, ("red", "green"))

    # -- completions ----------------------------------------------------------------------------------

    def test_completions_with_logprobs(self):
        reply = self.client.completions.create(model=self.model, prompt="The sea is", max_tokens=5, temperature=0, logprobs=2, echo=True,
                                               extra_body={"ignore_eos": True})
        choice, usage = reply.choices[0], reply.usage
        self.assertTrue(choice.text.startswith("The sea is"))
        entries = choice.logprobs
        self.assertEqual(len(entries.tokens), usage.prompt_tokens + 5)
        self.assertIsNone(entries.token_logprobs[0])
        for token, value, top in zip(entries.tokens[1:], entries.token_logprobs[1:], entries.top_logprobs[1:]):
            self.assertEqual(top[token], value)
            self.assertTrue(math.isfinite(value) and value <= 0)
        for value, top in list(zip(entries.token_logprobs, entries.top_logprobs))[usage.prompt_tokens:]:
            self.assertEqual(max(top.values()), value)  # temperature 0 takes the most likely

    def test_batches_of_prompts_and_token_ids(self):
        ids = self.server.post("/tokenize", {"prompt": "The sea is", "add_special_tokens": True})["tokens"]
        fields = {"model": self.model, "max_tokens": 4, "temperature": 0}
        texts = self.client.completions.create(prompt=["The sea is", "A stone"], n=2, **fields).choices
        self.assertEqual([choice.index for choice in texts], [0, 1, 2, 3])
        self.assertEqual(texts[0].text, texts[1].text)
        self.assertEqual(self.client.completions.create(prompt=ids, **fields).choices[0].text, texts[0].text)
        streamed = self.client.completions.create(prompt="The sea is", stream=True, **fields)
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed if chunk.choices), texts[0].text)

    # -- responses ------------------------------------------------------------------------------------

    def respond(self, **fields):
        return self.client.responses.create(model=self.model, max_output_tokens=24, temperature=0, reasoning={"effort": "none"},
                                            extra_body={"ignore_eos": True}, **fields)

    def test_responses(self):
        reply = self.respond(input="Name a colour.", instructions="Be brief.")
        self.assertIn(reply.status, ("completed", "incomplete"))
        self.assertTrue(reply.output_text)
        self.assertEqual(reply.usage.total_tokens, reply.usage.input_tokens + reply.usage.output_tokens)
        following = self.respond(input="Another.", previous_response_id=reply.id)
        self.assertEqual(following.previous_response_id, reply.id)
        self.assertGreater(following.usage.input_tokens, reply.usage.input_tokens)

    def test_a_stream_of_responses(self):
        whole = self.respond(input="Name a colour.")
        events = list(self.respond(input="Name a colour.", stream=True))
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual(events[-1].response.output_text, text)

    def test_a_function_call_in_responses(self):
        tool = {"type": "function", **WEATHER["function"], "strict": True}
        reply = self.client.responses.create(model=self.model, input="Rain in Lima?", tools=[tool], tool_choice="required", max_output_tokens=400,
                                             parallel_tool_calls=False, reasoning={"effort": "none"})
        call = next(item for item in reply.output if item.type == "function_call")
        self.assertEqual(call.name, "get_weather")
        self.assertIn(json.loads(call.arguments)["city"], ("Bergen", "Lima"))
        again = self.client.responses.create(model=self.model, tools=[tool], tool_choice="none", max_output_tokens=8, reasoning={"effort": "none"}, input=[
            {"role": "user", "content": "Rain in Lima?"}, call, {"type": "function_call_output", "call_id": call.call_id, "output": "No."}])
        self.assertIn(again.status, ("completed", "incomplete"))

    # -- errors ---------------------------------------------------------------------------------------

    def test_bad_requests(self):
        for fields in ({"messages": []}, {"temperature": -1}, {"max_tokens": 0}, {"top_logprobs": 2}, {"n": 0}, {"top_p": 1.5},
                       {"messages": [{"role": "wizard", "content": "hello"}]},
                       {"response_format": {"type": "json_schema"}},
                       {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "other"}}},
                       {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]}):
            with self.subTest(fields=fields), self.assertRaises(openai.BadRequestError) as caught:
                self.chat(**fields)
            self.assertEqual(caught.exception.status_code, 400)
            self.assertTrue(caught.exception.body["message"])
        self.assertTrue(self.chat().choices)

    def test_a_prompt_beyond_the_context(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat([{"role": "user", "content": "word " * 6000}])
        self.assertIn("maximum context length is 4096 tokens", str(caught.exception))

    def test_an_unknown_model(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="other", messages=QUESTION)
        self.assertIn("other", str(caught.exception))


class Limits(ServerTest):
    flags = ("--api-key", "first", "--api-key", "second", "--max-requests", "1", "--max-body-size", "1")

    def client(self, key):
        return openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=0)

    def test_keys(self):
        for key in ("first", "second"):
            self.assertTrue(self.client(key).models.list().data)
        for key in ("third", "firs", "firstfirst"):
            with self.subTest(key=key), self.assertRaises(openai.AuthenticationError):
                self.client(key).models.list()

    def test_too_many_requests(self):
        client = self.client("first")
        model = client.models.list().data[0].id
        fields = {"model": model, "messages": QUESTION, "max_tokens": 3000, "extra_body": {"ignore_eos": True}}
        with client.chat.completions.create(stream=True, **fields) as stream:
            next(iter(stream))
            with self.assertRaises(openai.RateLimitError) as caught:
                client.chat.completions.create(**fields)
            self.assertGreaterEqual(int(caught.exception.response.headers["retry-after"]), 1)
        self.assert_idle()

    def test_a_body_beyond_the_limit(self):
        with self.assertRaises(openai.APIStatusError) as caught:
            self.client("first").chat.completions.create(model="any", messages=[{"role": "user", "content": "x" * (2 << 20)}])
        self.assertEqual(caught.exception.status_code, 413)


class Drain(unittest.TestCase):
    def test_a_stop_lets_a_stream_end(self):
        with Server("--max-model-len", 4096) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)
            stream = client.completions.create(model=client.models.list().data[0].id, prompt="a", max_tokens=100, stream=True,
                                               extra_body={"ignore_eos": True}, stream_options={"include_usage": True})
            chunks = iter(stream)
            next(chunks)
            server.process.terminate()
            rest = list(chunks)
            self.assertEqual(rest[-1].usage.completion_tokens, 100)
            self.assertEqual(server.process.wait(timeout=30), 0)


if __name__ == "__main__":
    unittest.main()
