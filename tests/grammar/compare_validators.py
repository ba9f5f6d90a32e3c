#!/usr/bin/env python3
"""Holds structured output against the Python packages jsonschema, llguidance and, where it can be imported, xgrammar.

    .venv/bin/python tests/grammar/compare_validators.py PROBE [--count N] [--seed N]

PROBE is the program folio_grammar_probe. Random schemas of what docs/structured-output.md supports, with random values
that are valid under them, and changed ones that mostly are not. What must hold:

- no schema of them is refused;
- a valid value, written as a grammar writes it, is accepted;
- what is accepted, and what is drawn under the masks, parses and is valid under jsonschema;
- what is accepted is accepted by the other engines too, and what they accept of the changed values that are not valid is
  counted.
"""
import argparse
import json
import random
import re
import subprocess
import sys

SKIPPED = 77
try:
    import jsonschema
    import llguidance
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (scripts/setup clients)")
    sys.exit(SKIPPED)
try:
    import xgrammar
    from xgrammar.testing import _is_grammar_accept_string
except Exception:  # it needs torch
    xgrammar = None

WORDS = ["a", "id", "name", "kind", "x y", "née", "世界", "\"q\"", "back\\slash", "tab\t", "", "😀", "value"]
# Patterns with a generator of their texts.
PATTERNS = [
    ("^[a-z]{2,4}$", lambda r: "".join(r.choices("abcxyz", k=r.randint(2, 4)))),
    ("^(ab|c)+-[0-9]?$", lambda r: "".join(r.choices(["ab", "c"], k=r.randint(1, 3))) + "-" + r.choice(["", "7"])),
    ("^[^\"a-z]+$", lambda r: "".join(r.choices("ABC 12é世", k=r.randint(1, 5)))),
    ("^\\d{3}$", lambda r: f"{r.randrange(1000):03}"),
    ("z", lambda r: r.choice(WORDS) + "z" + r.choice(WORDS)),
]
FORMATS = {
    "date": lambda r: f"{r.randint(1000, 9999)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}",
    "date-time": lambda r: f"{r.randint(1000, 9999)}-01-{r.randint(1, 31):02}T{r.randrange(24):02}:00:{r.randrange(60):02}Z",
    "ipv4": lambda r: ".".join(str(r.randrange(256)) for _ in range(4)),
    "uuid": lambda r: "-".join("".join(r.choices("0123456789abcdef", k=k)) for k in (8, 4, 4, 4, 12)),
    "email": lambda r: f"{r.choice(['a', 'x.y'])}@{r.choice(['b.org', 'c-d.example.com'])}",
}


class Schemas:
    """Random schemas, each with a function that draws a valid value."""

    def __init__(self, rng):
        self.rng = rng
        self.defs = {}

    def draw(self, depth):
        kinds = ["null", "boolean", "integer", "number", "string", "enum", "const", "pattern", "format", "length"]
        if depth > 0:
            kinds += ["array", "array", "tuple", "object", "object", "object", "map", "union", "union", "list"]
        return getattr(self, "make_" + self.rng.choice(kinds))(depth - 1)

    def make_null(self, _):
        return {"type": "null"}, lambda: None

    def make_boolean(self, _):
        return {"type": "boolean"}, lambda: self.rng.random() < 0.5

    def make_integer(self, _):
        low, high = sorted(self.rng.choices(range(-1200, 1200), k=2))
        step = self.rng.choice([1, 1, 1, 2, 7])
        schema, first = {"type": "integer"}, -((-low) // step) * step
        if first > high:
            step, first = 1, low
        if self.rng.random() < 0.7:
            schema.update(minimum=low, maximum=high)
        if step > 1:
            schema["multipleOf"] = step
        return schema, lambda: self.rng.randrange(first, high + 1, step)

    def make_number(self, _):
        low, high = sorted(round(self.rng.uniform(-50, 50), 2) for _ in range(2))
        schema = {"type": "number"}
        if self.rng.random() < 0.5:
            schema["minimum"] = low
        if self.rng.random() < 0.5:
            schema["exclusiveMaximum"] = high + 1
        return schema, lambda: round(self.rng.uniform(low, high), self.rng.randint(2, 6)) if low < high else low

    def make_string(self, _):
        return {"type": "string"}, lambda: self.rng.choice(WORDS)

    def make_length(self, _):
        low = self.rng.randrange(4)
        high = low + self.rng.randrange(6)
        return ({"type": "string", "minLength": low, "maxLength": high},
                lambda: "".join(self.rng.choices("ab\"\\\n é世😀", k=self.rng.randint(low, high))))

    def make_enum(self, _):
        values = self.rng.sample([None, True, 0, -3, 2.5, *WORDS], k=self.rng.randint(1, 5))
        return {"enum": values}, lambda: self.rng.choice(values)

    def make_const(self, _):
        value = self.rng.choice([7, "a\"b", {"k": [1, None]}, [], {}])
        return {"const": value}, lambda: value

    def make_pattern(self, _):
        pattern, make = self.rng.choice(PATTERNS)
        return {"type": "string", "pattern": pattern}, lambda: make(self.rng)

    def make_format(self, _):
        name = self.rng.choice(sorted(FORMATS))
        return {"type": "string", "format": name}, lambda: FORMATS[name](self.rng)

    def make_array(self, depth):
        items, make = self.draw(depth)
        low = self.rng.randrange(3)
        high = low + self.rng.randrange(4)
        schema = {"type": "array", "items": items, "minItems": low}
        if self.rng.random() < 0.6:
            schema["maxItems"] = high
        return schema, lambda: [make() for _ in range(self.rng.randint(low, high))]

    def make_tuple(self, depth):
        parts = [self.draw(depth) for _ in range(self.rng.randint(1, 3))]
        schema = {"type": "array", "prefixItems": [schema for schema, _ in parts], "items": False, "minItems": len(parts)}
        return schema, lambda: [make() for _, make in parts]

    def make_object(self, depth):
        names = self.rng.sample(WORDS, k=self.rng.randint(1, 5))
        parts = {name: self.draw(depth) for name in names}
        required = [name for name in names if self.rng.random() < 0.6]
        schema = {"type": "object", "properties": {name: parts[name][0] for name in names}, "required": required,
                  "additionalProperties": False}
        return schema, lambda: {name: parts[name][1]() for name in names if name in required or self.rng.random() < 0.5}

    def make_map(self, depth):
        values, make = self.draw(depth)
        return ({"type": "object", "additionalProperties": values},
                lambda: {name: make() for name in self.rng.sample(WORDS, k=self.rng.randrange(3))})

    def make_union(self, depth):
        parts = [self.draw(depth) for _ in range(self.rng.randint(2, 3))]
        return {"anyOf": [schema for schema, _ in parts]}, lambda: self.rng.choice(parts)[1]()

    def make_list(self, depth):
        """A linked list that refers to itself."""
        value, make = self.draw(min(depth, 1))
        name = f"list{len(self.defs)}"
        end = {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]}
        self.defs[name] = {"type": "object", "properties": {"value": value, "next": end}, "required": ["value", "next"],
                           "additionalProperties": False}

        def build():
            result = None
            for _ in range(self.rng.randint(1, 3)):
                result = {"value": make(), "next": result}
            return result
        return {"$ref": f"#/$defs/{name}"}, build


