#include "server/format_fields.h"

#include "base/error.h"
#include "server/api_error.h"

namespace folio {
namespace {

void read_structured_outputs(const Fields& fields, GrammarSpec& spec) {
  const Json* outputs = fields.object("structured_outputs");
  if (outputs == nullptr) return;
  const Fields values(*outputs, "structured_outputs");
  using Content = GrammarSpec::Content;
  int constraints = 0;
  if (const Json* schema = values.find("json")) {
    ++constraints;
    spec.content = Content::kJsonSchema;
    spec.text = schema->string() ? *schema->string() : json_text(*schema);
  }
  if (values.boolean("json_object").value_or(false)) {
    ++constraints;
    spec.content = Content::kJsonObject;
  }
  if (const auto regex = values.string("regex")) {
    ++constraints;
    spec.content = Content::kRegex;
    spec.text = *regex;
  }
  if (values.has("choice")) {
    ++constraints;
    spec.content = Content::kChoice;
    spec.choices = values.strings("choice");
  }
  for (const char* other : {"grammar", "structural_tag"}) {
    if (values.has(other)) values.refuse(other, "left out: it is not supported; use json, regex or choice");
  }
  if (constraints > 1) values.refuse("json", "the only constraint: give one of json, json_object, regex and choice");
}

}  // namespace

std::optional<Json> read_response_format(const Json& format, const std::string& field, GrammarSpec& spec) {
  const Fields fields(format, field);
  const std::string type = fields.string("type").value_or("");
  if (type == "text") return {};
  if (type == "json_object") {
    spec.content = GrammarSpec::Content::kJsonObject;
    return format;
  }
  if (type != "json_schema") fields.refuse("type", "\"text\", \"json_object\" or \"json_schema\"");
  const Json* nested = fields.object("json_schema");
  const Fields holder(nested == nullptr ? format : *nested, nested == nullptr ? field : field + ".json_schema");
  const Json* schema = holder.find("schema");
  if (schema == nullptr) holder.refuse("schema", "given");
  spec.content = GrammarSpec::Content::kJsonSchema;
  spec.text = json_text(*schema);
  return *schema;
}

std::optional<Json> read_format(const Fields& fields, GrammarSpec& spec) {
  std::optional<Json> shown;
  if (const Json* format = fields.object("response_format")) {
    shown = read_response_format(*format, "response_format", spec);
  }
  if (spec.content != GrammarSpec::Content::kNone && fields.has("structured_outputs")) {
    fields.refuse("structured_outputs", "left out when there is a `response_format`");
  }
  read_structured_outputs(fields, spec);
  return shown;
}

}  // namespace folio
