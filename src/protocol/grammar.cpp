#include "protocol/grammar.h"

#include <deque>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "protocol/grammar_calls.h"
#include "protocol/grammar_chars.h"
#include "protocol/grammar_json.h"
#include "protocol/grammar_mask.h"
#include "protocol/grammar_policy.h"
#include "protocol/grammar_regex.h"
#include "protocol/grammar_vocabulary.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxChoices = 16 * 1024;
constexpr size_t kMaxChoiceBytes = size_t{1} << 20;

// A spec as one text: each part with its size in front.
std::string key_of(const GrammarSpec& spec) {
  std::string key = concat(static_cast<int>(spec.content), spec.parallel_calls ? "p" : "s");
  const auto add = [&key](std::string_view part) { key += concat(part.size(), ":", part); };
  add(spec.text);
  add(std::to_string(spec.choices.size()));
  for (const std::string& choice : spec.choices) add(choice);
  for (const GrammarTool& tool : spec.tools) {
    add(tool.name);
    add(tool.parameters);
  }
  return key;
}

void check_text(std::string_view text, std::string_view what) {
  if (find_invalid_utf8(text) < text.size()) fail(ErrorCode::kInvalidArgument, what, " is not valid UTF-8");
}

CharAutomaton choice_text(const std::vector<std::string>& choices) {
  if (choices.empty()) fail(ErrorCode::kInvalidArgument, "there is nothing to choose from");
  if (choices.size() > kMaxChoices) fail(ErrorCode::kInvalidArgument, "there are more than ", kMaxChoices, " choices");
  size_t bytes = 0;
  for (const std::string& choice : choices) {
    check_text(choice, "a choice");
    bytes += choice.size();
  }
  if (bytes > kMaxChoiceBytes) {
    fail(ErrorCode::kInvalidArgument, "the choices are larger than ", kMaxChoiceBytes, " bytes together");
  }
  return CharAutomaton::one_of(choices);
}

void add_text(SchemaWriter& json, NetworkBuilder& builder, const CharAutomaton& text, uint32_t from, uint32_t to) {
  const uint32_t begin = builder.add_state();
  builder.add_jump(from, begin);
  for (const uint32_t end : json.text().write(text, begin, TextForm::kRaw)) builder.add_jump(end, to);
}

RuleNetwork make_network(const GrammarSpec& spec, Marker marker) {
  const AutomatonMeter meter;
  NetworkBuilder builder;
  SchemaWriter json(builder, spec.tools.empty() ? JsonContext::kAlone : JsonContext::kWithCalls);
  std::deque<SchemaDocument> documents;
  const uint32_t from = builder.start_of(builder.root());
  const uint32_t to = builder.add_state();
  builder.set_final(to);
  switch (spec.content) {
    case GrammarSpec::Content::kNone:
      if (spec.tools.empty()) fail(ErrorCode::kInvalidArgument, "a grammar needs a content or tools");
      break;
    case GrammarSpec::Content::kJsonObject:
      json.add_any_object(from, to);
      break;
    case GrammarSpec::Content::kJsonSchema:
      documents.emplace_back(spec.text);
      json.add_value(documents.back(), documents.back().root(), from, to);
      break;
    case GrammarSpec::Content::kRegex:
      add_text(json, builder, compile_regex(spec.text, RegexMatch::kWhole), from, to);
      break;
    case GrammarSpec::Content::kChoice:
      add_text(json, builder, choice_text(spec.choices), from, to);
      break;
  }
  if (spec.tools.size() > kMaxTools) fail(ErrorCode::kInvalidArgument, "there are more than ", kMaxTools, " tools");
  if (!spec.tools.empty()) {
    for (const GrammarTool& tool : spec.tools) check_text(tool.name, "the name of a tool");
    add_calls(builder, json, documents, spec.tools, spec.parallel_calls, marker, from, to);
  }
  json.finish();
  return builder.build();
}

}  // namespace

struct Grammar::Parts {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  RuleNetwork network;
  std::mutex mutex;
  std::shared_ptr<MaskedAutomaton> automaton;
};

Grammar::Grammar(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Grammar::~Grammar() = default;

std::shared_ptr<MaskedAutomaton> Grammar::automaton() const {
  const std::scoped_lock lock(parts_->mutex);
  auto& automaton = parts_->automaton;
  if (automaton == nullptr || automaton->crowded()) {
    automaton = std::make_shared<MaskedAutomaton>(*parts_->vocabulary, parts_->network, GrammarLimits{}.depth);
  }
  return automaton;
}

std::unique_ptr<TokenPolicy> Grammar::make_policy() const {
  return std::make_unique<GrammarPolicy>(shared_from_this(), automaton());
}

bool Grammar::accepts(std::string_view text) const {
  std::vector<uint16_t> symbols;
  for (size_t at = 0; at < text.size();) {
    if (parts_->vocabulary->has_marker() && text.substr(at).starts_with(kMarkerText)) {
      symbols.push_back(kMarkerSymbol);
      at += kMarkerText.size();
    } else {
      symbols.push_back(static_cast<unsigned char>(text[at++]));
    }
  }
  return automaton()->accepts(symbols);
}

size_t Grammar::size_bytes() const {
  const std::scoped_lock lock(parts_->mutex);
  return parts_->network.size_bytes() + (parts_->automaton == nullptr ? 0 : parts_->automaton->size_bytes());
}

// The last used grammars, latest first.
struct GrammarCompiler::Cache {
  using Entry = std::pair<std::string, std::shared_ptr<const Grammar>>;

  std::shared_ptr<const Grammar> find(const std::string& key) {
    const std::scoped_lock lock(mutex);
    const auto at = index.find(key);
    if (at == index.end()) return nullptr;
    entries.splice(entries.begin(), entries, at->second);
    return at->second->second;
  }

  std::shared_ptr<const Grammar> insert(std::string key, std::shared_ptr<const Grammar> grammar) {
    const std::scoped_lock lock(mutex);
    if (const auto at = index.find(key); at != index.end()) return at->second->second;
    entries.emplace_front(std::move(key), grammar);
    index.emplace(entries.front().first, entries.begin());
    while (entries.size() > capacity || (entries.size() > 1 && size_bytes() > kMaxKeptBytes)) {
      index.erase(entries.back().first);
      entries.pop_back();
    }
    return grammar;
  }

  size_t size_bytes() const {
    size_t bytes = 0;
    for (const auto& [key, grammar] : entries) bytes += key.size() + grammar->size_bytes();
    return bytes;
  }

  size_t capacity;
  std::mutex mutex;
  std::list<Entry> entries;
  std::unordered_map<std::string, std::list<Entry>::iterator> index;
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int32_t eos, size_t capacity)
    : vocabulary_(std::make_shared<const GrammarVocabulary>(tokenizer, eos)), cache_(std::make_unique<Cache>()) {
  cache_->capacity = capacity;
}

GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<const Grammar> GrammarCompiler::compile(const GrammarSpec& spec) {
  std::string key = key_of(spec);
  if (auto known = cache_->find(key)) return known;
  auto parts = std::make_unique<Grammar::Parts>();
  parts->vocabulary = vocabulary_;
  parts->network = make_network(spec, vocabulary_->has_marker() ? Marker::kToken : Marker::kBytes);
  return cache_->insert(std::move(key), std::shared_ptr<const Grammar>(new Grammar(std::move(parts))));
}

}  // namespace folio
