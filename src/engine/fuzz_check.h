// Holds what an engine did against solo runs with the same replay plans.
#pragma once

#include "engine/fuzz_recorder.h"

namespace folio {

// One request and what came of it.
struct SentRequest {
  RequestId id = 0;
  std::shared_ptr<const Request> request;
  std::shared_ptr<AnswerRecorder> sink;
  bool cancelled = false;
};

struct CheckOptions {
  int32_t eos = 0;
  int64_t max_model_len = 0;
  bool compare_pages = true;  // bytes of published pages: needs memory that was poisoned from the beginning
};

class AnswerCheck {
 public:
  AnswerCheck(SoloRunner& solo, const RunRecorder& recorder, const CheckOptions& options)
      : solo_(solo), recorder_(recorder), options_(options), results_(recorder.runs().size()) {}

  // Repeats all runs of the requests, which are finished.
  void check(const std::vector<SentRequest>& sent);

  const std::vector<std::string>& differences() const { return differences_; }
  int64_t tokens_compared() const { return tokens_; }
  int64_t pages_compared() const { return pages_; }
  int64_t runs_compared() const { return runs_; }

 private:
  void check_request(const SentRequest& sent, int32_t choice);
  void check_run(const SentRequest& sent, size_t index);
  void check_tokens(const SentRequest& sent, size_t index, const SoloResult& alone);
  std::string name(const RunRecord& run) const;

  SoloRunner& solo_;
  const RunRecorder& recorder_;
  CheckOptions options_;
  std::vector<SoloResult> results_;  // of each run
  std::vector<std::string> differences_;
  int64_t tokens_ = 0, pages_ = 0, runs_ = 0;
};

}  // namespace folio
