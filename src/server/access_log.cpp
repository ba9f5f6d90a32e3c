#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/reply_channel.h"
#include "server/reply_json.h"

namespace folio {
namespace {

std::string iso_time() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

double milliseconds(double from, double to) {
  return from > 0 && to > 0 ? static_cast<double>(static_cast<int64_t>((to - from) * 1e6)) / 1e3 : 0;
}

}  // namespace

std::string access_line(const RequestRecord& record, bool json) {
  const double total = milliseconds(record.arrived, record.ended);
  const double first = milliseconds(record.arrived, record.first_token);
  if (!json) {
    std::string line = concat(iso_time(), " ", record.id, " ", record.peer, " ", record.method, " ", record.path, " ",
                              record.status, " ", total, " ms");
    if (record.prompt_tokens > 0) {
      line += concat(", ", record.prompt_tokens, " prompt tokens, ", record.cached_tokens, " cached, ",
                     record.completion_tokens, " generated, first after ", first, " ms, ", record.finish);
    }
    return record.error.empty() ? line : concat(line, ": ", record.error);
  }
  ReplyJson line = {{"time", iso_time()},      {"event", "request"},      {"id", record.id},
                    {"peer", record.peer},     {"method", record.method}, {"path", record.path},
                    {"status", record.status}, {"duration_ms", total}};
  if (!record.model.empty()) {
    line["model"] = record.model;
    line["stream"] = record.stream;
    line["prompt_tokens"] = record.prompt_tokens;
    line["cached_tokens"] = record.cached_tokens;
    line["completion_tokens"] = record.completion_tokens;
    line["finish"] = record.finish;
    line["read_ms"] = milliseconds(record.arrived, record.submitted);
    line["queue_ms"] = milliseconds(record.submitted, record.scheduled);
    line["first_token_ms"] = first;
    line["decode_ms"] = milliseconds(record.first_token, record.last_token);
  }
  if (!record.error.empty()) line["error"] = record.error;
  return dump(line);
}

}  // namespace folio
