// folio eval: what bounded replay costs (spec runtime 4). Prompts of held-out text are continued in full mode, with the
// decoder run on the last window alone, behind a prefix hit that rebuilds the windows from one PAGE, and with both.
#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "eval.h"

namespace folio {
namespace {

constexpr int64_t kLengths[] = {256, 1024, 4096};  // tokens of the prompts
constexpr int64_t kPrompts = 16;                   // of each length and domain
constexpr int64_t kFollowing = 32;                 // tokens behind a prompt whose NLL is taken
constexpr int64_t kGreedy = 48;                    // tokens of the answers that are compared

struct Mode {
  const char* name;
  bool decoder, encoder;
};
constexpr Mode kModes[] = {
    {"none", false, false}, {"decoder", true, false}, {"encoder", false, true}, {"both", true, true}};

// Lets the given tokens come and no others.
class GivenTokens final : public TokenPolicy {
 public:
  explicit GivenTokens(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  bool mask(std::span<uint64_t> bits) override {
    std::fill(bits.begin(), bits.end(), 0);
    const auto id = static_cast<size_t>(tokens_.at(next_));
    bits[id / 64] = uint64_t{1} << (id % 64);
    return true;
  }
  PolicyVerdict accept(int32_t) override {
    ++next_;
    return PolicyVerdict::kContinue;
  }
  void rollback(int32_t count) override { next_ -= static_cast<size_t>(count); }

 private:
  std::vector<int32_t> tokens_;
  size_t next_ = 0;
};

struct Continued {
  std::vector<int32_t> prompt, following;
};

// Prompts at even distances; none where text or model are too short for them.
std::vector<Continued> continued(const EvalContext& context, const EvalDomain& domain, int64_t length) {
  std::vector<Continued> prompts;
  const int64_t room = std::ssize(domain.tokens) - length - kFollowing;
  const bool fits = length + kGreedy <= context.files.checkpoint.config().max_position_embeddings;
  const int64_t count = fits && room > 0 ? context.limited(std::min(kPrompts, room)) : 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = domain.tokens.begin() + i * room / count;
    prompts.push_back({{begin, begin + length}, {begin + length, begin + length + kFollowing}});
  }
  return prompts;
}

struct Continuations {
  double nll = 0;                             // of the tokens that follow, mean
  std::vector<int32_t> most_likely;           // at the place of each
  std::vector<std::vector<int32_t>> answers;  // greedy
};

Continuations run(const EvalContext& context, const std::vector<Continued>& prompts, const Mode& mode,
                  const std::string& what) {
  const auto count = std::ssize(prompts);
  const auto length = std::ssize(prompts[0].prompt);
  EvalEngine engine(context.files, context.runner,
                    {.decoder_replay = mode.decoder,
                     .encoder_replay = mode.encoder,
                     .longest = length + kGreedy,
                     .cached_requests = mode.encoder ? static_cast<int32_t>(count) : 0});
  std::vector<std::shared_ptr<Request>> before, forced, greedy;
  for (const Continued& prompt : prompts) {
    before.push_back(greedy_request(prompt.prompt, 1));
    forced.push_back(greedy_request(prompt.prompt, kFollowing));
    forced.back()->policies = {std::make_shared<GivenTokens>(prompt.following)};
    forced.back()->logprobs = 1;
    greedy.push_back(greedy_request(prompt.prompt, kGreedy));
    forced.back()->ignore_eos = greedy.back()->ignore_eos = true;
  }
  if (mode.encoder) engine.run(before, what);  // leaves its pages in the prefix cache
  Continuations result;
  for (const KeptAnswer& answer : engine.run(forced, what)) {
    if (mode.encoder && answer.usage.cached_tokens == 0) {
      fail(ErrorCode::kUnavailable, what, ": the prefix cache had no room: raise --memory-budget");
    }
    for (const TokenLogprob& token : answer.tokens) {
      result.nll -= static_cast<double>(token.logprob) / static_cast<double>(count * kFollowing);
      result.most_likely.push_back(token.top.at(0).id);
    }
  }
  for (const KeptAnswer& answer : engine.run(greedy, what)) result.answers.push_back(answer.ids());
  return result;
}

double same_most_likely(const Continuations& a, const Continuations& b) {
  int64_t same = 0;
  for (size_t i = 0; i < a.most_likely.size(); ++i) same += a.most_likely[i] == b.most_likely.at(i) ? 1 : 0;
  return static_cast<double>(same) / static_cast<double>(a.most_likely.size());
}

// Mean number of tokens before the first that differs.
double same_tokens(const Continuations& a, const Continuations& b) {
  int64_t same = 0;
  for (size_t i = 0; i < a.answers.size(); ++i) {
    same += std::mismatch(a.answers[i].begin(), a.answers[i].end(), b.answers[i].begin()).first - a.answers[i].begin();
  }
  return static_cast<double>(same) / static_cast<double>(a.answers.size());
}

// The row of one domain and length: every mode against the first.
nlohmann::ordered_json compare(const EvalContext& context, const std::string& domain,
                               const std::vector<Continued>& prompts) {
  const auto length = std::ssize(prompts[0].prompt);
  nlohmann::ordered_json modes = nlohmann::ordered_json::array();
  Continuations full;
  for (const Mode& mode : kModes) {
    const std::string what = concat("replay: ", mode.name, ", ", domain, " of ", length, " tokens");
    Continuations other = run(context, prompts, mode, what);
    if (full.answers.empty()) full = other;
    const double likely = same_most_likely(full, other), tokens = same_tokens(full, other);
    std::printf("  %-9s %6lld  %7zu   %-8s %7.4f   %17.1f %%   %8.1f of %lld\n", domain.c_str(),
                static_cast<long long>(length), prompts.size(), mode.name, other.nll, 100 * likely, tokens,
                static_cast<long long>(kGreedy));
    std::fflush(stdout);
    modes.push_back({{"replay", mode.name},
                     {"nll_per_token", other.nll},
                     {"same_most_likely", likely},
                     {"same_greedy_tokens", tokens}});
  }
  return {{"domain", domain}, {"prompt_tokens", length}, {"prompts", prompts.size()}, {"modes", std::move(modes)}};
}

}  // namespace

nlohmann::ordered_json eval_replay(const EvalContext& context) {
  std::printf("bounded replay: NLL of %lld tokens behind a prompt, and greedy answers\n",
              static_cast<long long>(kFollowing));
  std::printf("  domain    tokens  prompts   replay       NLL   same most likely id   same greedy ids\n");
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const char* name : {"stories", "chat"}) {
    for (const int64_t length : kLengths) {
      const std::vector<Continued> prompts = continued(context, context.suite.domain(name), length);
      if (!prompts.empty()) json.push_back(compare(context, name, prompts));
    }
  }
  return json;
}

}  // namespace folio
