#include "server/metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace folio {
namespace {

// Three verifications, of 2, 5 and 1 drafts, in an engine with a profile.
EngineStats speculating() {
  EngineStats engine;
  engine.num_speculative_tokens = 5;
  engine.dynamic_verification = true;
  engine.draft_seconds = 0.25;
  engine.verify_seconds = 1.5;
  engine.run_seconds = 2;
  for (const auto& [drafts, accepted] : {std::pair{2, 2}, {5, 3}, {1, 0}}) {
    engine.speculation.add(drafts, accepted);
    engine.speculation.add_block(5);
    engine.speculation.add_length(drafts);
  }
  engine.speculation.add_block(2);
  engine.speculation.add_length(0);
  engine.speculation.skipped_steps = 7;
  return engine;
}

TEST(Metrics, SpeculationAsJson) {
  const auto json = nlohmann::json::parse(spec_stats_json(speculating()));
  EXPECT_EQ(json["enabled"], true);
  EXPECT_EQ(json["dynamic"], true);
  EXPECT_EQ(json["acceptance"], "match");
  EXPECT_EQ(json["forced_acceptance"], false);
  EXPECT_EQ(json["drafts"], 3);
  EXPECT_EQ(json["draft_tokens"], 8);
  EXPECT_EQ(json["accepted_tokens"], 5);
  EXPECT_DOUBLE_EQ(json["acceptance_rate"], 5.0 / 8);
  EXPECT_DOUBLE_EQ(json["average_tokens_per_forward"], 1 + 5.0 / 3);
  EXPECT_EQ(json["distribution"], (std::vector<int>{1, 0, 1, 1, 0, 0}));
  EXPECT_DOUBLE_EQ(json["distribution_percent"][2], 100.0 / 3);
  EXPECT_EQ(json["drafted_per_position"], (std::vector<int>{3, 2, 1, 1, 1}));
  EXPECT_EQ(json["accepted_per_position"], (std::vector<int>{2, 2, 1, 0, 0}));
  EXPECT_EQ(json["verify_lengths"], (std::vector<int>{1, 1, 1, 0, 0, 1}));
  EXPECT_EQ(json["draft_widths"], (std::vector<int>{0, 0, 1, 0, 0, 3}));
  EXPECT_EQ(json["skipped_steps"], 7);
  EXPECT_EQ(json["draft_seconds"], 0.25);
  EXPECT_EQ(json["verify_seconds"], 1.5);
}

TEST(Metrics, WithoutSpeculation) {
  const auto json = nlohmann::json::parse(spec_stats_json({}));
  EXPECT_EQ(json["enabled"], false);
  EXPECT_EQ(json["acceptance_rate"], 0);
  EXPECT_EQ(json["distribution"], std::vector<int>{0});
}

TEST(Metrics, SpeculationForPrometheus) {
  ServedModel model;
  model.names = {"m"};
  const std::string text =
      metrics_text({.server = ServerMetrics(1024), .engine = speculating(), .http = {}, .model = model});
  const std::string labels = "{model_name=\"m\",engine=\"0\"";
  for (const std::string& line :
       {"folio:draft_seconds_total" + labels + "} 0.25", "folio:verify_seconds_total" + labels + "} 1.5",
        "vllm:spec_decode_num_drafts_total" + labels + "} 3",
        "vllm:spec_decode_num_draft_tokens_total" + labels + "} 8",
        "vllm:spec_decode_num_accepted_tokens_total" + labels + "} 5",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total" + labels + ",position=\"1\"} 2",
        "folio:spec_decode_num_draft_tokens_per_pos_total" + labels + ",position=\"0\"} 3",
        "folio:spec_decode_draft_width_total" + labels + ",tokens=\"2\"} 1",
        "folio:spec_decode_verify_length_total" + labels + ",tokens=\"5\"} 1",
        "folio:spec_decode_skipped_steps_total" + labels + "} 7"}) {
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace folio
