"""The server under load, measured by `folio bench serve`.

    load_test.py STUB_SERVER [--only NAME] [--json FILE]

STUB_SERVER is folio_stub_server: the server of `folio serve` on an engine that computes nothing and gives each answer
a token every 20 ms. What is measured is what the server and its client add, both on this machine.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from server import FOLIO, Server

EVENT_MS = 20


class Stub:
    """A running stub server."""

    def __init__(self, program, *flags):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.model = tempfile.TemporaryDirectory()
        subprocess.run([FOLIO, "make-checkpoint", "--preset", "nano", "--out", pathlib.Path(self.model.name) / "nano"], check=True,
                       capture_output=True)
        self.process = subprocess.Popen([program, pathlib.Path(self.model.name) / "nano", str(self.port), *flags])
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.05)
        self.url = f"http://127.0.0.1:{self.port}"

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as reply:
            found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", reply.read().decode(), re.MULTILINE)
        return sum(map(float, found))

    def processor_seconds(self):
        """Processor time of all threads so far."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return 1e-9 * sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def memory(self):
        """Bytes of memory that the server holds by itself."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"RssAnon:\s+(\d+)", status).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        self.model.cleanup()


def bench(url, *arguments):
    """The first level of a report."""
    done = subprocess.run([FOLIO, "bench", "serve", "--url", url, "--json", *map(str, arguments)], capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)["levels"][0]


def streams(stub, *more):
    """1,000 streams of 50 tokens a second for ten seconds."""
    return bench(stub.url, "--concurrency", 1000, "--requests", 1000, "--ramp", 4, "--answer", 500, "--prompt", 16,
                 "--event-interval", EVENT_MS, *more)


def late(level):
    return {"answered": level["answered"], "failed": level["failed"], "events": level["late_seconds"]["count"],
            "late_p50_ms": 1e3 * level["late_seconds"]["p50"], "late_p99_ms": 1e3 * level["late_seconds"]["p99"],
            "late_max_ms": 1e3 * level["late_seconds"]["max"], "ttft_p99_ms": 1e3 * level["ttft_seconds"]["p99"]}


def measure_streams(program):
    with Stub(program) as stub:
        found = late(streams(stub))
    return found, found["failed"] == 0 and found["late_p99_ms"] <= 10


def measure_steps(program):
    """The same with all events at the same moments, as steps of an engine."""
    with Stub(program, "--at-once") as stub:
        found = late(streams(stub))
    return found, found["failed"] == 0 and found["late_p99_ms"] <= 10


def measure_disturbed(program):
    """100 streams alone, then beside 200 clients that never read and 200 that never finish a request."""
    arguments = ("--concurrency", 100, "--requests", 100, "--ramp", 1, "--answer", 300, "--prompt", 16, "--event-interval", EVENT_MS)
    with Stub(program) as stub:
        alone = late(bench(stub.url, *arguments))
        disturbed = late(bench(stub.url, *arguments, "--slow-readers", 200, "--half-open", 200))
    found = {"alone": alone, "disturbed": disturbed}
    return found, disturbed["failed"] == 0 and disturbed["late_p99_ms"] <= max(10, 2 * alone["late_p99_ms"])


def measure_cut_off(program):
    """100 streams beside 200 clients that never read, on a server that holds 40 kB for each: all of these are cut off,
    their requests ended, and nobody else is late."""
    arguments = ("--concurrency", 100, "--requests", 100, "--ramp", 1, "--answer", 500, "--prompt", 16, "--event-interval", EVENT_MS)
    readers = 200
    with Stub(program, "--small-buffers") as stub:
        alone = late(bench(stub.url, *arguments))
        aborted = stub.metric("vllm:request_success_total")
        disturbed = late(bench(stub.url, *arguments, "--slow-readers", readers))
        found = {"alone": alone, "disturbed": disturbed, "cut_off": stub.metric("folio:http_slow_readers_total"),
                 "running": stub.metric("vllm:num_requests_running"),
                 "ended": stub.metric("vllm:request_success_total") - aborted}
    # Besides the answers that are counted, two requests measure the words of a prompt.
    held = (found["cut_off"] == readers and found["running"] == 0 and found["ended"] == 100 + 2 + readers and disturbed["failed"] == 0)
    return found, held and disturbed["late_p99_ms"] <= max(10, 2 * alone["late_p99_ms"])


def measure_processor(program):
    """Processor time of the server for an event, with 200 streams: unlike its latency the same on a busy machine."""
    found = {}
    for endpoint in ("chat", "completions"):
        with Stub(program) as stub:
            before = stub.processor_seconds()
            level = bench(stub.url, "--endpoint", endpoint, "--concurrency", 200, "--requests", 200, "--answer", 200, "--prompt", 16)
            found[endpoint] = {"us_per_event": 1e6 * (stub.processor_seconds() - before) / level["output_tokens"]}
    return found, all(each["us_per_event"] <= 20 for each in found.values())


def measure_memory(program):
    """Anonymous memory after 5,000 requests and after 100,000 more, half of them streams."""
    found = {"megabytes": []}
    with Stub(program) as stub:
        for count in (5_000, 50_000, 50_000):
            bench(stub.url, "--concurrency", 200, "--requests", count, "--answer", 2, "--prompt", 16)
            found["megabytes"].append(stub.memory() / 1e6)
    return found, found["megabytes"][-1] <= found["megabytes"][0] + 8


def measure_overhead(program):
    """Time per token of one stream against that of `folio run`, each the best of five in turns: with a core left for the
    server and the client, and with the engine on all of them."""
    del program
    found = {}
    for threads in (max(1, os.cpu_count() - 1), os.cpu_count()):
        served, alone = [], []
        flags = ("--max-model-len", "4096", "--threads", str(threads))
        with Server(*flags, "--no-access-log") as server:
            for _ in range(5):
                level = bench(server.url, "--endpoint", "completions", "--concurrency", 1, "--requests", 1, "--prompt", 32, "--answer", 600)
                served.append(level["tpot_seconds"]["p50"])
                run = subprocess.run([FOLIO, "run", "--tokens", ",".join(["300"] * 32), "--max-tokens", "600", "--ignore-eos", "--json", *flags],
                                     capture_output=True, text=True, check=True, timeout=600)
                alone.append(1 / json.loads(run.stdout)["timings"]["decode_tokens_per_second"])
        found[f"{threads} threads"] = {"served_us": 1e6 * min(served), "run_us": 1e6 * min(alone), "overhead": min(served) / min(alone) - 1}
    return found, min(each["overhead"] for each in found.values()) <= 0.03


MEASUREMENTS = {"streams": measure_streams, "steps": measure_steps, "disturbed": measure_disturbed, "cut_off": measure_cut_off,
                "processor": measure_processor, "memory": measure_memory, "overhead": measure_overhead}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="STUB_SERVER")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    results, failed = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}, 0
    for name in arguments.only or MEASUREMENTS:
        results[name], held = MEASUREMENTS[name](arguments.program)
        failed += not held
        print(f"{'ok' if held else 'NOT HELD':9} {name}: {json.dumps(results[name])}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
