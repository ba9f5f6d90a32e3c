"""What folio-tiny knows, asked through `folio batch`: definition recall, tool calls and JSON on held-out prompts.

    python3 evaluate.py --folio build/release/folio --model models/folio-tiny [--data .cache/train/data] [--json FILE]

Recall: the answer to "What is a WORD?" holds the first content phrase of the gloss: up to the first comma, relative
clause, common preposition or conjunction, without its article. A tool call counts as right when the block parses and
names the right tool with exactly its parameters; `exact` also wants their values. JSON counts when it parses and has
exactly the keys of the schema, in order.
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

from chat_format import DSML, EOS, render
from chat_tasks import with_article

_CALL = re.compile(
    rf'^\n\n<{DSML} calls>\n<{DSML} invoke name="([^"]*)">\n(.*)\n</{DSML} invoke>\n</{DSML} calls>$', re.DOTALL
)
_PARAMETER = re.compile(rf'<{DSML} parameter name="([^"]*)" string="(true|false)">(.*?)</{DSML} parameter>', re.DOTALL)


def answer_all(arguments, prompts, max_tokens=96):
    """Greedy answers of `folio batch`, in order."""
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "in.jsonl", Path(directory) / "out.jsonl"
        source.write_text("".join(json.dumps({"id": str(i), "prompt": p}) + "\n" for i, p in enumerate(prompts)))
        command = [arguments.folio, "batch", "--model", arguments.model, "--input", source, "--output", target]
        subprocess.run(command + ["--max-tokens", str(max_tokens), "--exact"], check=True, stderr=subprocess.DEVNULL)
        lines = [json.loads(line) for line in target.read_text().splitlines()]
    texts = {line["id"]: line["text"].removesuffix(EOS) for line in lines}
    return [texts[str(i)] for i in range(len(prompts))]


def first_phrase(definition):
    """The first content phrase of a gloss, without its article."""
    phrase = re.split(
        r",|;| \(| that | which | who | of | for | in | with | on | to | used | by | or | and ", definition
    )[0]
    return re.sub(r"^(a|an|the|any|one|some) ", "", phrase.strip())


def recall(arguments, entries):
    prompts = [render([("user", f"What is {with_article(e['word'])}?")], open_turn=True) for e in entries]
    answers = answer_all(arguments, prompts)
    phrase = sum(first_phrase(e["definition"]) in a for e, a in zip(entries, answers))
    whole = sum(e["definition"] in a for e, a in zip(entries, answers))
    return {"words": len(entries), "first_phrase": phrase / len(entries), "whole_gloss": whole / len(entries)}, answers


def parse_call(text):
    """-> (tool, arguments) or None."""
    found = _CALL.match(text)
    if not found:
        return None
    try:
        values = {k: v if s == "true" else json.loads(v) for k, s, v in _PARAMETER.findall(found.group(2))}
    except ValueError:
        return None
    return found.group(1), values


def tool_calls(arguments, prompts):
    parsed = [parse_call(a) for a in answer_all(arguments, [p["prompt"] for p in prompts], 160)]
    right = [c and c[0] == p["name"] and set(c[1]) == set(p["arguments"]) for c, p in zip(parsed, prompts)]
    exact = [c is not None and c == (p["name"], p["arguments"]) for c, p in zip(parsed, prompts)]
    n = len(prompts)
    return {
        "prompts": n,
        "parses": sum(c is not None for c in parsed) / n,
        "right": sum(map(bool, right)) / n,
        "exact": sum(exact) / n,
    }


def json_answers(arguments, prompts):
    valid = keys = 0
    for prompt, text in zip(prompts, answer_all(arguments, [p["prompt"] for p in prompts], 200)):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        valid += 1
        keys += isinstance(value, dict) and list(value) == prompt["keys"]
    return {"prompts": len(prompts), "parses": valid / len(prompts), "right_keys": keys / len(prompts)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folio", default="build/release/folio", help="default: %(default)s")
    parser.add_argument("--model", default="models/folio-tiny", help="default: %(default)s")
    parser.add_argument("--data", default=".cache/train/data", help="made by build_data.py (default: %(default)s)")
    parser.add_argument("--json", help="also write the figures to this file")
    arguments = parser.parse_args()
    data = Path(arguments.data)
    prompts = json.loads((data / "prompts.json").read_text())
    entries = json.loads((data / "recall.json").read_text())
    result = {"definition_recall": recall(arguments, entries)[0]}
    result["tool_calls"] = tool_calls(arguments, [p for p in prompts if p["kind"] == "tool"])
    result["json"] = json_answers(arguments, [p for p in prompts if p["kind"] == "json"])
    print(json.dumps(result, indent=1))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
