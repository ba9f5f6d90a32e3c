// folio bench serve: load on a running server that speaks the OpenAI API, and what it answers when.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "bench.h"
#include "interrupt.h"
#include "serve_load.h"
#include "serve_report.h"

namespace folio {
namespace {

struct BenchServeFlags {
  std::string url = "http://127.0.0.1:8000";
  std::string workload = "random";
  std::string endpoint = "chat";
  std::string extra;
  std::vector<int64_t> concurrency = {1, 4, 16};
  std::vector<double> rates;
  int64_t requests = 0;
  double event_interval_ms = 0;
  Workload load;
  ServeLoadOptions options;
  std::string chart;
  bool json = false;
};

Workload read_workload(const BenchServeFlags& flags) {
  Workload load = flags.load;
  load.kind = flags.workload == "random"          ? WorkloadKind::kRandom
              : flags.workload == "shared-prefix" ? WorkloadKind::kSharedPrefix
                                                  : WorkloadKind::kAgent;
  load.chat = flags.endpoint == "chat";
  if (load.seed == 0) load.seed = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  if (!flags.extra.empty()) {
    load.extra = nlohmann::ordered_json::parse(flags.extra, nullptr, false);
    if (!load.extra.is_object()) {
      fail(ErrorCode::kInvalidArgument, "--extra '", flags.extra, "' is no JSON object, such as {\"top_k\": 20}");
    }
  }
  return load;
}

std::vector<Level> read_levels(const BenchServeFlags& flags) {
  std::vector<Level> levels;
  const int64_t most = *std::max_element(flags.concurrency.begin(), flags.concurrency.end());
  for (const double rate : flags.rates) levels.push_back({most, rate, flags.requests > 0 ? flags.requests : 100});
  if (!levels.empty()) return levels;
  for (const int64_t n : flags.concurrency) levels.push_back({n, 0, flags.requests > 0 ? flags.requests : 4 * n});
  return levels;
}

void print_head(bool by_rate) {
  std::printf("%11s %8s %7s %9s %10s %8s  %-17s  %-17s  %-17s\n", by_rate ? "rate" : "concurrency", "answered",
              "failed", "req/s", "out tok/s", "cached", "TTFT ms p50/p99", "TPOT ms p50/p99", "ITL ms p50/p99");
}

void print_level(const LevelReport& report) {
  const auto pair = [](const Distribution& d) {
    char text[48];
    std::snprintf(text, sizeof text, "%.2f / %.2f", 1e3 * d.p50, 1e3 * d.p99);
    return std::string(text);
  };
  const double cached = report.prompt_tokens > 0 ? 100 * static_cast<double>(report.cached_tokens) /
                                                       static_cast<double>(report.prompt_tokens)
                                                 : 0;
  std::printf("%11g %8lld %7lld %9.2f %10.1f %7.1f%%  %-17s  %-17s  %-17s\n",
              report.level.rate > 0 ? report.level.rate : static_cast<double>(report.level.concurrency),
              static_cast<long long>(report.answered), static_cast<long long>(report.failed),
              static_cast<double>(report.answered) / report.seconds,
              static_cast<double>(report.output_tokens) / report.seconds, cached, pair(report.first).c_str(),
              pair(report.per_token).c_str(), pair(report.between).c_str());
  if (report.late.count > 0) {
    std::printf("%11s events late: p50 %.2f ms, p99 %.2f ms, most %.2f ms (%lld events)\n", "", 1e3 * report.late.p50,
                1e3 * report.late.p99, 1e3 * report.late.max, static_cast<long long>(report.late.count));
  }
  for (size_t turn = 0; turn < report.first_of_turn.size(); ++turn) {
    std::printf("%11s turn %zu: TTFT ms %s\n", "", turn + 1, pair(report.first_of_turn[turn]).c_str());
  }
  for (const auto& [message, count] : report.errors) {
    std::printf("%11s failed %lld times: %s\n", "", static_cast<long long>(count), message.c_str());
  }
  std::fflush(stdout);
}

void write_chart(const std::string& path, const std::vector<LevelReport>& reports, const std::string& title) {
  std::ofstream file(path, std::ios::binary);
  file << chart(reports, title);
  if (!file.flush())
    fail(ErrorCode::kNotFound, "cannot write the chart ", path, ": no such directory, or the disk is full");
}

void bench_serve(BenchServeFlags flags) {
  if (const char* key = std::getenv("OPENAI_API_KEY"); flags.options.key.empty() && key != nullptr)
    flags.options.key = key;
  const ServerAddress server = resolve_server(flags.url, flags.options.trust);
  if (server.tls != nullptr && flags.options.slow_readers + flags.options.half_open > 0) {
    fail(ErrorCode::kInvalidArgument, "--slow-readers and --half-open are made over http:// alone, not '", flags.url,
         "'");
  }
  Workload load = read_workload(flags);
  const std::vector<Level> levels = read_levels(flags);
  if (load.model.empty()) load.model = first_model(server, flags.options);
  load.tokens_per_word = measure_tokens_per_word(server, load, flags.options);
  catch_interrupts();

  std::vector<LevelReport> reports;
  nlohmann::ordered_json levels_json = nlohmann::ordered_json::array();
  if (!flags.json) print_head(!flags.rates.empty());
  int64_t answered = 0;
  for (const Level& level : levels) {
    const LevelResult result = run_level(server, load, level, flags.options);
    if (!result.disturbance.empty()) {
      std::fprintf(stderr, "folio: not all slow readers and half-open connections were made: %s\n",
                   result.disturbance.c_str());
    }
    reports.push_back(summarise(result, flags.event_interval_ms / 1e3));
    answered += reports.back().answered;
    if (flags.json) {
      levels_json.push_back(to_json(reports.back()));
    } else {
      print_level(reports.back());
    }
    load.seed += 1;  // the next level must not find this one's prompts in the cache
  }
  const std::string title = load.model + ", " + flags.workload + " prompts";
  if (!flags.chart.empty()) write_chart(flags.chart, reports, title);
  if (flags.json) {
    const nlohmann::ordered_json report = {{"url", flags.url},
                                           {"model", load.model},
                                           {"workload", flags.workload},
                                           {"endpoint", flags.endpoint},
                                           {"prompt_tokens", load.prompt_tokens},
                                           {"answer_tokens", load.answer_tokens},
                                           {"prefix_tokens", load.prefix_tokens},
                                           {"slow_readers", flags.options.slow_readers},
                                           {"half_open", flags.options.half_open},
                                           {"levels", std::move(levels_json)}};
    std::printf("%s\n", report.dump(2).c_str());
  }
  if (answered == 0) fail(ErrorCode::kUnavailable, "no request was answered");
}

void add_workload_flags(CLI::App& command, BenchServeFlags& flags) {
  constexpr int64_t kMost = 1 << 24;
  command
      .add_option("--workload", flags.workload, "random: prompts share nothing; shared-prefix; agent: conversations")
      ->check(CLI::IsMember({"random", "shared-prefix", "agent"}));
  command.add_option("--endpoint", flags.endpoint, "chat or completions")
      ->check(CLI::IsMember({"chat", "completions"}));
  command.add_option("--prompt", flags.load.prompt_tokens, "Prompt tokens of a request or turn, about")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kMost));
  command.add_option("--answer", flags.load.answer_tokens, "Tokens of an answer")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kMost));
  command.add_option("--prefix", flags.load.prefix_tokens, "Tokens that requests share, about")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kMost));
  command.add_option("--groups", flags.load.groups, "shared-prefix: how many different prefixes")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kMost));
  command.add_option("--turns", flags.load.turns, "agent: turns of a conversation")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 16));
  command.add_flag("!--no-ignore-eos", flags.load.ignore_eos,
                   "Do not ask the server to go on behind an end of sentence");
  command.add_option("--extra", flags.extra, "More fields of every request, a JSON object")->type_name("JSON");
  command.add_option("--seed", flags.load.seed, "Of words and arrivals; 0 for words that no earlier run has sent")
      ->type_name("N");
}

