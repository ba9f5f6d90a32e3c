"""docs/serving.md and docs/api.md: their examples run against a server, and their flags are those of `folio serve --help`.

Blocks of ```sh and ```python are run; others are configuration of other programs, or take a checkpoint.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from server import FOLIO, ServerTest, need

need("openai", "anthropic")

DOCS = pathlib.Path(os.environ["FOLIO_SOURCE_DIR"]) / "docs"
PAGES = ("serving.md", "api.md")
GROUPS = ("Network", "Service", "Chat")  # of --help; the others are described in architecture.md


class Examples(ServerTest):
    def test_every_example_runs(self):
        for page in PAGES:
            blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
            self.assertGreater(len(blocks), 3, page)
            for number, (language, text) in enumerate(blocks):
                with self.subTest(page=page, block=number, language=language), tempfile.TemporaryDirectory() as folder:
                    text = text.replace("127.0.0.1:8000", self.server.url.removeprefix("http://"))
                    command = [sys.executable, "-c"] if language == "python" else ["bash", "-euo", "pipefail", "-c"]
                    done = subprocess.run([*command, text], capture_output=True, text=True, timeout=300, cwd=folder,
                                          env={**os.environ, "PATH": f"{pathlib.Path(FOLIO).parent}:{os.environ['PATH']}"})
                    self.assertEqual(done.returncode, 0, text + done.stderr)
                    self.assertTrue(done.stdout.strip(), text)
                    self.assertNotIn('"error":{', done.stdout, text)


class Flags(unittest.TestCase):
    def test_the_table_has_every_flag_with_its_default(self):
        help_text = subprocess.run([FOLIO, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        table = {}
        for flags, default in re.findall(r"^\| (`--.*?) \| (.*?) \|", (DOCS / "serving.md").read_text(), re.MULTILINE):
            for flag in re.findall(r"`(--[a-z-]+)", flags):
                table[flag] = default
        found = {}
        for group in GROUPS:
            body = re.search(rf"^{group}:\n(.*?)(?=^\S|\Z)", help_text, re.MULTILINE | re.DOTALL).group(1)
            for flag, rest in re.findall(r"^  (--[a-z-]+)(.*)$", body, re.MULTILINE):
                default = re.search(r"=(\S+)", rest)
                found[flag] = default.group(1) if default and default.group(1) != "[]" else None
        self.assertEqual(set(table), set(found))
        for flag, default in found.items():
            if default is not None:
                self.assertTrue(table[flag].startswith(f"`{default}`"), f"{flag}: {table[flag]} in the table, {default} in --help")

    def test_what_the_pages_name_is_there(self):
        for page in PAGES:
            text = (DOCS / page).read_text()
            for target in re.findall(r"\]\(([^)#]+)", text):
                if "://" not in target:
                    self.assertTrue((DOCS / target).exists(), f"{page}: {target}")


if __name__ == "__main__":
    unittest.main()
