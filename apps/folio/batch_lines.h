// The lines of `folio batch`: requests in, results out, one JSON object each.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "generation_flags.h"
#include "model/model_files.h"
#include "tokenizer/tokenizer.h"

namespace folio {

// A line's request, but for its sink.
struct BatchRequest {
  std::shared_ptr<Request> request;
  std::vector<std::string> stops;
};

// The id that a line names, a string or an integer; its number if it names none or cannot be read.
nlohmann::json line_id(const nlohmann::json& line, int64_t number);

// The JSON object in `text`. Throws Error(kInvalidArgument) when there is none, or fields that nobody knows.
nlohmann::json parse_line(std::string_view text);

// The request of a line; what it does not say comes from `defaults`. Throws Error(kInvalidArgument).
BatchRequest batch_request(const nlohmann::json& line, const GenerationFlags& defaults, const Tokenizer& tokenizer);

// The requests of a file of such lines, checked against the model, with one choice each. Throws Error(kNotFound,
// kInvalidArgument), which names the line; `flag` names the file.
std::vector<BatchRequest> read_requests(const std::string& path, const std::string& flag,
                                        const GenerationFlags& defaults, const ModelFiles& files);

// One choice's result, or why there is none.
nlohmann::ordered_json result_line(const nlohmann::json& id, int32_t choice, const std::string& text,
                                   const std::vector<int32_t>& tokens, FinishReason reason, const Usage& usage);
nlohmann::ordered_json error_line(const nlohmann::json& id, int32_t choice, int64_t number, const std::string& message);

// The lines of a file of requests, numbered from 1; empty ones are passed over.
class BatchInput {
 public:
  // Throws Error(kNotFound) for what cannot be read; `flag` names it in messages.
  explicit BatchInput(const std::string& path, const std::string& flag = "--input");
  // False at the end.
  bool next(std::string& line);
  int64_t number() const { return number_; }

 private:
  std::string name_;  // flag and path
  std::ifstream in_;
  int64_t number_ = 0;
};

// The results of a batch on disk, one line each, whole lines only.
class BatchOutput {
 public:
  // Opens or creates `path`. Results that are there already are kept; errors, and a last line that was cut off, are
  // dropped, so that they come anew. Throws Error(kInvalidArgument) for a file that cannot be written or holds
  // something else.
  explicit BatchOutput(const std::string& path);
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;
  ~BatchOutput();

  bool contains(const nlohmann::json& id, int32_t choice) const { return done_.contains(key(id, choice)); }
  // Results that were there at the start.
  int64_t kept() const { return kept_; }
  // Appends a line and flushes it. Throws Error(kInvalidArgument) when it cannot be written.
  void write(const nlohmann::ordered_json& line);

 private:
  static std::string key(const nlohmann::json& id, int32_t choice);
  void read_results();

  std::string path_;
  std::FILE* file_ = nullptr;
  std::set<std::string> done_;
  int64_t kept_ = 0;
};

}  // namespace folio
