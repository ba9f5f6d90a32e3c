"""folio batch as a user meets it: results, resumption, bad lines, Ctrl-C."""
import json
import os
import signal
import subprocess
import time
import unittest

from command import FOLIO, CommandTest, folio


class Batch(CommandTest):
    def setUp(self):
        self.output = self.path(self.id() + ".out")
        self.input = self.path(self.id() + ".in")

    def write(self, *lines):
        with open(self.input, "w") as f:
            for line in lines:
                f.write((line if isinstance(line, str) else json.dumps(line)) + "\n")

    def batch(self, *arguments, status=0):
        done = folio("batch", "--model", self.model, "--input", self.input, "--output", self.output, *arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.summary = done.stderr
        return self.results()

    def results(self):
        with open(self.output) as f:
            lines = [json.loads(line) for line in f]
        keys = [(json.dumps(line["id"]), line["index"]) for line in lines]
        self.assertEqual(len(set(keys)), len(keys), "answered twice")
        return {(line["id"], line["index"]): line for line in lines}

    def test_equals_run(self):
        requests = [{"id": f"r{i}", "tokens": [3 + (i + j * 7) % 500 for j in range(5 + 13 * i)], "max_tokens": 6 + i,
                     "temperature": 1, "seed": i, "ignore_eos": True} for i in range(8)]
        self.write(*requests, "", {"prompt": "the world"})
        results = self.batch("--max-tokens", 9, "--no-prefix-cache", "--max-num-seqs", 3, "--verbose")
        self.assertEqual(len(results), 9)
        for i, request in enumerate(requests):
            alone = self.run_json("--tokens", " ".join(map(str, request["tokens"])), "--max-tokens", 6 + i, "--seed", i,
                                  "--temperature", 1, "--ignore-eos")
            result = results[f"r{i}", 0]
            for field in ("text", "tokens", "finish_reason"):
                self.assertEqual(result[field], alone[field], i)
            self.assertEqual(result["usage"]["replay"], alone["replay"])
            self.assertEqual(result["usage"]["completion_tokens"], 6 + i)
            self.assertEqual(result["usage"]["cached_tokens"], 0)
        alone = self.run_json("--prompt", "the world", "--max-tokens", 9)
        self.assertEqual(results[10, 0]["text"], alone["text"])  # the id is the number of its line
        for part in ("9 answers", "tok/s", "100 %", "STATE, 3 slots", "host time"):
            self.assertIn(part, self.summary)

    def test_lists_and_logprobs_equal_run(self):
        line = {"id": "x", "prompt": "the world", "max_tokens": 12, "min_tokens": 10, "temperature": 1, "seed": 3,
                "repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": -1, "logprobs": 2,
                "logit_bias": {"7": 100, "9": -100}}
        self.write(line, {"id": "plain", "prompt": "the world", "max_tokens": 12, "temperature": 1, "seed": 3})
        results = self.batch()
        alone = self.run_json("--prompt", "the world", "--max-tokens", 12, "--min-tokens", 10, "--temperature", 1,
                              "--seed", 3, "--repetition-penalty", 1.5, "--frequency-penalty", 0.5,
                              "--presence-penalty", -1, "--logprobs", 2, "--logit-bias", "7:100", "--logit-bias", "9:-100")
        for field in ("text", "tokens", "finish_reason", "logprobs"):
            self.assertEqual(results["x", 0][field], alone[field], field)
        self.assertIn(7, alone["tokens"])
        self.assertEqual([len(token["top"]) for token in alone["logprobs"]], [2] * len(alone["tokens"]))
        self.assertNotEqual(results["plain", 0]["tokens"], alone["tokens"])
        self.assertNotIn("logprobs", results["plain", 0])

    def test_choices_stops_and_prefixes(self):
        prefix = [3 + i * 7 % 500 for i in range(300)]
        self.write({"id": "first", "tokens": prefix, "max_tokens": 4, "n": 3, "temperature": 1},
                   {"id": "second", "tokens": prefix + [5], "max_tokens": 4},
                   {"id": "third", "tokens": prefix + [5], "max_tokens": 4, "exact": True})
        results = self.batch("--max-num-seqs", 1)
        self.assertEqual({key[1] for key in results if key[0] == "first"}, {0, 1, 2})
        self.assertEqual(results["second", 0]["usage"]["cached_tokens"], 256)
        self.assertTrue(results["second", 0]["usage"]["replay"]["encoder"])
        self.assertFalse(results["third", 0]["usage"]["replay"]["encoder"])
        self.assertFalse(results["third", 0]["usage"]["replay"]["decoder"])
        exact = self.run_json("--tokens", " ".join(map(str, prefix + [5])), "--max-tokens", 4, "--exact")
        self.assertEqual(results["third", 0]["tokens"], exact["tokens"])

        text = self.run_json("--prompt", "the world", "--max-tokens", 24, "--ignore-eos")["text"]
        os.remove(self.output)
        stops = ["never there", text[6:9]]
        self.write({"prompt": "the world", "max_tokens": 24, "ignore_eos": True, "stop": stops},
                   {"prompt": "the world", "max_tokens": 24, "ignore_eos": True, "stop": text[6:9], "n": 2})
        results = self.batch()
        self.assertEqual(len(results), 3)
        for result in results.values():
            self.assertEqual(result["finish_reason"], "stop")
            self.assertEqual(result["text"], text[:text.index(text[6:9])])
            self.assertLess(len(result["tokens"]), 24)

    def test_resumes(self):
        self.write(*[{"id": i, "prompt": "the world", "seed": i, "temperature": 1, "n": 2} for i in range(5)])
        whole = self.batch("--max-tokens", 5)
        with open(self.output) as f:
            lines = f.readlines()
        untouched = list(lines)
        self.assertEqual(self.batch("--max-tokens", 5), whole)
        self.assertIn("5 lines skipped", self.summary)
        with open(self.output) as f:
            self.assertEqual(f.readlines(), untouched)
        # One answer is gone and the last line was cut off.
        with open(self.output, "w") as f:
            f.writelines(lines[1:-1] + [lines[-1][:20]])
        self.assertEqual(self.batch("--max-tokens", 5), whole)
        self.assertEqual(os.listdir(self.scratch.name).count(os.path.basename(self.output) + ".part"), 0)

    def test_bad_lines_are_answered(self):
        good = {"id": "good", "prompt": "a", "max_tokens": 3}
        bad = [("nonsense", "JSON"), ("[1]", "object"), ({"prompt": "a", "best_of": 3}, "best_of"), ({}, "prompt"),
               ({"prompt": "a", "tokens": [5]}, "either"), ({"prompt": ""}, "empty"), ({"tokens": [5, 512]}, "512"),
               ({"tokens": [5, "six"]}, "token ids"), ({"prompt": 5}, "string"), ({"prompt": "a", "n": 0}, "n 0"),
               ({"prompt": "a", "n": 129}, "129"), ({"prompt": "a", "temperature": -1}, "temperature"),
               ({"prompt": "a", "temperature": 1e39}, "temperature"), ({"prompt": "a", "top_p": "x"}, "top_p"),
               ({"prompt": "a", "seed": -1}, "seed"), ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
               ({"prompt": "a", "max_tokens": 2.5}, "max_tokens"), ({"prompt": "a", "stop": [""]}, "stop"),
               ({"prompt": "a", "top_k": 1 << 40}, "top_k"), ({"prompt": "a", "logit_bias": [5]}, "logit_bias"),
               ({"prompt": "a", "logit_bias": {"5x": 1}}, "no token id"), ({"prompt": "a", "logit_bias": {"512": 1}}, "512"),
               ({"prompt": "a", "repetition_penalty": 0}, "repetition_penalty"), ({"prompt": "a", "logprobs": 99}, "logprobs"),
               ({"prompt": "a", "min_tokens": -1}, "min_tokens"), ({"id": 1.5, "prompt": "a"}, "id"),
               ({"id": "good", "prompt": "a"}, "earlier line"), ({"tokens": [5] * 5000}, "5000 tokens"),
               ('{"prompt": ' + "[" * 5000, "deep")]
        self.write(good, *[line for line, _ in bad])
        results = self.batch(status=1)
        by_line = {line["error"]["line"]: line["error"]["message"] for line in results.values() if "error" in line}
        for number, (line, says) in enumerate(bad, start=2):
            self.assertIn(says, by_line[number], line)
        self.assertEqual(len(results["good", 0]["tokens"]), 3)
        self.assertIn(f"{len(bad)} failed", self.summary)
        # A corrected line is answered when the batch is started again.
        self.write(good, {"prompt": "b", "max_tokens": 2})
        results = self.batch()
        self.assertEqual(sorted(map(str, results)), ["('good', 0)", "(2, 0)"])

    def test_bad_files(self):
        run = ["batch", "--model", self.model]
        self.write({"prompt": "a"})
        self.refused(*run, "--input", self.path("gone"), "--output", self.output, says="gone")
        self.refused(*run, "--input", self.scratch.name, "--output", self.output, says="cannot be read")
        self.refused(*run, "--input", self.input, "--output", self.input, says="same file")
        self.refused(*run, "--input", self.input, "--output", self.path("no/such/out"), says="no/such/out")
        self.refused(*run, "--input", self.input, "--output", self.path("text", "my notes\n"), says="line 1 is not a result")
        with open(self.path("text")) as f:
            self.assertEqual(f.read(), "my notes\n")
        self.refused(*run, "--input", self.input, says="--output")
        self.refused(*run, "--input", self.input, "--output", self.output, "--stop", "", says="stop")
        self.refused(*run, "--input", self.input, "--output", self.output, "--block-size", 16, "--max-num-batched-tokens",
                     9, says=["--max-num-batched-tokens 9"])
        self.refused(*run, "--input", self.input, "--output", self.output, "--memory-budget", "1M",
                     says=["STATE of 64 requests", "--memory-budget"], status=1)
        self.write()
        self.assertEqual(self.batch(), {})

    def test_interrupt_keeps_what_is_done(self):
        self.write(*[{"prompt": "a", "max_tokens": 3 if i < 4 else 4000, "ignore_eos": True} for i in range(8)])
        arguments = [FOLIO, "batch", "--model", self.model, "--input", self.input, "--output", self.output, "--isa", "ref"]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if os.path.exists(self.output) and len(self.results()) >= 4:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(sorted(key[0] for key in self.results()), [1, 2, 3, 4])
        self.assertIn("4 answers", err)


if __name__ == "__main__":
    unittest.main()
