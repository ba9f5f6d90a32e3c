"""folio validate, folio fuzz, and the replays of folio logits, as a user meets them. What they find is tested in
tests/property and tests/golden."""
import json
import unittest

from command import CommandTest, folio


class Checks(CommandTest):
    def test_validate_runtime(self):
        done = folio("validate", "runtime", "--model", self.model, "--only", "one-token")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([line.split()[:3] for line in lines[:2]],
                         [["ok", "exact", "one-token"], ["ok", "default", "one-token"]])
        self.assertEqual(lines[2], "2 scenarios held, 0 failed")

    def test_validate_runtime_json(self):
        done = folio("validate", "runtime", "--model", self.model, "--only", "prefix-fork", "--threads", 1, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads(done.stdout)
        self.assertEqual([result["mode"] for result in results], ["exact", "default"])
        for result in results:
            self.assertTrue(result["held"])
            self.assertGreater(result["tokens_compared"], 0)

    def test_validate_runtime_speculating(self):
        done = folio("validate", "runtime", "--model", self.model, "--only", "slot-reuse", "--speculative", "dspark")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 scenarios held, 0 failed", done.stdout)

    def test_validate_dspark(self):
        arguments = ["validate", "dspark", "--model", self.model, "--only", "inside-block"]
        done = folio(*arguments, "--num-speculative-tokens", 3)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines()[0].split()[:5], ["ok", "copy", "fp4", "k=3", "stop-inside-block"])
        self.assertEqual(done.stdout.splitlines()[-1], "8 scenarios held, 0 failed")
        done = folio(*arguments, "--kv-cache-dtype", "bf16", "--json")
        results = json.loads(done.stdout)
        self.assertEqual({result["mode"] for result in results},
                         {f"{state} bf16 k={width}" for state in ("copy", "replay") for width in range(1, 6)})
        for result in results:
            self.assertTrue(result["held"], result)
            self.assertGreater(result["tokens_compared"], 0)

    def test_bench_speculation(self):
        done = folio("bench", "speculation", "--model", self.model, "--requests", "1,3", "--steps", 4, "--answer", 48,
                     "--dynamic-steps", 40, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("is given here", done.stderr)
        table = json.loads(done.stdout)["table"]
        self.assertEqual([row["requests"] for row in table], [1, 3])
        for row in table:
            lengths = [mode["accepted_length"] for mode in row["fixed"]]
            self.assertEqual(lengths[:2], [2, 3])  # the curve of 3.51 accepts the first two drafts always
            for length in lengths[2:]:
                self.assertTrue(3 <= length <= 4, lengths)
            self.assertGreater(row["draft"]["time_share"], 0)
            dynamic = row["dynamic"]
            self.assertEqual(dynamic["steps"], 40)
            self.assertAlmostEqual(dynamic["ratio"], dynamic["tokens_per_second"] / dynamic["plain_tokens_per_second"])
            self.assertGreater(sum(dynamic["draft_widths"]) + dynamic["skipped_steps"], 30)

    def test_bench_speculation_on_prompts(self):
        prompts = self.path("prompts.jsonl", '{"tokens": [5, 6, 7], "max_tokens": 9}\n{"tokens": [8, 9]}\n')
        done = folio("bench", "speculation", "--model", self.model, "--requests", "2", "--steps", 4, "--prompts", prompts,
                     "--dynamic-steps", 20, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("is given here", done.stderr)
        report = json.loads(done.stdout)
        self.assertIsNone(report["acceptance_length"])
        for mode in report["table"][0]["fixed"]:
            self.assertLess(mode["accepted_length"], 2)  # of random weights

    def test_bench_step_with_drafts(self):
        done = folio("bench", "step", "--model", self.model, "--context", 64, "--prefill", 64, "--steps", 2, "--repeats", 1,
                     "--speculative", "dspark", "--num-speculative-tokens", 2, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        verify = json.loads(done.stdout)["decode"]["contexts"][0]["verify"]
        self.assertEqual(verify["drafts"], 2)
        self.assertGreater(verify["draft_seconds"], 0)

    def test_fuzz_schedule_with_and_without_drafts(self):
        fuzz = ["fuzz", "schedule", "--model", self.model, "--cases", 4, "--json"]
        with_drafts = json.loads(folio(*fuzz, "--speculative", "dspark", "--num-speculative-tokens", 2).stdout)
        without = json.loads(folio(*fuzz, "--speculative", "none").stdout)
        self.assertGreater(with_drafts["met"]["verifications"], 0)
        self.assertEqual(without["met"]["verifications"], 0)

    def test_fuzz_schedule(self):
        first = folio("fuzz", "schedule", "--model", self.model, "--seed", 5, "--cases", 3, "--json")
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        report, again = json.loads(first.stdout), folio("fuzz", "schedule", "--model", self.model, "--seed", 5, "--cases", 3)
        self.assertEqual((report["cases"], report["differences"], report["leaks"], report["hangs"]), (3, [], [], []))
        self.assertGreater(report["met"]["tokens compared"], 0)
        self.assertIn(f"{report['met']['tokens compared']} tokens compared", again.stdout)  # a seed is one schedule
        self.assertIn("0 differences, 0 leaks, 0 hangs", again.stdout)

    def test_fuzz_load(self):
        speculating = folio("fuzz", "load", "--model", self.model, "--time", 2, "--speculative", "dspark", "--json")
        self.assertEqual(speculating.returncode, 0, speculating.stdout + speculating.stderr)
        self.refused("fuzz", "load", "--model", self.model, "--num-speculative-tokens", 9, says="speculative")
        done = folio("fuzz", "load", "--model", self.model, "--time", 3, "--clients", 8, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["findings"], [])
        self.assertGreater(report["tokens"], 0)
        self.assertGreaterEqual(report["choices"], report["requests"])
        memory = report.get("resident_bytes", {"flat": True, "first": 1 << 30})  # sanitizer builds have none
        self.assertTrue(memory["flat"])
        self.assertGreater(memory["first"], 1 << 20)

    def test_bad_input(self):
        self.refused("validate", "runtime", "--model", self.model, "--only", "nothing", says="--only nothing")
        self.refused("validate", "dspark", "--model", self.model, "--only", "nothing", says="--only nothing")
        self.refused("validate", "dspark", "--model", self.model, "--num-speculative-tokens", 6,
                     says="must be from 1 to the model's block of 5")
        self.refused("validate", "dspark", "--model", self.model, "--num-speculative-tokens", 0,
                     says=["--num-speculative-tokens", "see folio validate dspark --help"])
        self.refused("bench", "speculation", "--model", self.model, "--spec-decode-acceptance-length", 9,
                     says="must be from 1 to 6, one more than the model's block")
        self.refused("fuzz", "schedule", "--model", self.path("gone"), says="gone")
        self.refused("fuzz", "schedule", "--model", self.model, "--num-speculative-tokens", 2,
                     says="needs --speculative dspark")
        self.refused("bench", "step", "--model", self.model, "--speculative", "dspark", "--num-speculative-tokens", 6,
                     says="must be from 1 to the model's block of 5")
        self.refused("fuzz", "schedule", "--model", self.model, "--cases", 0, says="--cases")
        ids = self.path("ids", "5 6 7 8")
        for resume in ("3:1", "4:0", "2:4", "x", "2", "-2:0"):
            self.refused("logits", "--model", self.model, "--out", self.path("never"), "--tokens-file", ids,
                         "--resume=" + resume, says="--resume")


if __name__ == "__main__":
    unittest.main()
