"""folio eval as a user meets it: its parts on little of the suite, its report, its refusals."""
import json
import os
import signal
import subprocess
import time
import unittest

from command import FOLIO, CommandTest, folio

TINY = os.path.join(os.environ["FOLIO_SOURCE_DIR"], "models/folio-tiny")
SUITE = os.path.join(os.environ["FOLIO_SOURCE_DIR"], "models/eval-tiny")


class Eval(CommandTest):
    def report(self, *arguments):
        path = self.path("report.json")
        done = folio("eval", "--model", TINY, "--json", path, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as file:
            return json.load(file), done.stdout

    def test_answers(self):
        report, text = self.report("--only", "recall,formats", "--limit", 20)
        self.assertEqual(report["recall"]["words"], 20)
        self.assertGreater(report["recall"]["first_phrase"], 0.8)
        self.assertEqual(report["formats"]["tool_calls"]["parses"], 1)
        self.assertGreaterEqual(report["formats"]["json"]["parses"], 0.9)
        self.assertNotIn("drafts", report)
        self.assertIn("definitions           20 common nouns", text)

    def test_held_out_is_what_run_says(self):
        """Bits per byte of a domain of one document against the log-probabilities that folio run gives."""
        suite = self.path("suite")
        os.makedirs(suite)
        document = "<｜begin▁of▁sentence｜>A lighthouse is a tower.<｜end▁of▁sentence｜>"
        for name in os.listdir(SUITE):
            with open(os.path.join(SUITE, name)) as source, open(os.path.join(suite, name), "w") as target:
                target.write(source.read() if name != "stories.jsonl" else json.dumps({"text": document}) + "\n")
        report, _ = self.report("--data", suite, "--only", "held-out", "--limit", 1)
        run = folio("run", "--model", TINY, "--prompt", document, "--max-tokens", 1, "--prompt-logprobs", 0, "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        logprobs = [token["logprob"] for token in json.loads(run.stdout)["prompt_logprobs"]]
        (stories,) = [row for row in report["held-out"] if row["domain"] == "stories"]
        self.assertEqual((stories["tokens"], stories["bytes"]), (len(logprobs), len("A lighthouse is a tower.")))
        self.assertAlmostEqual(stories["nll_per_token"], -sum(logprobs) / len(logprobs), places=5)

    def test_drafts_replay_and_caches(self):
        report, _ = self.report("--only", "drafts,replay,caches", "--limit", 1)
        drafts = {row["domain"]: row for row in report["drafts"]}
        self.assertGreater(drafts["tool calls"]["accepted_length"], 4)
        self.assertEqual([(row["domain"], row["prompt_tokens"]) for row in report["replay"]],
                         [(domain, length) for domain in ("stories", "chat") for length in (256, 1024, 4096)])
        for row in report["replay"]:
            none, decoder, encoder, _ = row["modes"]
            self.assertEqual((none["same_most_likely"], none["same_greedy_tokens"]), (1, 48))
            self.assertLess(abs(decoder["nll_per_token"] - none["nll_per_token"]), 0.5)
            if row["prompt_tokens"] == 256:  # the PAGE that encoder replay rebuilds is the whole prefix
                self.assertEqual(encoder["nll_per_token"], none["nll_per_token"])
                self.assertNotEqual(decoder["nll_per_token"], none["nll_per_token"])
        fp4, bf16, fp8_index = report["caches"]
        self.assertEqual(bf16["domains"], fp4["domains"])  # stored rows of either format have the same values
        self.assertGreater(bf16["bytes_per_token"], fp4["bytes_per_token"])
        self.assertNotEqual(fp8_index["domains"], fp4["domains"])

    def test_refusals(self):
        self.refused("eval", "--model", TINY, "--only", "nothing", says="--only")
        self.refused("eval", "--model", TINY, "--suite", "large", says="--suite")
        self.refused("eval", "--model", TINY, "--limit", -1, says="--limit")
        self.refused("eval", "--model", TINY, "--json", "/nonexistent/report", says="/nonexistent/report")
        self.refused("eval", "--model", TINY, "--data", self.path("gone"), says="chat.jsonl")
        bad = self.path("bad")
        os.makedirs(bad)
        with open(os.path.join(bad, "chat.jsonl"), "w") as file:
            file.write('{"text": "Hello", "kind": "plain"}\n{"txt": 1}\n')
        self.refused("eval", "--model", TINY, "--data", bad, says=["chat.jsonl, line 2", "text"])
        with open(os.path.join(bad, "chat.jsonl"), "w") as file:
            file.write("no JSON\n")
        self.refused("eval", "--model", TINY, "--data", bad, says=["chat.jsonl, line 1"])

    def test_interrupt(self):
        report = self.path("never.json")
        process = subprocess.Popen([FOLIO, "eval", "--model", TINY, "--json", report], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
        self.assertFalse(os.path.exists(report))


if __name__ == "__main__":
    unittest.main()