def written(rng, value):
    """A value as text, in one of the ways in which a grammar may write it."""
    separators = rng.choice([(",", ":"), (", ", ": ")])
    indent = rng.choice([None, None, 2])
    return json.dumps(value, ensure_ascii=False, separators=separators if indent is None else None, indent=indent)


def changed(rng, text):
    """A text with a small change, or another value."""
    at = rng.randrange(len(text))
    return rng.choice([text[:at] + text[at + 1:], text[:at] + rng.choice("0a\"{}[],: nt") + text[at:], text + "]",
                       text.replace("null", "0", 1), re.sub(r"\d", "9", text, count=1), "{}", "[]", "0", "\"\""])


def valid(validator, text):
    try:
        return validator.is_valid(json.loads(text, parse_constant=lambda _: float("bad")))
    except ValueError:
        return False


class Engines:
    """The other engines, on one schema."""

    def __init__(self):
        self.tokenizer = llguidance.LLTokenizer("byte")

    def verdicts(self, schema, texts):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema, ensure_ascii=False))
        result = {"llguidance": [self.llguidance(grammar, text) for text in texts]}
        if xgrammar is not None:
            compiled = xgrammar.Grammar.from_json_schema(json.dumps(schema, ensure_ascii=False))
            result["xgrammar"] = [_is_grammar_accept_string(compiled, text) for text in texts]
        return result

    def llguidance(self, grammar, text):
        matcher = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            return None
        tokens = self.tokenizer.tokenize_bytes(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("probe")
    parser.add_argument("--count", type=int, default=400, help="schemas (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, engines = random.Random(options.seed), Engines()
    probe = subprocess.Popen([options.probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    counts, failures = {}, []

    def count(what):
        counts[what] = counts.get(what, 0) + 1

    for _ in range(options.count):
        schemas = Schemas(rng)
        schema, make = schemas.draw(3)
        if schemas.defs:
            schema = {**schema, "$defs": schemas.defs}
        values = [make() for _ in range(4)]
        good = [written(rng, value) for value in values]
        texts = good + [changed(rng, text) for text in good for _ in range(3)]
        line = {"schema": json.dumps(schema, ensure_ascii=False), "texts": texts, "samples": 3}
        probe.stdin.write(json.dumps(line) + "\n")
        probe.stdin.flush()
        answer = json.loads(probe.stdout.readline())

        def failed(what, text):
            failures.append(f"{what}: {text!r} under {json.dumps(schema, ensure_ascii=False)}")

        if "error" in answer:
            failed("refused", answer["error"])
            continue
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        for sample in answer["samples"]:
            count("answers drawn")
            if not valid(validator, sample):
                failed("drawn but not valid", sample)
        others = engines.verdicts(schema, texts)
        for i, (text, accepted) in enumerate(zip(texts, answer["verdicts"])):
            is_valid = valid(validator, text)
            count("texts judged")
            if i < len(good) and is_valid and not accepted:
                failed("valid but not accepted", text)
            if accepted and not is_valid:
                failed("accepted but not valid", text)
            for name, verdicts in others.items():
                if verdicts[i] is None:
                    count(f"{name} cannot say")
                elif accepted and not verdicts[i]:
                    count(f"accepted here, not by {name}")
                    print(f"accepted here, not by {name}: {text!r} under {json.dumps(schema, ensure_ascii=False)}"[:600])
                elif verdicts[i] and not accepted:
                    count(f"accepted by {name} alone, {'valid' if is_valid else 'not valid'}")
                else:
                    count(f"same verdict as {name}")
    probe.stdin.close()
    for what, number in sorted(counts.items()):
        print(f"{number:7} {what}")
    for failure in failures[:20]:
        print(failure[:900])
    print(f"{options.count} schemas, {len(failures)} failures")
    return 1 if failures or probe.wait() != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
