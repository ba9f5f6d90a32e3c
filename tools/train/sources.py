"""The raw texts: WordNet, SCOWL, the 1913 senses of GCIDE, and prose files.

`fetch(directory)` downloads the three Debian packages and unpacks them (needs apt-get and dpkg-deb; no root). Everything
else reads from that directory. Licences and filters: README.md.
"""

import gzip
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("wordnet-base", "dict-gcide", "scowl")
POS_FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
POS_NAMES = {"n": "noun", "v": "verb", "a": "adjective", "r": "adverb"}
_OFFENSIVE_GLOSS = re.compile(
    r"offensive|\bslur\b|vulgar|disparag|derogat|obscen|copulat|genital|prostitut|excrement|sexual|erotic"
    r"|buttocks|feces|urinat|defecat|ethnic"
)
_PERSON_CLASS = {18}  # lexicographer files: noun.person
_TAXONOMY_CLASSES = {5, 20}  # noun.animal, noun.plant


def fetch(directory):
    """Downloads and unpacks PACKAGES under `directory`; does nothing where they are there already."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if not list(directory.glob(f"{package}_*.deb")):
            subprocess.run(["apt-get", "download", package], cwd=directory, check=True, stdout=subprocess.DEVNULL)
        (archive,) = directory.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, directory / "root"], check=True)


@dataclass
class Synset:
    pos: str  # n, v, a or r
    lexicographer_file: int
    lemmas: list  # as spelt, with spaces for underscores
    definition: str  # first segment of the gloss, no leading domain in parentheses
    examples: list
    pointers: list = field(default_factory=list)  # (symbol, target key)
    offensive: bool = False


class WordNet:
    """synsets: {(pos, offset): Synset}; senses: {lemma: [keys]} by falling frequency, nouns first among equals."""

    def __init__(self, directory):
        base = Path(directory) / "root/usr/share/wordnet"
        self.synsets = {}
        for pos, name in POS_FILES.items():
            for line in (base / f"data.{name}").read_text(encoding="latin-1").splitlines():
                if not line.startswith("  "):
                    self._add(pos, line)
        self._mark_offensive_usage()
        self.senses = self._read_senses(base)

    def _add(self, pos, line):
        fields, gloss = line.split(" | ", 1) if " | " in line else (line, "")
        parts = fields.split()
        count = int(parts[3], 16)
        lemmas = [re.sub(r"\((a|p|ip)\)$", "", w).replace("_", " ") for w in parts[4 : 4 + 2 * count : 2]]
        at = 5 + 2 * count
        pointers = []
        for i in range(int(parts[4 + 2 * count])):
            symbol, offset, target, source_target = parts[at + 4 * i : at + 4 * i + 4]
            pointers.append((symbol, ("a" if target == "s" else target, offset), source_target))
        definition, examples = split_gloss(gloss.strip())
        offensive = bool(_OFFENSIVE_GLOSS.search(gloss))
        self.synsets[pos, parts[0]] = Synset(pos, int(parts[1]), lemmas, definition, examples, pointers, offensive)

    def _mark_offensive_usage(self):
        bad = {
            key
            for key, s in self.synsets.items()
            if s.offensive
            and any(
                w in ("ethnic slur", "obscenity", "dirty word", "slur", "disparagement", "vulgarism") for w in s.lemmas
            )
        }
        for synset in self.synsets.values():
            if any(symbol == ";u" and target in bad for symbol, target, _ in synset.pointers):
                synset.offensive = True

    def _read_senses(self, base):
        counts = defaultdict(int)
        for line in (base / "cntlist.rev").read_text(encoding="latin-1").splitlines():
            key, _, count = line.split()
            lemma, rest = key.split("%")
            kind = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}[rest[0]]
            counts[lemma.replace("_", " "), kind] += int(count)
        by_pos = defaultdict(dict)
        for pos, name in POS_FILES.items():
            for line in (base / f"index.{name}").read_text(encoding="latin-1").splitlines():
                if line.startswith("  "):
                    continue
                parts = line.split()
                keys = [(pos, offset) for offset in parts[-int(parts[2]) :]]
                by_pos[parts[0].replace("_", " ")][pos] = [k for k in keys if not self.synsets[k].offensive]
        senses = {}
        for lemma, kinds in by_pos.items():
            order = sorted(kinds, key=lambda p: (-counts[lemma, p], "nvar".index(p)))
            senses[lemma] = [key for p in order for key in kinds[p]]
        return {lemma: keys for lemma, keys in senses.items() if keys}

    def blocked_words(self):
        """Single words all of whose synsets are offensive: texts that hold one are dropped."""
        good, bad = set(), set()
        for synset in self.synsets.values():
            (bad if synset.offensive else good).update(w.lower() for w in synset.lemmas)
        return {w for w in bad - good if " " not in w and len(w) > 3}

    def targets(self, synset, symbols):
        return [self.synsets[t] for s, t, _ in synset.pointers if s in symbols and not self.synsets[t].offensive]


def split_gloss(gloss):
    """Gloss -> (first definition, examples)."""
    quotes = re.findall(r'"([^"]+)"', gloss)
    definition = re.split(r'[;:]?\s*"', gloss)[0].strip().rstrip(";:").strip()
    definition = re.sub(r"^(\([^)]*\)\s*)+", "", definition) or definition
    definition = re.split(r";\s", definition)[0].strip()
    return definition, [q.strip() for q in quotes]


def scowl_words(directory, level):
    """Lower-case American words of SCOWL up to `level`, plain letters only."""
    base = Path(directory) / "root/usr/share/dict/scowl"
    words = set()
    for name in ("english-words", "american-words"):
        for path in base.glob(f"{name}.*"):
            if int(path.suffix[1:]) <= level:
                words.update(path.read_text(encoding="latin-1").split())
    return {w for w in words if re.fullmatch(r"[a-z]+", w)}


def is_core_synset(synset, core):
    return not synset.offensive and any(w in core for w in synset.lemmas)


def is_plain_tail(synset):
    """Beside the core: no taxonomy, persons or names."""
    return (
        not synset.offensive
        and synset.lexicographer_file not in _PERSON_CLASS | _TAXONOMY_CLASSES
        and all(w == w.lower() for w in synset.lemmas)
        and not any(s == "@i" for s, _, _ in synset.pointers)
    )


def gcide_entries(directory, common):
    """(head word, [senses]) of GCIDE entries all of whose tags are `[1913 Webster]` and whose head word is in `common`.
    Obsolete, archaic and rare senses, quotations and etymologies are left out."""
    text = gzip.decompress((Path(directory) / "root/usr/share/dictd/gcide.dict.dz").read_bytes()).decode(
        "utf-8", "replace"
    )
    heads = list(re.finditer(r"^([A-Z][A-Za-z' -]*) \\[^\n]*$", text, re.M))
    for head, following in zip(heads, heads[1:] + [None]):
        word = head.group(1).lower()
        if word not in common:
            continue
        body = text[head.start() : following.start() if following else len(text)]
        tags = set(re.findall(r"\[([^\[\]]*(?:Webster|PJC|WordNet|Century|[A-Z]{2,4})[^\[\]]*)\]", body))
        if not tags or tags != {"1913 Webster"}:
            continue
        senses = [s for s in (_clean_sense(s) for s in _split_senses(body)) if s]
        if senses:
            yield word, senses


def _split_senses(body):
    lines = body.split("\n")
    start = next((i for i, line in enumerate(lines) if i and re.match(r"   \S", line)), None)
    if start is None:
        return []
    kept = [line for line in lines[start:] if re.match(r" {3,7}\S", line) or not line.strip()]
    return re.split(r"\n\s*(?:\d+\.|\([a-z]\)) |\n\s*\n", "\n" + "\n".join(kept))


def _clean_sense(text):
    text = re.sub(r"\s+", " ", text.replace("[1913 Webster]", "")).strip()
    if re.search(r"Obs\.|Archaic|\[R\.\]|\[L\.|\[F\.|\[AS\.|\[OE\.|Syn:|Note:|[{}\\|`]|\[", text):
        return ""
    text = re.split(r" --[A-Z]| \"", text)[0].strip()
    return text if 20 <= len(text) <= 300 and text[0].isupper() and text.endswith(".") else ""


def prose_paragraphs(path, blocked):
    """Paragraphs of one prose file, without those that hold a blocked word."""
    for paragraph in re.split(r"\n\s*\n", Path(path).read_text(encoding="utf-8")):
        paragraph = re.sub(r"[ \t]+", " ", paragraph).strip()
        if paragraph and not blocked.intersection(re.findall(r"[a-z]+", paragraph.lower())):
            yield paragraph
