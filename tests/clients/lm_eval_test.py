"""lm-eval against a running server, with the server's own tokenizer: the scores are those of `folio logits`.

The task is a small local file: multiple choice (loglikelihood) and free text (generate_until).
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from server import FOLIO, ServerTest, need  # noqa: E402

need("lm_eval", "numpy", "aiohttp", "tenacity")
import lm_eval  # noqa: E402
import numpy as np  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

QUESTIONS = [
    ("Grass is", ["green", "made of glass", "loud"], 0),
    ("A week has", ["nine days", "seven days"], 1),
    ("Naïve cafés serve", ["coffee ☕", "日本語"], 0),
    ("Two and two are", ["four", "five", "twenty-two"], 0),
]
MULTIPLE_CHOICE = """
task: tiny_choice
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
doc_to_choice: "{{choices}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""
FREE_TEXT = """
task: tiny_text
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n\\n", "e"], max_gen_toks: 12, do_sample: false}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
"""


class Recorder(LocalCompletionsAPI):
    """Remembers the ids of each scored request beside what lm-eval makes of the reply."""
    scored = []

    @staticmethod
    def parse_logprobs(outputs, tokens=None, ctxlens=None, **keywords):
        scores = LocalCompletionsAPI.parse_logprobs(outputs, tokens=tokens, ctxlens=ctxlens, **keywords)
        Recorder.scored += zip(tokens, ctxlens, scores)
        return scores


class LmEval(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.scratch.name)
        data = folder / "questions.jsonl"
        data.write_text("".join(json.dumps({"question": question, "choices": [" " + choice for choice in choices], "answer": answer}) + "\n"
                                for question, choices, answer in QUESTIONS))
        (folder / "choice.yaml").write_text(MULTIPLE_CHOICE.replace("DATA", str(data)))
        (folder / "text.yaml").write_text(FREE_TEXT.replace("DATA", str(data)))
        os.environ["HF_HOME"] = str(folder / "home")
        cls.tasks = TaskManager(include_path=str(folder), include_defaults=False)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.scratch.cleanup()

    def evaluate(self, task, **options):
        name = json.loads(self.server.get("/v1/models")[1])["data"][0]["id"]
        model = Recorder(model=name, base_url=self.server.url + "/v1/completions", tokenizer_backend="remote", max_length=2048, **options)
        return lm_eval.simple_evaluate(model=model, tasks=[task], task_manager=self.tasks, bootstrap_iters=0)

    def log_probabilities(self, tokens):
        """log-softmax [positions, vocabulary] of `folio logits` on the server's model."""
        ids, out = pathlib.Path(self.scratch.name) / "ids.txt", pathlib.Path(self.scratch.name) / "out.safetensors"
        ids.write_text(" ".join(map(str, tokens)))
        subprocess.run([FOLIO, "logits", "--tokens-file", ids, "--out", out], check=True, capture_output=True, timeout=300)
        raw = out.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        entry = json.loads(raw[8:8 + size])["logits"]
        begin, end = entry["data_offsets"]
        logits = np.frombuffer(raw[8 + size + begin:8 + size + end], dtype=np.float32).reshape(entry["shape"]).astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))

    def test_scores_are_those_of_folio_logits(self):
        for options in ({}, {"batch_size": 3}, {"num_concurrent": 4}):
            Recorder.scored = []
            report = self.evaluate("tiny_choice", **options)
            self.assertEqual(len(Recorder.scored), sum(len(choices) for _, choices, _ in QUESTIONS))
            for tokens, context, (score, greedy) in Recorder.scored:
                expected = self.log_probabilities(tokens)
                ids = tokens[context:]
                rows = expected[context - 1:len(tokens) - 1]
                picked = rows[np.arange(len(ids)), ids]
                # Each log-probability is rounded to fp32 once: half a unit in the last place of a value below 32.
                self.assertAlmostEqual(score, picked.sum(), delta=len(ids) * 2e-6)
                self.assertEqual(greedy, bool((picked == rows.max(axis=1)).all()))
            # What lm-eval reports is what these scores say.
            best = []
            for sample in report["samples"]["tiny_choice"]:
                scores = [response[0][0] for response in sample["resps"]]
                best.append(int(np.argmax(scores)) == sample["doc"]["answer"])
            self.assertEqual(report["results"]["tiny_choice"]["acc,none"], np.mean(best))

    def test_generated_text_is_that_of_folio_run(self):
        report = self.evaluate("tiny_text")
        for sample in report["samples"]["tiny_text"]:
            text = sample["resps"][0][0]
            ids = self.server.post("/tokenize", {"prompt": sample["doc"]["question"], "add_special_tokens": False})["tokens"]
            run = subprocess.run([FOLIO, "run", "--tokens", ",".join(map(str, ids)), "--max-tokens", "12", "--json",
                                  "--stop", "\n\n", "--stop", "e"], capture_output=True, text=True, check=True, timeout=300)
            self.assertEqual(text, json.loads(run.stdout)["text"])


if __name__ == "__main__":
    unittest.main()
