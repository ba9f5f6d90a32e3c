// folio eval: how good a model is and what the engine's approximations cost it, in figures that later work is judged
// by.
#include "eval.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "commands.h"
#include "interrupt.h"
#include "model_flags.h"

namespace folio {
namespace {

struct EvalFlags {
  ModelFlags model;
  std::string suite = "tiny";
  std::string data, json;
  std::vector<std::string> only;
  int64_t limit = 0;
  int32_t max_num_seqs = 16;
};

struct EvalPart {
  const char* name;
  std::function<nlohmann::ordered_json(const EvalContext&)> measure;
};

const std::vector<EvalPart>& parts() {
  static const std::vector<EvalPart> kParts = {{"held-out", eval_held_out}, {"recall", eval_recall},
                                               {"formats", eval_formats},   {"drafts", eval_drafts},
                                               {"replay", eval_replay},     {"caches", eval_caches}};
  return kParts;
}

std::vector<std::string> part_names() {
  std::vector<std::string> names;
  for (const EvalPart& part : parts()) names.emplace_back(part.name);
  return names;
}

bool wanted(const EvalFlags& flags, const EvalPart& part) {
  return flags.only.empty() || std::find(flags.only.begin(), flags.only.end(), part.name) != flags.only.end();
}

// What a part would say after minutes is said at once.
void check_parts(const EvalFlags& flags, const Config& config) {
  const bool drafts = std::any_of(parts().begin(), parts().end(), [&](const EvalPart& part) {
    return std::string_view(part.name) == "drafts" && wanted(flags, part);
  });
  const auto refusal = speculation_refusal(config, make_topology(config), kEvalDrafts);
  if (drafts && refusal) fail(ErrorCode::kInvalidArgument, *refusal, ": name the other parts with --only");
}

// Written at the end; that it can be is known before minutes are spent. Nothing is left where there is no report.
class ReportFile {
 public:
  explicit ReportFile(const std::string& path) : path_(path) {
    if (path.empty()) return;
    out_.open(path, std::ios::app);
    check();
  }
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;
  ~ReportFile() {
    std::error_code ignored;
    if (!path_.empty() && std::filesystem::file_size(path_, ignored) == 0) std::filesystem::remove(path_, ignored);
  }
  void write(const nlohmann::ordered_json& report) {
    if (path_.empty()) return;
    out_.close();
    out_.open(path_, std::ios::trunc);
    out_ << report.dump(1) << '\n' << std::flush;
    check();
  }

 private:
  void check() const {
    if (!out_) fail(ErrorCode::kInvalidArgument, "--json ", path_, ": cannot write this file");
  }
  std::string path_;
  std::ofstream out_;
};

void eval(const EvalFlags& flags) {
  RunnerOptions runner = runner_options(flags.model);
  runner.max_num_seqs = flags.max_num_seqs;
  const ModelFiles files = ModelFiles::open(model_dir(flags.model));
  check_parts(flags, files.checkpoint.config());
  const EvalSuite suite = EvalSuite::load(flags.data, files.tokenizer);
  ReportFile file(flags.json);
  note_default_model(flags.model);
  catch_interrupts();
  nlohmann::ordered_json report = {{"model", files.checkpoint.dir()}, {"suite", flags.suite}, {"limit", flags.limit}};
  const EvalContext context{.files = files, .suite = suite, .runner = runner, .limit = flags.limit};
  const double start = now_seconds();
  for (const EvalPart& part : parts()) {
    if (wanted(flags, part)) report[part.name] = part.measure(context);
  }
  report["seconds"] = now_seconds() - start;
  std::printf("%.0f s\n", report["seconds"].get<double>());
  file.write(report);
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Measure a model: held-out text, answers, drafts, replay, caches");
  command->footer(
      "The suite tiny is about the dictionary assistant folio-tiny: NLL and bits per byte of held-out stories, entries "
      "and chat; definitions of 500 common nouns; tool calls and JSON answers to 200 prompts each; tokens per "
      "verification of five drafts; what both bounded replays cost at several lengths of prompt; what the cache "
      "formats cost. Everything is greedy or teacher-forced, so that figures repeat exactly on one instruction set. "
      "All of it takes minutes; --limit 10 takes seconds, and its figures are rough.\n"
      "Example: folio eval --model models/folio-tiny --json figures.json");
  const auto flags = std::make_shared<EvalFlags>();
  command->add_option("--suite", flags->suite, "What to measure")->check(CLI::IsMember({"tiny"}));
  command->add_option("--data", flags->data, "Text and prompts of the suite (default: those in the program)")
      ->type_name("DIR");
  command->add_option("--only", flags->only, "These parts alone (default: all)")
      ->type_name("PART,...")
      ->delimiter(',')
      ->check(CLI::IsMember(part_names()));
  command->add_option("--limit", flags->limit, "At most so many prompts or rows for a figure; 0: all")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->add_option("--json", flags->json, "Write the figures to this file too")->type_name("FILE");
  command->add_option("--max-num-seqs", flags->max_num_seqs, "Requests that run at once; changes no figure")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  add_model_flags(*command, flags->model);
  command->callback([flags] { eval(*flags); });
}

}  // namespace folio
