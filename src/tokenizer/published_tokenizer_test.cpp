// The published V4.1 tokenizer against the vectors of protocol spec 1.9 and the numbers of model spec 8.1. Skipped
// where tools/fetch_tokenizer.py has not been run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "base/clock.h"
#include "base/rng.h"
#include "tokenizer/compressed_vocab.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasures = false;
#elif defined(__has_feature)
constexpr bool kMeasures = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#elif defined(NDEBUG)
constexpr bool kMeasures = true;
#else
constexpr bool kMeasures = false;
#endif

class PublishedTokenizer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (const auto path = published_tokenizer()) shared_ = std::make_unique<Tokenizer>(Tokenizer::load(*path));
  }
  static void TearDownTestSuite() { shared_.reset(); }
  void SetUp() override {
    if (!shared_) GTEST_SKIP() << "build/assets/deepseek-v41/tokenizer.json is absent: run tools/fetch_tokenizer.py";
  }
  const Tokenizer& tokenizer() const { return *shared_; }

 private:
  static inline std::unique_ptr<Tokenizer> shared_;
};

TEST_F(PublishedTokenizer, Layout) {
  EXPECT_EQ(tokenizer().vocab_size(), 129280);
  EXPECT_EQ(tokenizer().find_added("<\uFF5CUser\uFF5C>"), 128803);
  EXPECT_EQ(tokenizer().find_added("<\uFF5CSystem\uFF5C>"), 128799);
  EXPECT_EQ(tokenizer().find_added("</think>"), 128822);
  EXPECT_EQ(tokenizer().bytes(3), "!");
  size_t longest = 0;
  for (int32_t id = 0; id < 128000; ++id) longest = std::max(longest, tokenizer().bytes(id).size());
  EXPECT_EQ(longest, 128u);
  for (const auto& token : read_json(FOLIO_SOURCE_DIR "/tests/vectors/tokenizer/v41_added_tokens.json")) {
    const auto id = token[0].get<int32_t>();
    EXPECT_TRUE(tokenizer().is_added(id));
    EXPECT_EQ(tokenizer().bytes(id), token[1].get<std::string>());
    EXPECT_EQ(tokenizer().is_hidden(id), id < 3);
  }
}

TEST_F(PublishedTokenizer, TokenVectors) {
  size_t rows = 0;
  for (const auto& row : read_json(FOLIO_SOURCE_DIR "/tests/vectors/tokenizer/token_vectors.json")) {
    const auto text = row["text"].get<std::string>();
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer().encode(text), ids) << row["text"];
    EXPECT_EQ(tokenizer().decode(ids), text) << row["text"];
    Detokenizer detokenizer(tokenizer(), false);
    std::string streamed;
    for (const int32_t id : ids) streamed += detokenizer.push(id);
    EXPECT_EQ(streamed + detokenizer.flush(), text);
    ++rows;
  }
  EXPECT_EQ(rows, 153u);
}

// The prompts belong to other projects and are not in this repository: FOLIO_VECTORS names the folder that has them.
TEST_F(PublishedTokenizer, WholePrompts) {
  const char* folder = std::getenv("FOLIO_VECTORS");
  if (folder == nullptr) GTEST_SKIP() << "FOLIO_VECTORS does not name a folder with rendered prompts";
  const nlohmann::json prompts = read_json(FOLIO_SOURCE_DIR "/tests/vectors/tokenizer/prompt_token_ids.json");
  for (const auto& [name, ids] : prompts.items()) {
    std::ifstream in(std::string(folder) + "/" + name, std::ios::binary);
    ASSERT_TRUE(in) << name;
    const std::string text(std::istreambuf_iterator<char>(in), {});
    EXPECT_EQ(tokenizer().encode(text), ids.get<std::vector<int32_t>>()) << name;
    EXPECT_EQ(tokenizer().decode(ids.get<std::vector<int32_t>>()), text) << name;
  }
}

TEST_F(PublishedTokenizer, CompressedVocabulary) {
  const CompressedVocabulary vocabulary = compressed_vocabulary(tokenizer());
  EXPECT_EQ(vocabulary.count, 99092);
  EXPECT_EQ(vocabulary.map[0], 0);
  EXPECT_EQ(vocabulary.map[2], 2);
  EXPECT_EQ(vocabulary.map[3], 3);
}

// Adversarial text: a megabyte of one thing. Quadratic time would be minutes.
TEST_F(PublishedTokenizer, NearlyLinearOnOneMegabyteOfOneThing) {
  for (const char* unit :
       {"a", "Z", " ", "\n", "1", "!", "=", "-", "ab", "\u4E2D", "\u7684\u4E00", "\u00E9", "\u0301", "\u200B",
        "\U0001F600", "<", "<\uFF5C", "<\uFF5Cplace\u2581holder\u2581no\u258179", "\uFF5C"}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    const double start = now_seconds();
    const std::vector<int32_t> ids = tokenizer().encode(text);
    EXPECT_LT(now_seconds() - start, 10) << unit;
    EXPECT_EQ(tokenizer().decode(ids), text) << unit;
  }
}

// Seconds of one core for a look-up in a table of 4 MB that depends on the one before. A probe: a busy or slow machine
// slows it down too.
double probe_seconds() {
  constexpr size_t count = 1000000;
  std::vector<uint32_t> table(size_t{1} << 20);
  const double start = now_seconds();
  uint32_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += table[mix64(i + sum) % table.size()]++;
  EXPECT_GT(sum, 0u);
  return (now_seconds() - start) / count;
}

// English-like text on one core: words of the vocabulary, early ones more often, some unknown. A byte may cost as much
// as four look-ups of the probe; on an idle machine it takes about a quarter of one.
TEST_F(PublishedTokenizer, Throughput) {
  if (!kMeasures) GTEST_SKIP() << "times mean nothing in this build";
  std::vector<std::string_view> words;
  for (int32_t id = 259; id < 60000; ++id) {
    const std::string_view word = tokenizer().bytes(id);
    const bool letters = std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (word[0] == ' ' && word.size() > 1 && letters) words.push_back(word);
  }
  std::string text;
  for (uint64_t draw = 0; text.size() < 8000000; ++draw) {
    const double skewed = std::pow(random_uniform(6, draw, 0), 3) * static_cast<double>(words.size());
    text += words[static_cast<size_t>(skewed)];
    if (draw % 20 == 7) text += words[draw % words.size()].substr(1);  // a compound that is no token
    if (draw % 9 == 5) text += draw % 2 == 0 ? "," : ".\n";
  }
  // Interleaved, and the least of each: what else the machine does comes and goes.
  double seconds = 1e9, probe = 1e9;
  size_t count = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    probe = std::min(probe, probe_seconds());
    const double start = now_seconds();
    count = tokenizer().encode(text).size();
    seconds = std::min(seconds, (now_seconds() - start) / static_cast<double>(text.size()));
  }
  std::printf("  %.1f MB/s, %.2f probes a byte\n", 1e-6 / seconds, seconds / probe);
  EXPECT_LE(seconds / probe, 4) << count << " tokens";
}

}  // namespace
}  // namespace folio
