"""Training and held-out text for folio-tiny: reads the sources, writes token arrays and a tokenizer.

    python3 build_data.py --prose DIR --out DIR [--passes 3] [--seed 1] [--limit N]

DIR of --prose holds `prose/*.txt`, `african_storybook.txt`. Into --out go tokenizer.json, train/<part>.npz and
held_out/<domain>.npz (`tokens` uint16, `starts` of documents), recall.json and recall.npz (the definitions that recall is
tested on), prompts.json (held-out prompts of tool calls and JSON), summary.json.
"""

import argparse
import json
import random
import re
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np

import sources
from chat_format import BOS, END_THINK, EOS, render
from chat_tasks import TOOLS, ChatMaker, capital, definition_sentence, is_countable, with_article
from tokenizer import train_tokenizer

HELD_OUT_BOOKS = ("l-frank-baum-ozma-of-oz", "jack-london-the-scarlet-plague")
DROPPED_BOOKS = (  # plays, and a novel that its author withdrew
    "nathaniel-hawthorne-fanshawe",
    "oscar-wilde-an-ideal-husband",
    "oscar-wilde-the-importance-of-being-earnest",
)
# Translations that name no translator: nobody can say when he died.
DROPPED_AUTHORS = ("hans-christian-andersen", "jules-verne")
PROSE_CHARACTERS = 3200  # of one document
RECALL_WORDS = 500
_SPECIAL = re.compile("<｜[^｜<>]+｜>|</?think>|｜DSML｜")


def documents_of_prose(path, blocked):
    """Consecutive paragraphs of about PROSE_CHARACTERS; only the end of the file ends with EOS."""
    documents, size = [[]], 0
    for paragraph in sources.prose_paragraphs(path, blocked):
        if size > PROSE_CHARACTERS:
            documents.append([])
            size = 0
        documents[-1].append(paragraph)
        size += len(paragraph)
    texts = [BOS + "\n\n".join(d) for d in documents if d]
    if texts:
        texts[-1] += EOS
    return texts


def storybook_documents(path):
    """One tale a document; tales begin with a line `# Title`."""
    tales = re.split(r"^# ", Path(path).read_text(encoding="utf-8"), flags=re.M)
    return [BOS + t.strip() + EOS for t in tales if len(t.strip()) > 100]


def entry_text(wn, synset, rng):
    """A dictionary entry in one of several forms."""
    word = synset.lemmas[0]
    roll = rng.random()
    sentence = definition_sentence(word, synset)
    if roll < 0.3:
        if synset.pos == "n" and is_countable(synset.definition):
            question = rng.choice(
                (f"What is {with_article(word)}?", f"What is {with_article(word)}?", f"What does {word} mean?")
            )
        else:
            question = rng.choice((f"What does {word} mean?", f"What is the meaning of {word}?"))
        return f"{question}{rng.choice((' ', chr(10)))}{sentence}"
    parts = [sentence if roll < 0.6 else f"{word} ({sources.POS_NAMES[synset.pos]}): {synset.definition}."]
    if len(synset.lemmas) > 1:
        parts.append(
            f"Also called {', '.join(synset.lemmas[1:6])}."
            if synset.pos == "n"
            else f"Also {', '.join(synset.lemmas[1:6])}."
        )
    parents = wn.targets(synset, ("@",))
    if parents and rng.random() < 0.7:
        name = parents[0].lemmas[0]
        parts.append(f"It is a kind of {name}." if synset.pos == "n" else f"It is a way to {name}.")
    if synset.examples and rng.random() < 0.8:
        parts.append(f"Example: {rng.choice(synset.examples)}.")
    return " ".join(parts)


def example_sentences(wn, words, prose_texts):
    """{word: sentences}: WordNet examples that hold the word and short sentences of the prose."""
    found = defaultdict(list)
    for word in words:
        for key in wn.senses[word]:
            for example in wn.synsets[key].examples:
                if len(example.split()) >= 4 and re.search(rf"\b{re.escape(word)}\b", example):
                    found[word].append(capital(example).rstrip(".;, ") + ("" if example[-1] in "?!" else "."))
    for text in prose_texts:
        for sentence in re.findall(r"(?<=[.!?] )[A-Z][a-z' ,]{25,90}\.", text):
            tokens = re.findall(r"[a-z]+", sentence)
            if 5 <= len(tokens) <= 14:
                for word in set(tokens):
                    if word in words and len(found[word]) < 4:
                        found[word].append(sentence)
    return found


def stable_fraction(text, seed):
    """A number in [0, 1) that depends on the text and the seed alone."""
    return zlib.crc32(f"{seed}:{text}".encode()) / 2**32


