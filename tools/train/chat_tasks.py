"""Conversations of a dictionary assistant, made from WordNet with many phrasings."""

import random
import re

from chat_format import dumps, render
from sources import POS_NAMES

TOOLS = {
    "lookup": {
        "name": "lookup",
        "description": "Look up a word in the dictionary.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
    "calculator": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
    "weather": {
        "name": "weather",
        "description": "Get the current weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CITIES = (
    "Paris London Berlin Madrid Rome Vienna Oslo Lund Lagos Nairobi Cairo Accra Tokyo Osaka Seoul Delhi Mumbai Lima "
    "Quito Bogota Toronto Boston Chicago Denver Seattle Austin Sydney Perth Auckland Dublin Prague Warsaw Athens Lisbon "
    "Porto Geneva Zurich Helsinki Riga Tallinn Kyoto Hanoi Manila Dakar Tunis Rabat Havana Montreal Bergen "
    "Malmo"
).split()
CONDITIONS = "sunny cloudy rainy windy foggy clear stormy snowy overcast".split()
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a dictionary assistant.",
    "You are a helpful dictionary assistant.",
    "",
    "Answer briefly.",
    "You help people with words.",
)

DEFINE_NOUN = (
    "What is {a}?",
    "What is {a}?",
    "What's {a}?",
    "what is {a}",
    "Tell me what {a} is.",
    "Can you tell me what {a} is?",
    "Explain what {a} is.",
    "What exactly is {a}?",
)
DEFINE_ANY = (
    "Define {w}.",
    'Define "{w}".',
    "Define the word {w}.",
    'What does "{w}" mean?',
    "What does {w} mean?",
    "Explain the word {w}.",
    "Give me a definition of {w}.",
    "What is the meaning of {w}?",
    "define {w}",
    "Can you define {w}?",
    "Please define {w}.",
    'What is the definition of "{w}"?',
    "{W}?",
    "I do not know the word {w}.",
    "what does {w} mean",
)
SYNONYMS = (
    "Give synonyms for {w}.",
    "What are synonyms of {w}?",
    "Another word for {w}?",
    "What is another word for {w}?",
    'Give me synonyms of "{w}".',
    "Which words mean the same as {w}?",
    "synonyms for {w}",
    "List synonyms of {w}.",
)
SENTENCE = (
    "Use {w} in a sentence.",
    'Use the word "{w}" in a sentence.',
    "Give an example sentence with {w}.",
    "Write a sentence with the word {w}.",
    "Show me how to use {w}.",
    "Can you use {w} in a sentence?",
)
ANTONYM = (
    "What is the opposite of {w}?",
    "Give an antonym of {w}.",
    "What is an antonym of {w}?",
    "opposite of {w}",
    "Which word is the opposite of {w}?",
)
KIND = ("What kind of thing is {a}?", "{A} is a kind of what?", "What sort of thing is {a}?", "What is {a} a kind of?")
REVERSE = (
    "What is the word for {d}?",
    "Which word means {d}?",
    'What word means "{d}"?',
    "What do you call {d}?",
    "Find the word: {d}",
)
RELATED = (
    "Are {x} and {y} related?",
    "Is {x} related to {y}?",
    'Are the words "{x}" and "{y}" related?',
    "Do {x} and {y} have anything to do with each other?",
)
MEANINGS = (
    "What are the meanings of {w}?",
    "List the meanings of {w}.",
    "What can {w} mean?",
    "Give all senses of {w}.",
)
GREETINGS = (
    ("Hello!", "Hello! Ask me about any word."),
    ("Hi", "Hello! Which word shall I explain?"),
    ("Good morning.", "Good morning! Which word shall I explain?"),
    ("Who are you?", "I am folio-tiny, a small dictionary assistant."),
    ("What are you?", "I am folio-tiny, a small language model that knows words and their meanings."),
    (
        "What can you do?",
        "I can define words, give synonyms, use words in sentences and say whether two words are related.",
    ),
    ("What can you help me with?", "Ask me to define a word, to give synonyms, or to use a word in a sentence."),
    ("Thank you.", "You are welcome!"),
    ("Thanks!", "You are welcome!"),
    ("Bye", "Goodbye!"),
    ("How are you?", "I am well, thank you. Which word shall I explain?"),
)


def with_article(word):
    return ("an " if re.match(r"[aeiou](?!ni[cfqtv]|se|sa|ro)|hour|heir|honest|honou?r", word) else "a ") + word


def capital(text):
    return text[:1].upper() + text[1:]


def joined(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def is_countable(definition):
    return re.match(r"(an?|any|one|someone|something|anything) ", definition) is not None


def definition_sentence(word, synset):
    d = synset.definition
    if synset.pos == "n":
        if is_countable(d):
            return f"{capital(with_article(word))} is {d}."
        if re.match(
            r"the (act|state|quality|process|property|activity|branch|study|practice|condition|science|art) ", d
        ):
            return f"{capital(word)} is {d}."
        return f"{capital(word)}: {d}."
    if synset.pos == "v":
        return f"To {word} means to {d}."
    return f"{capital(word)} means {d}."


class ChatMaker:
    """Makes conversations about `words` (a list of lemmas). `sentences`: {word: [sentences]}."""

    def __init__(self, wordnet, words, sentences, seed):
        self.wn, self.words, self.sentences = wordnet, words, sentences
        self.random = random.Random(seed)
        self.tasks = {
            "define": 9,
            "synonyms": 3,
            "sentence": 3,
            "antonym": 1,
            "kind": 1,
            "reverse": 2,
            "related": 2,
            "meanings": 1,
        }

    # -- one question and its answer: (question, answer, reasoning) or None ------------------------------------------

    def _fill(self, templates, word):
        text = self.random.choice(templates)
        a = with_article(word)
        return text.format(w=word, W=capital(word), a=a, A=capital(a))

    def _synset(self, word, pos=None):
        keys = [k for k in self.wn.senses[word] if pos is None or k[0] == pos]
        return self.wn.synsets[keys[0]] if keys else None

    def define(self, word):
        noun = self._synset(word, "n")
        if noun and self.random.random() < 0.5:
            synset, question = noun, self._fill(DEFINE_NOUN, word)
            if not is_countable(noun.definition) and self.random.random() < 0.7:
                question = question.replace(with_article(word), word)
        else:
            synset, question = self._synset(word), self._fill(DEFINE_ANY, word)
        kind = POS_NAMES[synset.pos]
        return (
            question,
            definition_sentence(word, synset),
            f'The user asks what "{word}" means. It is {with_article(kind)}. I give its main meaning.',
        )

    def synonyms(self, word):
        synset = next((self.wn.synsets[k] for k in self.wn.senses[word] if len(self.wn.synsets[k].lemmas) > 1), None)
        if synset is None:
            return None
        others = [w for w in synset.lemmas if w.lower() != word][:4]
        if not others:
            return None
        answer = self.random.choice((f"Synonyms of {word}: {', '.join(others)}.", capital(joined(others)) + "."))
        return self._fill(SYNONYMS, word), answer, f'The user wants words that mean the same as "{word}".'

    def sentence(self, word):
        options = self.sentences.get(word)
        if not options:
            return None
        return self._fill(SENTENCE, word), self.random.choice(options), f'I need a sentence with "{word}".'

    def antonym(self, word):
        for key in self.wn.senses[word]:
            synset = self.wn.synsets[key]
            for symbol, target, link in synset.pointers:
                source, there = int(link[:2], 16), int(link[2:], 16)
                if symbol == "!" and (source == 0 or synset.lemmas[source - 1].lower() == word):
                    other = self.wn.synsets[target].lemmas[max(there - 1, 0)]
                    return (
                        self._fill(ANTONYM, word),
                        f"The opposite of {word} is {other}.",
                        f'I look for the antonym of "{word}".',
                    )
        return None

    def kind(self, word):
        synset = self._synset(word, "n")
        parents = self.wn.targets(synset, ("@",)) if synset else []
        if not parents or not is_countable(synset.definition):
            return None
        parent = parents[0].lemmas[0]
        return (
            self._fill(KIND, word),
            f"{capital(with_article(word))} is a kind of {parent}.",
            f'The user asks for the class of "{word}".',
        )

    def reverse(self, word):
        synset = self._synset(word)
        if len(synset.definition) < 15 or re.search(rf"\b{word}", synset.definition):
            return None
        question = self.random.choice(REVERSE).format(d=("to " if synset.pos == "v" else "") + synset.definition)
        return (
            question,
            self.random.choice((f"The word is {word}.", capital(word) + ".")),
            "I look for the word with this meaning.",
        )

    def related(self, word):
        rng, synset = self.random, self._synset(word)
        roll = rng.random()
        others = [w for w in synset.lemmas if w.lower() != word]
        parents = self.wn.targets(synset, ("@",))
        if roll < 0.3 and others:
            other = rng.choice(others)
            answer = f"Yes. {capital(word)} and {other} mean the same."
        elif roll < 0.6 and parents:
            other = parents[0].lemmas[0]
            answer = (
                f"Yes. {capital(word)} is a kind of {other}."
                if synset.pos == "n"
                else f"Yes. To {word} is a way to {other}."
            )
        else:
            other = rng.choice(self.words)
            far = self._synset(other)
            if other == word or far.pos != synset.pos:
                return None
            if parents and parents == self.wn.targets(far, ("@",)):
                answer = f"Yes. Both are kinds of {parents[0].lemmas[0]}."
            else:
                answer = f"No. {definition_sentence(word, synset)} {definition_sentence(other, far)}"
        x, y = (word, other) if rng.random() < 0.7 or answer.startswith("No") else (other, word)
        return rng.choice(RELATED).format(x=x, y=y), answer, f'I compare the meanings of "{x}" and "{y}".'

    def meanings(self, word):
        keys = self.wn.senses[word][:3]
        if len(keys) < 2:
            return None
        lines = [f"{i}. ({POS_NAMES[k[0]]}) {self.wn.synsets[k].definition}" for i, k in enumerate(keys, 1)]
        return self._fill(MEANINGS, word), "\n".join(lines), f'"{word}" has several meanings. I list the main ones.'

    def question(self, word):
        """A question about `word`; tasks that the word does not allow are drawn again."""
        while True:
            (task,) = self.random.choices(list(self.tasks), list(self.tasks.values()))
            made = getattr(self, task)(word)
            if made:
                return made

    # -- conversations -------------------------------------------------------------------------------------------------

    def conversation(self, words):
        """One or several questions, thinking or not, sometimes with a system message."""
        rng = self.random
        thinking = rng.random() < 0.25
        turns = []
        if rng.random() < 0.02:
            words = []
            question, answer = rng.choice(GREETINGS)
            turns += [("user", question), ("assistant", answer, "A short and friendly answer will do.", None)]
        for word in words:
            question, answer, reasoning = self.question(word)
            turns += [("user", question), ("assistant", answer, reasoning, None)]
        system = rng.choice(SYSTEMS) if rng.random() < 0.15 else None
        return render(turns, thinking, rng.choice((50, 75, 75, 100)), system)

    def json_answer(self, word):
        rng, synset = self.random, self._synset(word)
        values = {
            "word": word,
            "part_of_speech": POS_NAMES[synset.pos],
            "definition": synset.definition,
            "synonyms": [w for w in synset.lemmas if w.lower() != word][:4],
        }
        keys = [k for k in values if k in ("word", "definition") or rng.random() < 0.6]
        kinds = {
            k: {"type": "array", "items": {"type": "string"}} if k == "synonyms" else {"type": "string"} for k in keys
        }
        schema = {"type": "object", "properties": kinds, "required": keys}
        asked = rng.random()
        question = rng.choice(
            ("Define {w} as JSON.", "Give the dictionary entry of {w}.", "Define {w}.", "{W}")
        ).format(w=word, W=capital(word))
        forms = (schema, {"type": "json_schema", "json_schema": {"name": "entry", "schema": schema}})
        response_format, system = rng.choice(forms), rng.choice(SYSTEMS)
        if asked < 0.3:
            response_format, system = None, None
            question = f"Define {word}. Answer in JSON with the keys {joined(keys)}."
        answer = dumps({k: values[k] for k in keys})
        turns = [("user", question), ("assistant", answer, f'I give the entry of "{word}" in the asked form.', None)]
        return render(turns, rng.random() < 0.2, 75, system, None, response_format)

    def tool_turns(self, name, word):
        """-> [turns] of one call and its answer."""
        rng = self.random
        if name == "calculator":
            a, b = rng.choice(((99, 99), (999, 99), (999, 999), (20, 20)))
            a, b = rng.randint(2, a), rng.randint(2, b)
            sign, verb, value = rng.choice((("+", "plus", a + b), ("*", "times", a * b), ("-", "minus", a - b)))
            question = rng.choice(
                (
                    "What is {a} {v} {b}?",
                    "Calculate {a} {s} {b}.",
                    "How much is {a} {v} {b}?",
                    "{a} {s} {b} = ?",
                    "Please work out {a} {v} {b}.",
                )
            ).format(a=a, b=b, v=verb, s=sign)
            arguments, result = {"expression": f"{a} {sign} {b}"}, str(value)
            answer = f"{a} {verb} {b} is {value}."
        elif name == "weather":
            city, degrees, condition = rng.choice(CITIES), rng.randint(-9, 38), rng.choice(CONDITIONS)
            question = rng.choice(
                (
                    "What is the weather in {c}?",
                    "How is the weather in {c}?",
                    "What is the weather like in {c} today?",
                    "Is it warm in {c}?",
                    "Weather in {c}, please.",
                    "Tell me the weather in {c}.",
                )
            ).format(c=city)
            arguments = {"city": city}
            result = dumps({"city": city, "temperature_c": degrees, "condition": condition})
            answer = f"It is {condition} in {city}, with {degrees} degrees."
        else:
            synset = self._synset(word)
            question = rng.choice(
                (
                    "Look up {w}.",
                    "Please look up {w}.",
                    'Look up the word "{w}".',
                    "Find {w} in the dictionary.",
                    "Can you look up {w} for me?",
                )
            ).format(w=word)
            arguments = {"word": word}
            result = dumps({"word": word, "part_of_speech": POS_NAMES[synset.pos], "definition": synset.definition})
            answer = definition_sentence(word, synset)
        reasons = {
            "calculator": "I use the calculator for this.",
            "weather": "I ask the weather tool.",
            "lookup": "I look the word up in the dictionary.",
        }
        return [
            ("user", question),
            ("assistant", "", reasons[name], [(name, arguments)]),
            ("tool", [result]),
            ("assistant", answer, "The tool gave the answer.", None),
        ]

    def tool_conversation(self, words):
        """2 to 5 requests with tools at hand; some need none."""
        rng = self.random
        names = [n for n in TOOLS if rng.random() < 0.75] or ["calculator"]
        rng.shuffle(names)
        turns = []
        for word in words:
            if rng.random() < 0.12:
                question, answer = rng.choice(GREETINGS)
                turns += [("user", question), ("assistant", answer, "No tool is needed.", None)]
            else:
                turns += self.tool_turns(rng.choice(names), word)
        return render(
            turns, rng.random() < 0.35, rng.choice((50, 75, 75, 100)), rng.choice(SYSTEMS), [TOOLS[n] for n in names]
        )
