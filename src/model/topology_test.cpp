#include "model/topology.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoint/presets.h"

namespace folio {
namespace {

Topology topology_of(const std::string& json) { return make_topology(parse_config(json, "config.json")); }

// The published schedule, row by row of the table of spec/model.md section 2.
TEST(Topology, PublishedSchedule) {
  struct Row {
    int first, last;
    LayerKind kind;
    int ratio, owner, source;
    bool writes, reads;
  };
  const std::vector<Row> table = {
      {0, 1, LayerKind::kWindow, 0, -1, -1, false, false},  {2, 2, LayerKind::kFull, 2, 2, 2, false, false},
      {3, 7, LayerKind::kReuse, 2, 2, 2, false, false},     {8, 8, LayerKind::kFull, 2, 8, 8, false, false},
      {9, 13, LayerKind::kReuse, 2, 8, 8, false, false},    {14, 14, LayerKind::kFull, 2, 14, 14, false, false},
      {15, 19, LayerKind::kReuse, 2, 14, 14, false, false}, {20, 20, LayerKind::kFull, 1, 20, 20, true, false},
      {21, 23, LayerKind::kReuse, 1, 20, 20, false, false}, {24, 24, LayerKind::kReindex, 1, 20, 24, false, true},
      {25, 27, LayerKind::kReuse, 1, 20, 24, false, false}, {28, 28, LayerKind::kReindex, 1, 20, 28, false, true},
      {29, 31, LayerKind::kReuse, 1, 20, 28, false, false}, {32, 32, LayerKind::kReindex, 1, 20, 32, false, true},
      {33, 35, LayerKind::kReuse, 1, 20, 32, false, false}, {36, 36, LayerKind::kReindex, 1, 20, 36, false, true},
      {37, 39, LayerKind::kReuse, 1, 20, 36, false, false},
  };
  const Topology topology = topology_of(published_config_json());
  int covered = 0;
  for (const Row& row : table) {
    for (int layer = row.first; layer <= row.last; ++layer, ++covered) {
      const int engram = layer == 1 ? 0 : layer == 14 ? 1 : -1;
      const LayerTopology expected = {row.kind, row.ratio, row.owner, row.source, row.writes, row.reads, engram};
      EXPECT_EQ(topology[layer], expected) << "layer " << layer;
    }
  }
  EXPECT_EQ(covered, 40);
  EXPECT_EQ(topology.layers.size(), 40u);
  EXPECT_EQ(topology.kv_owners, (std::vector<int>{2, 8, 14, 20}));
  EXPECT_EQ(topology.index_sources, (std::vector<int>{2, 8, 14, 20, 24, 28, 32, 36}));
  EXPECT_EQ(topology.candidate_source, 20);
  EXPECT_EQ(topology.first_decoder_layer, 20);
  EXPECT_EQ(topology.owner_index(14), 2);
  EXPECT_EQ(topology.owner_index(15), -1);
}

TEST(Topology, NanoHasOneLayerOfEveryKind) {
  const Topology topology = topology_of(preset_config_json("nano", false, 400));
  const std::vector<LayerKind> kinds = {LayerKind::kWindow, LayerKind::kFull,  LayerKind::kReuse,   LayerKind::kFull,
                                        LayerKind::kFull,   LayerKind::kReuse, LayerKind::kReindex, LayerKind::kReuse};
  ASSERT_EQ(topology.layers.size(), kinds.size());
  for (int layer = 0; layer < 8; ++layer) EXPECT_EQ(topology[layer].kind, kinds[static_cast<size_t>(layer)]) << layer;
  EXPECT_EQ(topology[7], (LayerTopology{LayerKind::kReuse, 1, 4, 6, false, false, -1}));
  EXPECT_TRUE(topology[4].writes_candidates);
  EXPECT_TRUE(topology[6].reads_candidates);
  EXPECT_EQ(topology[1].engram, 0);
  EXPECT_EQ(topology[3].engram, 1);
}

TEST(Topology, NamesOfKinds) {
  EXPECT_EQ(layer_kind_name(LayerKind::kWindow), "window");
  EXPECT_EQ(layer_kind_name(LayerKind::kReindex), "reindex");
}

TEST(Speculation, ModelsAndWidthsThatCannotDraftAreRefused) {
  Config config = parse_config(preset_config_json("nano", false, 400), "nano");
  const auto refusal = [&](int32_t tokens) {
    return speculation_refusal(config, make_topology(config), tokens).value_or("");
  };
  for (int32_t tokens = 1; tokens <= 5; ++tokens) EXPECT_EQ(refusal(tokens), "");
  EXPECT_EQ(refusal(0), "--num-speculative-tokens 0 must be from 1 to the model's block of 5");
  EXPECT_EQ(refusal(6), "--num-speculative-tokens 6 must be from 1 to the model's block of 5");
  config.dspark_target_layer_ids = {3, 5};
  EXPECT_NE(refusal(5).find("target layer 3 begins with Engram"), std::string::npos);
  config.dspark_target_layer_ids = {2, 5};
  EXPECT_NE(refusal(5).find("target layer 2 comes before the decoder's first, 4"), std::string::npos);
  config.num_nextn_predict_layers = 0;
  EXPECT_NE(refusal(5).find("no draft stages"), std::string::npos);
}

}  // namespace
}  // namespace folio
