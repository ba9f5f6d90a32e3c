"""Prompts and answers at random, by Folio and by the rules written down once more (render_rules.py, parse_rules.py).

    compare_rules.py PROBE [--count N] [--seed N]

PROBE is folio_chat_probe. A difference is printed with its case, which is one line of JSON for the probe.
"""
import argparse
import json
import random
import subprocess
import sys

import parse_rules
import render_rules

TEXTS = ["hi", "", "<｜User｜>", "a\n\nb", "é😀 \"q\" \\", "<think>", "</think>x", "line\u0001\t"]
VALUES = [1, 1.5, 1e16, 1e5, -0.0, "s", "", None, True, [1, "é"], {"x": {"y": []}}, 123456789012345678901234567890, 1e-7, 5e-324]
BROKEN_ARGUMENTS = ["", '{"a":', "[1]", "null", '"x"', "1.50", '{"a": 1.50, "b": 1E400, "a": 2}', '{"k": -0, "l": 1e5}']
TASKS = ["action", "query", "authority", "domain", "title", "read_url"]

MARK = parse_rules.MARK
ANSWER_TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["string", "null"]}, "d": {}}}}},
    {"type": "function", "function": {"name": "g", "parameters": {}}},
    {"type": "function", "function": {"name": "h", "parameters": {"properties": {"input": {"type": "object"}}}}}]
BLOCK = [f"\n\n<{MARK} calls>\n", f'<{MARK} invoke name="f">\n', f'<{MARK} parameter name="a" string="true">', f"</{MARK} parameter>\n",
         f"</{MARK} invoke>\n", f"</{MARK} calls>"]
PIECES = BLOCK + [
    "<think>", "</think>", "\n", "\n\n", " ", "x", "hello <b>", "<", "</", "<｜DSML", MARK, f"<{MARK}", f"</{MARK}", f"<{MARK}calls>", f"<{MARK} tool_calls>",
    f"</{MARK}function_calls>", f"</{MARK} tool_calls>", f'<{MARK} invoke name="', f'<{MARK} invoke name="g">\n', f'<{MARK} invoke name="h"/>',
    '<invoke name="f">', f"</{MARK}invoke>\n", f'<{MARK} parameter name="b" string="false">', f'<{MARK} parameter name="c">',
    f'<{MARK}parameter name="d" string="false">', '<parameter name="input" string="false">', f'<{MARK} parameter name="arguments" string="true">',
    '{"a": 1}', '{"a": "q", "b": 2}', "1", "[1, 2]", "null", '"s"', '{"z": [}', "}", '"', ">", '">', '" string="true">', '" string="maybe">',
    'name="', "<invoke>", "calls>", "é", "😀"]


class Dice(random.Random):
    def chance(self, share):
        return self.random() < share

    def values(self):
        return {self.choice("abcdé"): self.choice(VALUES) for _ in range(self.randint(0, 3))}

    def tool(self):
        function = {"name": self.choice(["f", "g", "ns::h"]), "description": self.choice(["d", ""]), "parameters": self.values()}
        tool = {"type": "function", "function": function}
        if "::" not in function["name"] and self.chance(0.3):
            self.choice([tool, function])["namespace"] = self.choice(["sp", {"name": "sp", "description": "about"}, {"name": "sp"}])
        return tool

    def call(self, number):
        values = self.values()
        arguments = self.choice([values, json.dumps(values), json.dumps(values, ensure_ascii=False), json.dumps(json.dumps(values)),
                                 self.choice(BROKEN_ARGUMENTS)])
        return {"id": f"c{number}", "type": "function", "function": {"name": self.choice(["f", "ns::h"]), "arguments": arguments}}

    def part(self, of_user):
        if self.chance(0.7):
            return {"type": "text", "text": self.choice(TEXTS)}
        if not of_user or self.chance(0.6):
            return {"type": "video", "x": 1}
        content = self.choice([self.choice(TEXTS), [{"type": "text", "text": "p"}, {"type": "audio"}]])
        return {"type": "tool_result", "id": self.choice(["c1", "c2", "zz"]), "content": content}

    def message(self):
        role = self.choice(["system", "user", "user", "assistant", "assistant", "tool", "tool", "latest_reminder"])
        message = {"role": role, "content": self.choice(TEXTS + [None, [self.part(role == "user") for _ in range(self.randint(0, 3))]])}
        if role == "assistant":
            message["reasoning_content"] = self.choice(TEXTS + [None])
            message["tool_calls"] = [self.call(i + 1) for i in range(self.choice([0, 0, 1, 3]))]
            message["wo_eos"] = self.chance(0.08)
        elif role == "tool" and self.chance(0.8):
            message["tool_call_id"] = self.choice(["c1", "c2", "c3", "zz"])
        elif role == "system":
            message["tools"] = [self.tool() for _ in range(self.choice([0, 0, 0, 1, 2]))]
            if self.chance(0.15):
                message["response_format"] = {"a": 1, **self.values()}
        if role in ("user", "system") and self.chance(0.08):
            message["task"] = self.choice(TASKS)
        return message

    def conversation(self):
        messages = [self.message() for _ in range(self.randint(1, 7))]
        ends = ["reference", "reference", "generate", "none"] + ["continue"] * 2 * (messages[-1]["role"] == "assistant")
        return {"messages": messages, "tools": [self.tool() for _ in range(self.choice([0, 0, 0, 1, 2]))], "thinking": self.chance(0.7),
                "effort": self.randint(1, 100), "drop": self.chance(0.8), "end": self.choice(ends)}

    def answer(self):
        if self.chance(0.5):
            text = "".join(self.choice(PIECES) for _ in range(self.randint(1, 14)))
        else:
            text = self.choice(["", "r</think>", "hi"])
            for piece in BLOCK:
                text += piece * self.chance(0.85)
                while self.chance(0.35):
                    text += self.choice(PIECES)
        return {"text": text, "start": self.choice(["reasoning", "content"]), "calls": self.chance(0.9), "tools": ANSWER_TOOLS, "stop": self.chance(0.6)}


def expected(case):
    if "messages" in case:
        return {"text": render_rules.render(**case)}
    return parse_rules.parse(case["text"], case["start"], case["calls"], case["tools"], case["stop"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probe", metavar="PROBE")
    parser.add_argument("--count", type=int, default=10000, help="cases of each kind (default: 10000)")
    parser.add_argument("--seed", type=int, default=1, help="of the cases (default: 1)")
    arguments = parser.parse_args()
    dice = Dice(arguments.seed)
    cases = [make() for _ in range(arguments.count) for make in (dice.conversation, dice.answer)]
    lines = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
    outputs = subprocess.run([arguments.probe], input=lines, capture_output=True, text=True, check=True, timeout=600).stdout.splitlines()
    assert len(outputs) == len(cases), f"{len(outputs)} answers to {len(cases)} cases"
    different = calls = 0
    for case, output in zip(cases, map(json.loads, outputs)):
        wanted = expected(case)
        calls += bool(wanted.get("calls"))
        if output != wanted:
            different += 1
            if different <= 5:
                print(json.dumps(case, ensure_ascii=False), "\n  Folio:", json.dumps(output, ensure_ascii=False), "\n  rules:", json.dumps(wanted, ensure_ascii=False))
    print(f"{len(cases)} cases, {calls} of them with calls: {different} differences")
    sys.exit(different > 0 or calls < arguments.count // 4)


if __name__ == "__main__":
    main()
