// folio inspect: what a checkpoint, or a config.json by itself, describes and needs.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "cache/geometry.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/schema.h"
#include "commands.h"
#include "model/topology.h"
#include "model/transformer.h"
#include "tokenizer/compressed_vocab.h"
#include "tokenizer/tokenizer.h"

namespace folio {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct InspectFlags {
  std::string path;
  int block_size = 128;
  bool json = false;
};

struct PartSize {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

struct CacheSize {
  const char* kv_dtype = "";
  const char* index_dtype = "";
  int64_t page_bytes = 0;
  double bytes_per_token = 0;
  int64_t state_bytes = 0;
  int64_t request_bytes = 0;  // STATE and PAGEs of one request of the longest context
};

struct TokenizerSize {
  int64_t ids = 0;
  int64_t compressed = 0;
};

// Everything that is printed.
struct SizeReport {
  std::string path;
  Config config;
  ordered_json config_json;
  Topology topology;
  bool complete = false;  // the tensors are there and fit the config
  std::optional<TokenizerSize> tokenizer;
  std::array<PartSize, kPartCount> parts;
  PartSize total;
  int shards = 0;
  int64_t read_per_token = 0;  // weight bytes that one decoded token touches
  int block_size = 0;
  std::vector<CacheSize> caches;
};

// What cannot be looked at counts as absent; reading it names the reason.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool has_shards(const fs::path& dir) {
  return is_there(dir / "model.safetensors.index.json") || is_there(dir / "model.safetensors");
}

TokenizerSize measure_tokenizer(const std::string& path, const Config& config) {
  const Tokenizer tokenizer = Tokenizer::load(path);
  const TokenizerSize size = {tokenizer.vocab_size(), compressed_vocabulary(tokenizer).count};
  if (!config.engram_layer_ids.empty() && size.compressed != config.engram_compressed_vocab_size) {
    fail(ErrorCode::kInvalidTokenizer, path, ": its tokens compress to ", size.compressed,
         " ids, but engram_compressed_vocab_size is ", config.engram_compressed_vocab_size);
  }
  return size;
}

// Dense weights once, the chosen experts, one embedding row and the Engram rows of the token.
int64_t read_per_token(const SizeReport& report) {
  const Config& c = report.config;
  int64_t bytes = 0;
  for (const Part part : {Part::kHead, Part::kAttention, Part::kCompressor, Part::kIndexer, Part::kRouter,
                          Part::kSharedExperts, Part::kHyperConnections, Part::kNorms, Part::kEngramProjections}) {
    bytes += report.parts[static_cast<size_t>(part)].bytes;
  }
  bytes += report.parts[static_cast<size_t>(Part::kRoutedExperts)].bytes / c.n_routed_experts * c.num_experts_per_tok;
  bytes += 2 * c.hidden_size;
  return bytes + std::ssize(c.engram_layer_ids) * c.engram_columns() * (c.engram_head_dim + c.engram_head_dim / 32);
}

CacheSize cache_size(const SizeReport& report, CacheFormat format) {
  const Geometry geometry(geometry_inputs(report.config, report.topology, report.block_size, format));
  const int64_t pages = geometry.pages_for(report.config.max_position_embeddings);
  return {.kv_dtype = format.packed ? "fp4" : "bf16",
          .index_dtype = format.fp8_index ? "fp8" : "fp4",
          .page_bytes = geometry.page_bytes(),
          .bytes_per_token = geometry.bytes_per_token(),
          .state_bytes = geometry.state_bytes(),
          .request_bytes = pages * geometry.page_bytes() + geometry.state_bytes()};
}

SizeReport make_report(const InspectFlags& flags) {
  SizeReport report;
  report.path = flags.path;
  report.block_size = flags.block_size;
  fs::path config_path(flags.path);
  std::error_code ignored;
  if (fs::is_directory(config_path, ignored)) {
    const fs::path dir = config_path;
    config_path = dir / "config.json";
    report.complete = has_shards(dir);
    if (report.complete) {
      const Checkpoint checkpoint = Checkpoint::open(flags.path);  // verifies every tensor against the schema
      report.config = checkpoint.config();
      report.shards = static_cast<int>(checkpoint.files().size());
    } else {
      report.config = load_config(flags.path);
    }
    const fs::path tokenizer = dir / "tokenizer.json";
    if (is_there(tokenizer)) report.tokenizer = measure_tokenizer(tokenizer.string(), report.config);
  } else {
    report.config = parse_config(read_file(flags.path, 1 << 20), flags.path);
  }
  report.config_json = ordered_json::parse(read_file(config_path.string(), 1 << 20));
  report.topology = make_topology(report.config);
  if (!report.complete) report.shards = shard_count(report.config);
  for (const TensorSpec& spec : make_schema(report.config)) {
    for (PartSize* size : {&report.parts[static_cast<size_t>(spec.part)], &report.total}) {
      ++size->tensors;
      size->bytes += spec.bytes();
    }
  }
  report.read_per_token = read_per_token(report);
  for (const bool packed : {true, false}) {
    for (const bool fp8_index : {false, true}) report.caches.push_back(cache_size(report, {packed, fp8_index}));
  }
  return report;
}

ordered_json layer_json(int layer, const LayerTopology& topology) {
  const auto or_null = [](int value) { return value < 0 ? ordered_json() : ordered_json(value); };
  return {{"layer", layer},
          {"kind", layer_kind_name(topology.kind)},
          {"ratio", topology.ratio},
          {"kv_owner", or_null(topology.kv_owner)},
          {"index_source", or_null(topology.index_source)},
          {"writes_candidates", topology.writes_candidates},
          {"reads_candidates", topology.reads_candidates},
          {"engram", or_null(topology.engram)}};
}

ordered_json report_json(const SizeReport& report) {
  ordered_json layers = ordered_json::array();
  for (size_t i = 0; i < report.topology.layers.size(); ++i) {
    layers.push_back(layer_json(static_cast<int>(i), report.topology.layers[i]));
  }
  ordered_json parts = ordered_json::array();
  for (int i = 0; i < kPartCount; ++i) {
    const PartSize& size = report.parts[static_cast<size_t>(i)];
    parts.push_back({{"part", part_name(static_cast<Part>(i))}, {"tensors", size.tensors}, {"bytes", size.bytes}});
  }
  ordered_json caches = ordered_json::array();
  for (const CacheSize& cache : report.caches) {
    caches.push_back({{"kv_cache_dtype", cache.kv_dtype},
                      {"index_cache_dtype", cache.index_dtype},
                      {"page_bytes", cache.page_bytes},
                      {"bytes_per_token", cache.bytes_per_token},
                      {"state_bytes", cache.state_bytes},
                      {"longest_request_bytes", cache.request_bytes}});
  }
  ordered_json tokenizer;
  if (report.tokenizer) tokenizer = {{"ids", report.tokenizer->ids}, {"compressed_ids", report.tokenizer->compressed}};
  const int64_t tables = report.parts[static_cast<size_t>(Part::kEngramTables)].bytes;
  return {{"path", report.path},
          {"complete", report.complete},
          {"tensors", report.total.tensors},
          {"bytes", report.total.bytes},
          {"shards", report.shards},
          {"tokenizer", tokenizer},
          {"parts", parts},
          {"memory",
           {{"weights_bytes", report.total.bytes - tables},
            {"engram_tables_bytes", tables},
            {"weight_bytes_read_per_token", report.read_per_token},
            {"block_size", report.block_size},
            {"caches", caches}}},
          {"topology", {{"first_decoder_layer", report.topology.first_decoder_layer}, {"layers", layers}}},
          {"config", report.config_json}};
}

// 1234567 -> "1,234,567"
std::string grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string bytes_text(double bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, kUnits[unit]);
  return text;
}
std::string bytes_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

