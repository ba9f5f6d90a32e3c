#include "tokenizer/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tokenizer/tokenizer_test_util.h"

namespace folio {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

std::string refusal(const std::string& text) {
  return error_message(ErrorCode::kInvalidTokenizer, [&] { Tokenizer::parse(text, "dir/tokenizer.json"); });
}

struct BrokenCase {
  const char* name;
  std::function<void(json&)> damage;
  const char* reason;
};

json& vocab(json& file) { return file["model"]["vocab"]; }

const BrokenCase kBroken[] = {
    {"no model", [](json& f) { f.erase("model"); }, "model is missing"},
    {"model is a list", [](json& f) { f["model"] = json::array(); }, "model is missing or not an object"},
    {"other model type", [](json& f) { f["model"]["type"] = "Unigram"; }, "model.type is \"Unigram\""},
    {"no model type", [](json& f) { f["model"].erase("type"); }, "model.type is null"},
    {"dropout", [](json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout is 0.1"},
    {"unknown token", [](json& f) { f["model"]["unk_token"] = "<unk>"; }, "model.unk_token is \"<unk>\""},
    {"word prefix", [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }, "continuing_subword_prefix"},
    {"word suffix", [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix"},
    {"fuse_unk", [](json& f) { f["model"]["fuse_unk"] = true; }, "model.fuse_unk is true"},
    {"byte_fallback", [](json& f) { f["model"]["byte_fallback"] = true; }, "model.byte_fallback is true"},
    {"ignore_merges", [](json& f) { f["model"]["ignore_merges"] = true; }, "model.ignore_merges is true"},
    {"truncation", [](json& f) { f["truncation"] = {{"max_length", 5}}; }, "truncation is {"},
    {"padding", [](json& f) { f["padding"] = {{"pad_id", 0}}; }, "padding is {"},
    {"normalizer", [](json& f) { f["normalizer"] = {{"type", "NFC"}}; }, "normalizer is {\"type\":\"NFC\"}"},
    {"normalizer sequence",
     [](json& f) { f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}}; }, "normalizer is"},
    {"no pre_tokenizer", [](json& f) { f["pre_tokenizer"] = nullptr; }, "pre_tokenizer is null"},
    {"other pre_tokenizer", [](json& f) { f["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "pre_tokenizer is"},
    {"other expression", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{N}"; },
     "pre_tokenizer is"},
    {"other behaviour", [](json& f) { f["pre_tokenizer"]["pretokenizers"][1]["behavior"] = "Removed"; },
     "pre_tokenizer is"},
    {"inverted split", [](json& f) { f["pre_tokenizer"]["pretokenizers"][2]["invert"] = true; }, "pre_tokenizer is"},
    {"a step too few", [](json& f) { f["pre_tokenizer"]["pretokenizers"].erase(3); }, "pre_tokenizer is"},
    {"two expressions", [](json& f) { f["pre_tokenizer"]["pretokenizers"][3]["use_regex"] = true; },
     "pre_tokenizer is"},
    {"prefix space", [](json& f) { f["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}}; },
     "pre_tokenizer is"},
    {"post_processor", [](json& f) { f["post_processor"] = {{"type", "TemplateProcessing"}}; }, "post_processor is"},
    {"no decoder", [](json& f) { f["decoder"] = nullptr; }, "decoder is null"},
    {"other decoder", [](json& f) { f["decoder"] = {{"type", "WordPiece"}}; }, "decoder is"},
    {"no vocab", [](json& f) { f["model"].erase("vocab"); }, "model.vocab is missing"},
    {"empty vocab", [](json& f) { vocab(f) = json::object(); }, "model.vocab is missing, empty"},
    {"vocab is a list", [](json& f) { vocab(f) = {1, 2}; }, "model.vocab is missing, empty or not an object"},
    {"id is a string", [](json& f) { vocab(f)["a"] = "100"; }, "the id of \"a\" is not an integer"},
    {"id is a fraction", [](json& f) { vocab(f)["a"] = 100.5; }, "the id of \"a\" is not an integer"},
    {"id is an object", [](json& f) { vocab(f)["a"] = json::object(); }, "the id of \"a\" is not an integer"},
    {"negative id", [](json& f) { vocab(f)["a"] = -1; }, "the id -1 of \"a\" is out of range"},
    {"id 2^31", [](json& f) { vocab(f)["a"] = 2147483648u; }, "the id 2147483648 of \"a\" is out of range"},
    {"id 2^64-1", [](json& f) { vocab(f)["a"] = 18446744073709551615u; }, "of \"a\" is out of range"},
    {"a hole", [](json& f) { f["added_tokens"].erase(2); },
     "the id 261 of \"<think>\" is out of range: 261 tokens have the ids 0 to 260"},
    {"same id twice", [](json& f) { vocab(f)["a"] = vocab(f)["b"]; }, "have the same id"},
    {"missing byte", [](json& f) { vocab(f).erase("a"), vocab(f)["aa"] = 100; }, "no token for the byte 97"},
    {"empty token", [](json& f) { vocab(f)[""] = 262; }, "empty token"},
    {"long token", [](json& f) { vocab(f)[std::string(5000, 'a')] = 264; }, "is longer than 1024 bytes"},
    {"not in the alphabet", [](json& f) { vocab(f)["a b"] = 262; }, "is not spelled in the byte-level alphabet"},
    {"no merges list", [](json& f) { f["model"]["merges"] = "a b"; }, "model.merges is not an array"},
    {"merge of one", [](json& f) { f["model"]["merges"][0] = "ab"; }, "model.merges[0] is not two tokens"},
    {"merge of three", [](json& f) { f["model"]["merges"][1] = "a b c"; }, "model.merges[1] is not two tokens"},
    {"merge of nothing", [](json& f) { f["model"]["merges"][1] = " b"; }, "model.merges[1] is not two tokens"},
    {"pair of three", [](json& f) { f["model"]["merges"][1] = {"a", "b", "c"}; }, "model.merges[1] is not two tokens"},
    {"pair of numbers", [](json& f) { f["model"]["merges"][1] = {1, 2}; }, "model.merges[1] is not two tokens"},
    {"nested pair", [](json& f) { f["model"]["merges"][1] = {"a", {"b"}}; }, "model.merges[1] is not two tokens"},
    {"merge is an object", [](json& f) { f["model"]["merges"][1] = json::object(); }, "model.merges[1] is not"},
    {"unknown left", [](json& f) { f["model"]["merges"][0] = "zz b"; },
     "model.merges[0]: \"zz\" is not in model.vocab"},
    {"unknown product", [](json& f) { f["model"]["merges"][0] = "b a"; },
     "model.merges[0]: \"ba\" is not in model.vocab"},
    {"merge twice", [](json& f) { f["model"]["merges"][1] = "a b"; }, "model.merges[1] repeats \"a b\""},
    {"merge makes an added token", [](json& f) { f["added_tokens"].push_back(added_token(259, "ab")); },
     "uses the added token \"ab\""},
    {"added is an object", [](json& f) { f["added_tokens"] = json::object(); }, "added_tokens is not an array"},
    {"added without id", [](json& f) { f["added_tokens"][3].erase("id"); }, "added_tokens[3] has no integer id"},
    {"added without content", [](json& f) { f["added_tokens"][3].erase("content"); }, "added_tokens[3] has no content"},
    {"added and empty", [](json& f) { f["added_tokens"][3]["content"] = ""; }, "added_tokens[3] has no content"},
    {"added is a string", [](json& f) { f["added_tokens"][3] = "<think>"; }, "added_tokens[3] has no integer id"},
    {"added and long", [](json& f) { f["added_tokens"][3]["content"] = std::string(2000, 'x'); }, "longer than 1024"},
    {"added with id 2^31", [](json& f) { f["added_tokens"][3]["id"] = 2147483648u; },
     "the id 2147483648 of \"<think>\""},
    {"added with id 2^64-1", [](json& f) { f["added_tokens"][3]["id"] = 18446744073709551615u; }, "is out of range"},
    {"added twice", [](json& f) { f["added_tokens"].push_back(added_token(262, "<think>")); }, "has \"<think>\" twice"},
    {"added id in use", [](json& f) { f["added_tokens"][3]["id"] = 50; }, "have the same id 50"},
    {"added with another id than in vocab", [](json& f) { f["added_tokens"].push_back(added_token(99, "b")); },
     "the added token \"b\" has the id 99, but"},
    {"added byte", [](json& f) { f["added_tokens"].push_back(added_token(vocab(f)["b"], "b")); },
     "no token for the byte 98"},
    {"lstrip", [](json& f) { f["added_tokens"][3]["lstrip"] = true; }, "added_tokens[3].lstrip is true"},
    {"rstrip", [](json& f) { f["added_tokens"][3]["rstrip"] = true; }, "added_tokens[3].rstrip is true"},
    {"single_word", [](json& f) { f["added_tokens"][3]["single_word"] = true; }, "added_tokens[3].single_word is true"},
};

// ab = 259, abc = 260, <think> = 261
json honest() { return small_tokenizer({{"a", "b"}, {"ab", "c"}}, {"<think>"}); }

TEST(TokenizerFile, BrokenFilesAreRefusedWithTheirReason) {
  ASSERT_EQ(refusal(honest().dump()), "");
  for (const BrokenCase& broken : kBroken) {
    json file = honest();
    broken.damage(file);
    const std::string message = refusal(file.dump());
    EXPECT_THAT(message, StartsWith("dir/tokenizer.json: ")) << broken.name;
    EXPECT_THAT(message, HasSubstr(broken.reason)) << broken.name;
    EXPECT_LT(message.size(), 700u) << broken.name;
  }
}

TEST(TokenizerFile, BrokenTextIsRefusedWithItsReason) {
  const std::string text = honest().dump();
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("null"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(text + "x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(text.substr(0, text.size() / 2)), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(refusal("{\"model\": \"\xFF\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"model\": 1e999}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"version\": \"1\", \"version\": \"2\"}"), HasSubstr("\"version\" occurs twice"));
  EXPECT_THAT(refusal("{\"model\": {\"vocab\": {\"a\": 0}, \"vocab\": {\"a\": 0}}}"), HasSubstr("vocab occurs twice"));
  EXPECT_THAT(refusal("{\"a\": " + std::string(100000, '[')), HasSubstr("nested deeper than 16 levels"));
  EXPECT_THAT(refusal(std::string(1 << 20, '[')), HasSubstr("nested deeper than 16 levels"));
  EXPECT_THAT(refusal(std::string(kMaxTokenizerFileBytes + 1, ' ')), HasSubstr("larger than 67108864 bytes"));

  // The same token with two spellings of its key.
  std::string twice = text;
  twice.replace(twice.find("\"b\":"), 4, "\"\\u0061\":");
  EXPECT_THAT(refusal(twice), HasSubstr("\"a\" twice"));

  std::string many = "{\"model\": {\"merges\": [\"a b\"";
  for (int i = 0; i < (1 << 20); ++i) many += ",\"a b\"";
  EXPECT_THAT(refusal(many + "]}}"), HasSubstr("model.merges has more than 1048576 entries"));
  many = "{\"x\": [0";
  for (int i = 0; i < (1 << 20); ++i) many += ",0";
  EXPECT_THAT(refusal(many + "]}"), HasSubstr("more than 1048576 values"));
}

TEST(TokenizerFile, HarmlessVariantsAreAccepted) {
  const auto accepted = [](const std::function<void(json&)>& change) {
    json file = honest();
    change(file);
    return refusal(file.dump());
  };
  EXPECT_EQ(accepted([](json& f) { f.erase("truncation"), f.erase("padding"), f.erase("version"); }), "");
  EXPECT_EQ(accepted([](json& f) { f["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}}; }), "");
  EXPECT_EQ(accepted([](json& f) { f["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", false}}; }), "");
  EXPECT_EQ(accepted([](json& f) { f["model"]["continuing_subword_prefix"] = ""; }), "");
  EXPECT_EQ(accepted([](json& f) { f["model"]["ignore_merges"] = false; }), "");
  EXPECT_EQ(accepted([](json& f) { f["model"].erase("byte_fallback"); }), "");
  EXPECT_EQ(accepted([](json& f) { f["added_tokens"][3]["special"] = false; }), "");
  EXPECT_EQ(accepted([](json& f) { f["added_tokens"][3]["normalized"] = true; }), "");
  EXPECT_EQ(accepted([](json& f) { f["added_tokens"][3].erase("lstrip"); }), "");
  EXPECT_EQ(accepted([](json& f) { vocab(f)["<think>"] = 261; }), "");
  EXPECT_EQ(accepted([](json& f) { f["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}}; }), "");
  EXPECT_EQ(accepted([](json& f) { f["later"] = {{"vocab", {{"a", "x"}}}, {"merges", {1, 2}}}; }), "");
}

TEST(TokenizerFile, ThePreTokenizerIsRecognised) {
  json file = honest();
  EXPECT_EQ(parse_tokenizer_file(file.dump(), "f").pre_tokenizer, PreTokenizer::kDeepSeek);
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  EXPECT_EQ(parse_tokenizer_file(file.dump(), "f").pre_tokenizer, PreTokenizer::kByteLevel);
}

}  // namespace
}  // namespace folio
