// JSON values under a schema, put into a rule network.
//
// White space: none in front of the value and behind it; behind '{', '[', ',' and ':' and in front of '}' and ']' none,
// one space, or a line break with up to 64 spaces or 16 tabs. Members of an object come in the order of "properties".
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/grammar_automaton.h"
#include "protocol/grammar_chars.h"
#include "protocol/grammar_schema.h"
#include "protocol/grammar_text.h"

namespace folio {

// How JSON is written where the text around it has a syntax of its own.
enum class JsonContext : uint8_t {
  kAlone,
  kWithCalls,  // U+FF5C, with which the marker of call blocks begins, is escaped in strings
};

// Keys that an object may have besides its properties.
struct ExtraKeys {
  CharAutomaton names;
  SchemaPlace schema;
};

// The members of objects under `variant`.
struct ObjectMembers {
  struct Property {
    std::string name;
    SchemaPlace schema;
    bool required = false;
  };
  std::vector<Property> properties;
  std::vector<ExtraKeys> extra;
  int64_t least = 0, most = -1;  // members, where there are no properties; most < 0: no bound
};
ObjectMembers object_members(const SchemaDocument& document, const SchemaVariant& variant);

// The items of arrays under `variant`.
struct ArrayItems {
  std::vector<SchemaPlace> first = {};  // of the first items, one each
  SchemaPlace rest = {};                // of the others
  int64_t least = 0, most = -1;         // most < 0: no bound
};
ArrayItems array_items(const SchemaVariant& variant);

class SchemaWriter {
 public:
  // `builder` must outlive it.
  SchemaWriter(NetworkBuilder& builder, JsonContext context);

  // Adds any JSON object between two states.
  void add_any_object(uint32_t from, uint32_t to);
  // Adds the values of the schema at `place` between two states. `document` must live until finish().
  void add_value(const SchemaDocument& document, const SchemaPlace& place, uint32_t from, uint32_t to);
  // Adds the values of one variant.
  void add_variant(const SchemaDocument& document, const SchemaVariant& variant, uint32_t from, uint32_t to);
  // Fills the rules that have been called but not made yet. Throws Error(kInvalidArgument) with the place.
  void finish();

  TextWriter& text() { return text_; }

 private:
  struct Pending {
    const SchemaDocument* document;
    SchemaPlace place;
    uint32_t rule;
  };

  // One rule for a place, and for all small schemas of a document that say the same.
  uint32_t value_rule(const SchemaDocument& document, const SchemaPlace& place);
  uint32_t any_rule();
  // A call of the rule of `place`, or of any value.
  void add_call(const SchemaDocument* document, const SchemaPlace& place, uint32_t from, uint32_t to);
  uint32_t add_space(uint32_t from);
  void add_strings(const CharAutomaton& text, uint32_t from, uint32_t to);
  void add_numbers(const CharAutomaton& text, uint32_t from, uint32_t to);
  void add_literal(const Json& value, uint32_t from, uint32_t to);
  void add_array(const SchemaDocument& document, const SchemaVariant& variant, uint32_t from, uint32_t to);
  void add_object(const SchemaDocument& document, const SchemaVariant& variant, uint32_t from, uint32_t to);
  template <typename AddMember>
  void add_extra_members(const ObjectMembers& members, uint32_t before, uint32_t to, const AddMember& add_member);
  // '[' or '{', and space; where nothing is between the brackets, `close` ends it at once.
  uint32_t add_open(uint32_t from, char open, char close, bool may_be_empty, uint32_t to);
  void add_close(uint32_t from, char close, uint32_t to);
  // ',' and space.
  uint32_t add_comma(uint32_t from);

  NetworkBuilder* builder_;
  TextForm form_;
  TextWriter text_;
  uint32_t space_rule_ = 0, any_rule_ = 0;
  std::map<const Json*, uint32_t> rules_;
  std::map<std::pair<const SchemaDocument*, std::string>, uint32_t> small_rules_;
  std::deque<Pending> pending_;
};

}  // namespace folio
