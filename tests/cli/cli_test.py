"""The command line as a user meets it: results, one-line errors, exit statuses, Ctrl-C.

Runs the binary named by the environment variable FOLIO on small checkpoints that it writes itself.
"""
import glob
import json
import os
import signal
import subprocess
import time
import unittest

from command import FOLIO, CommandTest, folio


class CommandLine(CommandTest):
    # -- run ------------------------------------------------------------------------------------------

    def test_run_json(self):
        answer = self.run_json("--tokens", "5,6, 7\n8", "--max-tokens", 9, "--ignore-eos")
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(len(answer["tokens"]), 9)
        self.assertEqual(answer["usage"], {"prompt_tokens": 4, "completion_tokens": 9, "total_tokens": 13})
        self.assertGreater(answer["timings"]["time_to_first_token_seconds"], 0)

    def test_run_streams_the_text_of_the_json(self):
        arguments = ["run", "--model", self.model, "--prompt", "the world", "--max-tokens", 12]
        plain = subprocess.run([FOLIO, *map(str, arguments)], capture_output=True, timeout=300)
        self.assertEqual(plain.returncode, 0)
        answer = self.run_json("--prompt", "the world", "--max-tokens", 12)
        self.assertEqual(plain.stdout.decode(), answer["text"])
        self.assertIn(b"tok/s", plain.stderr)

    def test_prompt_file_is_the_prompt(self):
        path = self.path("prompt.txt", "hello world\n")
        self.assertEqual(self.run_json("--prompt-file", path, "--max-tokens", 5)["tokens"],
                         self.run_json("--prompt", "hello world\n", "--max-tokens", 5)["tokens"])

    def test_chunks_blocks_formats_and_threads_change_nothing(self):
        prompt = ",".join(str(3 + i * 7 % 500) for i in range(150))
        base = ["--tokens", prompt, "--max-tokens", 20, "--ignore-eos", "--temperature", 1, "--seed", 11]
        expected = self.run_json(*base)["tokens"]
        for extra in (["--max-num-batched-tokens", 7], ["--block-size", 16], ["--kv-cache-dtype", "bf16"],
                      ["--threads", 1], ["--threads", 3, "--max-num-batched-tokens", 64], ["--kv_cache_dtype", "bf16"]):
            self.assertEqual(self.run_json(*base, *extra)["tokens"], expected, extra)

    def test_speculation_changes_no_bit(self):
        prompt = ["--tokens", ",".join(str(3 + i * 7 % 500) for i in range(40)), "--max-tokens", 60, "--ignore-eos"]
        for sampling in (["--temperature", 0], ["--temperature", 0.7, "--top-p", 0.9, "--seed", 4],
                         ["--temperature", 0, "--repetition-penalty", 1.2, "--logprobs", 3]):
            plain = self.run_json(*prompt, *sampling)
            self.assertEqual(plain["speculation"],
                             {"drafted_tokens": 0, "accepted_tokens": 0, "forced_acceptance": False})
            for extra in ([], ["--num-speculative-tokens", 2], ["--kv-cache-dtype", "bf16"]):
                drafted = self.run_json(*prompt, *sampling, "--speculative", "dspark", *extra)
                self.assertEqual(drafted["tokens"], plain["tokens"], extra)
                self.assertEqual(drafted.get("logprobs"), plain.get("logprobs"))
                self.assertGreater(drafted["speculation"]["drafted_tokens"], 0)
        summary = folio("run", "--model", self.model, *prompt, "--method", "dspark").stderr
        self.assertIn("tokens a verification", summary)

    def test_forced_acceptance(self):
        run = ["--tokens", "5,6,7,8", "--max-tokens", 61, "--ignore-eos", "--temperature", 0, "--speculative", "dspark"]
        for forced, accepted in ((["--spec-decode-acceptance-length", 4], 3), (["--spec-decode-acceptance-rate", 1], 5),
                                 (["--spec-decode-acceptance-length", 1], 0)):
            speculation = self.run_json(*run, *forced)["speculation"]
            self.assertTrue(speculation["forced_acceptance"])
            self.assertIn("acceptance of drafts is forced", folio("run", "--model", self.model, *run, *forced).stderr)
            # The first token and those behind the last limit are not drafted for.
            self.assertAlmostEqual(speculation["accepted_tokens"] * 5 / speculation["drafted_tokens"], accepted, delta=.5)

    def test_ratio_acceptance_draws_otherwise(self):
        prompt = ["--tokens", ",".join(str(3 + i * 7 % 500) for i in range(40)), "--max-tokens", 60, "--ignore-eos",
                  "--seed", 4, "--speculative", "dspark"]
        run = lambda *extra: self.run_json(*prompt, *extra)["tokens"]
        ratio = ["--spec-acceptance", "ratio"]
        self.assertEqual(run("--temperature", 0, *ratio), run("--temperature", 0))
        drawn = ["--temperature", 1]
        self.assertNotEqual(run(*drawn, *ratio), run(*drawn))
        self.assertEqual(run(*drawn, *ratio), run(*drawn, *ratio, "--kv-cache-dtype", "bf16", "--threads", 1))

    def test_speculation_refusals(self):
        run = ["run", "--model", self.model, "--prompt", "a"]
        dspark = [*run, "--speculative", "dspark"]
        self.refused(*dspark, "--num-speculative-tokens", 6, says="--num-speculative-tokens 6 must be from 1 to")
        self.refused(*run, "--num-speculative-tokens", 3, says="needs --speculative dspark")
        self.refused(*run, "--spec-decode-acceptance-length", 2, says="needs --speculative dspark")
        self.refused(*dspark, "--spec-decode-acceptance-length", 7, says="must be from 1 to 6")
        self.refused(*dspark, "--spec-decode-acceptance-length", 2, "--spec-decode-acceptance-rate", 0.5,
                     says="set at most one")

    def test_seed_decides_the_draw(self):
        draw = lambda seed: self.run_json("--prompt", "a", "--max-tokens", 24, "--temperature", 1, "--seed", seed,
                                          "--ignore-eos")["tokens"]
        self.assertEqual(draw(1), draw(1))
        self.assertNotEqual(draw(1), draw(2))

    def test_replay_plan(self):
        prompt = ["--tokens", ",".join(str(3 + i * 7 % 500) for i in range(150)), "--max-tokens", 6, "--ignore-eos"]
        window = 16
        plan = lambda start, known=150: {"start": 0, "resume": 0, "decoder_start": start, "known": known}
        default = self.run_json(*prompt)
        self.assertEqual(default["replay"], {"decoder": True, "encoder": False, "plans": [plan(150 - window)]})
        for exact in (["--exact"], ["--no-decoder-swa-bounded-replay"], ["--exact", "--block-size", 16]):
            answer = self.run_json(*prompt, *exact)
            self.assertEqual(answer["replay"], {"decoder": False, "encoder": False, "plans": [plan(0)]}, exact)
        # A prompt within the window loses nothing.
        short = ["--tokens", "5,6,7,8", "--max-tokens", 6, "--ignore-eos"]
        self.assertEqual(self.run_json(*short)["replay"]["plans"], [plan(0, 4)])
        self.assertEqual(self.run_json(*short)["tokens"], self.run_json(*short, "--exact")["tokens"])

    def test_encoder_replay_needs_a_window_in_a_page(self):
        model = self.path("slots")  # its window is 32 tokens
        self.assertEqual(folio("make-checkpoint", "--preset", "slots", "--out", model).returncode, 0)
        run = ["run", "--model", model, "--prompt", "a", "--max-tokens", 2, "--block-size", 16]
        self.refused(*run, "--encoder-swa-bounded-replay", says=["--block-size 16", "at least 31"])
        for unasked in ([], ["--no-encoder-swa-bounded-replay"], ["--encoder-swa-bounded-replay", "--no-prefix-cache"]):
            done = folio(*run, *unasked)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_engine_flags_change_nothing(self):
        base = ["--tokens", ",".join(str(3 + i * 7 % 500) for i in range(150)), "--max-tokens", 12, "--ignore-eos"]
        expected = self.run_json(*base)["tokens"]
        for extra in (["--no-prefix-cache"], ["--max-num-seqs", 1], ["--long-prefill-token-threshold", 20],
                      ["--no-encoder-swa-bounded-replay", "--state-checkpoint-interval-tokens", 128],
                      ["--enable_prefix_caching"]):
            self.assertEqual(self.run_json(*base, *extra)["tokens"], expected, extra)
        exact = self.run_json(*base, "--exact")["tokens"]
        for extra in (["--max-num-batched-tokens", 7], ["--block-size", 16], ["--long-prefill-token-threshold", 20]):
            self.assertEqual(self.run_json(*base, "--exact", *extra)["tokens"], exact, extra)

    def test_narrow_filters_are_greedy(self):
        base = ["--prompt", "a", "--max-tokens", 12, "--ignore-eos"]
        greedy = self.run_json(*base)["tokens"]
        hot = ["--temperature", 1.5, "--seed", 5]
        self.assertEqual(self.run_json(*base, *hot, "--top-k", 1)["tokens"], greedy)
        self.assertEqual(self.run_json(*base, *hot, "--top-p", 0.000001)["tokens"], greedy)
        self.assertEqual(self.run_json(*base, *hot, "--min-p", 1)["tokens"], greedy)

    def test_prompt_logprobs(self):
        ids = [3 + i * 7 % 500 for i in range(60)]
        base = ["--tokens", ",".join(map(str, ids)), "--max-tokens", 4, "--ignore-eos"]
        answer = self.run_json(*base, "--prompt-logprobs", 3)
        self.assertEqual([token["id"] for token in answer["prompt_logprobs"]], ids[1:])
        self.assertNotIn("logprobs", answer)
        for token in answer["prompt_logprobs"]:
            self.assertLess(token["logprob"], 0)
            self.assertEqual(len(token["top"]), 3)
            self.assertGreaterEqual(token["top"][0]["logprob"], token["logprob"])
        both = self.run_json(*base, "--prompt-logprobs", 0, "--logprobs", 2, "--max-num-batched-tokens", 7)
        self.assertEqual([(t["id"], t["logprob"], t["top"]) for t in both["prompt_logprobs"]],
                         [(t["id"], t["logprob"], []) for t in answer["prompt_logprobs"]])
        self.assertEqual([len(token["top"]) for token in both["logprobs"]], [2] * 4)
        self.assertEqual(both["tokens"], answer["tokens"])
        self.assertEqual(answer["tokens"], self.run_json(*base, "--exact")["tokens"])

    def test_penalties_and_biases(self):
        base = ["--tokens", "5,6,7", "--max-tokens", 12, "--ignore-eos"]
        plain = self.run_json(*base)["tokens"]
        self.assertEqual(self.run_json(*base, "--logit-bias", f"{plain[0]}:-100")["tokens"].count(plain[0]), 0)
        self.assertEqual(self.run_json(*base, "--logit-bias", "42:100")["tokens"], [42] * 12)
        once = self.run_json(*base, "--logit-bias", "42:100", "--logit-bias", "43:99", "--presence-penalty", 2)["tokens"]
        self.assertEqual(set(once), {42, 43})
        counted = self.run_json(*base, "--logit-bias", "42:100", "--logit-bias", "43:99", "--frequency-penalty", 2)
        self.assertEqual(set(counted["tokens"]), {42, 43})
        self.assertGreater(len(set(self.run_json(*base, "--repetition-penalty", 50)["tokens"])), 11)

    def test_stop_string_ends_before_it(self):
        base = ["--prompt", "the world", "--max-tokens", 24, "--ignore-eos"]
        text = self.run_json(*base)["text"]
        stop = text[6:9]
        answer = self.run_json(*base, "--stop", "never there", "--stop", stop)
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(answer["text"], text[:text.index(stop)])

    def test_answer_ends_at_the_context(self):
        answer = self.run_json("--tokens", "5 6 7", "--max-tokens", 50, "--max-model-len", 10, "--ignore-eos")
        self.assertEqual(len(answer["tokens"]), 7)

    def test_bad_input_gets_one_line(self):
        run = ["run", "--model", self.model]
        self.refused(*run, "--prompt", "", says="prompt is empty")
        self.refused(*run, "--tokens", "", says="prompt is empty")
        self.refused(*run, "--tokens", "5,512", says=["512", "vocabulary"])
        self.refused(*run, "--tokens", "5,-1", says="-1")
        self.refused(*run, "--tokens", "5,six", says="six")
        self.refused(*run, "--tokens", "5 " * 40, "--max-model-len", 40, says=["40 tokens", "--max-model-len"])
        self.refused(*run, "--tokens", "5 " * 5000, says=["5000 tokens", "4096"])
        self.refused(*run, "--prompt", "a", "--max-model-len", 5000, says=["5000", "4096"])
        self.refused(*run, "--prompt-file", self.path("missing"), says=["missing", "No such file"])
        self.refused(*run, "--prompt-file", self.scratch.name, says="regular file")
        self.refused(*run, "--prompt", "a", "--prompt-file", "b", says="--prompt")
        self.refused(*run, says="required")
        self.refused(*run, "--prompt", "a", "--isa", "mmx", says="mmx")
        self.refused(*run, "--prompt", "a", "--block-size", 15, says=["15", "16"])
        self.refused(*run, "--prompt", "a", "--kv-cache-dtype", "fp8", says="fp8")
        self.refused(*run, "--prompt", "a", "--index-cache-dtype", "bf16", says="bf16")
        self.refused(*run, "--prompt", "a", "--device", "cuda", says="cuda")
        self.refused(*run, "--prompt", "a", "--memory-budget", "lots", says=["lots", "12G"])
        self.refused(*run, "--prompt", "a", "--memory-budget", "1M", says=["--memory-budget", "GiB"], status=1)
        self.refused(*run, "--prompt", "a", "--top-p", 1.5, says="--top-p")
        self.refused(*run, "--prompt", "a", "--stop", "", says="stop")
        self.refused(*run, "--prompt", "a", "--max-num-seqs", 0, says="--max-num-seqs")
        self.refused(*run, "--prompt", "a", "--max-num-batched-tokens", 1, says="--max-num-batched-tokens 1")
        self.refused(*run, "--prompt", "a", "--long-prefill-token-threshold", -1, says="threshold")
        self.refused(*run, "--prompt", "a", "--exact", "--encoder-swa-bounded-replay", says="--exact")
        self.refused(*run, "--prompt", "a", "--frobnicate", says="unknown flag --frobnicate")
        self.refused(*run, "--propmt", "a", says="unknown flag --propmt")
        self.refused(*run, "--prompt", "a", "b", says="unexpected argument 'b'")
        self.refused(*run, "--prompt", "a", "--seed", -1, says=["--seed", "-1"])
        self.refused("run", "--prompt", "", says="prompt is empty")  # the built-in model, and no word about it
        self.refused("run", "--model", self.path("nowhere"), "--prompt", "a", says="nowhere")
        self.refused("run", "--model", "/dev/null", "--prompt", "a", says="/dev/null")
        self.refused("bench", "ops", "--threads=-1", says="--threads")
        self.refused("bench", "step", "--max-num-batched-tokens", 8, says="unknown flag")  # it has --prefill
        self.refused("frobnicate", says="frobnicate")
        self.refused(says="subcommand")

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_unreadable_directory(self):
        locked = self.path("locked")
        os.mkdir(locked, 0)
        self.refused("run", "--model", locked, "--prompt", "a", says="ermission denied")

    def test_interrupt_ends_with_the_text_so_far(self):
        process = subprocess.Popen([FOLIO, "run", "--model", self.model, "--prompt", "a", "--max-tokens", "4000",
                                    "--ignore-eos", "--isa", "ref", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(json.loads(out)["finish_reason"], "abort")

    def test_default_model_is_unpacked_once(self):
        environment = dict(os.environ, XDG_CACHE_HOME=self.path("cache"))
        environment.pop("FOLIO_MODEL", None)
        for _ in range(2):
            done = folio("run", "--prompt", "What is a lighthouse?", "--max-tokens", 4, "--json", env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("built-in folio-tiny", done.stderr)
        self.assertEqual(len(os.listdir(os.path.join(environment["XDG_CACHE_HOME"], "folio"))), 1)
        chat = folio("chat", "--no-thinking", input="What is a lighthouse?\n", env=environment)  # greedy by default
        self.assertIn("A lighthouse is a tower with a light", chat.stdout)
        (shard,) = glob.glob(self.path("cache/folio/*/folio-tiny/model-00002-*"))
        os.remove(shard)
        self.assertEqual(folio("run", "--prompt", "a", "--max-tokens", 2, env=environment).returncode, 0)
        self.assertTrue(os.path.exists(shard))
        environment["XDG_CACHE_HOME"] = "/dev/null"
        self.refused("run", "--prompt", "a", says="XDG_CACHE_HOME", env=environment)
        environment["FOLIO_MODEL"] = self.model
        done = folio("run", "--prompt", "a", "--max-tokens", 2, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("built-in", done.stderr)

    def test_help_has_defaults(self):
        for command in ("run", "batch", "logits", "make-checkpoint", "inspect", "tokenize", "detokenize", "bench"):
            done = folio(command, "--help")
            self.assertEqual(done.returncode, 0, command)
            self.assertIn("--", done.stdout)
        self.assertIn("=128", folio("run", "--help").stdout)

    def test_lost_output_is_a_failure(self):
        with open("/dev/full", "w") as full:
            for arguments in (["inspect", self.model], ["run", "--model", self.model, "--prompt", "a", "--max-tokens", "3"],
                              ["tokenize", "--model", self.model, "--text", "a"]):
                done = subprocess.run([FOLIO, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("cannot write standard output", done.stderr)

    def test_files_may_be_pipes(self):
        done = folio("run", "--model", self.model, "--prompt-file", "/dev/stdin", "--max-tokens", 3, "--json",
                     input="the world")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["tokens"],
                         self.run_json("--prompt", "the world", "--max-tokens", 3)["tokens"])

    # -- make-checkpoint ------------------------------------------------------------------------------

    def test_make_checkpoint_bad_input(self):
        make = ["make-checkpoint", "--out", self.path("unmade"), "--seed"]
        for seed in ("-1", "1.5", "99999999999999999999999", "many"):
            self.refused(*make[:-1], "--seed=" + seed, says=["--seed", seed, "whole number"])
        self.assertFalse(os.path.exists(self.path("unmade")))

    def test_interrupted_work_leaves_nothing(self):
        ids = self.path("many", "5 " * 4096)
        out = self.path("interrupted")
        os.mkdir(out)
        for arguments in (["make-checkpoint", "--preset", "bench-cpu", "--threads", "1", "--out", out],
                          ["logits", "--model", self.model, "--isa", "ref", "--chunk", "8", "--tokens-file", ids, "--out",
                           os.path.join(out, "x.safetensors")]):
            process = subprocess.Popen([FOLIO, *arguments], stderr=subprocess.PIPE)
            time.sleep(0.7)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, err)
            self.assertEqual([name for name in os.listdir(out) if "safetensors" in name], [])

    # -- logits ---------------------------------------------------------------------------------------

    def logits(self, name, *arguments):
        out = self.path(name)
        done = folio("logits", "--model", self.model, "--tokens-file", self.path("ids", "5, 6\n7 8 9 10 11 12"), "--out",
                     out, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(out, "rb") as f:
            length = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(length))
            begin, end = header["logits"]["data_offsets"]
            f.seek(8 + length + begin)
            return header, f.read(end - begin)

    def test_logits(self):
        header, whole = self.logits("whole.safetensors")
        self.assertEqual(header["logits"]["shape"], [8, 512])
        for arguments in (["--chunk", "1"], ["--chunk", "3,1,2"], ["--block-size", "16"], ["--kv-cache-dtype", "bf16"],
                          ["--threads", "1"], ["--trace"]):
            self.assertEqual(self.logits("part.safetensors", *arguments)[1], whole, arguments)
        self.assertIn("layers.0.attn.in", self.logits("traced.safetensors", "--trace")[0])
        self.assertNotEqual(self.logits("image.safetensors", "--image", "2:4")[1], whole)

    def test_logits_bad_input(self):
        out = self.path("never.safetensors")
        base = ["logits", "--model", self.model, "--out", out]
        ids = self.path("few", "5 6 7")
        self.refused(*base, "--tokens-file", self.path("gone"), says="gone")
        self.refused(*base, "--tokens-file", self.path("none", " \n"), says="no token ids")
        self.refused(*base, "--tokens-file", self.path("word", "5 six"), says="six")
        self.refused(*base, "--tokens-file", self.path("high", "5 512"), says="512")
        self.refused(*base, "--tokens-file", self.path("long", "5 " * 5000), says="4096")
        for image in ("3:2", "0:4", "x", "1:2:3", "-1:2"):
            self.refused(*base, "--tokens-file", ids, "--image=" + image, says="--image")
        self.refused(*base, "--tokens-file", ids, "--chunk", "0", says="--chunk")
        for trace in ([], ["--trace"]):
            self.refused("logits", "--model", self.model, "--out", self.path("no/such/dir.safetensors"), "--tokens-file",
                         ids, *trace, says="no/such")
        started = time.monotonic()
        self.refused("logits", "--model", self.model, "--out", self.path("no/such/dir.safetensors"), "--tokens-file",
                     self.path("lengthy", "5 " * 4000), "--trace", "--isa", "ref", says="no/such")
        self.assertLess(time.monotonic() - started, 5, "found when the work was done")
        self.refused(*base, "--tokens-file", ids, "--max-num-batched-tokens", 8, says="unknown flag")  # it has --chunk
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main()
