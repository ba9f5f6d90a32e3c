// What every op comparison of a golden case needs: the model's prepared weights, the rows of the case as a step, and
// caches that hold the oracle's rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/cache_view.h"
#include "comparison.h"
#include "golden_case.h"
#include "model/engram_hash.h"
#include "model/topology.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "tensor/device.h"

namespace folio::golden {

// "ref", then the instruction sets of the CPU backend that this processor has.
std::vector<std::string> backend_names();
std::unique_ptr<Ops> make_backend(const std::string& name);

// Caches of one request in slot 0, with small PAGEs in no particular order.
class CaseCache {
 public:
  CaseCache(Device& device, const Config& config, const Topology& topology, int64_t positions, CacheFormat format);

  const CacheView& view() const { return view_; }
  const std::vector<int32_t>& page_table() const { return page_table_; }
  // Fills a paged plane with rows of packed codes and scales, dequantised when the plane is bf16.
  void install(const PagedRows& plane, RowFormat packed, std::span<const uint8_t> codes,
               std::span<const uint8_t> scales) const;
  // The first `rows` rows of a packed plane.
  void read(const PagedRows& plane, int64_t rows, std::vector<uint8_t>& codes, std::vector<uint8_t>& scales) const;

 private:
  Geometry geometry_;
  PagePool pages_;
  StatePool states_;
  CacheView view_;
  std::vector<int32_t> page_table_;
};

// Window rows in the format of `ring`, from codes and scales.
std::vector<std::byte> window_rows(const RingRows& ring, std::span<const uint8_t> codes,
                                   std::span<const uint8_t> scales);

class OpRunner {
 public:
  OpRunner(const GoldenCase& golden_case, Ops& ops, Recorder& recorder);

  // Each compares the ops of its part with the oracle's tensors, fed with the oracle's inputs.
  void embedding();
  void step();  // positions, rotation tables and hash rows, in one step and in several
  void engram(int layer);
  void hyper(int layer);       // both sites: mix, collapse, norm, expand
  void queries(int layer);     // wq_a .. rotated query
  void window(int layer);      // wkv .. stored window row
  void compressor(int layer);  // of owners: projections .. stored main row and index key
  void indexer(int layer);     // of index sources: query, weights, scores, candidates, selection
  void attend(int layer);
  void output(int layer);   // inverse rotation, wo_a, wo_b
  void experts(int layer);  // router, each expert alone, their sum
  void head();

  const Config& config() const { return checkpoint_.config(); }
  const Topology& topology() const { return topology_; }

 private:
  struct EntryRows;

  // Positions first .. first + count - 1 as the rows of a step.
  Rows rows(int64_t first, int64_t count);
  Rows all_rows() { return rows(0, n_); }
  const float* rope(int layer) const;
  std::string key(int layer, const std::string& name) const { return concat("layers.", layer, ".", name); }
  const BlockWeights& weights(int layer) const { return weights_.layers[static_cast<size_t>(layer)]; }
  float norm_eps() const { return static_cast<float>(config().rms_norm_eps); }
  int32_t streams() const { return static_cast<int32_t>(config().hc_mult); }
  std::span<const bf16> bf16s(const std::string& name) const { return golden_.get<bf16>(name); }

  void begin(int64_t first, int64_t count, int64_t* engram_rows, float* plain, float* scaled, float* group);
  void hyper_site(int layer, const std::string& site, const HyperWeights& hyper, const std::string& streams_key,
                  const std::string& pre_key);
  void collapse(int layer, const std::string& site, const Weight* norm, const std::string& streams_key,
                const std::string& mix_key);
  void expand(int layer, const std::string& site, const std::string& before, const std::string& after);
  // By how much probabilities that are near a tie of their bf16 rounding can have moved an element of attn.core.
  double probability_flips(int layer, int64_t index) const;
  void stored(const std::string& op, int layer, RowFormat format, std::span<const uint8_t> codes,
              std::span<const uint8_t> scales, const std::string& want);
  // As `stored`, when sums precede the quantiser.
  void stored_near(const std::string& op, int layer, RowFormat format, std::span<const uint8_t> codes,
                   std::span<const uint8_t> scales, const std::string& want);
  void write_entries(int layer);
  void chained_entries(int layer);
  void check_selection(int layer, const IndexSelectArgs& args, std::span<const int32_t> pool);

  // Single ops on whole tensors.
  std::vector<bf16> linear(const Weight* weight, std::span<const bf16> x, bool quantized);
  std::vector<float> linear_f32(const Weight* weight, std::span<const bf16> x);
  std::vector<bf16> norm(const Weight* weight, std::span<const bf16> x);
  std::vector<bf16> rotated(std::span<const bf16> x, int64_t rows, int64_t heads, const float* rope,
                            bool inverse = false);
  // Rows of completed entries, spread over the step's rows, and back.
  std::vector<bf16> spread(std::span<const bf16> entries, int32_t ratio);
  std::vector<bf16> gathered(std::span<const bf16> rows, int32_t ratio);

  Ops& ops_;
  Recorder& recorder_;
  GoldenFile golden_;
  std::unique_ptr<Device> device_;
  Checkpoint checkpoint_;
  Topology topology_;
  ModelWeights weights_;
  EngramHashTables hash_;
  int64_t n_;

  std::vector<int32_t> tokens_, positions_, ids_, compressed_, requests_;
  std::vector<uint8_t> image_, step_image_;  // of the case; from begin_step
  std::vector<RowInput> inputs_;
  RequestSpan span_;
  SlotCursor cursor_;
  std::vector<float> plain_frequencies_, scaled_frequencies_, rope_plain_, rope_scaled_, rope_group_;
  std::vector<int64_t> engram_rows_;
  CaseCache packed_, wide_;
};

}  // namespace folio::golden
