"""folio export-hidden: rows that drafters train on, equal to those of folio logits --trace whatever runs beside them."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from command import FOLIO, CommandTest, folio

sys.path.insert(0, os.path.join(os.environ["FOLIO_SOURCE_DIR"], "tools", "oracle"))
try:
    import numerics
    import numpy
    import safetensors_io
except ImportError:  # without scripts/setup dev
    numpy = None


def ids(count, seed):
    return [(seed * 7919 + 104729 * i) % 500 + 3 for i in range(count)]


@unittest.skipIf(numpy is None, "needs numpy")
class ExportHidden(CommandTest):
    def export(self, *arguments):
        done = folio("export-hidden", "--model", self.model, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def trace(self, tokens, *arguments):
        """The intermediates of a plain forward."""
        file, out = self.path("tokens.txt", " ".join(map(str, tokens))), self.path("trace.safetensors")
        done = folio("logits", "--model", self.model, "--tokens-file", file, "--out", out, "--trace", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return safetensors_io.read(out)[0]

    def test_rows_are_those_of_a_plain_forward_whatever_the_chunks(self):
        tokens = ids(70, 1)
        file = self.path("one.txt", " ".join(map(str, tokens)))
        with open(os.path.join(self.model, "config.json")) as f:
            config = json.load(f)
        targets = config.get("text_config", config)["dspark_target_layer_ids"]
        want = self.trace(tokens)
        for name, arguments in (("whole", []), ("chunks", ["--max-num-batched-tokens", 16, "--max-num-seqs", 2]),
                                ("rows", ["--max-num-batched-tokens", 2, "--max-num-seqs", 1]),
                                ("pages", ["--block-size", 16, "--kv-cache-dtype", "bf16", "--threads", 1])):
            out = self.path(name + ".safetensors")
            self.export("--tokens-file", file, "--output", out, *arguments)
            tensors, metadata = safetensors_io.read(out)
            self.assertEqual(sorted(tensors), sorted(["tokens", "hidden"] + [f"tap.{layer}" for layer in targets]))
            self.assertEqual(tensors["tokens"].tolist(), tokens)
            self.assertIn("folio-v1", metadata["cache"])
            for key in tensors:
                self.assertTrue(numpy.array_equal(tensors[key], want[key]), f"{name}: {key}")

    def test_chosen_layers(self):
        tokens = ids(20, 2)
        file, out = self.path("few.txt", " ".join(map(str, tokens))), self.path("few.safetensors")
        self.export("--tokens-file", file, "--output", out, "--layers", "0,4", "--no-final")
        tensors, want = safetensors_io.read(out)[0], self.trace(tokens)
        self.assertEqual(sorted(tensors), ["tap.0", "tap.4", "tokens"])
        # What enters a layer is in the trace too: the mean over its streams, rounded once.
        means = numerics.bf16_from_bits(want["layers.4.in_streams"]).astype(numpy.float64).mean(1)
        self.assertTrue(numpy.array_equal(tensors["tap.4"], numerics.bf16_to_bits(numerics.bf16_round(means))))
        for key in ("tap.0", "tap.4"):
            self.assertTrue(numpy.array_equal(tensors[key], want[key]), key)

    def test_many_prompts_in_company(self):
        """Lines of folio batch, several at once and longer than a step; a second run makes what is missing alone."""
        prompts = [ids(count, 3 + i) for i, count in enumerate((1, 40, 7, 65, 17, 64))]
        lines = [json.dumps({"id": f"p{i}", "tokens": tokens}) for i, tokens in enumerate(prompts)]
        lines.insert(3, "")
        lines.append(json.dumps({"prompt": "Once upon a time"}))
        file, folder = self.path("prompts.jsonl", "\n".join(lines) + "\n"), self.path("rows")
        arguments = ["--input", file, "--output", folder, "--max-num-batched-tokens", 24, "--max-num-seqs", 3]
        self.assertIn("7 prompts", self.export(*arguments).stdout)
        numbers = [1, 2, 3, 5, 6, 7]
        self.assertEqual(sorted(os.listdir(folder)), [f"{n:06}.safetensors" for n in numbers + [8]])
        for number, tokens in zip(numbers, prompts):
            tensors, metadata = safetensors_io.read(os.path.join(folder, f"{number:06}.safetensors"))
            self.assertEqual(metadata["id"], f"p{prompts.index(tokens)}")
            want = self.trace(tokens)
            for key in tensors:
                self.assertTrue(numpy.array_equal(tensors[key], want[key]), f"{number}: {key}")
        os.remove(os.path.join(folder, "000002.safetensors"))
        self.assertIn("1 prompts", self.export(*arguments).stdout)
        self.assertEqual(len(os.listdir(folder)), 7)

    def test_interrupt_leaves_whole_files_only(self):
        lines = [json.dumps({"tokens": ids(400, i)}) for i in range(400)]
        file, folder = self.path("long.jsonl", "\n".join(lines)), self.path("interrupted")
        process = subprocess.Popen([FOLIO, "export-hidden", "--model", self.model, "--input", file, "--output", folder,
                                    "--isa", "scalar", "--threads", "1"], stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not (os.path.isdir(folder) and any(n.endswith(".safetensors") for n in os.listdir(folder))):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        for name in os.listdir(folder):
            self.assertRegex(name, r"^\d{6}\.safetensors$")
            safetensors_io.read(os.path.join(folder, name))

    def test_bad_input(self):
        export = ["export-hidden", "--model", self.model, "--output", self.path("no.safetensors")]
        self.refused(*export, says="--prompt")
        self.refused(*export, "--prompt", "a", "--tokens-file", "b", says="--prompt")
        self.refused(*export, "--prompt", "a", "--layers", "99", says="tap.99")
        self.refused(*export, "--prompt", "a", "--layers", "1", says="Engram")
        self.refused(*export, "--prompt", "a", "--layers", "4,4", says="twice")
        self.refused(*export, "--prompt", "a b c d", "--max-model-len", 2, says="--max-model-len")
        file = self.path("bad.jsonl", '{"tokens": [5]}\n{"tokens": [99999]}\n')
        self.refused(*export, "--input", file, says=["prompt 2", "99999"])
        file = self.path("unknown.jsonl", '{"text": "a"}\n')
        self.refused(*export, "--input", file, says=["line 1", "text"])
        self.assertFalse(os.path.exists(self.path("no.safetensors")))


if __name__ == "__main__":
    unittest.main()
