#include "generation_flags.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace folio {

void add_generation_flags(CLI::App& command, GenerationFlags& flags) {
  const std::string group = "Generation";
  SamplingParams& sampling = flags.sampling;
  command.add_option("--max-tokens", flags.max_tokens, "Most tokens to generate")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->group(group);
  command.add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->type_name("T")
      ->check(CLI::Range(0.0, 100.0))
      ->group(group);
  command.add_option("--top-p", sampling.top_p, "Most likely tokens that hold this share of the probability")
      ->type_name("P")
      ->check(CLI::Range(1e-6, 1.0))
      ->group(group);
  command.add_option("--top-k", sampling.top_k, "This many most likely tokens; 0 or -1: all")
      ->type_name("K")
      ->check(CLI::Range(-1, 1 << 30))
      ->group(group);
  command.add_option("--min-p", sampling.min_p, "Tokens at least this likely, relative to the most likely one")
      ->type_name("P")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  command.add_option("--seed", sampling.seed, "Seed of the draws; the same seed gives the same text")
      ->type_name("N")
      ->group(group);
  command.add_option("--stop", flags.stops, "End before this text; may be repeated")
      ->type_name("TEXT")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on after the end-of-sentence token")->group(group);
}

nlohmann::ordered_json replay_json(const Usage& usage) {
  nlohmann::ordered_json plans = nlohmann::ordered_json::array();
  bool decoder = false;
  for (const ReplayPlan& plan : usage.plans) {
    plans.push_back(
        {{"start", plan.start}, {"resume", plan.resume}, {"decoder_start", plan.decoder_start}, {"known", plan.known}});
    decoder = decoder || plan.decoder_start > 0;
  }
  return {{"decoder", decoder}, {"encoder", usage.encoder_replay}, {"plans", std::move(plans)}};
}

}  // namespace folio
