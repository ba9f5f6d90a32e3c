"""folio calibrate: a profile, its charts, and what runs with it or refuses it."""
import json
import os
import signal
import subprocess
import time
import unittest
from xml.etree import ElementTree

from command import FOLIO, CommandTest, folio

PROMPT = ["--tokens", ",".join(str(3 + i * 7 % 500) for i in range(30)), "--max-tokens", 40, "--ignore-eos"]


class Calibrate(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prompts = os.path.join(cls.scratch.name, "prompts.jsonl")
        with open(cls.prompts, "w", encoding="utf-8") as f:
            for i in range(12):
                tokens = [(i * 7919 + 104729 * j) % 500 + 3 for j in range(10 + i)]
                f.write(json.dumps({"tokens": tokens, "max_tokens": 40}) + "\n")
        cls.profile = os.path.join(cls.scratch.name, "profile.json")
        done = folio("calibrate", "--model", cls.model, "--prompts", cls.prompts, "--out", cls.profile,
                     "--max-num-seqs", 3, "--seconds", 0.1, "--ignore-eos")
        assert done.returncode == 0, done.stderr
        cls.said = done.stdout

    def json_of(self, *arguments):
        done = folio("run", "--model", self.model, *arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_profile(self):
        with open(self.profile, encoding="utf-8") as f:
            profile = json.load(f)
        self.assertEqual(profile["version"], 1)
        self.assertEqual((profile["draft_width"], profile["max_num_seqs"]), (5, 3))
        self.assertEqual(len(profile["sps_table"]), 3 * 6 + 1)
        self.assertEqual(profile["sps_table"], sorted(profile["sps_table"], reverse=True))
        self.assertEqual([len(table) for table in profile["draft_seconds"]], [4] * 5)
        self.assertEqual(len(profile["sts_temperatures"]), 5)
        self.assertGreater(profile["evidence"]["blocks"], 100)
        measured = {(point["requests"], point["rows_each"]) for point in profile["evidence"]["forwards"]}
        self.assertEqual(measured, {(requests, rows) for requests in (1, 2, 3) for rows in range(1, 7)})
        self.assertNotIn(os.path.sep, json.dumps(profile))  # no places of this machine
        for word in ("temperature", "ECE before", "plain step", "12 answers"):
            self.assertIn(word, self.said)

    def test_charts(self):
        for name in ("reliability", "throughput"):
            chart = ElementTree.parse(self.profile.replace(".json", f".{name}.svg")).getroot()
            self.assertTrue(chart.tag.endswith("svg"))
            self.assertGreater(len(list(chart.iter())), 50)

    def test_changes_no_bit(self):
        for sampling in (["--temperature", 0], ["--temperature", 0.8, "--seed", 3, "--logprobs", 2]):
            plain = self.json_of(*PROMPT, *sampling)
            drafted = self.json_of(*PROMPT, *sampling, "--speculative", "dspark", "--dspark-profile", self.profile)
            self.assertEqual(drafted["tokens"], plain["tokens"])
            self.assertEqual(drafted.get("logprobs"), plain.get("logprobs"))

    def test_batch(self):
        results = {}
        for name, extra in (("plain", []), ("drafted", ["--speculative", "dspark", "--dspark-profile", self.profile])):
            out = self.path(name + ".jsonl")
            done = folio("batch", "--model", self.model, "--input", self.prompts, "--output", out, "--max-num-seqs", 3,
                         *extra)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out, encoding="utf-8") as f:
                results[name] = {line["id"]: line["tokens"] for line in map(json.loads, f)}
        self.assertEqual(results["plain"], results["drafted"])

    def test_refusals(self):
        run = ["run", "--model", self.model, *PROMPT]
        drafted = [*run, "--speculative", "dspark", "--dspark-profile", self.profile]
        self.refused(*run, "--dspark-profile", self.profile, says="--dspark-profile needs --speculative dspark")
        self.refused(*drafted, "--num-speculative-tokens", 3, says="--num-speculative-tokens is 3")
        self.refused(*drafted, "--kv-cache-dtype", "bf16", says="it was made for kv_cache_dtype fp4")
        self.refused(*drafted, "--isa", "scalar", says="it was made for isa")
        self.refused(*drafted, "--threads", 77, says="it was made for threads")
        self.refused(*drafted, "--spec-decode-acceptance-length", 2, says="leave one out")
        self.refused("serve", "--model", self.model, "--speculative", "dspark", "--dspark-profile", self.profile,
                     says="covers 3 requests at once and --max-num-seqs is 64")
        other = os.path.join(self.scratch.name, "other")
        made = folio("make-checkpoint", "--preset", "slots", "--out", other)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.refused("run", "--model", other, *PROMPT, "--speculative", "dspark", "--dspark-profile", self.profile,
                     says="it was made for config")

    def test_measurements_refuse_it(self):
        dspark = ["--speculative", "dspark", "--dspark-profile"]
        engine = ["bench", "engine", "--model", self.model, "--shared-prompt", 512, "--long-prompt", 512]
        self.refused(*engine, *dspark, self.path("nope.json"), says="nope.json")
        self.refused(*engine, "--dspark-profile", self.profile, says="needs --speculative dspark")
        self.refused(*engine, *dspark, self.profile, "--concurrency", 2, "--host-requests", "1,4",
                     says="covers 3 requests at once and the most of --concurrency and --host-requests is 4")
        speculation = ["bench", "speculation", "--dspark-profile", self.profile]
        several = "covers 3 requests at once and the most of --requests is 4"
        self.refused(*speculation, "--requests", "1,4", says=several)  # before its model is made
        self.refused(*speculation, "--requests", "1,4", "--model", self.model, says=several)
        self.refused(*speculation, "--requests", "3", "--model", self.model, "--isa", "scalar", says="made for isa")
        self.refused(*speculation, "--max-num-batched-tokens", 64, says="unknown flag")

    def test_scenarios_run_with_it(self):
        profile = self.path("four.json")
        made = folio("calibrate", "--model", self.model, "--prompts", self.prompts, "--out", profile, "--seconds", 0,
                     "--max-num-seqs", 4, "--threads", 1)
        self.assertEqual(made.returncode, 0, made.stderr)
        validate = ["validate", "runtime", "--model", self.model, "--only", "prefix-fork", "--threads", 1]
        done = folio(*validate, "--speculative", "dspark", "--dspark-profile", profile)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("0 failed", done.stdout)
        self.refused(*validate, "--dspark-profile", profile, says="needs --speculative dspark")

    def test_every_reason_at_once(self):
        self.refused("run", "--model", self.model, *PROMPT, "--speculative", "dspark", "--dspark-profile", self.profile,
                     "--num-speculative-tokens", 3, "--isa", "scalar",
                     says=["it was made for isa", "--num-speculative-tokens is 3"])

    def test_bad_input(self):
        calibrate = ["calibrate", "--model", self.model, "--out", self.path("none.json")]
        self.refused(*calibrate, "--prompts", self.path("empty.jsonl", "\n"), says="holds no prompt")
        self.refused(*calibrate, "--prompts", self.path("bad.jsonl", '{"prompt": 3}\n'), says="bad.jsonl line 1")
        self.refused(*calibrate, "--prompts", self.prompts, "--num-speculative-tokens", 6, says="block of 5")
        self.refused(*calibrate, "--prompts", self.prompts, "--max-num-seqs", 4000, says="--max-num-batched-tokens 2048")
        short = self.path("short.jsonl", '{"tokens": [5, 6], "max_tokens": 2}\n')
        self.refused(*calibrate, "--prompts", short, says="nothing was observed of position 1 of")
        kept = self.path("kept.json", "an older profile")
        self.refused("calibrate", "--model", self.model, "--out", kept, "--prompts", short, says="nothing was observed")
        with open(kept, encoding="utf-8") as f:
            self.assertEqual(f.read(), "an older profile")
        self.refused("calibrate", "--model", self.model, "--out", self.path("no/where.json"), "--prompts", self.prompts,
                     says="cannot write")
        self.assertFalse(os.path.exists(self.path("none.json")))
        self.refused("calibrate", "--model", self.model, "--out", self.scratch.name, "--prompts", self.prompts,
                     says="is a directory")
        os.mkdir(self.path("chart.throughput.svg"))
        self.refused("calibrate", "--model", self.model, "--out", self.path("chart.json"), "--prompts", self.prompts,
                     says="chart.throughput.svg is a directory")
        self.refused(*calibrate, "--prompts", self.path("nope"), says=["--prompts", "nope: cannot be read"])

    def test_interrupted(self):
        out = self.path("interrupted.json")
        many = self.path("many.jsonl", '{"tokens": [5, 6, 7], "max_tokens": 250, "ignore_eos": true}\n' * 5000)
        process = subprocess.Popen([FOLIO, "calibrate", "--model", self.model, "--prompts", many, "--out", out],
                                   stderr=subprocess.DEVNULL)
        time.sleep(2)
        self.assertIsNone(process.poll(), "done before it was interrupted")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main()
