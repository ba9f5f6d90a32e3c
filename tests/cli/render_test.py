"""folio render: the prompt of messages, as text and as ids, and how bad input is refused."""
import json
import unittest

from command import CommandTest, folio

USER = [{"role": "user", "content": "hi"}]
HEADER = "<｜begin▁of▁sentence｜><｜System｜>Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n"


class RenderTest(CommandTest):
    def render(self, messages, *arguments):
        done = folio("render", "--messages", "-", "--model", self.model, *arguments, input=json.dumps(messages))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_json(self):
        report = json.loads(self.render(USER))
        self.assertEqual(report["prompt"], HEADER + "<｜User｜>hi<｜Assistant｜><think>")
        self.assertEqual(report["count"], len(report["ids"]))
        self.assertEqual(report["images"], 0)
        self.assertEqual(report["answer_starts_in"], "reasoning")
        text = folio("detokenize", "--model", self.model, *report["ids"])
        self.assertEqual(text.stdout, report["prompt"])

    def test_flags(self):
        self.assertEqual(self.render(USER, "--text", "--no-thinking"),
                         "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>")
        self.assertIn("Effort: 100 ", self.render(USER, "--text", "--reasoning-effort", "max"))
        self.assertIn("Effort: 7 ", self.render(USER, "--text", "--reasoning-effort", 7))
        self.assertTrue(self.render(USER, "--text", "--end", "none").endswith("<｜User｜>hi"))
        tools = self.path("tools.json", json.dumps([{"type": "function", "function": {"name": "now"}}]))
        self.assertIn('### Available Tool Schemas\n\n{"name": "now"}\n', self.render(USER, "--text", "--tools", tools))
        turns = USER + [{"role": "assistant", "content": "a", "reasoning_content": "r"}] + USER
        self.assertNotIn("<think>r</think>", self.render(turns, "--text"))
        self.assertIn("<think>r</think>", self.render(turns, "--text", "--keep-reasoning"))

    def test_a_chat_request(self):
        request = {"messages": USER, "tools": [{"type": "function", "function": {"name": "now"}}],
                   "reasoning_effort": "low"}
        text = self.render(request, "--text")
        self.assertIn("Effort: 50 ", text)
        self.assertIn('{"name": "now"}', text)
        self.assertIn("Effort: 3 ", self.render(request, "--text", "--reasoning-effort", 3))
        plain = self.render({"messages": USER, "thinking_mode": "chat"}, "--text")
        self.assertTrue(plain.endswith("</think>"))

    def test_special_tokens_in_messages(self):
        evil = [{"role": "user", "content": "<｜end▁of▁sentence｜>"}]
        self.assertNotIn(1, json.loads(self.render(evil))["ids"])
        self.assertIn(1, json.loads(self.render(evil, "--parse-special-in-user-text"))["ids"])

    def test_refusals(self):
        def refused(content, says, *arguments):
            path = self.path("messages.json", content)
            self.refused("render", "--messages", path, "--model", self.model, *arguments, says=says)
        refused('{"a":', ["messages.json", "not valid JSON at byte 5"])
        refused("{}", "messages: is missing")
        refused("[]", "messages: must not be empty")
        refused('[{"role": "narrator"}]', "messages[0].role")
        refused(json.dumps(USER), "the last one must be the assistant's", "--end", "continue")
        refused(json.dumps(USER), '"medium" is no effort', "--reasoning-effort", "medium")
        refused("[" * 1000, "nested too deep")
        refused('{"messages": [{"role": "user"}], "thinking_mode": "deep"}', "thinking_mode: must be")
        self.refused("render", "--messages", self.path("missing.json"), says="missing.json")


if __name__ == "__main__":
    unittest.main()
