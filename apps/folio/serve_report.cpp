#include "serve_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "svg.h"

namespace folio {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const Distribution& d) {
  return {{"count", d.count}, {"mean", d.mean}, {"p50", d.p50}, {"p90", d.p90},
          {"p95", d.p95},     {"p99", d.p99},   {"max", d.max}};
}

// How much later each event came than the earliest line t0 + k * interval that no event precedes.
void add_lateness(const std::vector<double>& times, double interval, std::vector<double>& late) {
  double origin = times.empty() ? 0 : times[0];
  for (size_t k = 0; k < times.size(); ++k) origin = std::min(origin, times[k] - static_cast<double>(k) * interval);
  for (size_t k = 0; k < times.size(); ++k) late.push_back(times[k] - static_cast<double>(k) * interval - origin);
}

// --- The chart -------------------------------------------------------------------------------------------------------

struct Line {
  std::string name;
  int colour = 1;  // of the style sheet below
  std::vector<double> values;
};

struct Panel {
  std::string title, unit;
  std::vector<Line> lines;
};

constexpr double kPanelWidth = 300, kPanelHeight = 210, kPanelGap = 66, kPanelLeft = 70, kPanelTop = 92;

std::string draw_panel(const Panel& panel, const std::vector<std::string>& labels, double left) {
  double highest = 0;
  for (const Line& line : panel.lines)
    highest = std::max(highest, *std::max_element(line.values.begin(), line.values.end()));
  highest = nice_ceiling(highest);
  const double bottom = kPanelTop + kPanelHeight;
  std::string svg = svg_text(left, kPanelTop - 40, "title", panel.title);
  double legend = left;
  for (const Line& line : panel.lines) {
    svg += concat("<circle cx=\"", svg_number(legend + 4), "\" cy=\"", svg_number(kPanelTop - 23),
                  "\" r=\"4\" class=\"fill", line.colour, "\"/>\n");
    svg += svg_text(legend + 14, kPanelTop - 19, "small", line.name);
    legend += 26 + 7.0 * static_cast<double>(line.name.size());
  }
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = bottom - part * kPanelHeight;
    svg += concat("<line x1=\"", svg_number(left), "\" x2=\"", svg_number(left + kPanelWidth), "\" y1=\"",
                  svg_number(y), "\" y2=\"", svg_number(y), "\" class=\"grid\"/>\n");
    svg += svg_text(left - 8, y + 4, "small end", svg_number(highest * part) + (part == 1.0 ? " " + panel.unit : ""));
  }
  const auto x_of = [&](size_t i) {
    return labels.size() == 1 ? left + kPanelWidth / 2
                              : left + kPanelWidth * static_cast<double>(i) / static_cast<double>(labels.size() - 1);
  };
  for (size_t i = 0; i < labels.size(); ++i) svg += svg_text(x_of(i), bottom + 18, "small middle", labels[i]);
  for (const Line& line : panel.lines) {
    std::string path, points;
    for (size_t i = 0; i < line.values.size(); ++i) {
      const std::string x = svg_number(x_of(i)), y = svg_number(bottom - kPanelHeight * line.values[i] / highest);
      path += concat(i == 0 ? "M" : "L", x, " ", y);
      points += concat("<circle cx=\"", x, "\" cy=\"", y, "\" r=\"3.5\" class=\"fill", line.colour, "\"><title>",
                       line.name, " ", svg_number(line.values[i]), " ", panel.unit, "</title></circle>\n");
    }
    svg += concat("<path d=\"", path, "\" class=\"line", line.colour, "\"/>\n", points);
  }
  return svg;
}

}  // namespace

Distribution distribution(std::vector<double> sample) {
  Distribution d;
  d.count = std::ssize(sample);
  if (sample.empty()) return d;
  std::sort(sample.begin(), sample.end());
  const auto quantile = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sample.size())));
    return sample[std::clamp<size_t>(rank, 1, sample.size()) - 1];
  };
  d.mean = std::accumulate(sample.begin(), sample.end(), 0.0) / static_cast<double>(sample.size());
  d.p50 = quantile(0.5), d.p90 = quantile(0.9), d.p95 = quantile(0.95), d.p99 = quantile(0.99);
  d.max = sample.back();
  return d;
}

