// Schemas with texts that are valid under them as a grammar writes them, and texts that are not.
#pragma once

#include <string>
#include <vector>

namespace folio {

struct GrammarCase {
  std::string name;
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

const std::vector<GrammarCase>& grammar_cases();

}  // namespace folio
