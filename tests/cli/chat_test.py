"""folio chat: with its input from a pipe, and on a pseudo-terminal."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import unittest

from command import FOLIO, CommandTest, folio


class ChatTest(CommandTest):
    def chat(self, lines, *arguments, **keywords):
        done = folio("chat", "--model", self.model, "--max-tokens", 8, "--ignore-eos", *arguments, input=lines,
                     **keywords)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def reports(self, done):
        return re.findall(r"\[(\d+) tokens at [\d.]+ tok/s, the first after [\d.]+ s; (\d+) of (\d+) prompt tokens cached"
                          r"(; [^\]]*)?\]", done.stderr)

    def test_each_line_is_a_message(self):
        done = self.chat("hello\n\n  \nthe world\n", "--no-thinking")
        reports = self.reports(done)
        self.assertEqual(len(reports), 2, done.stderr)
        self.assertEqual(reports[0][0], "8")
        self.assertIn("--max-tokens", reports[0][3])
        self.assertGreater(int(reports[1][2]), int(reports[0][2]))
        self.assertEqual(done.stdout, self.chat("hello\nthe world\n", "--no-thinking").stdout)
        self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_last_line_needs_no_newline(self):
        self.assertEqual(len(self.reports(self.chat("hello"))), 1)

    def test_the_answer_is_that_of_run(self):
        prompt = folio("render", "--model", self.model, "--messages", "-", "--no-thinking", "--text",
                       input='[{"role": "user", "content": "the time of day"}]').stdout
        run = self.run_json("--prompt", prompt, "--max-tokens", 8, "--ignore-eos", "--temperature", 0)
        chat = self.chat("the time of day\n", "--no-thinking", "--temperature", 0).stdout
        self.assertEqual(chat.rstrip("\n"), run["text"].rstrip("\n"))

    def test_later_turns_go_on_from_the_prefix_cache(self):
        done = self.chat("word " * 40 + "\nand more\n", "--no-thinking", "--block-size", 16)
        self.assertGreaterEqual(int(self.reports(done)[1][1]), 16, done.stderr)

    def test_reasoning_stands_apart(self):
        done = self.chat("hello\n")
        self.assertTrue(done.stdout.startswith("thinking: "), done.stdout)
        self.assertFalse(self.chat("/think off\nhello\n").stdout.startswith("thinking: "))

    def test_commands(self):
        saved = self.path("saved.json")
        if os.path.exists(saved):
            os.unlink(saved)
        done = self.chat(f"/help\n/system Be brief.\n/think 7\nhello\n/save {saved}\n/save {saved}\n/reset\n/dance\n"
                         "/think a lot\n/quit\nunread\n")
        for says in ("/reset", "The system message is set", "effort 7", "3 messages are in", "is there already",
                     "starts anew", "There is no /dance", '"a lot" is no effort'):
            self.assertIn(says, done.stderr)
        self.assertEqual(len(self.reports(done)), 1)
        with open(saved) as file:
            messages = json.load(file)
        self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant"])
        self.assertEqual([m["content"] for m in messages[:2]], ["Be brief.", "hello"])
        longer = self.reports(self.chat("again\n", "--messages", saved))[0][2]
        self.assertGreater(int(longer), int(self.reports(done)[0][2]))

    def test_lines_that_go_on(self):
        one = self.reports(self.chat("a\\\nb\n", "--no-thinking"))
        self.assertEqual(len(one), 1)

    def test_stop_strings_end_answers(self):
        text = self.chat("hello\n", "--no-thinking", "--temperature", 0).stdout.rstrip("\n")
        stop = text[len(text) // 2]
        done = self.chat("hello\n", "--no-thinking", "--temperature", 0, "--stop", stop)
        self.assertEqual(done.stdout.rstrip("\n"), text[:text.index(stop)].rstrip("\n"))

    def test_tools_of_a_conversation(self):
        def call(id, city):
            return {"id": id, "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
        given, saved = self.path("tools.json"), self.path("tools-saved.json")
        with open(given, "w") as file:
            json.dump({"tools": [tool], "messages": [
                {"role": "user", "content": "Oslo and Lima?"},
                {"role": "assistant", "content": None, "tool_calls": [call("a", "Oslo"), call("b", "Lima")]}]}, file)
        if os.path.exists(saved):
            os.unlink(saved)
        done = self.chat(f"/result rain\n/result sun\n/result more\n/save {saved}\n", "--messages", given, "--no-thinking")
        for says in ("Next: the result of weather.", "No call waits for a result.", f"6 messages are in {saved}."):
            self.assertIn(says, done.stderr)
        self.assertEqual(len(self.reports(done)), 1)  # the model goes on when it has both results
        with open(saved) as file:
            messages = json.load(file)
        self.assertEqual([message["role"] for message in messages], ["system", "user", "assistant", "tool", "tool", "assistant"])
        self.assertEqual(messages[0]["tools"], [tool])
        self.assertEqual(messages[2]["tool_calls"], [call("a", "Oslo"), call("b", "Lima")])
        self.assertEqual([(message["tool_call_id"], message["content"]) for message in messages[3:5]], [("a", "rain"), ("b", "sun")])
        prompt = folio("render", "--model", self.model, "--messages", saved, "--no-thinking", "--text").stdout
        self.assertIn("<tool_result>rain</tool_result>\n\n<tool_result>sun</tool_result>", prompt)
        self.assertIn("Available Tool Schemas", prompt)

    def test_refusals(self):
        self.refused("chat", "--model", self.model, "--reasoning-effort", "lots", says="--reasoning-effort", input="")
        self.refused("chat", "--model", self.model, "--messages", self.path("none.json"), says="none.json", input="")
        self.refused("chat", "--model", self.model, "--max-model-len", 32, says=["32", "prompt"], input="a " * 100 + "\n")


class TerminalTest(CommandTest):
    """folio chat as somebody at a terminal sees it."""

    def setUp(self):
        self.state = self.path("state")

    def start(self, *arguments, **environment):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update({"XDG_STATE_HOME": self.state, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
            if "NO_COLOR" not in environment:
                os.environ.pop("NO_COLOR", None)
            os.execv(FOLIO, [FOLIO, "chat", "--model", self.model, "--ignore-eos", *map(str, arguments)])
        self.seen = ""
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(self.stop)

    def stop(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def read_until(self, pattern, seconds=60):
        """Waits for a pattern behind what has been waited for; returns the text up to its end."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            self.assertTrue(ready, f"no {pattern!r} in {self.seen!r}")
            try:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:
                self.fail(f"the program has ended; no {pattern!r} in {self.seen!r}")
        text, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return text

    def type(self, text):
        os.write(self.terminal, text.encode())

    def end_status(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.05)[0]:
                try:
                    os.read(self.terminal, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        self.fail("the program did not end")

    def test_ctrl_c_ends_the_answer_and_not_the_program(self):
        self.start("--max-tokens", 1000000, "--max-model-len", 2000)
        self.read_until("Type a message")
        self.read_until("> ")
        self.type("hello\n")
        self.read_until(r"\x1b\[2m")  # it has begun to think
        self.type("\x03")
        self.assertIn("cancelled", self.read_until(r"prompt tokens cached[^\]]*\]"))
        self.read_until("> ")
        self.type("\x03")
        self.read_until("Ctrl-D leaves")
        self.read_until("> ")
        self.type("half a message\x03")
        self.read_until("Ctrl-D leaves")
        self.read_until("> ")
        self.type("/think off\n")
        self.read_until("Answering without thinking")
        self.read_until("> ")  # the terminal would take an end that comes before the editor for its own
        self.type("\x04")
        self.assertEqual(self.end_status(), 0)

    def test_editing_and_history(self):
        self.start("--max-tokens", 4, "--no-thinking")
        self.read_until("Type a message")
        self.type("/system onn\x7fe é\n")
        self.read_until("The system message is set")
        saved = self.path("edited.json")
        if os.path.exists(saved):
            os.unlink(saved)
        self.type(f"/save {saved}\n")
        self.read_until("messages are in")
        self.read_until("> ")
        self.type("\x04")
        self.assertEqual(self.end_status(), 0)
        with open(saved) as file:
            self.assertEqual(json.load(file)[0]["content"], "one é")
        history = os.path.join(self.state, "folio", "chat_history")
        self.assertEqual(os.stat(history).st_mode & 0o077, 0)

        self.start("--max-tokens", 4, "--no-thinking")
        self.read_until("Type a message")
        self.read_until("> ")
        self.type("\x1b[A\x1b[A\n")  # two lines up
        self.read_until("The system message is set")
        self.read_until("> ")
        self.type("\x04")
        self.assertEqual(self.end_status(), 0)

    def test_no_color(self):
        self.start("--max-tokens", 4, NO_COLOR="1")
        self.read_until("Type a message")
        self.type("hello\n")
        self.assertNotIn("\x1b[2m", self.read_until(r"prompt tokens cached[^\]]*\]"))


class InterruptTest(CommandTest):
    def test_ctrl_c_with_piped_input_ends_the_program(self):
        process = subprocess.Popen([FOLIO, "chat", "--model", self.model, "--ignore-eos", "--max-tokens", "1000000",
                                    "--max-model-len", "4000"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            process.stdin.write(b"hello\nnever asked\n")
            process.stdin.flush()
            process.stdout.read(20)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 130, errors)
        self.assertEqual(errors.count(b"tok/s"), 1)


if __name__ == "__main__":
    unittest.main()
