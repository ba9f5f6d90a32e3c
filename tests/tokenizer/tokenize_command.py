#!/usr/bin/env python3
"""folio tokenize and folio detokenize as a user meets them: output forms, bad input, exit status."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

FOLIO = os.environ["FOLIO"]
END = "<｜end▁of▁sentence｜>"


def small_tokenizer():
    """Bytes 0..255 as ids 0..255, "ab" as 256, then two added tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = (chr(c) for c in range(256, 512))
    vocab = {(chr(b) if b in printable else next(moved)): b for b in range(256)}
    vocab["ab"] = 256
    return {"added_tokens": [{"id": 257, "content": END}, {"id": 258, "content": "<think>"}], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocab, "merges": ["a b"]}}


class TokenizeCommand(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)
        (cls.path / "tokenizer.json").write_text(json.dumps(small_tokenizer()), encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def run_folio(self, *arguments, stdin=b""):
        return subprocess.run([FOLIO, *arguments], input=stdin, capture_output=True, check=False)

    def out(self, command, *arguments, stdin=b""):
        run = self.run_folio(command, "--model", str(self.path), *arguments, stdin=stdin)
        self.assertEqual((run.returncode, run.stderr), (0, b""), arguments)
        return run.stdout.decode()

    def refused(self, reason, *arguments, stdin=b""):
        run = self.run_folio(*arguments, stdin=stdin)
        message = run.stderr.decode()
        self.assertEqual((run.returncode, run.stdout), (2, b""), message)
        self.assertTrue(message.startswith("folio: ") and message.count("\n") == 1, message)
        self.assertIn(reason, message)

    def test_text_comes_from_a_flag_a_file_or_standard_input(self):
        (self.path / "text").write_text("abc", encoding="utf-8")
        self.assertEqual(self.out("tokenize", "--text", "abc"), "256 99\n")
        self.assertEqual(self.out("tokenize", "--file", str(self.path / "text")), "256 99\n")
        self.assertEqual(self.out("tokenize", stdin=b"abc"), "256 99\n")
        self.assertEqual(self.out("tokenize", "--text", ""), "\n")

    def test_a_tokenizer_by_itself(self):
        run = self.run_folio("tokenize", "--tokenizer", str(self.path / "tokenizer.json"), "--text", "ab")
        self.assertEqual(run.stdout, b"256\n")

    def test_added_tokens(self):
        self.assertEqual(self.out("tokenize", "--text", "<think>ab"), "258 256\n")
        self.assertEqual(self.out("tokenize", "--no-special", "--text", "<think>"), "60 116 104 105 110 107 62\n")

    def test_output_forms(self):
        self.assertEqual(json.loads(self.out("tokenize", "--json", "--text", "ab!")), {"count": 2, "ids": [256, 33]})
        self.assertEqual(json.loads(self.out("tokenize", "--json", "--pieces", "--text", "abé"))["pieces"],
                         ["ab", "\ufffd", "\ufffd"])
        self.assertEqual(self.out("tokenize", "--pieces", "--text", "ab\n"), '256\t"ab"\n10\t"\\n"\n')

    def test_json_lines(self):
        lines = b'"ab"\n{"text": "<think><think>", "untrusted": [[7, 8]]}\n{"text": "\\ud83d\\ude00"}\n'
        self.assertEqual(self.out("tokenize", "--json-lines", stdin=lines),
                         "[256]\n[258,60,116,104,105,110,107,62]\n[240,159,152,128]\n")
        self.assertEqual(self.out("detokenize", "--json-lines", stdin=b"[256, 10]\n[]\n"), '"ab\\n"\n""\n')

    def test_compressed_map(self):
        answer = json.loads(self.out("tokenize", "--compressed-map"))
        self.assertEqual(len(answer["map"]), 259)
        self.assertEqual(answer["map"][ord("a")], answer["map"][ord("A")])
        self.assertEqual(answer["count"], max(answer["map"]) + 1)

    def test_detokenize(self):
        self.assertEqual(self.out("detokenize", "256", "99,10"), "abc\n")
        self.assertEqual(self.out("detokenize", stdin=b" 256\n99, 257 "), "abc" + END)
        self.assertEqual(self.out("detokenize", "--skip-hidden", "256", "257"), "ab")
        self.assertEqual(self.out("detokenize", "--json", "226", "130", "172", "226"), '{"text":"€\ufffd"}\n')

    def test_round_trip(self):
        text = "Hello, wörld! <think>\r\n\t 你好 😀 \u200b"
        self.assertEqual(self.out("detokenize", stdin=self.out("tokenize", stdin=text.encode()).encode()), text)

    def test_bad_input_is_one_line_and_status_2(self):
        model = ("--model", str(self.path))
        self.refused("invalid byte at offset 1", "tokenize", *model, stdin=b"a\xff")
        self.refused("--text excludes --file", "tokenize", *model, "--text", "a", "--file", "b")
        self.refused("No such file", "tokenize", *model, "--file", "/nonexistent")
        self.refused("No such file", "tokenize", "--model", "/nonexistent", "--text", "a")
        self.refused("excludes", "tokenize", *model, "--tokenizer", "x", "--text", "a")
        self.refused("line 1 is not valid JSON", "detokenize", *model, "--json-lines", "--file", self.file("[1"))
        self.refused("line 1", "tokenize", *model, "--json-lines", stdin=b'{"text": "a", "untrusted": [[0, 2]]}\n')
        self.refused("not a token id", "detokenize", *model, "12x")
        self.refused("token id 259 is not in the vocabulary", "detokenize", *model, "259")
        self.refused("not valid JSON", "tokenize", "--tokenizer", self.file("{"), "--text", "a")

    def file(self, content):
        path = self.path / "bad"
        path.write_text(content, encoding="utf-8")
        return str(path)


if __name__ == "__main__":
    unittest.main()
