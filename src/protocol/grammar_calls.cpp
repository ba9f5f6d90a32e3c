#include "protocol/grammar_calls.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "protocol/grammar_regex.h"
#include "protocol/grammar_values.h"
#include "protocol/grammar_vocabulary.h"

namespace folio {
namespace {

// Names of parameters that no schema lists.
constexpr std::string_view kFreeName = "[A-Za-z_][A-Za-z0-9_.-]{0,63}";

class CallWriter {
 public:
  CallWriter(NetworkBuilder& builder, SchemaWriter& json, std::deque<SchemaDocument>& documents, Marker marker)
      : builder_(&builder),
        json_(&json),
        documents_(&documents),
        marker_(marker),
        free_text_(CharAutomaton::without(code_points(kMarkerText))) {}

  void add_block(std::span<const GrammarTool> tools, bool parallel, uint32_t from, uint32_t to) {
    const uint32_t calls = add_tag(builder_->add_text(from, "\n\n"), "<", " calls>\n");
    const uint32_t behind = builder_->add_state();
    std::set<std::string_view> names;
    for (const GrammarTool& tool : tools) {
      if (names.insert(tool.name).second) add_call(tool, calls, behind);
    }
    if (parallel) builder_->add_jump(behind, calls);
    builder_->add_jump(add_tag(behind, "</", " calls>"), to);
  }

 private:
  // `before`, the marker, `text`.
  uint32_t add_tag(uint32_t from, std::string_view before, std::string_view text) {
    from = builder_->add_text(from, before);
    if (marker_ == Marker::kToken) {
      const uint32_t behind = builder_->add_state();
      builder_->add_edge(from, kMarkerSymbol, kMarkerSymbol, behind);
      from = behind;
    } else {
      from = builder_->add_text(from, kMarkerText);
    }
    return builder_->add_text(from, text);
  }

  void add_call(const GrammarTool& tool, uint32_t from, uint32_t to) {
    check_name("the name of the tool", tool.name);
    from = add_tag(from, "<", " invoke name=\"" + tool.name + "\">\n");
    const uint32_t end = builder_->add_state();
    builder_->add_jump(add_tag(end, "</", " invoke>\n"), to);
    if (tool.parameters.empty()) return builder_->add_text(from, "\n", end);
    try {
      const SchemaDocument& document = documents_->emplace_back(tool.parameters);
      bool any = false;
      for (const SchemaVariant& variant : document.variants(document.root())) {
        if (variant.type != JsonType::kObject || variant.literal != nullptr) continue;
        add_parameters(document, variant, from, end);
        any = true;
      }
      if (!any) fail_schema("#", "the parameters of a tool are an object");
    } catch (const Error& error) {
      fail(ErrorCode::kInvalidArgument, "tool \"", tool.name, "\": ", error.what());
    }
  }

  // As members of an object, but each with its own line and nothing between.
  void add_parameters(const SchemaDocument& document, const SchemaVariant& variant, uint32_t from, uint32_t to) {
    const ObjectMembers members = object_members(document, variant);
    if (members.properties.empty() && (members.least > 0 || members.most >= 0)) {
      fail_schema(variant.path, "\"minProperties\" and \"maxProperties\" are not supported for parameters");
    }
    const size_t size = members.properties.size();
    std::vector<uint32_t> next;  // [i]: a parameter from i on must come
    std::vector<bool> may_end(size + 1, true);
    for (size_t i = 0; i <= size; ++i) next.push_back(builder_->add_state());
    for (size_t i = size; i-- > 0;) may_end[i] = may_end[i + 1] && !members.properties[i].required;
    builder_->add_jump(from, next[0]);
    if (may_end[0]) builder_->add_text(from, "\n", to);
    const auto add_behind = [&](uint32_t behind, size_t i) {
      builder_->add_jump(behind, next[i]);
      if (may_end[i]) builder_->add_jump(behind, to);
    };
    for (size_t i = 0; i < size; ++i) {
      const auto& property = members.properties[i];
      check_name("a parameter", property.name);
      const uint32_t behind = builder_->add_state();
      const uint32_t value = builder_->add_text(add_tag(next[i], "<", " parameter name=\""), property.name);
      add_value(document, property.schema, value, behind);
      add_behind(behind, i + 1);
      if (!property.required) builder_->add_jump(next[i], next[i + 1]);
    }
    for (const ExtraKeys& extra : members.extra) {
      const uint32_t behind = builder_->add_state(), value = builder_->add_state();
      const CharAutomaton names = intersection(extra.names, compile_regex(kFreeName, RegexMatch::kWhole));
      const uint32_t name = add_tag(next[size], "<", " parameter name=\"");
      for (const uint32_t end : json_->text().write(names, name, TextForm::kRaw)) builder_->add_jump(end, value);
      add_value(document, extra.schema, value, behind);
      add_behind(behind, size);
    }
  }

  // From behind the name to behind the line.
  void add_value(const SchemaDocument& document, const SchemaPlace& schema, uint32_t from, uint32_t to) {
    const uint32_t string = builder_->add_text(from, "\" string=\"true\">");
    const uint32_t other = builder_->add_text(from, "\" string=\"false\">");
    const uint32_t end = builder_->add_state();
    builder_->add_jump(add_tag(end, "</", " parameter>\n"), to);
    std::vector<std::string> given;
    for (const SchemaVariant& variant : document.variants(schema)) {
      if (variant.type != JsonType::kString) {
        json_->add_variant(document, variant, other, end);
      } else if (variant.literal != nullptr) {
        given.push_back(*variant.literal->string());
      } else {
        add_text(intersection(string_text(variant.keywords, variant.path), free_text_), string, end);
      }
    }
    if (!given.empty()) add_text(intersection(CharAutomaton::one_of(given), free_text_), string, end);
  }

  void add_text(const CharAutomaton& text, uint32_t from, uint32_t to) {
    const uint32_t begin = builder_->add_state();
    builder_->add_jump(from, begin);
    for (const uint32_t end : json_->text().write(text, begin, TextForm::kRaw)) builder_->add_jump(end, to);
  }

  // What stands between quotes in the markup has no escapes.
  static void check_name(std::string_view what, std::string_view name) {
    const bool fits = !name.empty() && name.size() <= 256 && name.find_first_of("\"\n\r") == std::string_view::npos &&
                      name.find(kMarkerText) == std::string_view::npos;
    if (fits) return;
    fail(ErrorCode::kInvalidArgument, what, " \"", name.substr(0, 64),
         "\" cannot be written in a call: 1 to 256 bytes without quotes and line breaks");
  }

  NetworkBuilder* builder_;
  SchemaWriter* json_;
  std::deque<SchemaDocument>* documents_;
  Marker marker_;
  CharAutomaton free_text_;
};

}  // namespace

void add_calls(NetworkBuilder& builder, SchemaWriter& json, std::deque<SchemaDocument>& documents,
               std::span<const GrammarTool> tools, bool parallel, Marker marker, uint32_t from, uint32_t to) {
  CallWriter(builder, json, documents, marker).add_block(tools, parallel, from, to);
}

}  // namespace folio
