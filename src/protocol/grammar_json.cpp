#include "protocol/grammar_json.h"

#include <algorithm>

#include "base/error.h"
#include "protocol/grammar_number.h"
#include "protocol/grammar_values.h"

namespace folio {
namespace {

constexpr int kMaxSpaces = 64;  // at the beginning of a line
constexpr int kMaxTabs = 16;
constexpr size_t kSmallSchema = 512;  // bytes

}  // namespace

SchemaWriter::SchemaWriter(NetworkBuilder& builder, JsonContext context)
    : builder_(&builder),
      form_(context == JsonContext::kAlone ? TextForm::kJson : TextForm::kJsonWithCalls),
      text_(builder) {
  space_rule_ = builder.add_rule(true);
  const uint32_t start = builder.start_of(space_rule_);
  const uint32_t end = builder.add_state();
  builder.set_final(end);
  builder.add_edge(start, ' ', end);
  const uint32_t line = builder.add_text(start, "\n");
  for (const auto& [c, most] : {std::pair{' ', kMaxSpaces}, std::pair{'\t', kMaxTabs}}) {
    uint32_t at = line;
    for (int i = 0; i < most; ++i) {
      at = builder.add_text(at, {&c, 1});
      builder.set_final(at);
    }
  }
  builder.set_final(line);
}

// Space or none: two ways to one state.
uint32_t SchemaWriter::add_space(uint32_t from) {
  const uint32_t to = builder_->add_state();
  builder_->add_jump(from, to);
  builder_->add_call(from, space_rule_, to);
  return to;
}

uint32_t SchemaWriter::add_open(uint32_t from, char open, char close, bool may_be_empty, uint32_t to) {
  const uint32_t inside = add_space(builder_->add_text(from, {&open, 1}));
  if (may_be_empty) builder_->add_text(inside, {&close, 1}, to);
  return inside;
}

void SchemaWriter::add_close(uint32_t from, char close, uint32_t to) {
  builder_->add_text(add_space(from), {&close, 1}, to);
}

uint32_t SchemaWriter::add_comma(uint32_t from) { return add_space(builder_->add_text(from, ",")); }

void SchemaWriter::add_strings(const CharAutomaton& text, uint32_t from, uint32_t to) {
  const uint32_t inside = builder_->add_text(from, "\"");
  for (const uint32_t end : text_.write(text, inside, form_)) builder_->add_text(end, "\"", to);
}

void SchemaWriter::add_numbers(const CharAutomaton& text, uint32_t from, uint32_t to) {
  const uint32_t begin = builder_->add_state();
  builder_->add_jump(from, begin);
  for (const uint32_t end : text_.write(text, begin, TextForm::kRaw)) builder_->add_jump(end, to);
}

void SchemaWriter::add_any_object(uint32_t from, uint32_t to) {
  static const SchemaDocument kAny("true");
  add_object(kAny, {.type = JsonType::kObject}, from, to);
}

// One rule for all values, so that nesting costs one open rule a level.
uint32_t SchemaWriter::any_rule() {
  if (any_rule_ != 0) return any_rule_;
  static const SchemaDocument kAny("true");
  any_rule_ = value_rule(kAny, kAny.root());
  return any_rule_;
}

uint32_t SchemaWriter::value_rule(const SchemaDocument& document, const SchemaPlace& place) {
  const SchemaPlace target = document.resolved(place);
  const auto [known, added] = rules_.try_emplace(target.json, 0);
  if (!added) return known->second;
  uint32_t* small = nullptr;
  if (std::string text = SchemaDocument::essence(target); text.size() <= kSmallSchema) {
    if (text == "{}" && any_rule_ != 0) return known->second = any_rule_;
    small = &small_rules_[{&document, std::move(text)}];
    if (*small != 0) return known->second = *small;
  }
  known->second = builder_->add_rule();
  if (small != nullptr) *small = known->second;
  pending_.push_back({&document, target, known->second});
  return known->second;
}

void SchemaWriter::add_call(const SchemaDocument* document, const SchemaPlace& place, uint32_t from, uint32_t to) {
  builder_->add_call(from, place.json == nullptr ? any_rule() : value_rule(*document, place), to);
}

void SchemaWriter::finish() {
  for (; !pending_.empty(); pending_.pop_front()) {
    const Pending next = pending_.front();
    const uint32_t to = builder_->add_state();
    builder_->set_final(to);
    add_value(*next.document, next.place, builder_->start_of(next.rule), to);
  }
}

void SchemaWriter::add_value(const SchemaDocument& document, const SchemaPlace& place, uint32_t from, uint32_t to) {
  std::vector<std::string> strings;  // given ones, which share their beginnings
  for (const SchemaVariant& variant : document.variants(place)) {
    if (variant.literal != nullptr && variant.literal->string() != nullptr) {
      strings.push_back(*variant.literal->string());
    } else {
      add_variant(document, variant, from, to);
    }
  }
  if (!strings.empty()) add_strings(CharAutomaton::one_of(strings), from, to);
}

void SchemaWriter::add_variant(const SchemaDocument& document, const SchemaVariant& variant, uint32_t from,
                               uint32_t to) {
  if (variant.literal != nullptr) return add_literal(*variant.literal, from, to);
  switch (variant.type) {
    case JsonType::kNull:
      return builder_->add_text(from, "null", to);
    case JsonType::kBoolean:
      builder_->add_text(from, "true", to);
      return builder_->add_text(from, "false", to);
    case JsonType::kInteger:
    case JsonType::kNumber:
      return add_numbers(number_text(variant.keywords, variant.type == JsonType::kInteger, variant.path), from, to);
    case JsonType::kString:
      return add_strings(string_text(variant.keywords, variant.path), from, to);
    case JsonType::kArray:
      return add_array(document, variant, from, to);
    case JsonType::kObject:
      return add_object(document, variant, from, to);
  }
}

void SchemaWriter::add_literal(const Json& value, uint32_t from, uint32_t to) {
  if (const std::string* text = value.string()) return add_strings(CharAutomaton::one_of(std::vector{*text}), from, to);
  if (const Json::Array* items = value.array()) {
    uint32_t at = add_open(from, '[', ']', items->empty(), to);
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) at = add_comma(at);
      const uint32_t behind = builder_->add_state();
      add_literal((*items)[i], at, behind);
      at = behind;
    }
    if (!items->empty()) add_close(at, ']', to);
    return;
  }
  if (const Json::Object* members = value.object()) {
    uint32_t at = add_open(from, '{', '}', members->empty(), to);
    for (size_t i = 0; i < members->size(); ++i) {
      if (i > 0) at = add_comma(at);
      const uint32_t key = builder_->add_state(), behind = builder_->add_state();
      add_strings(CharAutomaton::one_of(std::vector{(*members)[i].key}), at, key);
      add_literal((*members)[i].value, add_space(builder_->add_text(key, ":")), behind);
      at = behind;
    }
    if (!members->empty()) add_close(at, '}', to);
    return;
  }
  builder_->add_text(from, json_text(value), to);
}

