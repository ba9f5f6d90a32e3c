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

    def test_fuzz_schedule(self):
        first = folio("fuzz", "schedule", "--model", self.model, "--seed", 5, "--cases", 3, "--json")
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        report, again = json.loads(first.stdout), folio("fuzz", "schedule", "--model", self.model, "--seed", 5, "--cases", 3)
        self.assertEqual((report["cases"], report["differences"], report["leaks"], report["hangs"]), (3, [], [], []))
        self.assertGreater(report["met"]["tokens compared"], 0)
        self.assertIn(f"{report['met']['tokens compared']} tokens compared", again.stdout)  # a seed is one schedule
        self.assertIn("0 differences, 0 leaks, 0 hangs", again.stdout)

    def test_fuzz_load(self):
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
        self.refused("fuzz", "schedule", "--model", self.path("gone"), says="gone")
        self.refused("fuzz", "schedule", "--model", self.model, "--cases", 0, says="--cases")
        ids = self.path("ids", "5 6 7 8")
        for resume in ("3:1", "4:0", "2:4", "x", "2", "-2:0"):
            self.refused("logits", "--model", self.model, "--out", self.path("never"), "--tokens-file", ids,
                         "--resume=" + resume, says="--resume")


if __name__ == "__main__":
    unittest.main()