void print_summary(const SizeReport& report) {
  const Config& c = report.config;
  std::printf("%s\n\n", report.path.c_str());
  std::printf("  %-12s%d layers, hidden %s, %s tokens of context\n", "model", c.num_hidden_layers,
              grouped(c.hidden_size).c_str(), grouped(c.max_position_embeddings).c_str());
  std::printf(
      "  %-12s%lld heads of %lld (%lld rotated), %lld output groups, window %lld, top-%lld of compressed entries\n",
      "attention", static_cast<long long>(c.num_attention_heads), static_cast<long long>(c.head_dim),
      static_cast<long long>(c.qk_rope_head_dim), static_cast<long long>(c.o_groups),
      static_cast<long long>(c.sliding_window), static_cast<long long>(c.index_topk));
  std::printf("  %-12s%lld routed of width %lld, %lld per token, and a shared one\n", "experts",
              static_cast<long long>(c.n_routed_experts), static_cast<long long>(c.moe_intermediate_size),
              static_cast<long long>(c.num_experts_per_tok));
  if (!c.engram_layer_ids.empty()) {
    std::string rows;
    for (const int64_t count : c.engram_num_embeddings) rows += concat(rows.empty() ? "" : " + ", grouped(count));
    std::printf("  %-12s%s rows of %lld, %lld looked up per token and table\n", "engram", rows.c_str(),
                static_cast<long long>(c.engram_head_dim), static_cast<long long>(c.engram_columns()));
  }
  if (c.num_nextn_predict_layers > 0) {
    std::printf("  %-12s%d stages, %lld tokens, %lld experts, %lld per token\n", "draft", c.num_nextn_predict_layers,
                static_cast<long long>(c.dspark_block_size), static_cast<long long>(c.dspark_n_routed_experts),
                static_cast<long long>(c.dspark_num_experts_per_tok));
  }
  if (c.vision) {
    std::printf("  %-12s%d layers, hidden %lld, patches of %lld\n", "vision", c.vision->num_hidden_layers,
                static_cast<long long>(c.vision->hidden_size), static_cast<long long>(c.vision->patch_size));
  } else {
    std::printf("  %-12snone\n", "vision");
  }
  std::printf("  %-12s%s ids", "vocabulary", grouped(c.vocab_size).c_str());
  if (report.tokenizer) {
    std::printf("; tokenizer.json has %s, compressed to %s", grouped(report.tokenizer->ids).c_str(),
                grouped(report.tokenizer->compressed).c_str());
  }
  std::printf("\n  %-12s%s tensors in %d shards, %s bytes; %s\n", "checkpoint", grouped(report.total.tensors).c_str(),
              report.shards, grouped(report.total.bytes).c_str(),
              report.complete ? "all are there" : "no weights here: this is what the config requires");
}

