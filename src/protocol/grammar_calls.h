// Blocks of calls as a grammar (protocol spec 2.7, 3.4).
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "protocol/grammar.h"
#include "protocol/grammar_json.h"

namespace folio {

// How the marker of the markup is written.
enum class Marker : uint8_t {
  kToken,  // as kMarkerSymbol
  kBytes,  // as its text: the vocabulary has no token for it
};

// Adds a block of calls between two states: "\n\n", the opening tag, one call or more, the closing tag. Parameters come
// in the order of the schema, strings raw with string="true", all else as JSON. Schemas are kept in `documents`, which
// must live until `json` is finished. Throws Error(kInvalidArgument) that names the tool.
void add_calls(NetworkBuilder& builder, SchemaWriter& json, std::deque<SchemaDocument>& documents,
               std::span<const GrammarTool> tools, bool parallel, Marker marker, uint32_t from, uint32_t to);

}  // namespace folio