void add_load_flags(CLI::App& command, BenchServeFlags& flags) {
  command.add_option("--concurrency", flags.concurrency, "Requests at once, one level each; with --rate the most")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--rate", flags.rates, "Requests that arrive per second, one level each")
      ->type_name("R,R,...")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command
      .add_option("--requests", flags.requests,
                  "Requests (agent: conversations) of a level; 0: 4 x concurrency, or 100")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--ramp", flags.options.ramp, "Seconds over which the first requests of a level begin")
      ->type_name("S")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--timeout", flags.options.timeout, "Seconds without a byte after which a request has failed")
      ->type_name("S")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--slow-readers", flags.options.slow_readers,
                  "Connections beside the load that never read their stream")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 16));
  command.add_option("--half-open", flags.options.half_open, "Connections beside the load that stop within a request")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 16));
  command
      .add_option(
          "--event-interval", flags.event_interval_ms,
          "Milliseconds between the events of an answer, of a server that keeps them: reports how late they come")
      ->type_name("MS")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("serve", "Load on a running server: latencies and throughput");
  command->footer(
      "Works with any server of the OpenAI API over http or https. TTFT is the time to the first output of an answer, "
      "TPOT the "
      "time per token\n"
      "after it, ITL the time between events with output. The key is that of --api-key or of OPENAI_API_KEY.");
  const auto flags = std::make_shared<BenchServeFlags>();
  command->add_option("--url", flags->url, "The server")->type_name("URL");
  command
      ->add_option("--ca-file", flags->options.trust.ca_file,
                   "https: PEM certificates that may vouch for the server; without it the system's")
      ->type_name("FILE");
  command->add_flag("--insecure", flags->options.trust.insecure, "https: take any certificate, such as one of its own");
  command->add_option("--api-key", flags->options.key, "Key to send")->type_name("KEY");
  command->add_option("--served-model", flags->load.model, "Model name to ask for; without it the server's first")
      ->type_name("NAME");
  add_workload_flags(*command, *flags);
  add_load_flags(*command, *flags);
  command->add_option("--chart", flags->chart, "Write a chart of the levels, an SVG")->type_name("FILE");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { bench_serve(*flags); });
}

}  // namespace folio
