#!/usr/bin/env python3
"""Holds `folio tokenize` against Hugging Face's `tokenizers` on random texts, files and the tokenizers of test models.

    .venv/bin/python tests/tokenizer/compare_huggingface.py [--count N] [--seed N] [--files FILE...]

Compared, all exactly: ids with added tokens matched, not matched and matched outside untrusted ranges; text of random
ids; Engram's compressed map, against the same chain of `tokenizers` normalisers and against the oracle. FOLIO names the command line (default: build/release/folio). Without the published
tokenizer (tools/fetch_tokenizer.py) only the small ones are compared, and that is said.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ.get("FOLIO_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
FOLIO = os.environ.get("FOLIO", str(ROOT / "build/release/folio"))
# SHA-256 of the compressed map as little-endian int64 (model spec 8.1).
PUBLISHED_MAP = "26b9be2936d236a124ba318a998c417bc7032e3e92a3107fe98deee49f1dc496"
PUBLISHED = ROOT / "build/assets/deepseek-v41/tokenizer.json"
SKIPPED = 77

try:
    import tokenizers
    from tokenizers import Regex, Tokenizer, normalizers
except ImportError:
    print("skipped: the Python package `tokenizers` is not installed (scripts/setup dev)")
    sys.exit(SKIPPED)

sys.path.insert(0, str(ROOT / "tools/oracle"))
import checkpoint  # noqa: E402
import engram  # noqa: E402


def folio(arguments, lines):
    """Answers of one batch run of the command line, one per line."""
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    run = subprocess.run([FOLIO, *arguments, "--json-lines"], input=content.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in run.stdout.decode().split("\n")[:-1]]


# ---------------------------------------------------------------------------------------------------------------------
# random texts
# ---------------------------------------------------------------------------------------------------------------------

SPACES = " \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
RANGES = {
    "ascii": [(0x20, 0x7E)], "letters": [(0x61, 0x7A), (0x41, 0x5A)], "punctuation": [(0x21, 0x2F), (0x3A, 0x40)],
    "digits": [(0x30, 0x39), (0x660, 0x669), (0x966, 0x96F), (0xB2, 0xB3), (0x2150, 0x218B), (0x3021, 0x3029)],
    "latin": [(0xC0, 0x24F)], "marks": [(0x300, 0x36F), (0x1AB0, 0x1ACE), (0x20D0, 0x20F0), (0x3099, 0x309C)],
    "greek": [(0x370, 0x3FF)], "cyrillic": [(0x400, 0x4FF)], "hebrew": [(0x591, 0x5F4)], "arabic": [(0x600, 0x6FF)],
    "indic": [(0x900, 0xD7F)], "thai": [(0xE01, 0xE5B)], "cjk": [(0x4E00, 0x9FA5)], "cjk edge": [(0x9FA0, 0x9FFF)],
    "kana": [(0x3040, 0x30FF)], "cjk marks": [(0x3000, 0x303F), (0xFF01, 0xFF65)], "hangul": [(0xAC00, 0xD7A3)],
    "general": [(0x2010, 0x2E5D)], "emoji": [(0x1F300, 0x1FAFF)], "controls": [(0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD)],
    "format": [(0x200B, 0x200F), (0x2060, 0x206F), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)], "private": [(0xE000, 0xE0FF)],
    "astral": [(0x10000, 0x1E943)], "new": [(0x1C80, 0x1C8A), (0x10D40, 0x10D8F), (0x1CC00, 0x1CCF9), (0x31350, 0x323AF)],
    "last": [(0xE0100, 0xE01EF), (0xF0000, 0xF0010), (0x10FFF0, 0x10FFFF)],
}
ANY = [(0x00, 0xD7FF), (0xE000, 0x10FFFF)]
WORDS = ("the of and don't I'm you're they'll we've he'd it's 'S 'LL snake_case CamelCase x=y 3.14 1234567 #include "
         "http://a.b/c?d=e café naïve Straße 你好 世界 こんにちは カタカナ 한국어 привет मानक ไทย שלום 🙂 👩‍💻 "
         "<|User|> <tool_result> \\n {\"a\": 1} ... --- ** // ``` __init__").split()


class RandomText:
    def __init__(self, seed, added):
        self.random = random.Random(seed)
        self.added = added

    def char(self, ranges):
        low, high = self.random.choice(ranges)
        return chr(self.random.randint(low, high))

    def run(self, limit):
        """A short run of one kind."""
        pick, length = self.random.random(), self.random.randint(1, limit)
        if pick < 0.2:
            return "".join(self.random.choice(SPACES[:4]) for _ in range(length))
        if pick < 0.25:
            return "".join(self.random.choice(SPACES) for _ in range(length))
        if pick < 0.4:
            return self.random.choice(WORDS)
        if pick < 0.45:
            return "".join(self.char(ANY) for _ in range(length))
        if pick < 0.5:
            return self.char(ANY) * length
        ranges = RANGES[self.random.choice(list(RANGES))]
        return "".join(self.char(ranges) for _ in range(length))

    def text(self):
        return "".join(self.run(self.random.choice((1, 1, 2, 4, 12))) for _ in range(self.random.choice((1, 2, 3, 6, 12))))

    def with_added(self):
        """Text with whole and broken added tokens in it."""
        parts = []
        for _ in range(self.random.randint(1, 6)):
            token = self.random.choice(self.added)
            if self.random.random() < 0.3:
                token = token[:self.random.randint(0, len(token))]
            parts += [self.text() if self.random.random() < 0.6 else "", token]
        return "".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# comparisons
# ---------------------------------------------------------------------------------------------------------------------


class Comparison:
    def __init__(self, name, path, seed):
        self.name, self.path = name, str(path)
        data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        self.added = [token["content"] for token in data["added_tokens"]]
        # `tokenizers` numbers added tokens by itself, from the end, unless the vocabulary has them with their ids.
        for token in data["added_tokens"]:
            data["model"]["vocab"].setdefault(token["content"], token["id"])
        self.reference = Tokenizer.from_str(json.dumps(data))
        data["added_tokens"] = []
        for token in self.added:
            data["model"]["vocab"].pop(token, None)
        self.plain_reference = Tokenizer.from_str(json.dumps(data))
        self.random = RandomText(seed, self.added)
        self.failures = 0

    def report(self, what, inputs, expected, got):
        wrong = [i for i in range(len(inputs)) if i >= len(got) or expected[i] != got[i]]
        print(f"{self.name}: {what}: {len(inputs) - len(wrong)} of {len(inputs)} equal", flush=True)
        for i in wrong[:3]:
            print(f"  {inputs[i]!r:.300}\n    expected {expected[i]!r:.300}\n    got      {got[i] if i < len(got) else None!r:.300}")
        self.failures += len(wrong)

    def ids(self, what, texts, plain=False):
        reference = self.plain_reference if plain else self.reference
        expected = [encoding.ids for encoding in reference.encode_batch_fast(texts, add_special_tokens=False)]
        flags = ["--no-special"] if plain else []
        self.report(what, texts, expected, folio(["tokenize", "--tokenizer", self.path, *flags], texts))

    def untrusted(self, count):
        """Untrusted text between two trusted added tokens: these cut it off, so its ids are those of plain text."""
        lines, expected = [], []
        for _ in range(count):
            left, right = self.random.random.choice(self.added), self.random.random.choice(self.added)
            middle = self.random.with_added()
            begin = len(left.encode())
            lines.append({"text": left + middle + right, "untrusted": [[begin, begin + len(middle.encode())]]})
            inner = self.plain_reference.encode(middle, add_special_tokens=False).ids
            expected.append([self.reference.token_to_id(left), *inner, self.reference.token_to_id(right)])
        self.report("ids with untrusted ranges", lines, expected, folio(["tokenize", "--tokenizer", self.path], lines))

    def text(self, count):
        size, lists = self.reference.get_vocab_size(), []
        for _ in range(count):
            lists.append([self.random.random.randrange(size if self.random.random.random() < 0.7 else min(size, 300))
                          for _ in range(self.random.random.randint(0, 30))])
        expected = [self.reference.decode(ids, skip_special_tokens=False) for ids in lists]
        self.report("text of random ids", lists, expected, folio(["detokenize", "--tokenizer", self.path], lists))

    def compressed_map(self):
        chain = normalizers.Sequence([
            normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "), normalizers.Replace(Regex(r"^ $"), "\ue000"),
            normalizers.Strip(), normalizers.Replace("\ue000", " ")])
        ids, expected = {}, []
        for token in range(self.reference.get_vocab_size()):
            text = self.reference.decode([token], skip_special_tokens=False)
            key = self.reference.id_to_token(token) if "\ufffd" in text else chain.normalize_str(text) or text
            expected.append(ids.setdefault(key, len(ids)))
        run = subprocess.run([FOLIO, "tokenize", "--tokenizer", self.path, "--compressed-map"], stdout=subprocess.PIPE,
                             check=True)
        got = json.loads(run.stdout)
        self.report(f"compressed map ({got['count']} distinct)", list(range(len(expected))), expected, got["map"])
        self.failures += got["count"] != len(ids)
        if self.name == "published":
            digest = hashlib.sha256(b"".join(i.to_bytes(8, "little") for i in got["map"])).hexdigest()
            self.report("digest of the compressed map", ["map"], [PUBLISHED_MAP], [digest])
        expected, count = engram.token_map_from_tokenizer(self.path)
        self.report(f"compressed map of the oracle ({count} distinct)", list(range(len(expected))), expected, got["map"])


def every_code_point():
    """Each code point in five contexts, many to a text."""
    points = [chr(c) for low, high in ANY for c in range(low, high + 1)]
    contexts = ("{}", "a{}b", " {} ", "!{}\n", "1{}中")
    for context in contexts:
        for i in range(0, len(points), 64):
            yield "|".join(context.format(c) for c in points[i:i + 64])


def tiny_tokenizer(directory):
    """The tokenizer of the oracle's test models (plain ByteLevel), written to a file."""
    path = pathlib.Path(directory) / "tokenizer.json"
    path.write_text(json.dumps(checkpoint.tiny_tokenizer(1024, 1000, 1001), ensure_ascii=False), encoding="utf-8")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100000, help="random texts per tokenizer (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--files", nargs="*", default=[], help="further texts, whole files")
    parser.add_argument("--code-points", action="store_true", help="every code point in five contexts, too")
    options = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}, seed {options.seed}")
    files = [pathlib.Path(file).read_text(encoding="utf-8") for file in options.files]

    failures = 0
    with tempfile.TemporaryDirectory() as directory:
        subjects = [("small", tiny_tokenizer(directory))]
        if PUBLISHED.exists():
            subjects.append(("published", PUBLISHED))
        else:
            print(f"left out: {PUBLISHED} is absent (tools/fetch_tokenizer.py)")
        for name, path in subjects:
            comparison = Comparison(name, path, options.seed)
            texts = [comparison.random.text() for _ in range(options.count)]
            comparison.ids("ids of random texts", texts)
            comparison.ids("ids with added tokens", [comparison.random.with_added() for _ in range(options.count // 4)])
            comparison.ids("ids with added tokens as text",
                           [comparison.random.with_added() for _ in range(options.count // 4)], plain=True)
            comparison.untrusted(options.count // 10)
            comparison.text(options.count // 10)
            comparison.compressed_map()
            if options.code_points:
                comparison.ids("ids of every code point", list(every_code_point()))
            if files:
                comparison.ids("ids of files", files)
            failures += comparison.failures
    print("all equal" if failures == 0 else f"{failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
