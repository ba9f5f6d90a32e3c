// The text backbone and its draft head: one forward over the rows of a Step, as calls on ops (spec/model.md 4 to 9).
// Remembers nothing between steps; what lasts is in the cache.
#pragma once

#include "cache/cache_view.h"
#include "model/engram_hash.h"
#include "model/step.h"
#include "model/topology.h"
#include "model/trace.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "tensor/buffer.h"

namespace folio {

struct TransformerLimits {
  int64_t max_rows = 0;       // of a step
  int64_t max_head_rows = 0;  // of a step
  int64_t max_model_len = 0;  // tokens of one request
  int64_t max_drafting = 0;   // requests that draft together
  int32_t draft_width = 0;    // tokens that they draft; 0 = no draft head
  bool trace = false;         // room for a trace's index scores
};

// The cache layout of a model: owners and windows of its backbone. With a draft head of `draft_width` tokens also its
// context windows, behind those of the backbone, and so much slack in the rings.
GeometryInputs geometry_inputs(const Config& config, const Topology& topology, int32_t block_size, CacheFormat format,
                               int32_t draft_width = 0);

// Device bytes of the activations of a step, without what the ops themselves reserve.
int64_t workspace_bytes(const Config& config, const Geometry& geometry, const TransformerLimits& limits);

class Transformer {
 public:
  // Prepares weights and lays out the workspace. `compressed` maps token ids to Engram's compressed ids. Device, ops
  // and checkpoint must outlive it.
  Transformer(Device& device, Ops& ops, const Checkpoint& checkpoint, const Topology& topology,
              std::vector<int32_t> compressed, const Geometry& geometry, const TransformerLimits& limits);

  // begin_step, embedding, blocks, head, sample, verify, commit. Only the step's head rows go through the head.
  StepOutputs forward(const Step& step, const CacheView& cache, TraceSink* trace = nullptr);
  // After the step's forward: the draft blocks of the requests that it names.
  DraftOutputs draft(const Step& step, const CacheView& cache, TraceSink* trace = nullptr);

  const Config& config() const { return config_; }
  const Topology& topology() const { return topology_; }

 private:
  // What the parts of one forward share. Rows drop out on the way: at the first decoder layer those that only feed the
  // compressed entries, inside the last layer those that need no logits.
  struct Pass {
    const Step& step;
    const CacheView& cache;
    Tracer trace;
    Rows rows;                                // of keys and window rows
    const RowBuffers* row_buffers = nullptr;  // of `rows`
    const RowBuffers* at = nullptr;           // the rows that go on, `count` of them
    int64_t count = 0;
    const int32_t* query_rows = nullptr;  // place of each in `rows`; null: the same rows
  };

  void begin(Pass& pass);
  void engram(Pass& pass, int layer);
  // The parts of a block; `key` begins the names of its tensors in a trace. False when no row is left after the keys.
  bool block(Pass& pass, int layer);
  void begin_block(Pass& pass, const BlockWeights& weights, const std::string& key);
  void attention_mix(Pass& pass, const BlockWeights& weights, const std::string& key);
  void end_attention(Pass& pass, const std::string& key);
  void feed_forward(Pass& pass, const BlockWeights& weights, int layer, const std::string& key);
  void hyper_mix(Pass& pass, const HyperWeights& weights, float* pre);
  void expand(Pass& pass);
  // The rows' normed sublayer input: their streams collapsed by `mix`.
  void sublayer_input(Pass& pass, const float* mix, const Weight* norm);
  void keys(Pass& pass, int layer);
  // Window latents, rotated, of rows of a normed input.
  void window_latent(const AttentionWeights& weights, const bf16* input, int64_t rows, const float* rope);
  void attention(Pass& pass, int layer);
  void queries(Pass& pass, const AttentionWeights& weights, const float* rope, const std::string& key);
  void attention_output(Pass& pass, const AttentionWeights& weights, const float* rope);
  void compress(Pass& pass, int layer);
  void index_select(Pass& pass, int layer);
  void moe(Pass& pass, const MoeWeights& weights, int layer, const std::string& key);
  void narrow(Pass& pass, const RowBuffers& to, const int32_t* index, int64_t count);
  StepOutputs head(Pass& pass);
  void collapse_streams(Pass& pass);

  // dspark.cpp
  bool has_draft_head() const { return !weights_.draft.stages.empty(); }
  void tap(Pass& pass, int layer);
  void write_draft_context(Pass& pass);
  void begin_draft(Pass& pass);
  void draft_stage(Pass& pass, size_t stage);
  DraftOutputs draft_heads(Pass& pass);

  void norm(const bf16* x, const Weight* weight, int64_t rows, bf16* out);
  void rotate(bf16* x, int64_t rows, int64_t heads, int64_t dim, const float* rope, bool inverse = false);

  Config config_;
  Topology topology_;
  Ops& ops_;
  ModelWeights weights_;
  EngramHashTables engram_hash_;
  std::vector<float> plain_frequencies_, scaled_frequencies_;
  Buffer memory_;
  Workspace ws_;
  int64_t max_rows_;
  int64_t max_drafting_;
  int32_t draft_width_;
  int64_t trace_scores_;
};

}  // namespace folio
