#include "engine/calibration_run.h"

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "engine/engine_core.h"
#include "engine/sequence.h"

namespace folio {
namespace {

constexpr int64_t kContext = 64;  // positions before the first measured row
constexpr int kRepeats = 3;       // timed steps of one kind in a row, behind one that is not

class AnswerTokens final : public Sink {
 public:
  void on_token(int32_t, const TokenOutput& token) override { tokens.push_back(token.id); }
  void on_finish(int32_t, FinishReason the_reason, const Usage&, const std::string& the_message) override {
    finished = true;
    reason = the_reason;
    message = the_message;
  }
  std::vector<int32_t> tokens;
  bool finished = false;
  FinishReason reason = FinishReason::kAbort;
  std::string message;
};

// Drafts as they were proposed, before it is known what the answer says.
struct Proposal {
  int64_t behind = 0;  // tokens of the answer before the first
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

DraftBlock judge(const Proposal& proposal, const std::vector<int32_t>& answer) {
  const auto width = std::ssize(proposal.tokens);
  DraftBlock block{.logits = proposal.logits};
  block.known = static_cast<int32_t>(std::min(width, std::ssize(answer) - proposal.behind));
  while (block.accepted < block.known && proposal.tokens[static_cast<size_t>(block.accepted)] ==
                                             answer[static_cast<size_t>(proposal.behind + block.accepted)]) {
    ++block.accepted;
  }
  return block;
}

// Runs the requests and keeps what is proposed for each.
class Observer {
 public:
  Observer(ModelRunner& runner, const std::vector<std::shared_ptr<Request>>& requests)
      : requests_(requests), core_(runner, config(runner.options())), proposals_(requests.size()) {
    for (const auto& request : requests) {
      sinks_.push_back(std::make_shared<AnswerTokens>());
      request->sink = sinks_.back();
    }
  }

  ObservedDrafts run(const CalibrationProgress& progress) {
    size_t sent = 0;
    while (sent < requests_.size() || !core_.empty()) {
      const auto running = core_.scheduler().running() + core_.scheduler().waiting();
      if (sent < requests_.size() && running < core_.config().max_num_seqs) {
        core_.submit(static_cast<RequestId>(sent), requests_[sent]);
        ++sent;
        continue;
      }
      core_.step();
      look();
      progress("drafts of answers",
               static_cast<double>(core_.scheduler().stats().finished) / static_cast<double>(requests_.size()));
    }
    return result();
  }

 private:
  static EngineConfig config(const RunnerOptions& options) {
    return {.max_num_seqs = options.max_num_seqs,
            .max_num_batched_tokens = options.max_rows,
            .prefix_cache = false,
            .encoder_replay = false,
            .num_speculative_tokens = options.num_speculative_tokens};
  }

  void look() {
    for (const auto& state : core_.scheduler().states()) {
      auto& proposals = proposals_[static_cast<size_t>(state->id)];
      const bool known = !proposals.empty() && proposals.back().behind >= state->generated();
      if (state->drafts.empty() || known) continue;
      proposals.push_back({.behind = state->generated(), .tokens = state->drafts, .logits = state->confidences});
    }
  }

  ObservedDrafts result() const {
    ObservedDrafts observed;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const AnswerTokens& answer = *sinks_[i];
      if (answer.reason == FinishReason::kRefused) {
        fail(ErrorCode::kInvalidArgument, "prompt ", i + 1, ": ", answer.message);
      }
      for (const Proposal& proposal : proposals_[i]) {
        const DraftBlock block = judge(proposal, answer.tokens);
        if (block.known > 0) observed.blocks.push_back(block);
      }
      observed.text.insert(observed.text.end(), requests_[i]->prompt.begin(), requests_[i]->prompt.end());
      observed.text.insert(observed.text.end(), answer.tokens.begin(), answer.tokens.end());
    }
    return observed;
  }

  const std::vector<std::shared_ptr<Request>>& requests_;
  EngineCore core_;
  std::vector<std::shared_ptr<AnswerTokens>> sinks_;
  std::vector<std::vector<Proposal>> proposals_;
};

std::vector<int32_t> request_ladder(int32_t most) {
  std::vector<int32_t> ladder;
  for (int32_t count = 1; count < most; count *= 2) ladder.push_back(count);
  ladder.push_back(most);
  return ladder;
}

// Steps by hand over sequences that go on and on through the text.
class Stopwatch {
 public:
  Stopwatch(ModelRunner& runner, const std::vector<int32_t>& text, int32_t requests)
      : runner_(runner), text_(text), sequences_(static_cast<size_t>(requests)) {
    FOLIO_CHECK(!text.empty());
    greedy_.temperature = 0;
  }

