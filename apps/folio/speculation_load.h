// Loads that folio bench speculation measures: requests that decode together, on an engine with blocks of a width, for
// as many steps as one likes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "batch_lines.h"
#include "engine/calibration_profile.h"
#include "engine/engine_core.h"

namespace folio {

using LineAnswers = std::vector<std::vector<int32_t>>;

// What is asked, over and over again.
struct SpeculationWorkload {
  std::vector<BatchRequest> lines;
  const Tokenizer* tokenizer = nullptr;  // for stop strings

  int64_t longest_prompt() const;
  int64_t longest_context() const;  // of prompt and answer
};

// Acceptance that is given, not the model's (spec runtime 7.6): what the lines say is known, and proposals are replaced
// by as many right tokens as the curve of a mean accepted length asks for. Confidences are those of that curve.
struct GivenAcceptance {
  double length = 0;
  LineAnswers answers;  // by line
};

struct LoadMeasurement {
  int64_t tokens = 0, steps = 0;
  double seconds = 0;
  std::vector<double> forward_seconds, draft_seconds;  // [steps]
  SpeculationStats speculation;                        // of all steps of the load, also those not measured

  double rate() const { return static_cast<double>(tokens) / seconds; }
  double draft_share() const;
};

// `requests` of the lines run at a time; where one ends the next begins, the first again behind the last.
class SpeculationLoad {
 public:
  // `given` may be null: then the model's own drafts and confidences count. All must outlive it.
  SpeculationLoad(ModelRunner& runner, const EngineConfig& config, const SpeculationWorkload& workload,
                  int32_t requests, const GivenAcceptance* given);
  SpeculationLoad(const SpeculationLoad&) = delete;
  SpeculationLoad& operator=(const SpeculationLoad&) = delete;
  // What the requests hold is for the next ones.
  ~SpeculationLoad() { core_.abort_all(); }

  // Runs so many steps and adds them to `measured`.
  void run(int64_t steps, LoadMeasurement& measured);
  // Answers of the first `lines` lines, to their ends.
  LineAnswers answers(int32_t lines);

 private:
  void submit();
  void step();
  void replace_drafts(RequestState& state) const;

  const SpeculationWorkload& workload_;
  const GivenAcceptance* given_;
  size_t requests_;
  int64_t vocab_;
  int64_t told_ = 0;
  RequestId next_ = 0;
  LineAnswers* kept_ = nullptr;  // where answers go while answers() runs
  EngineCore core_;
};

// A runner for each number of drafts, 0 being none. Their weights are one mapping of the checkpoint.
class WidthEngines {
 public:
  // `options`: the flags' of the model.
  WidthEngines(const ModelFiles& files, const RunnerOptions& options, const SpeculationWorkload& workload,
               int32_t max_num_seqs);

  int32_t widest() const { return static_cast<int32_t>(runners_.size()) - 1; }
  ModelRunner& runner(int32_t width) { return *runners_[static_cast<size_t>(width)]; }
  // A profile makes verification dynamic.
  EngineConfig config(int32_t width, std::shared_ptr<const CalibrationProfile> profile = nullptr) const;

 private:
  std::vector<std::unique_ptr<ModelRunner>> runners_;
};

}  // namespace folio
