#include "model_flags.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/memory.h"
#include "default_model.h"

namespace folio {
namespace {

// "0.8" is a share of the free memory; "12G", "512MiB" and plain byte counts above 1 are sizes.
int64_t parse_memory_budget(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit = end;
  for (const char* suffix : {"iB", "B"}) {
    if (unit.ends_with(suffix)) unit.resize(unit.size() - std::string(suffix).size());
  }
  const std::string units = "KMGT";
  const size_t power = unit.empty() ? 0 : units.find(unit) + 1;
  const bool known = end != text.c_str() && (unit.empty() || (unit.size() == 1 && power > 0));
  if (!known || !(number > 0) || !std::isfinite(number) || number * std::pow(1024, power) > 0x1p62) {
    fail(ErrorCode::kInvalidArgument, "--memory-budget ", text, ": give a share of the free memory such as 0.9 or a ",
         "size such as 12G");
  }
  if (unit.empty() && number <= 1) return static_cast<int64_t>(number * static_cast<double>(available_memory()));
  return static_cast<int64_t>(number * std::pow(1024, power));
}

}  // namespace

void add_cache_format_flags(CLI::App& command, ModelFlags& flags, const std::string& group) {
  command.add_option("--kv-cache-dtype,--kv_cache_dtype", flags.kv_cache_dtype, "Stored main and window rows")
      ->check(CLI::IsMember({"fp4", "bf16"}))
      ->group(group);
  command
      .add_option(
          "--index-cache-dtype,--index_cache_dtype", flags.index_cache_dtype,
          "Stored index keys: fp4, the published arithmetic, or fp8, which selects other entries here and there")
      ->check(CLI::IsMember({"fp4", "fp8"}))
      ->group(group);
}

void add_model_flags(CLI::App& command, ModelFlags& flags, bool chooses_rows) {
  const std::string group = "Model and machine";
  RunnerOptions& runner = flags.runner;
  command.add_option("--model", flags.model, "Checkpoint directory (default: $FOLIO_MODEL, else the built-in model)")
      ->type_name("DIR")
      ->group(group);
  command.add_option("--device", flags.device, "Where to run")->check(CLI::IsMember({"cpu", "cuda"}))->group(group);
  command.add_option("--isa", runner.isa, "CPU kernels: avx512bf16, avx2, scalar, ref (default: the best there is)")
      ->type_name("NAME")
      ->group(group);
  command.add_option("--threads", runner.threads, "CPU threads; 0: one per CPU")
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->group(group);
  add_cache_format_flags(command, flags, group);
  command.add_option("--block-size", runner.block_size, "Tokens of a PAGE, 16 or more")->type_name("N")->group(group);
  if (!chooses_rows) {
    command.add_option("--max-num-batched-tokens", runner.max_rows, "Rows of a step")->type_name("N")->group(group);
  }
  command
      .add_option("--memory-budget,--gpu-memory-utilization", flags.memory_budget,
                  "Share of the free memory, or a size such as 12G")
      ->type_name("SIZE|FRACTION")
      ->group(group);
}

CLI::Validator seed_check() {
  return {[](const std::string& text) -> std::string {
            uint64_t seed = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
            if (error == std::errc() && end == text.data() + text.size()) return "";
            return concat(text, " is not a whole number from 0 to ", UINT64_MAX);
          },
          ""};
}

std::string model_dir(const ModelFlags& flags) { return flags.model.empty() ? default_model_dir() : flags.model; }

bool means_bundled_model(const ModelFlags& flags) {
  const char* named = std::getenv("FOLIO_MODEL");
  return flags.model.empty() && (named == nullptr || *named == '\0');
}

void note_default_model(const ModelFlags& flags) {
  if (!means_bundled_model(flags)) return;
  std::fprintf(stderr, "folio: no --model given: using the built-in folio-tiny, a small dictionary assistant\n");
}

RunnerOptions runner_options(const ModelFlags& flags) {
  if (flags.device == "cuda") {
    fail(ErrorCode::kUnsupported, "--device cuda: this build has no CUDA backend; use --device cpu");
  }
  RunnerOptions options = flags.runner;
  options.cache_format = {.packed = flags.kv_cache_dtype == "fp4", .fp8_index = flags.index_cache_dtype == "fp8"};
  options.memory_budget = parse_memory_budget(flags.memory_budget);
  return options;
}

}  // namespace folio