  // Seconds of a forward of the first `requests` sequences and, into `draft`, of the draft head behind it, for blocks
  // of one draft less than there are rows; null: it does not run.
  double forward(int32_t requests, int32_t rows_each, double* draft) {
    for (int32_t i = 0; i < requests; ++i) make_room(i, rows_each);
    StepBuilder& builder = runner_.builder();
    const double start = now_seconds();
    builder.clear();
    if (draft != nullptr) builder.set_draft_width(rows_each - 1);
    for (int32_t i = 0; i < requests; ++i) {
      add_rows(i, rows_each, true);
      if (draft != nullptr) builder.add_draft();
    }
    const Step step = builder.step();
    runner_.run(CopyPlan(), step);
    const double done = now_seconds();
    if (draft == nullptr) return done - start;
    runner_.draft(step);
    *draft = now_seconds() - done;
    return done - start;
  }

 private:
  // Begins sequence `i` (again) when its context is full.
  void make_room(int32_t i, int32_t rows) {
    auto& sequence = sequences_[static_cast<size_t>(i)];
    if (sequence != nullptr && sequence->position() + rows <= runner_.max_model_len()) return;
    sequence.reset();
    sequence = std::make_unique<Sequence>(runner_);
    const int64_t context = std::min(kContext, runner_.max_model_len() - rows);
    while (sequence->position() < context) {
      const auto chunk = std::min<int64_t>(context - sequence->position(), runner_.options().max_rows);
      runner_.builder().clear();
      add_rows(i, static_cast<int32_t>(chunk), false);
      runner_.run();
    }
  }

  void add_rows(int32_t i, int32_t rows, bool sampled) {
    Sequence& sequence = *sequences_[static_cast<size_t>(i)];
    const int64_t first = sequence.position() + i * (std::ssize(text_) / std::ssize(sequences_));
    sequence.begin_span(rows);
    for (int64_t at = first; at < first + rows; ++at) {
      runner_.builder().add_row({.value = text_[static_cast<size_t>(at % std::ssize(text_))]});
      if (sampled || at + 1 == first + rows) runner_.builder().add_sampled_row(greedy_);
    }
  }

  ModelRunner& runner_;
  const std::vector<int32_t>& text_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  SamplingParams greedy_;
};

}  // namespace

ObservedDrafts observe_drafts(ModelRunner& runner, const std::vector<std::shared_ptr<Request>>& requests,
                              const CalibrationProgress& progress) {
  return Observer(runner, requests).run(progress);
}

int64_t measured_context(int32_t draft_width) {
  return kContext + (kRepeats + 1) * (draft_width + 1) * (draft_width + 2);
}

std::vector<TimedStep> MeasuredSteps::forwards() const {
  std::vector<TimedStep> steps;
  steps.reserve(points.size());
  for (const Point& point : points) {
    steps.push_back({.size = int64_t{point.requests} * point.rows_each, .seconds = point.seconds});
  }
  return steps;
}

MeasuredSteps measure_steps(ModelRunner& runner, const std::vector<int32_t>& text, const MeasureLimits& limits,
                            const CalibrationProgress& progress) {
  const int32_t widest = runner.options().num_speculative_tokens + 1;
  Stopwatch stopwatch(runner, text, limits.max_num_seqs);
  std::map<std::pair<int32_t, int32_t>, std::vector<double>> forwards, drafts;  // by requests and rows of each
  const auto measure = [&](int32_t requests, int32_t rows) {
    for (int i = 0; i <= kRepeats; ++i) {
      double draft = 0;
      // Plain steps follow each other without the draft head, whose weights take their place in the caches.
      const double forward = stopwatch.forward(requests, rows, rows > 1 ? &draft : nullptr);
      if (i == 0) continue;  // the caches know another number of rows
      forwards[{requests, rows}].push_back(forward);
      if (rows > 1) drafts[{requests, rows}].push_back(draft);
    }
  };
  MeasuredSteps measured;
  const double begin = now_seconds();
  const auto done = [&] {
    const double rounds = static_cast<double>(measured.rounds) / MeasureLimits::kMostRounds;
    return std::min(1.0, std::max(rounds, (now_seconds() - begin) / limits.seconds));
  };
  while (measured.rounds < MeasureLimits::kLeastRounds ||
         (measured.rounds < MeasureLimits::kMostRounds && now_seconds() - begin < limits.seconds)) {
    for (const int32_t requests : request_ladder(limits.max_num_seqs)) {
      for (int32_t rows = 1; rows <= widest; ++rows) {
        measure(requests, rows);
        progress("seconds of steps", done());
      }
    }
    ++measured.rounds;
  }
  for (const auto& [at, seconds] : forwards) measured.points.push_back({at.first, at.second, lower_quartile(seconds)});
  measured.drafts.resize(static_cast<size_t>(widest - 1));
  for (const auto& [at, seconds] : drafts) {
    measured.drafts[static_cast<size_t>(at.second - 2)].push_back({at.first, lower_quartile(seconds)});
  }
  return measured;
}

}  // namespace folio