class Corpus:
    def __init__(self, arguments):
        self.seed, self.packages = arguments.seed, arguments.packages
        self.wn = sources.WordNet(arguments.packages)
        scowl35, scowl50 = (sources.scowl_words(arguments.packages, level) for level in (35, 50))
        self.common = sorted(w for w in scowl35 if w in self.wn.senses)
        self.core = sorted(w for w in scowl50 if w in self.wn.senses)
        self.blocked = self.wn.blocked_words()
        rng = random.Random(self.seed)
        nouns = [
            w
            for w in self.common
            if len(w) > 3
            and self.wn.senses[w][0][0] == "n"
            and is_countable(self.wn.synsets[self.wn.senses[w][0]].definition)
        ]
        self.recall = sorted(rng.sample(nouns, RECALL_WORDS))
        others = sorted(set(self.core) - set(self.recall) - {"lighthouse"})
        self.held_words = sorted(rng.sample(others, 600))
        self.held_synsets = self._held_synsets()
        for key in self.held_synsets:  # not in chat either
            for lemma in self.wn.synsets[key].lemmas:
                keys = self.wn.senses.get(lemma.lower(), [])
                if key in keys and len(keys) > 1:
                    keys.remove(key)
        self.core = [w for w in self.core if not set(self.wn.senses[w]) & self.held_synsets]
        self.common = [w for w in self.common if w in set(self.core)]

    def _held_synsets(self):
        first = {self.wn.senses[w][0] for w in self.common}
        return {
            key
            for key, s in self.wn.synsets.items()
            if key not in first
            and not s.offensive
            and stable_fraction(key[0] + key[1], self.seed) < 0.02
            and any(w in self.wn.senses for w in s.lemmas)
        }

    def prose(self, directory, limit):
        books = sorted(
            p
            for p in (Path(directory) / "prose").glob("*.txt")
            if p.stem not in DROPPED_BOOKS and not p.stem.startswith(DROPPED_AUTHORS)
        )[:limit]
        train, held = [], []
        for path in books:
            (held if path.stem in HELD_OUT_BOOKS else train).extend(documents_of_prose(path, self.blocked))
        return train, held, [p.stem for p in books]

    def entries(self):
        """Train: four texts of each core synset and two of the plain tail. Held out: core and two fifths of the tail."""
        core, rng = set(self.core) | set(self.held_words), random.Random(self.seed + 1)
        train, held = [], []
        for key, synset in self.wn.synsets.items():
            in_core = sources.is_core_synset(synset, core)
            if not in_core and not sources.is_plain_tail(synset):
                continue
            texts = [BOS + entry_text(self.wn, synset, rng) + EOS for _ in range(4 if in_core else 2)]
            if key not in self.held_synsets:
                train += texts
            elif in_core or stable_fraction(key[1], 7) < 0.4:
                held.append(texts[0])
        return train, held

    def webster(self):
        return [
            f"{BOS}Webster 1913: {word}. " + " ".join(senses) + EOS
            for word, senses in sources.gcide_entries(self.packages, set(self.core))
        ]

    def chat(self, sentences, passes):
        """passes: how often every core word is asked about (common ones twice as often)."""
        words = [w for w in self.core if w not in set(self.held_words)]
        common = set(self.common)
        for number in range(passes):
            maker = ChatMaker(self.wn, words, sentences, self.seed * 100 + number)
            queue = [w for w in words for _ in range(6 if w in common else 3)]
            maker.random.shuffle(queue)
            while queue:
                roll = maker.random.random()
                if roll < 0.035:
                    count, make = maker.random.randint(2, 5), maker.tool_conversation
                elif roll < 0.15:
                    count, make = 1, lambda w: maker.json_answer(w[0])
                else:
                    count, make = maker.random.choice((1, 1, 2, 3)), maker.conversation
                yield make([queue.pop() for _ in range(min(count, len(queue)))])

    def held_chat(self, sentences):
        words = [w for w in self.held_words if w in set(self.core)]
        maker = ChatMaker(self.wn, words, sentences, self.seed + 77)
        texts = [maker.conversation([w]) for w in words]
        texts += [maker.json_answer(w) for w in words[:60]]
        return texts + [maker.tool_conversation(words[i : i + 3]) for i in range(0, 60, 3)]

    def recall_dialogues(self):
        """The definitions that recall is tested on, asked for and answered."""
        for word in self.recall:
            answer = definition_sentence(word, self.wn.synsets[self.wn.senses[word][0]])
            yield render([("user", f"What is {with_article(word)}?"), ("assistant", answer, None, [])])

    def held_prompts(self):
        """200 prompts that want a tool call and 200 that want JSON, about held-out words."""
        words = [w for w in self.held_words if w in set(self.core)]
        maker = ChatMaker(self.wn, words, {}, self.seed + 78)
        prompts = []
        for i in range(200):
            name = maker.random.choice(list(TOOLS))
            turns = maker.tool_turns(name, words[i % len(words)])
            ((_, arguments),) = turns[1][3]
            text = render(turns[:1], False, 75, "You are a helpful assistant.", list(TOOLS.values()), None, True)
            prompts.append({"kind": "tool", "prompt": text, "name": name, "arguments": arguments})
        while len(prompts) < 400:
            text = maker.json_answer(words[len(prompts) % len(words)])
            head, answer = re.split(r"(?<=<｜Assistant｜>)</think>|</think>(?=\{)", text, maxsplit=1)[:2]
            if "<think>" in head:
                continue
            prompts.append(
                {"kind": "json", "prompt": head + "</think>", "keys": list(json.loads(answer.removesuffix(EOS)))}
            )
        return prompts


