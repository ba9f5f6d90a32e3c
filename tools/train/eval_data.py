"""What `folio eval --suite tiny` asks: held-out text and prompts, from what build_data.py has made.

    python3 eval_data.py [--data .cache/train/data] [--out models/eval-tiny] [--stories 12]

Into --out go `chat.jsonl`, `entries.jsonl` and `stories.jsonl`, one held-out document a line ({"text"}, in chat also
{"kind"}), and the prompts `recall.json`, `tool_calls.json` and `objects.json`: {"before", "after", "prompts"}, where a
prompt is before + text + after and stands with what its answer must hold. --stories leaves out all but so many
documents of every held-out book: a short sample is enough to keep, and --stories 0 keeps the books whole.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from chat_format import EOS, render
from chat_tasks import with_article


def first_phrase(definition):
    """The first content phrase of a gloss: up to the first comma, relative clause, common preposition or conjunction,
    without its article."""
    phrase = re.split(
        r",|;| \(| that | which | who | of | for | in | with | on | to | used | by | or | and ", definition
    )[0]
    return re.sub(r"^(a|an|the|any|one|some) ", "", phrase.strip())


def documents(data, domain, tokenizer):
    """The texts of a held-out domain."""
    with np.load(data / "held_out" / f"{domain}.npz") as held:
        parts = np.split(held["tokens"], held["starts"][1:])
    texts = [tokenizer.decode(part.tolist(), skip_special_tokens=False) for part in parts]
    for text, part in zip(texts, parts):
        if tokenizer.encode(text, add_special_tokens=False).ids != part.tolist():
            raise ValueError(f"{domain}: the tokens of {text[:60]!r} cannot be had from its text")
    return texts


def chat_kind(text):
    if "\n## Tools\n" in text:
        return "tools"
    if re.search(r"</think>\{", text):
        return "json"
    return "thinking" if "<think>" in text.split("<｜Assistant｜>", 1)[1] else "plain"


def sample_of_books(texts, count):
    """The first `count` documents of each book; only the end of a book ends with EOS."""
    if not count:
        return texts
    kept, of_book = [], 0
    for text in texts:
        if of_book < count:
            kept.append(text)
        of_book = 0 if text.endswith(EOS) else of_book + 1
    return kept


def write_lines(path, values):
    path.write_text("".join(json.dumps(v, ensure_ascii=False) + "\n" for v in values))


def write_prompts(path, before, after, prompts):
    lines = ",\n".join(json.dumps(p, ensure_ascii=False) for p in prompts)
    head = f'"before": {json.dumps(before, ensure_ascii=False)},\n"after": {json.dumps(after, ensure_ascii=False)}'
    path.write_text(f'{{{head},\n"prompts": [\n{lines}\n]}}\n')


def around(text, whole):
    before, after = whole.split(text)
    return before, after


def recall_prompts(entries):
    for entry in entries:
        question = f"What is {with_article(entry['word'])}?"
        yield {"text": question, "phrase": first_phrase(entry["definition"]), "gloss": entry["definition"]}


def tool_prompts(prompts):
    """-> (before, after, prompts): all have the same system message."""
    before, rest = prompts[0]["prompt"].split("<｜User｜>")
    before, after = before + "<｜User｜>", rest[rest.index("<｜Assistant｜>") :]
    made = []
    for prompt in prompts:
        text = prompt["prompt"].removeprefix(before).removesuffix(after)
        if before + text + after != prompt["prompt"]:
            raise ValueError("the tool prompts do not have one system message")
        made.append({"text": text, "name": prompt["name"], "arguments": prompt["arguments"]})
    return before, after, made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=".cache/train/data", help="made by build_data.py (default: %(default)s)")
    parser.add_argument("--out", default="models/eval-tiny", help="default: %(default)s")
    parser.add_argument("--stories", type=int, default=12, help="documents of each book (default: %(default)s)")
    arguments = parser.parse_args()
    data, out = Path(arguments.data), Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))
    chat, entries, stories = (documents(data, domain, tokenizer) for domain in ("chat", "entries", "stories"))
    write_lines(out / "chat.jsonl", [{"kind": chat_kind(text), "text": text} for text in chat])
    write_lines(out / "entries.jsonl", [{"text": text} for text in entries])
    write_lines(out / "stories.jsonl", [{"text": text} for text in sample_of_books(stories, arguments.stories)])
    recall = list(recall_prompts(json.loads((data / "recall.json").read_text())))
    write_prompts(out / "recall.json", *around("QUESTION", render([("user", "QUESTION")], open_turn=True)), recall)
    prompts = json.loads((data / "prompts.json").read_text())
    write_prompts(out / "tool_calls.json", *tool_prompts([p for p in prompts if p["kind"] == "tool"]))
    objects = [{"text": p["prompt"], "keys": p["keys"]} for p in prompts if p["kind"] == "json"]
    write_prompts(out / "objects.json", "", "", objects)


if __name__ == "__main__":
    main()
