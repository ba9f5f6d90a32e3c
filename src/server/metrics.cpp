#include "server/metrics.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/reply_json.h"

namespace folio {
namespace {

// 1 2 5 10 20 50 ... up to the first that is not below `most`.
std::vector<double> one_two_five(int64_t most) {
  std::vector<double> bounds;
  for (double decade = 1; bounds.empty() || bounds.back() < static_cast<double>(most); decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) bounds.push_back(step * decade);
  }
  return bounds;
}

std::vector<double> latency_bounds() {
  return {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
std::vector<double> token_time_bounds() {
  return {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}

std::string number(double value) {
  ReplyJson json = value;
  std::string text = json.dump();
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string quoted_label(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// Appends series with their help and type.
class Page {
 public:
  explicit Page(std::string labels) : labels_(std::move(labels)) {}

  void gauge(std::string_view name, std::string_view help, double value, std::string_view more = "") {
    head(name, help, "gauge");
    line(name, value, more);
  }
  void counter(std::string_view name, std::string_view help, double value) {
    head(name, help, "counter");
    line(name, value, "");
  }
  void head(std::string_view name, std::string_view help, std::string_view type) {
    text_ += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void line(std::string_view name, double value, std::string_view more) {
    text_ += concat(name, "{", labels_, more.empty() ? "" : ",", more, "} ", number(value), "\n");
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    head(name, help, "histogram");
    histogram.print(name, labels_, text_);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string labels_;
  std::string text_;
};

void print_requests(Page& page, const MetricsSources& sources) {
  const EngineStats& engine = sources.engine;
  const ServerMetrics& server = sources.server;
  page.gauge("vllm:num_requests_running", "Choices that run.", static_cast<double>(engine.running));
  page.gauge("vllm:num_requests_waiting", "Choices that wait.", static_cast<double>(engine.waiting));
  page.head("vllm:num_requests_waiting_by_reason", "Choices that wait, by reason.", "gauge");
  page.line("vllm:num_requests_waiting_by_reason", static_cast<double>(engine.waiting), "reason=\"capacity\"");
  page.gauge("folio:sessions", "Requests that are read, run or answered.", static_cast<double>(sources.sessions));
  page.head("vllm:request_success_total", "Finished choices, by reason.", "counter");
  static constexpr std::array<std::string_view, 4> kReasons = {"stop", "length", "abort", "error"};
  for (size_t i = 0; i < kReasons.size(); ++i) {
    page.line("vllm:request_success_total", static_cast<double>(server.finished[i]),
              concat("finished_reason=\"", kReasons[i], "\""));
  }
  page.counter("vllm:num_preemptions_total", "Times that a choice lost its place.",
               static_cast<double>(engine.preempted));
  page.counter("folio:preemptions_resumed_total", "Of these, times that it went on from an image of its state.",
               static_cast<double>(engine.resumed));
  page.counter("vllm:prompt_tokens_total", "Tokens of prompts.", static_cast<double>(server.prompt_tokens_total));
  page.counter("vllm:prompt_tokens_cached_total", "Of these, taken from the prefix cache.",
               static_cast<double>(server.cached_tokens_total));
  page.head("vllm:prompt_tokens_by_source_total", "Tokens of prompts, by where their rows came from.", "counter");
  page.line("vllm:prompt_tokens_by_source_total",
            static_cast<double>(server.prompt_tokens_total - server.cached_tokens_total), "source=\"computed\"");
  page.line("vllm:prompt_tokens_by_source_total", static_cast<double>(server.cached_tokens_total),
            "source=\"prefix_cache\"");
  page.counter("vllm:generation_tokens_total", "Generated tokens.",
               static_cast<double>(server.generation_tokens_total));
}

void print_cache(Page& page, const MetricsSources& sources) {
  const EngineStats& engine = sources.engine;
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  page.gauge("vllm:kv_cache_usage_perc", "Share of the PAGEs that running choices hold.",
             share(engine.pages_used, engine.pages_total));
  page.gauge("vllm:engine_sleep_state", "Always awake.", 1, "sleep_state=\"awake\"");
  page.gauge("vllm:cache_config_info", "The cache's configuration.", 1,
             concat("block_size=\"", sources.model.block_size, "\",num_gpu_blocks=\"", engine.pages_total, "\""));
  page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
               static_cast<double>(engine.prefix_queried_tokens));
  page.counter("vllm:prefix_cache_hits_total", "Of these, found.", static_cast<double>(engine.prefix_hit_tokens));
  page.counter("folio:prefix_lost_to_state_tokens_total", "Found in pages, yet computed again for want of the state.",
               static_cast<double>(engine.prefix_matched_tokens - engine.prefix_hit_tokens));
  page.counter("folio:prefix_evicted_blocks_total", "Published blocks that were given up for their pages.",
               static_cast<double>(engine.prefix_evicted_blocks));
  page.counter("folio:state_images_kept_total", "Images of STATE that were kept.",
               static_cast<double>(engine.images_kept));
  page.counter("folio:state_images_evicted_total", "Of these, given up for their pages.",
               static_cast<double>(engine.images_evicted));
  for (const std::string_view name :
       {"vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_hits_total",
        "vllm:mm_cache_queries_total", "vllm:mm_cache_hits_total"}) {
    page.counter(name, "Folio has no such cache.", 0);
  }
  page.gauge("folio:pages_used", "PAGEs of running choices.", engine.pages_used);
  page.gauge("folio:pages_cached", "Free PAGEs whose content can be taken over.", engine.pages_cached);
  page.gauge("folio:pages_total", "PAGEs.", engine.pages_total);
  page.gauge("folio:state_slots_used", "STATE slots of running choices.", engine.slots_used);
  page.gauge("folio:state_slots_total", "STATE slots.", engine.slots_total);
  page.counter("folio:replay_rows_total", "Rows that ran again behind prefix hits.",
               static_cast<double>(sources.server.replay_rows_total));
  page.counter("folio:approximate_cached_tokens_total", "Cached tokens that were taken by encoder replay.",
               static_cast<double>(sources.server.approximate_tokens_total));
}

// Counters by a whole number that is their label.
void print_by(Page& page, std::string_view name, std::string_view help, std::string_view label,
              const std::vector<int64_t>& counts) {
  page.head(name, help, "counter");
  for (size_t i = 0; i < counts.size(); ++i) {
    page.line(name, static_cast<double>(counts[i]), concat(label, "=\"", i, "\""));
  }
}

void print_speculation(Page& page, const EngineStats& engine) {
  const SpeculationStats& speculation = engine.speculation;
  page.counter("folio:draft_seconds_total", "Time of the draft head.", engine.draft_seconds);
  page.counter("folio:verify_seconds_total", "Time of the model in steps that verified drafts.", engine.verify_seconds);
  page.counter("vllm:spec_decode_num_drafts_total", "Verifications.", static_cast<double>(speculation.verifications));
  page.counter("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens that were verified.",
               static_cast<double>(speculation.drafted_tokens()));
  page.counter("vllm:spec_decode_num_accepted_tokens_total", "Of these, accepted.",
               static_cast<double>(speculation.accepted_tokens()));
  page.gauge("folio:spec_decode_tokens_per_forward", "Tokens that a verification gave on average.",
             speculation.accepted_length());
  print_by(page, "folio:spec_decode_num_draft_tokens_per_pos_total",
           "Verified drafted tokens, by position in the draft.", "position", speculation.drafted);
  print_by(page, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted tokens, by position in the draft.",
           "position", speculation.accepted);
  print_by(page, "folio:spec_decode_draft_width_total", "Drafts of a choice, by how many tokens they have.", "tokens",
           speculation.widths);
  print_by(page, "folio:spec_decode_verify_length_total", "Drafts of a choice, by how many of them a step verified.",
           "tokens", speculation.lengths);
  page.counter("folio:spec_decode_skipped_steps_total", "Steps in which nobody drafted since it did not pay.",
               static_cast<double>(speculation.skipped_steps));
}

void print_engine(Page& page, const MetricsSources& sources) {
  const EngineStats& engine = sources.engine;
  page.counter("folio:steps_total", "Steps with rows.", static_cast<double>(engine.steps));
  page.counter("folio:step_host_seconds_total", "Time of the engine beside the model.", engine.host_seconds);
  page.counter("folio:step_model_seconds_total", "Time of the model.", engine.run_seconds);
  page.counter("folio:prefill_rows_total", "Rows of prompts that ran.", static_cast<double>(engine.prefill_rows));
  page.counter("folio:decode_rows_total", "Rows of answers that ran.", static_cast<double>(engine.decode_rows));
  print_speculation(page, engine);
  page.counter("folio:parser_dropped_bytes_total", "Text between calls that nobody gets.",
               static_cast<double>(sources.server.parser_dropped_bytes));
}

void print_histograms(Page& page, const ServerMetrics& server) {
  page.histogram("vllm:time_to_first_token_seconds", "From the request to its first token.",
                 server.time_to_first_token);
  page.histogram("vllm:inter_token_latency_seconds", "Between two tokens.", server.inter_token_latency);
  page.histogram("vllm:request_time_per_output_token_seconds", "Mean of a choice, without its first token.",
                 server.time_per_output_token);
  page.histogram("vllm:e2e_request_latency_seconds", "From the request to its end.", server.e2e_latency);
  page.histogram("vllm:request_queue_time_seconds", "Until its first rows have run.", server.queue_time);
  page.histogram("vllm:request_inference_time_seconds", "From there to its end.", server.inference_time);
  page.histogram("vllm:request_prefill_time_seconds", "From there to its first token.", server.prefill_time);
  page.histogram("vllm:request_decode_time_seconds", "From its first token to its last.", server.decode_time);
  page.histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", server.prompt_tokens);
  page.histogram("vllm:request_generation_tokens", "Tokens of an answer.", server.generation_tokens);
  page.histogram("vllm:request_max_num_generation_tokens", "Most tokens of an answer.", server.max_tokens);
  page.histogram("vllm:request_params_max_tokens", "max_tokens.", server.max_tokens);
  page.histogram("vllm:request_params_n", "n.", server.choices);
  page.histogram("vllm:request_prefill_kv_computed_tokens", "Tokens of a prompt that were not cached.",
                 server.computed_prompt_tokens);
  page.histogram("vllm:iteration_tokens_total", "Rows of a step, the mean of the steps between two looks.",
                 server.step_rows);
}

void print_http(Page& page, const MetricsSources& sources) {
  const HttpStats& http = sources.http;
  page.gauge("folio:http_connections", "Open connections.", static_cast<double>(http.connections));
  page.counter("folio:http_connections_total", "Connections.", static_cast<double>(http.accepted));
  page.counter("folio:http_connections_refused_total", "Connections over the limit.",
               static_cast<double>(http.refused));
  page.counter("folio:http_bad_requests_total", "What never became a request.", static_cast<double>(http.bad_requests));
  page.counter("folio:http_slow_readers_total", "Connections that read too slowly.",
               static_cast<double>(http.slow_readers));
  page.head("folio:http_replies_total", "Replies by path and status.", "counter");
  for (const auto& [key, count] : sources.server.replies) {
    page.line("folio:http_replies_total", static_cast<double>(count),
              concat("path=\"", quoted_label(key.first), "\",status=\"", key.second, "\""));
  }
  page.gauge("folio:uptime_seconds", "Since the server began.", sources.uptime_seconds);
}

}  // namespace

void Histogram::observe(double value, int64_t times) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(bound - bounds_.begin())] += times;
  sum_ += value * static_cast<double>(times);
  total_ += times;
}

void Histogram::print(std::string_view name, std::string_view labels, std::string& out) const {
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    out += concat(name, "_bucket{", labels, ",le=\"", i < bounds_.size() ? number(bounds_[i]) : "+Inf", "\"} ", below,
                  "\n");
  }
  out += concat(name, "_sum{", labels, "} ", number(sum_), "\n", name, "_count{", labels, "} ", total_, "\n");
}

ServerMetrics::ServerMetrics(int64_t max_model_len)
    : time_to_first_token(
          {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}),
      inter_token_latency(token_time_bounds()),
      time_per_output_token(token_time_bounds()),
      e2e_latency(latency_bounds()),
      queue_time(latency_bounds()),
      inference_time(latency_bounds()),
      prefill_time(latency_bounds()),
      decode_time(latency_bounds()),
      prompt_tokens(one_two_five(max_model_len)),
      generation_tokens(one_two_five(max_model_len)),
      max_tokens(one_two_five(max_model_len)),
      choices({1, 2, 5, 10, 20}),
      step_rows({1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}),
      computed_prompt_tokens(one_two_five(max_model_len)) {}

std::string metrics_text(const MetricsSources& sources) {
  Page page(concat("model_name=\"", quoted_label(sources.model.names.front()), "\",engine=\"0\""));
  print_requests(page, sources);
  print_cache(page, sources);
  print_engine(page, sources);
  print_histograms(page, sources.server);
  print_http(page, sources);
  return page.take();
}

std::string cache_stats_json(const MetricsSources& sources) {
  const EngineStats& engine = sources.engine;
  const ServerMetrics& server = sources.server;
  return dump(
      ReplyJson{{"model", sources.model.names.front()},
                {"uptime_seconds", sources.uptime_seconds},
                {"max_model_len", sources.model.max_model_len},
                {"requests",
                 {{"running", engine.running},
                  {"waiting", engine.waiting},
                  {"sessions", sources.sessions},
                  {"finished", engine.finished},
                  {"aborted", engine.aborted},
                  {"refused", engine.refused},
                  {"preempted", engine.preempted},
                  {"resumed", engine.resumed}}},
                {"pages",
                 {{"used", engine.pages_used},
                  {"cached", engine.pages_cached},
                  {"total", engine.pages_total},
                  {"tokens_per_page", sources.model.block_size}}},
                {"state_slots", {{"used", engine.slots_used}, {"total", engine.slots_total}}},
                {"prefix_cache",
                 {{"queried_tokens", engine.prefix_queried_tokens},
                  {"matched_tokens", engine.prefix_matched_tokens},
                  {"hit_tokens", engine.prefix_hit_tokens},
                  {"evicted_blocks", engine.prefix_evicted_blocks},
                  {"images_kept", engine.images_kept},
                  {"images_evicted", engine.images_evicted},
                  {"approximate_tokens", server.approximate_tokens_total},
                  {"replay_rows", server.replay_rows_total}}},
                {"tokens", {{"prompt", server.prompt_tokens_total}, {"generated", server.generation_tokens_total}}},
                {"steps",
                 {{"count", engine.steps},
                  {"prefill_rows", engine.prefill_rows},
                  {"decode_rows", engine.decode_rows},
                  {"host_seconds", engine.host_seconds},
                  {"model_seconds", engine.run_seconds}}},
                {"connections", sources.http.connections}});
}

std::string spec_stats_json(const EngineStats& engine) {
  const SpeculationStats& speculation = engine.speculation;
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  };
  const std::vector<int64_t> by_accepted = speculation.by_accepted();
  std::vector<double> percent;
  for (const int64_t count : by_accepted) percent.push_back(100 * share(count, speculation.verifications));
  return dump(ReplyJson{{"enabled", engine.num_speculative_tokens > 0},
                        {"num_speculative_tokens", engine.num_speculative_tokens},
                        {"dynamic", engine.dynamic_verification},
                        {"acceptance", engine.acceptance == Acceptance::kRatio ? "ratio" : "match"},
                        {"forced_acceptance", engine.forced_acceptance_length > 0},
                        {"drafts", speculation.verifications},
                        {"draft_tokens", speculation.drafted_tokens()},
                        {"accepted_tokens", speculation.accepted_tokens()},
                        {"acceptance_rate", share(speculation.accepted_tokens(), speculation.drafted_tokens())},
                        {"average_tokens_per_forward", speculation.accepted_length()},
                        {"distribution", by_accepted},
                        {"distribution_percent", percent},
                        {"drafted_per_position", speculation.drafted},
                        {"accepted_per_position", speculation.accepted},
                        {"draft_widths", speculation.widths},
                        {"verify_lengths", speculation.lengths},
                        {"skipped_steps", speculation.skipped_steps},
                        {"draft_seconds", engine.draft_seconds},
                        {"verify_seconds", engine.verify_seconds},
                        {"model_seconds", engine.run_seconds}});
}

}  // namespace folio
