#include "op_runner.h"

#include <algorithm>
#include <cstring>

#include "model/rope.h"
#include "model/transformer.h"
#include "ops/row_codec.h"

namespace folio::golden {
namespace {

constexpr int32_t kBlockSize = 16;

// Scratch for the largest calls: each expert of each row runs as a row of its own.
OpsLimits limits(const Config& config, int64_t n) {
  return {.max_rows = n * config.num_experts_per_tok,
          .max_linear_in = std::max({config.hidden_size, config.q_lora_rank, config.o_groups * config.o_lora_rank,
                                     config.num_attention_heads * config.head_dim / config.o_groups,
                                     config.engram_columns() * config.engram_head_dim}),
          .hidden = config.hidden_size,
          .expert_inner = config.moe_intermediate_size,
          .max_experts = static_cast<int32_t>(config.n_routed_experts),
          .max_topk_experts = static_cast<int32_t>(config.num_experts_per_tok),
          .heads = static_cast<int32_t>(config.num_attention_heads),
          .head_dim = static_cast<int32_t>(config.head_dim),
          .list_length = static_cast<int32_t>(config.sliding_window + config.index_topk),
          .index_heads = static_cast<int32_t>(config.index_n_heads),
          .index_dim = static_cast<int32_t>(config.index_head_dim),
          .index_format = RowFormat::kFp8Index,  // the larger scores
          .max_visible = n,
          .vocab = config.vocab_size};
}

std::vector<int32_t> copy(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"ref"};
  for (const char* isa : {"scalar", "avx2", "avx512bf16"}) {
    try {
      make_cpu_ops({.isa = isa, .threads = 1});
      names.emplace_back(isa);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
    }
  }
  return names;
}

std::unique_ptr<Ops> make_backend(const std::string& name) {
  return name == "ref" ? make_reference_ops() : make_cpu_ops({.isa = name, .threads = 2});
}

CaseCache::CaseCache(Device& device, const Config& config, const Topology& topology, int64_t positions,
                     CacheFormat format)
    : geometry_(geometry_inputs(config, topology, kBlockSize, format)),
      pages_(device, geometry_, static_cast<int32_t>(geometry_.pages_for(positions)) + 1),
      states_(device, geometry_, 1),
      view_(geometry_, pages_, states_) {
  // Even pages ascending, then odd ones descending.
  const auto count = static_cast<int32_t>(geometry_.pages_for(positions)) + 1;
  for (int32_t page = 0; page < count; page += 2) page_table_.push_back(page);
  for (int32_t page = count - 1; page > 0; --page) {
    if (page % 2 == 1) page_table_.push_back(page);
  }
}

void CaseCache::install(const PagedRows& plane, RowFormat packed, std::span<const uint8_t> codes,
                        std::span<const uint8_t> scales) const {
  const auto code_width = static_cast<size_t>(code_bytes(packed, plane.dim));
  const auto scale_width = static_cast<size_t>(scale_bytes(packed, plane.dim));
  std::vector<float> values(static_cast<size_t>(plane.dim));
  for (size_t row = 0; row * code_width < codes.size(); ++row) {
    const RowAddress address = plane.at(page_table_.data(), static_cast<int64_t>(row));
    const auto* row_codes = reinterpret_cast<const std::byte*>(&codes[row * code_width]);
    const auto* row_scales = reinterpret_cast<const std::byte*>(&scales[row * scale_width]);
    if (plane.format == packed) {
      std::memcpy(address.codes, row_codes, code_width);
      std::memcpy(address.scales, row_scales, scale_width);
      continue;
    }
    decode_row(packed, row_codes, row_scales, plane.dim, values.data());
    for (int32_t i = 0; i < plane.dim; ++i) {
      reinterpret_cast<bf16*>(address.codes)[i] = to_bf16(values[static_cast<size_t>(i)]);
    }
  }
}

void CaseCache::read(const PagedRows& plane, int64_t rows, std::vector<uint8_t>& codes,
                     std::vector<uint8_t>& scales) const {
  for (int64_t row = 0; row < rows; ++row) {
    const RowAddress address = plane.at(page_table_.data(), row);
    const auto append = [](std::vector<uint8_t>& out, const std::byte* bytes, int64_t count) {
      const auto* first = reinterpret_cast<const uint8_t*>(bytes);
      out.insert(out.end(), first, first + count);
    };
    append(codes, address.codes, code_bytes(plane.format, plane.dim));
    append(scales, address.scales, scale_bytes(plane.format, plane.dim));
  }
}

std::vector<std::byte> window_rows(const RingRows& ring, std::span<const uint8_t> codes,
                                   std::span<const uint8_t> scales) {
  const auto dim = static_cast<size_t>(ring.dim);
  const auto scale_width = static_cast<size_t>(scale_bytes(RowFormat::kFp8Window, ring.dim));
  const size_t count = codes.size() / dim;
  std::vector<std::byte> rows(count * static_cast<size_t>(ring.row_stride));
  std::vector<float> values(dim);
  for (size_t row = 0; row < count; ++row) {
    const RowAddress address = ring.row_at(rows.data(), static_cast<int64_t>(row));
    const auto* row_codes = reinterpret_cast<const std::byte*>(&codes[row * dim]);
    const auto* row_scales = reinterpret_cast<const std::byte*>(&scales[row * scale_width]);
    if (ring.format == RowFormat::kFp8Window) {
      std::memcpy(address.codes, row_codes, dim);
      std::memcpy(address.scales, row_scales, scale_width);
      continue;
    }
    decode_row(RowFormat::kFp8Window, row_codes, row_scales, ring.dim, values.data());
    for (size_t i = 0; i < dim; ++i) reinterpret_cast<bf16*>(address.codes)[i] = to_bf16(values[i]);
  }
  return rows;
}

OpRunner::OpRunner(const GoldenCase& golden_case, Ops& ops, Recorder& recorder)
    : ops_(ops),
      recorder_(recorder),
      golden_(golden_case),
      device_(make_cpu_device()),
      checkpoint_(Checkpoint::open(golden_case.checkpoint_dir())),
      topology_(make_topology(config())),
      weights_(load_weights(ops, checkpoint_, topology_)),
      hash_(config(), copy(golden_.get<int32_t>("token_map"))),
      n_(golden_.shape("tokens")[0]),
      tokens_(copy(golden_.get<int32_t>("tokens"))),
      positions_(tokens_.size()),
      ids_(tokens_.size()),
      compressed_(tokens_.size()),
      requests_(tokens_.size(), 0),
      image_(tokens_.size(), 0),
      step_image_(tokens_.size(), 0),
      plain_frequencies_(rope_frequencies(config(), false)),
      scaled_frequencies_(rope_frequencies(config(), true)),
      rope_plain_(tokens_.size() * 2 * plain_frequencies_.size()),
      rope_scaled_(rope_plain_.size()),
      rope_group_(rope_plain_.size()),
      engram_rows_(tokens_.size() * config().engram_layer_ids.size() * static_cast<size_t>(config().engram_columns())),
      packed_(*device_, config(), topology_, n_, {.packed = true, .fp8_index = golden_case.fp8_index}),
      wide_(*device_, config(), topology_, n_, {.packed = false}) {
  ops_.reserve(limits(config(), n_));
  for (const int32_t token : tokens_) inputs_.push_back({.value = token});
  if (golden_case.image) {
    std::fill(image_.begin() + golden_case.image->first, image_.begin() + golden_case.image->second, uint8_t{1});
  }
  begin(0, n_, engram_rows_.data(), rope_plain_.data(), rope_scaled_.data(), rope_group_.data());
}

// begin_step over positions first .. first + count - 1; the outputs are those of the whole case.
void OpRunner::begin(int64_t first, int64_t count, int64_t* engram_rows, float* plain, float* scaled, float* group) {
  span_ = {.num_rows = static_cast<int32_t>(count), .slot = 0, .restart = first == 0};
  const int64_t rope = first * std::ssize(plain_frequencies_) * 2;
  ops_.begin_step({.inputs = {.num_rows = static_cast<int32_t>(count),
                              .num_requests = 1,
                              .row_inputs = inputs_.data() + first,
                              .row_image = image_.data() + first,
                              .row_request = requests_.data(),
                              .spans = &span_},
                   .cursors = reinterpret_cast<std::byte*>(&cursor_),
                   .cursor_stride = sizeof cursor_,
                   .engram = hash_.view(),
                   .rope_pairs = static_cast<int32_t>(plain_frequencies_.size()),
                   .plain_frequencies = plain_frequencies_.data(),
                   .scaled_frequencies = scaled_frequencies_.data(),
                   .ids = ids_.data() + first,
                   .positions = positions_.data() + first,
                   .image = step_image_.data() + first,
                   .compressed = compressed_.data() + first,
                   .engram_rows = engram_rows + first * config().engram_columns(),
                   .engram_layer_stride = n_ * config().engram_columns(),
                   .rope_plain = plain + rope,
                   .rope_scaled = scaled + rope,
                   .rope_group = group + rope});
}

Rows OpRunner::rows(int64_t first, int64_t count) {
  span_ = {.num_rows = static_cast<int32_t>(count), .slot = 0, .restart = first == 0};
  return {.count = static_cast<int32_t>(count),
          .num_requests = 1,
          .spans = &span_,
          .request = requests_.data(),
          .position = positions_.data() + first,
          .image = step_image_.data() + first,
          .page_tables = packed_.page_table().data(),
          .page_table_stride = static_cast<int32_t>(packed_.page_table().size())};
}

const float* OpRunner::rope(int layer) const {
  return topology_[layer].ratio == 0 ? rope_plain_.data() : rope_scaled_.data();
}

std::vector<bf16> OpRunner::linear(const Weight* weight, std::span<const bf16> x, bool quantized) {
  const int64_t count = std::ssize(x) / weight->in();
  std::vector<bf16> out(static_cast<size_t>(count * weight->out()));
  const LinearArgs args{.weight = weight, .x = x.data(), .rows = count, .out = out.data()};
  quantized ? ops_.quantized_linear(args) : ops_.linear(args);
  return out;
}

std::vector<float> OpRunner::linear_f32(const Weight* weight, std::span<const bf16> x) {
  const int64_t count = std::ssize(x) / weight->in();
  std::vector<float> out(static_cast<size_t>(count * weight->out()));
  ops_.linear({.weight = weight, .x = x.data(), .rows = count, .out_f32 = out.data()});
  return out;
}

std::vector<bf16> OpRunner::norm(const Weight* weight, std::span<const bf16> x) {
  std::vector<bf16> out(x.size());
  ops_.rms_norm({.x = x.data(),
                 .weight = weight,
                 .eps = norm_eps(),
                 .rows = std::ssize(x) / weight->in(),
                 .cols = weight->in(),
                 .out = out.data()});
  return out;
}

std::vector<bf16> OpRunner::rotated(std::span<const bf16> x, int64_t count, int64_t heads, const float* rope,
                                    bool inverse) {
  std::vector<bf16> out(x.begin(), x.end());
  ops_.rotate({.x = out.data(),
               .rows = count,
               .heads = heads,
               .dim = std::ssize(x) / count / heads,
               .pairs = std::ssize(plain_frequencies_),
               .rope = rope,
               .inverse = inverse});
  return out;
}

std::vector<bf16> OpRunner::spread(std::span<const bf16> entries, int32_t ratio) {
  const auto count = static_cast<size_t>(n_ / ratio), width = entries.size() / count;
  std::vector<bf16> out(static_cast<size_t>(n_) * width, bf16{0});
  for (size_t j = 0; j < count; ++j) {
    const size_t row = (j + 1) * static_cast<size_t>(ratio) - 1;
    std::copy_n(&entries[j * width], width, &out[row * width]);
  }
  return out;
}

std::vector<bf16> OpRunner::gathered(std::span<const bf16> rows, int32_t ratio) {
  const auto count = static_cast<size_t>(n_ / ratio), width = rows.size() / static_cast<size_t>(n_);
  std::vector<bf16> out;
  for (size_t j = 0; j < count; ++j) {
    const auto row = rows.subspan(((j + 1) * static_cast<size_t>(ratio) - 1) * width, width);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

void OpRunner::stored(const std::string& op, int layer, RowFormat format, std::span<const uint8_t> codes,
                      std::span<const uint8_t> scales, const std::string& want) {
  static_cast<void>(format);
  recorder_.exact(op + " codes", layer, codes, golden_.get<uint8_t>(want + ".codes"));
  recorder_.exact(op + " scales", layer, scales, golden_.get<uint8_t>(want + ".scales"));
}

void OpRunner::stored_near(const std::string& op, int layer, RowFormat format, std::span<const uint8_t> codes,
                           std::span<const uint8_t> scales, const std::string& want) {
  const bool fp8 = format == RowFormat::kFp8Window || format == RowFormat::kFp8Index;
  const std::vector<uint8_t> got = fp8 ? std::vector<uint8_t>(codes.begin(), codes.end()) : unpack_fp4(codes);
  const auto golden_codes = golden_.get<uint8_t>(want + ".codes"),
             golden_scales = golden_.get<uint8_t>(want + ".scales");
  std::vector<uint8_t> wanted =
      fp8 ? std::vector<uint8_t>(golden_codes.begin(), golden_codes.end()) : unpack_fp4(golden_codes);
  recorder_.codes(op + " scales", layer, scales, golden_scales, format == RowFormat::kFp4Main ? e4m3_step : e8m0_step);
  // A group under another scale has other codes for the same values; it counts among the scales.
  const size_t group = got.size() / scales.size();
  for (size_t g = 0; g < scales.size(); ++g) {
    if (scales[g] != golden_scales[g]) std::copy_n(&got[g * group], group, &wanted[g * group]);
  }
  recorder_.codes(op + " codes", layer, got, wanted, fp8 ? e4m3_step : e2m1_step);
}

}  // namespace folio::golden