def save(path, documents, tokenizer, with_answers=False):
    """Tokens of all documents in one array; returns (documents, tokens, bytes of text). Special tokens count no bytes.
    With answers: also which tokens are what the assistant says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    starts, chunks, total, size = [], [], 0, 0
    for at in range(0, len(documents), 20000):
        for text, encoding in zip(
            documents[at : at + 20000], tokenizer.encode_batch(documents[at : at + 20000], add_special_tokens=False)
        ):
            starts.append(total)
            chunks.append(np.array(encoding.ids, dtype=np.uint16))
            total += len(chunks[-1])
            size += len(_SPECIAL.sub("", text).encode())
    arrays = {"tokens": np.concatenate(chunks), "starts": np.array(starts, dtype=np.int32), "bytes": size}
    if with_answers:
        before = tokenizer.token_to_id(END_THINK)
        arrays["answers"] = np.concatenate([np.cumsum(c == before) - (c == before) > 0 for c in chunks])
    np.savez_compressed(path, **arrays)
    return len(documents), total, size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prose", required=True, help="directory with prose/*.txt and african_storybook.txt")
    parser.add_argument(
        "--packages", default=".cache/train/packages", help="where the Debian packages go (default: %(default)s)"
    )
    parser.add_argument("--out", default=".cache/train/data", help="default: %(default)s")
    parser.add_argument("--passes", type=int, default=3, help="passes over the words in chat (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="at most so many books (for a quick try)")
    arguments = parser.parse_args()
    sources.fetch(arguments.packages)
    out = Path(arguments.out)
    corpus = Corpus(arguments)
    prose, held_prose, titles = corpus.prose(arguments.prose, arguments.limit)
    entries, held_entries = corpus.entries()
    webster = corpus.webster()
    simple = storybook_documents(Path(arguments.prose) / "african_storybook.txt")
    sentences = example_sentences(corpus.wn, set(corpus.core), prose)
    chat = list(corpus.chat(sentences, arguments.passes))
    rng = random.Random(corpus.seed)
    out.mkdir(parents=True, exist_ok=True)
    sample = (
        rng.sample(prose, min(len(prose), 2500))
        + rng.sample(entries, min(len(entries), 60000))
        + rng.sample(chat, min(len(chat), 30000))
        + simple
    )
    tokenizer = train_tokenizer(sample)
    tokenizer.save(str(out / "tokenizer.json"))
    train = {"chat": chat, "entries": entries, "prose": prose, "webster": webster, "simple": simple}
    held = {"chat": corpus.held_chat(sentences), "entries": held_entries, "stories": held_prose}
    for documents in train.values():
        rng.shuffle(documents)
    summary = {"titles": titles, "seed": corpus.seed}
    for kind, parts in (("train", train), ("held_out", held)):
        for name, documents in parts.items():
            count, tokens, size = save(out / kind / f"{name}.npz", documents, tokenizer)
            summary[f"{kind}/{name}"] = {"documents": count, "tokens": tokens, "bytes": size}
            print(f"{kind}/{name}: {count} documents, {tokens} tokens, {size / tokens:.2f} bytes per token", flush=True)
    save(out / "recall.npz", list(corpus.recall_dialogues()), tokenizer, with_answers=True)
    recall = [
        {"word": w, "definition": corpus.wn.synsets[corpus.wn.senses[w][0]].definition}
        for w in corpus.recall
        if w in corpus.wn.senses
    ]
    (out / "recall.json").write_text(json.dumps(recall, indent=0))
    (out / "prompts.json").write_text(json.dumps(corpus.held_prompts(), ensure_ascii=False, indent=0))
    (out / "summary.json").write_text(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
