// Tokenizers for tests: small ones made here, and the published one where tools/fetch_tokenizer.py has put it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace folio {

inline nlohmann::json added_token(int64_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

// The published pre_tokenizer.
inline nlohmann::json deepseek_pre_tokenizer() {
  const auto split = [](const char* pattern) {
    return nlohmann::json{
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  return {{"type", "Sequence"},
          {"pretokenizers",
           {split(R"(\p{N}{1,3})"),
            split("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"),
            split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
                  "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
}

// A tokenizer.json: <s>, </s> and <pad> under their published spellings as 0, 1, 2; the bytes 0..255 as 3..258; the
// products of `merges` (raw bytes, left and right) from 259; then `added` in order.
inline nlohmann::json small_tokenizer(const std::vector<std::pair<std::string, std::string>>& merges = {},
                                      const std::vector<std::string>& added = {}) {
  nlohmann::json vocab = nlohmann::json::object();
  nlohmann::json merge_list = nlohmann::json::array();
  nlohmann::json added_list = {added_token(0, "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"),
                               added_token(1, "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"),
                               added_token(2, "<\uFF5C\u2581pad\u2581\uFF5C>")};
  int64_t id = 3;
  for (int byte = 0; byte < 256; ++byte) vocab[spelling_of_bytes(std::string(1, static_cast<char>(byte)))] = id++;
  for (const auto& [left, right] : merges) {
    merge_list.push_back(spelling_of_bytes(left) + " " + spelling_of_bytes(right));
    const std::string product = spelling_of_bytes(left + right);
    if (!vocab.contains(product)) vocab[product] = id++;
  }
  for (const std::string& text : added) added_list.push_back(added_token(id++, text));
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_list},
          {"normalizer", nullptr},
          {"pre_tokenizer", deepseek_pre_tokenizer()},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", merge_list}}}};
}

inline Tokenizer make_tokenizer(const nlohmann::json& file) { return Tokenizer::parse(file.dump(), "tokenizer.json"); }

// Path of the published V4.1 tokenizer.json, absent when it has not been fetched.
inline std::optional<std::string> published_tokenizer() {
  const std::string path = FOLIO_SOURCE_DIR "/build/assets/deepseek-v41/tokenizer.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

// The message of the Error that `action` throws with `code`; empty when it throws nothing or another code.
template <typename Action>
std::string error_message(ErrorCode code, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() == code) return error.what();
  }
  return {};
}

}  // namespace folio
