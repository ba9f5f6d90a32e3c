"""What the tests of the command line share: a small checkpoint, and the binary named by the environment variable FOLIO."""
import json
import os
import subprocess
import tempfile
import unittest

FOLIO = os.environ["FOLIO"]


def folio(*arguments, **keywords):
    keywords.setdefault("timeout", 300)
    return subprocess.run([FOLIO, *map(str, arguments)], capture_output=True, text=True, errors="replace", **keywords)


class CommandTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.scratch.name, "nano")
        made = folio("make-checkpoint", "--preset", "nano", "--seed", 3, "--out", cls.model)
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def path(self, name, content=None):
        path = os.path.join(self.scratch.name, name)
        if content is not None:
            with open(path, "w") as f:
                f.write(content)
        return path

    def run_json(self, *arguments):
        done = folio("run", "--model", self.model, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, *arguments, says, status=2, **keywords):
        done = folio(*arguments, **keywords)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        for part in says if isinstance(says, (list, tuple)) else [says]:
            self.assertIn(part, lines[0])