void SchemaWriter::add_array(const SchemaDocument& document, const SchemaVariant& variant, uint32_t from, uint32_t to) {
  const ArrayItems items = array_items(variant);
  const auto item = [&](int64_t i) {
    return i < std::ssize(items.first) ? items.first[static_cast<size_t>(i)] : items.rest;
  };
  if (items.most == 0) {
    add_open(from, '[', ']', items.least == 0, to);
    return;
  }
  // behind[i]: i items are there. Where all further items are alike and there is no bound, the last one loops.
  uint32_t before = add_open(from, '[', ']', items.least == 0, to);
  const int64_t alike = std::max<int64_t>({1, items.least, std::ssize(items.first)});
  for (int64_t i = 0; items.most < 0 || i < items.most; ++i) {
    const uint32_t behind = builder_->add_state();
    add_call(&document, item(i), before, behind);
    if (i + 1 >= items.least) add_close(behind, ']', to);
    if (items.most >= 0 && i + 1 == items.most) return;
    before = add_comma(behind);
    if (items.most < 0 && i + 1 == alike) {
      add_call(&document, item(i + 1), before, behind);
      return;
    }
  }
}

void SchemaWriter::add_object(const SchemaDocument& document, const SchemaVariant& variant, uint32_t from,
                              uint32_t to) {
  const ObjectMembers members = object_members(document, variant);
  const size_t size = members.properties.size();
  // May the object end when the properties before i have been dealt with?
  std::vector<bool> may_end(size + 1, true);
  for (size_t i = size; i-- > 0;) may_end[i] = may_end[i + 1] && !members.properties[i].required;

  const uint32_t inside = add_open(from, '{', '}', may_end[0] && members.least == 0, to);
  if (members.most == 0) return;
  const auto add_member = [&](const CharAutomaton& names, const SchemaPlace& schema, uint32_t at, uint32_t behind) {
    const uint32_t key = builder_->add_state();
    add_strings(names, at, key);
    add_call(&document, schema, add_space(builder_->add_text(key, ":")), behind);
  };
  // next[i]: a member must come, of the properties the first from i on; comma leads there.
  std::vector<uint32_t> next;
  for (size_t i = 0; i <= size; ++i) next.push_back(builder_->add_state());
  builder_->add_jump(inside, next[0]);
  for (size_t i = 0; i < size; ++i) {
    const auto& property = members.properties[i];
    const uint32_t behind = builder_->add_state();
    add_member(CharAutomaton::one_of(std::vector{property.name}), property.schema, next[i], behind);
    if (!property.required) builder_->add_jump(next[i], next[i + 1]);
    if (may_end[i + 1]) add_close(behind, '}', to);
    builder_->add_jump(add_comma(behind), next[i + 1]);
  }
  add_extra_members(members, next[size], to, add_member);
}

// Counted only where there are no properties.
template <typename AddMember>
void SchemaWriter::add_extra_members(const ObjectMembers& members, uint32_t before, uint32_t to,
                                     const AddMember& add_member) {
  if (members.extra.empty()) return;
  const bool counted = members.properties.empty();
  const int64_t least = counted ? members.least : 0, most = counted ? members.most : -1;
  const int64_t alike = std::max<int64_t>(1, least);
  for (int64_t i = 0; most < 0 || i < most; ++i) {
    const uint32_t behind = builder_->add_state();
    const auto add_all = [&](uint32_t at) {
      for (const ExtraKeys& extra : members.extra) add_member(extra.names, extra.schema, at, behind);
    };
    add_all(before);
    if (i + 1 >= least) add_close(behind, '}', to);
    if (most >= 0 && i + 1 == most) return;
    before = add_comma(behind);
    if (most < 0 && i + 1 == alike) return add_all(before);
  }
}

}  // namespace folio