LevelReport summarise(const LevelResult& result, double interval) {
  LevelReport report;
  report.level = result.level;
  report.seconds = result.seconds;
  std::vector<double> first, per_token, between, whole, late;
  std::vector<std::vector<double>> turns;
  std::map<std::string, int64_t> errors;
  for (const TimedAnswer& answer : result.answers) {
    if (!answer.error.empty()) {
      ++report.failed;
      ++errors[answer.error];
      continue;
    }
    ++report.answered;
    report.prompt_tokens += answer.prompt_tokens;
    report.cached_tokens += answer.cached_tokens;
    report.output_tokens += answer.completion_tokens;
    whole.push_back(answer.ended - answer.sent);
    const std::vector<double>& times = answer.times;
    if (times.empty()) continue;
    first.push_back(times.front() - answer.sent);
    turns.resize(std::max(turns.size(), static_cast<size_t>(answer.turn) + 1));
    turns[static_cast<size_t>(answer.turn)].push_back(first.back());
    for (size_t i = 1; i < times.size(); ++i) between.push_back(times[i] - times[i - 1]);
    if (answer.completion_tokens > 1 && times.size() > 1) {
      per_token.push_back((times.back() - times.front()) / static_cast<double>(answer.completion_tokens - 1));
    }
    if (interval > 0) add_lateness(times, interval, late);
  }
  report.first = distribution(std::move(first));
  report.per_token = distribution(std::move(per_token));
  report.between = distribution(std::move(between));
  report.whole = distribution(std::move(whole));
  report.late = distribution(std::move(late));
  if (turns.size() > 1) {
    for (std::vector<double>& turn : turns) report.first_of_turn.push_back(distribution(std::move(turn)));
  }
  report.errors.assign(errors.begin(), errors.end());
  return report;
}

ordered_json to_json(const LevelReport& report) {
  ordered_json json = {
      {"concurrency", report.level.concurrency},
      {"rate", report.level.rate},
      {"seconds", report.seconds},
      {"answered", report.answered},
      {"failed", report.failed},
      {"prompt_tokens", report.prompt_tokens},
      {"cached_tokens", report.cached_tokens},
      {"output_tokens", report.output_tokens},
      {"requests_per_second", static_cast<double>(report.answered) / report.seconds},
      {"output_tokens_per_second", static_cast<double>(report.output_tokens) / report.seconds},
      {"total_tokens_per_second", static_cast<double>(report.prompt_tokens + report.output_tokens) / report.seconds},
      {"ttft_seconds", to_json(report.first)},
      {"tpot_seconds", to_json(report.per_token)},
      {"itl_seconds", to_json(report.between)},
      {"latency_seconds", to_json(report.whole)}};
  if (report.late.count > 0) json["late_seconds"] = to_json(report.late);
  for (const Distribution& turn : report.first_of_turn) json["ttft_seconds_of_turn"].push_back(to_json(turn));
  json["errors"] = ordered_json::object();
  for (const auto& [message, count] : report.errors) json["errors"][message] = count;
  return json;
}

std::string chart(const std::vector<LevelReport>& reports, const std::string& title) {
  const bool by_rate = !reports.empty() && reports[0].level.rate > 0;
  std::vector<std::string> labels;
  Panel speed{"Output tokens per second", "tok/s", {{"all requests", 1, {}}}};
  Panel first{"Time to first token", "ms", {{"p50", 1, {}}, {"p99", 3, {}}}};
  Panel token{"Time per output token", "ms", {{"p50", 1, {}}, {"p99", 3, {}}, {"ITL p99", 2, {}}}};
  for (const LevelReport& report : reports) {
    labels.push_back(by_rate ? svg_number(report.level.rate) : std::to_string(report.level.concurrency));
    speed.lines[0].values.push_back(static_cast<double>(report.output_tokens) / report.seconds);
    first.lines[0].values.push_back(1e3 * report.first.p50);
    first.lines[1].values.push_back(1e3 * report.first.p99);
    token.lines[0].values.push_back(1e3 * report.per_token.p50);
    token.lines[1].values.push_back(1e3 * report.per_token.p99);
    token.lines[2].values.push_back(1e3 * report.between.p99);
  }
  const double width = kPanelLeft + 3 * kPanelWidth + 2 * kPanelGap + 24, height = kPanelTop + kPanelHeight + 56;
  std::string svg = svg_head(width, height, title);
  svg += svg_text(kPanelLeft, 28, "head", title);
  double left = kPanelLeft;
  for (const Panel& panel : {speed, first, token}) {
    svg += draw_panel(panel, labels, left);
    left += kPanelWidth + kPanelGap;
  }
  svg += svg_text(kPanelLeft, kPanelTop + kPanelHeight + 42, "small",
                  by_rate ? "over requests that arrive per second" : "over requests at once");
  return svg + "</svg>\n";
}

}  // namespace folio