void print_layers(const SizeReport& report) {
  std::printf("\n  %-10s%-9s%-7s%-10s%-10s%-12s%s\n", "layers", "kind", "ratio", "KV of", "list of", "candidates",
              "engram");
  const std::vector<LayerTopology>& layers = report.topology.layers;
  const auto or_dash = [](int value) { return value < 0 ? std::string("-") : std::to_string(value); };
  for (size_t first = 0; first < layers.size();) {
    size_t last = first;
    while (last + 1 < layers.size() && layers[last + 1] == layers[first]) ++last;
    const LayerTopology& layer = layers[first];
    const std::string range = first == last ? std::to_string(first) : concat(first, "-", last);
    std::printf("  %-10s%-9s%-7d%-10s%-10s%-12s%s\n", range.c_str(), std::string(layer_kind_name(layer.kind)).c_str(),
                layer.ratio, or_dash(layer.kv_owner).c_str(), or_dash(layer.index_source).c_str(),
                layer.writes_candidates  ? "writes"
                : layer.reads_candidates ? "reads"
                                         : "-",
                layer.engram < 0 ? "-" : concat("table ", layer.engram).c_str());
    first = last + 1;
  }
}

void print_sizes(const SizeReport& report) {
  std::printf("\n  %-20s%10s%20s%9s\n", "part", "tensors", "bytes", "share");
  for (int i = 0; i < kPartCount; ++i) {
    const PartSize& size = report.parts[static_cast<size_t>(i)];
    if (size.tensors == 0) continue;
    std::printf("  %-20s%10s%20s%7.2f %%\n", std::string(part_name(static_cast<Part>(i))).c_str(),
                grouped(size.tensors).c_str(), grouped(size.bytes).c_str(),
                100.0 * static_cast<double>(size.bytes) / static_cast<double>(report.total.bytes));
  }
  std::printf("  %-20s%10s%20s\n", "total", grouped(report.total.tensors).c_str(), grouped(report.total.bytes).c_str());
}

void print_memory(const SizeReport& report) {
  const int64_t tables = report.parts[static_cast<size_t>(Part::kEngramTables)].bytes;
  std::printf("\n  memory\n");
  std::printf("  %-34s%s\n", "weights, mapped", bytes_text(report.total.bytes - tables).c_str());
  std::printf("  %-34s%s\n", "Engram tables, mapped, rows only", bytes_text(tables).c_str());
  std::printf("  %-34s%s\n", "weights read per decoded token", bytes_text(report.read_per_token).c_str());
  for (const CacheSize& cache : report.caches) {
    std::printf("  %-34s%s per token (PAGE of %d tokens: %s bytes), STATE %s bytes per request\n",
                concat("cache, kv ", cache.kv_dtype, ", index ", cache.index_dtype).c_str(),
                bytes_text(cache.bytes_per_token).c_str(), report.block_size, grouped(cache.page_bytes).c_str(),
                grouped(cache.state_bytes).c_str());
    std::printf("  %-34s%s\n", "  a request of the whole context", bytes_text(cache.request_bytes).c_str());
  }
}

void inspect(const InspectFlags& flags) {
  const SizeReport report = make_report(flags);
  if (flags.json) {
    std::cout << report_json(report).dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
    return;
  }
  print_summary(report);
  print_layers(report);
  print_sizes(report);
  print_memory(report);
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Print what a checkpoint holds and needs");
  command->footer(
      "A directory with shards is verified: every tensor must be there with the dtype and shape that config.json "
      "implies. "
      "Without shards, or given a config.json, sizes are those that the config requires.");
  const auto flags = std::make_shared<InspectFlags>();
  command->add_option("path", flags->path, "Checkpoint directory, or a config.json")->type_name("DIR|FILE")->required();
  command->add_option("--block-size", flags->block_size, "Tokens of a PAGE")
      ->type_name("N")
      ->check(CLI::Range(16, 65536));
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { inspect(*flags); });
}

}  // namespace folio
