"""docs/admission.md, row by row: each refusal that it lists happens, with its message, in one line and with its status."""
import json
import os
import re
import shlex
import shutil
import unittest

from command import FOLIO, CommandTest, folio

DOCUMENT = os.path.join(os.environ["FOLIO_SOURCE_DIR"], "docs", "admission.md")


def rows():
    """(section, what is refused, message) of every row whose first two cells are code."""
    section = None
    with open(DOCUMENT, encoding="utf-8") as f:
        for line in f:
            if line.startswith("## "):
                section = line[3:].strip()
            cells = re.findall(r"\| (?:`([^`]*)`)?", line)
            if len(cells) >= 2 and cells[0] and cells[1]:
                yield section, cells[0], cells[1]


class Admission(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nano = os.path.join(cls.scratch.name, "nano")  # CommandTest's
        made = folio("make-checkpoint", "--preset", "slots", "--out", os.path.join(cls.scratch.name, "slots"))
        assert made.returncode == 0, made.stderr
        with open(os.path.join(cls.scratch.name, "t.jsonl"), "w", encoding="utf-8") as f:
            f.write('{"tokens": [5, 6, 7], "max_tokens": 40}\n')
        made = folio("calibrate", "--model", "nano", "--prompts", "t.jsonl", "--out", "nano.json", "--max-num-seqs", 1,
                     "--seconds", 0, cwd=cls.scratch.name)
        assert made.returncode == 0, made.stderr

    def changed_checkpoint(self):
        """A copy of nano that may be changed."""
        copy = self.path("changed")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.nano, copy)
        return copy

    def refused_with(self, message, *arguments):
        done = folio(*arguments, cwd=self.scratch.name)
        self.assertEqual(done.returncode, 1 if "in memory" in message else 2, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(message, done.stderr)

    def check_command(self, command, message):
        self.refused_with(message, *shlex.split(command)[1:])

    def check_config(self, change, message):
        key, value = change.split(" = ", 1)
        copy = self.changed_checkpoint()
        path = os.path.join(copy, "config.json")
        with open(path) as f:
            config = json.load(f)
        *parents, last = key.split(".")
        part = config
        for parent in parents:
            part = part[parent]
        part[last] = json.loads(value)
        with open(path, "w") as f:
            json.dump(config, f)
        self.refused_with(message, "run", "--model", copy, "--tokens", "5")

    def check_file(self, change, message):
        what, name = change.split(" ")
        copy = self.changed_checkpoint()
        path = os.path.join(copy, name)
        if what == "remove":
            os.remove(path)
        else:
            os.truncate(path, os.path.getsize(path) // 2)
        self.refused_with(message, "run", "--model", copy, "--tokens", "5")

    def check_line(self, line, message):
        source, out = self.path("in.jsonl", line + "\n"), self.path("out.jsonl")
        done = folio("batch", "--model", self.nano, "--input", source, "--output", out)
        self.assertEqual(done.returncode, 1, done.stderr)
        with open(out) as f:
            self.assertIn(message, json.loads(f.read())["error"]["message"])
        os.remove(out)

    def test_every_row(self):
        counts = {}
        for section, refused, message in rows():
            kind = {"folio": "command", "{": "line", "remove": "file", "truncate": "file"}.get(
                "{" if refused.startswith("{") else refused.split(" ")[0], "config")
            counts[kind] = counts.get(kind, 0) + 1
            with self.subTest(section=section, refused=refused):
                getattr(self, "check_" + kind)(refused, message)
        for kind, least in (("command", 40), ("config", 40), ("file", 4), ("line", 9)):
            self.assertGreaterEqual(counts.get(kind, 0), least, f"{kind} rows of {DOCUMENT}")


if __name__ == "__main__":
    unittest.main()
