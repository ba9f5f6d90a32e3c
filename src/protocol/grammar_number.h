// JSON numbers within bounds, as automata over their digits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "protocol/grammar_chars.h"

namespace folio {

// Digits that a number may have in front of the point, and behind it. More only where a bound has more. An exponent has
// up to two, and so every number is a finite double.
constexpr int kMaxIntegerDigits = 20;
constexpr int kMaxFractionDigits = 20;

// An exact decimal number.
struct Decimal {
  bool negative = false;  // never for zero
  std::string integer;    // digits without leading zeros; "0" if there are none
  std::string fraction;   // digits without trailing zeros

  // From the text of a JSON number. Throws Error(kInvalidArgument) when it has more than 40 digits on a side of the
  // point.
  static Decimal parse(std::string_view text);
};

struct NumberRules {
  bool integer = false;
  std::optional<Decimal> minimum = std::nullopt, maximum = std::nullopt;
  bool exclusive_minimum = false, exclusive_maximum = false;
  std::optional<Decimal> multiple_of = std::nullopt;  // above zero
};

// The numbers that obey the rules, without exponents where there are bounds or a multiple. Throws
// Error(kInvalidArgument) where a multiple is too fine to be followed digit by digit.
CharAutomaton number_text(const NumberRules& rules);

}  // namespace folio
