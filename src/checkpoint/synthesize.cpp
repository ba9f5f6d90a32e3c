#include "checkpoint/synthesize.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "checkpoint/config.h"
#include "checkpoint/presets.h"
#include "checkpoint/random_weights.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/schema.h"

namespace folio {
namespace {

namespace fs = std::filesystem;

// Rows of one tensor: what one thread makes at a time.
struct Task {
  const TensorSpec* weight = nullptr;
  SafetensorsWriter* writer = nullptr;
  int64_t first_row = 0;
  int64_t rows = 0;
};

constexpr int64_t kTaskElements = 1 << 18;

bool is_checkpoint_file(const std::string& name) {
  return name == "config.json" || name == "tokenizer.json" || name == "model.safetensors.index.json" ||
         (name.starts_with("model") && name.find(".safetensors") != std::string::npos);
}

// Makes the directory. With `force`, files of a checkpoint that is there go; others stay.
void prepare_directory(const std::string& out, bool force) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail(ErrorCode::kInvalidArgument, out, ": cannot make the directory: ", error.message());
  std::vector<fs::path> files;
  for (fs::directory_iterator it(out, error), end; !error && it != end; it.increment(error))
    files.push_back(it->path());
  if (error) fail(ErrorCode::kInvalidArgument, out, ": cannot read the directory: ", error.message());
  if (files.empty()) return;
  if (!force) fail(ErrorCode::kInvalidArgument, out, ": is not empty; --force replaces the checkpoint in it");
  for (const fs::path& file : files) {
    if (!is_checkpoint_file(file.filename().string())) continue;
    fs::remove(file, error);
    if (error) fail(ErrorCode::kInvalidArgument, file.string(), ": cannot remove: ", error.message());
  }
}

void write_text(const std::string& out, const std::string& name, const std::string& text) {
  const std::string path = (fs::path(out) / name).string();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) fail(ErrorCode::kInvalidArgument, path, ": cannot write: ", std::strerror(errno));
}

void check_space(const std::string& out, int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(out, error);
  if (error || static_cast<int64_t>(space.available) < 0 || static_cast<int64_t>(space.available) >= bytes) return;
  fail(ErrorCode::kInvalidArgument, out, ": needs ", bytes / 1000000, " MB, but only ", space.available / 1000000,
       " MB are free");
}

int64_t payload_bytes(const std::vector<TensorSpec>& schema) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : schema) bytes += spec.bytes();
  return bytes;
}

std::vector<std::unique_ptr<SafetensorsWriter>> open_writers(const std::string& out,
                                                             const std::vector<TensorSpec>& schema, int shards) {
  std::vector<std::vector<SafetensorsWriter::Tensor>> contents(static_cast<size_t>(shards));
  for (const TensorSpec& spec : schema) {
    contents[static_cast<size_t>(spec.shard)].push_back({spec.name, spec.dtype, spec.shape});
  }
  std::vector<std::unique_ptr<SafetensorsWriter>> writers;
  for (int shard = 0; shard < shards; ++shard) {
    const std::string path = (fs::path(out) / shard_file_name(shard, shards)).string();
    const std::map<std::string, std::string> metadata = {{"format", "pt"}};
    writers.push_back(
        std::make_unique<SafetensorsWriter>(path, std::move(contents[static_cast<size_t>(shard)]), metadata));
  }
  return writers;
}

std::vector<Task> make_tasks(const std::vector<TensorSpec>& schema,
                             const std::vector<std::unique_ptr<SafetensorsWriter>>& writers) {
  std::vector<Task> tasks;
  for (const TensorSpec& spec : schema) {
    if (RandomWeights::is_scale(spec)) continue;  // written with its weight
    const int64_t columns = std::max<int64_t>(1, spec.shape.elements() / spec.shape[0]);
    const int64_t step = std::max<int64_t>(1, kTaskElements / columns / kTile) * kTile;
    for (int64_t row = 0; row < spec.shape[0]; row += step) {
      tasks.push_back(
          {&spec, writers[static_cast<size_t>(spec.shard)].get(), row, std::min(step, spec.shape[0] - row)});
    }
  }
  return tasks;
}

