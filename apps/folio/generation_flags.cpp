#include "generation_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model_flags.h"

namespace folio {
namespace {

LogitDelta parse_bias(const std::string& text) {
  LogitDelta bias;
  const char* end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, bias.id);
  if (id.ec == std::errc() && id.ptr != end && *id.ptr == ':') {
    const auto delta = std::from_chars(id.ptr + 1, end, bias.delta);
    if (delta.ec == std::errc() && delta.ptr == end) return bias;
  }
  fail(ErrorCode::kInvalidArgument, "--logit-bias \"", text,
       "\" must be a token id, a colon and a number, such as 42:-5");
}

}  // namespace

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
      ->check(seed_check())
      ->group(group);
  command
      .add_option("--repetition-penalty", flags.repetition_penalty,
                  "Divides positive logits of tokens seen before, multiplies others; 1: none")
      ->type_name("R")
      ->group(group);
  command
      .add_option("--frequency-penalty", flags.frequency_penalty,
                  "Taken from a token's logit for each time that the answer has it, -2 to 2")
      ->type_name("P")
      ->group(group);
  command
      .add_option("--presence-penalty", flags.presence_penalty,
                  "Taken from the logits of tokens that the answer has, -2 to 2")
      ->type_name("P")
      ->group(group);
  command.add_option("--logit-bias", flags.logit_bias, "Added to a token's logit, -100 to 100; may be repeated")
      ->type_name("ID:DELTA")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  command.add_option("--min-tokens", flags.min_tokens, "No end of sentence before so many tokens")
      ->type_name("N")
      ->group(group);
  command.add_option("--stop", flags.stops, "End before this text; may be repeated")
      ->type_name("TEXT")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on after the end-of-sentence token")->group(group);
}

void apply_generation_flags(const GenerationFlags& flags, Request& request) {
  request.sampling = flags.sampling;
  request.max_tokens = flags.max_tokens;
  request.ignore_eos = flags.ignore_eos;
  request.repetition_penalty = flags.repetition_penalty;
  request.frequency_penalty = flags.frequency_penalty;
  request.presence_penalty = flags.presence_penalty;
  request.min_tokens = flags.min_tokens;
  request.logit_bias.clear();
  for (const std::string& bias : flags.logit_bias) request.logit_bias.push_back(parse_bias(bias));
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

nlohmann::ordered_json speculation_json(const Usage& usage) {
  return {{"drafted_tokens", usage.drafted_tokens},
          {"accepted_tokens", usage.accepted_tokens},
          {"forced_acceptance", usage.forced_acceptance}};
}

}  // namespace folio