// Makes and writes the rows of a task; returns the bytes written.
int64_t run_task(const Task& task, const RandomWeights& weights, std::vector<std::byte>& bytes,
                 std::vector<std::byte>& scales) {
  const TensorSpec& spec = *task.weight;
  weights.rows(spec, task.first_row, task.rows, bytes, scales);
  const int64_t row_bytes = spec.bytes() / spec.shape[0];
  task.writer->write(spec.name, bytes, task.first_row * row_bytes);
  if (!scales.empty()) {
    const bool tiled = spec.dtype == DType::kF8E4M3 && spec.part != Part::kEngramTables;
    const int64_t scale_rows = tiled ? (task.rows + kTile - 1) / kTile : task.rows;
    const int64_t first = tiled ? task.first_row / kTile : task.first_row;
    const int64_t scale_row_bytes = std::ssize(scales) / scale_rows;
    const std::string name = spec.name.substr(0, spec.name.size() - std::strlen("weight")) + "scale";
    task.writer->write(name, scales, first * scale_row_bytes);
  }
  return std::ssize(bytes) + std::ssize(scales);
}

// Runs the tasks on several threads; the first error stops them and is thrown.
void run_tasks(const std::vector<Task>& tasks, const RandomWeights& weights, int threads,
               const std::function<void(int64_t done)>& progress) {
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> done = 0;
  std::mutex mutex;
  std::condition_variable finished;
  int running = threads;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      std::vector<std::byte> bytes;
      std::vector<std::byte> scales;
      for (size_t i = next++; i < tasks.size(); i = next++) done += run_task(tasks[i], weights, bytes, scales);
    } catch (...) {
      next = tasks.size();
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    --running;
    finished.notify_one();
  };
  std::vector<std::jthread> pool;
  pool.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) pool.emplace_back(work);
  const auto all_done = [&] {
    std::unique_lock lock(mutex);
    return finished.wait_for(lock, std::chrono::milliseconds(200), [&] { return running == 0; });
  };
  try {
    while (!all_done()) progress(done);
  } catch (...) {
    next = tasks.size();  // the workers end with what they have in hand
    throw;
  }
  pool.clear();
  if (error) std::rethrow_exception(error);
  progress(done);
}

std::string index_json(const std::vector<TensorSpec>& schema, int shards, int64_t bytes) {
  nlohmann::json index;  // sorted by name
  index["metadata"]["total_size"] = bytes;
  for (const TensorSpec& spec : schema) index["weight_map"][spec.name] = shard_file_name(spec.shard, shards);
  return index.dump(2) + "\n";
}

}  // namespace

SynthesizeResult synthesize_checkpoint(const SynthesizeOptions& options) {
  // The sizes do not depend on the count that the tokenizer gives, so a bad preset is refused before anything is
  // written.
  const Config sizes = parse_config(preset_config_json(options.preset, options.vision, 1), options.preset);
  prepare_directory(options.out, options.force);
  check_space(options.out, payload_bytes(make_schema(sizes)));
  write_text(options.out, "tokenizer.json",
             tiny_tokenizer_json(sizes.vocab_size, sizes.dspark_noise_token_id, sizes.image_token_id));
  const int64_t compressed = options.compressed_vocab_size((fs::path(options.out) / "tokenizer.json").string());
  const std::string config_json = preset_config_json(options.preset, options.vision, compressed);
  const Config config = parse_config(config_json, options.preset);

  const std::vector<TensorSpec> schema = make_schema(config);
  const SynthesizeResult result = {std::ssize(schema), payload_bytes(schema), shard_count(config)};
  const auto writers = open_writers(options.out, schema, result.shards);
  const RandomWeights weights(config, options.seed);
  const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  run_tasks(make_tasks(schema, writers), weights, options.threads > 0 ? options.threads : cpus, [&](int64_t done) {
    if (options.progress) options.progress(done, result.bytes);
  });
  for (const auto& writer : writers) writer->finish();
  write_text(options.out, "model.safetensors.index.json", index_json(schema, result.shards, result.bytes));
  write_text(options.out, "config.json", config_json);
  return result;
}

}  // namespace folio
