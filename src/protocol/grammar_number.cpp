#include "protocol/grammar_number.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/error.h"
#include "protocol/grammar_regex.h"

namespace folio {
namespace {

constexpr size_t kMaxDecimalDigits = 40;
constexpr int64_t kMaxMultiple = 100'000;

CharSet digits(char low, char high) {
  return low <= high ? CharSet({{static_cast<char32_t>(low), static_cast<char32_t>(high)}}) : CharSet();
}
CharSet any_digit() { return digits('0', '9'); }

// Compares numbers without a sign with `bound`, digit by digit. Takes digits with or without a fraction, leading zeros
// of the integer part aside: what is not a JSON number besides is for others to refuse.
class Comparison {
 public:
  Comparison(const Decimal& bound, bool below, bool equal) : bound_(bound), below_(below), equal_(equal) {
    free_fraction_ = result_.add_state(true);
    result_.add_edge(free_fraction_, any_digit(), free_fraction_);
    free_tail_ = result_.add_state(true);
    const uint32_t point = result_.add_state();
    result_.add_edge(free_tail_, CharSet::of(U'.'), point);
    result_.add_edge(point, any_digit(), free_fraction_);
  }

  CharAutomaton build() {
    const size_t size = bound_.integer.size();
    // free[i]: i more digits of an integer part that has decided the comparison already.
    std::vector<uint32_t> free = {free_tail_};
    for (size_t i = 1; i <= size; ++i) {
      free.push_back(result_.add_state());
      result_.add_edge(free[i], any_digit(), free[i - 1]);
    }
    if (below_) {
      for (size_t i = 1; i < size; ++i) result_.add_jump(0, free[i]);
    } else {
      const uint32_t longer = result_.add_state();
      result_.add_edge(longer, any_digit(), longer);
      result_.add_jump(longer, free_tail_);
      uint32_t at = 0;
      for (size_t i = 0; i <= size; ++i) {
        const uint32_t to = i < size ? result_.add_state() : longer;
        result_.add_edge(at, any_digit(), to);
        at = to;
      }
    }
    uint32_t tight = 0;
    for (size_t i = 0; i < size; ++i) {
      const char digit = bound_.integer[i];
      result_.add_edge(tight, decided(digit), free[size - i - 1]);
      const uint32_t to = result_.add_state();
      result_.add_edge(tight, digits(digit, digit), to);
      tight = to;
    }
    add_tight_fraction(tight);
    return std::move(result_);
  }

 private:
  // Digits that decide the comparison in favour where `digit` is the bound's.
  CharSet decided(char digit) const {
    return below_ ? digits('0', static_cast<char>(digit - 1)) : digits(static_cast<char>(digit + 1), '9');
  }
  // A number that ends where the bound still has the digits from `i` on of its fraction.
  bool ends_well(size_t i) const { return i < bound_.fraction.size() ? below_ : equal_; }

  void add_tight_fraction(uint32_t tight) {
    if (ends_well(0)) result_.set_final(tight);
    uint32_t at = result_.add_state();
    result_.add_edge(tight, CharSet::of(U'.'), at);
    const size_t size = bound_.fraction.size();
    for (size_t i = 0; i < size; ++i) {
      const char digit = bound_.fraction[i];
      result_.add_edge(at, decided(digit), free_fraction_);
      const uint32_t to = result_.add_state(ends_well(i + 1));
      result_.add_edge(at, digits(digit, digit), to);
      at = to;
    }
    const uint32_t zeros = result_.add_state(equal_);
    result_.add_edge(at, digits('0', '0'), zeros);
    result_.add_edge(zeros, digits('0', '0'), zeros);
    result_.add_edge(at, decided('0'), free_fraction_);
    result_.add_edge(zeros, decided('0'), free_fraction_);
  }

  const Decimal& bound_;
  bool below_, equal_;
  CharAutomaton result_;
  uint32_t free_fraction_ = 0, free_tail_ = 0;
};

// Numbers of one sign, without it, on one side of a bound.
CharAutomaton at_most(const Decimal& bound, bool equal) { return Comparison(bound, true, equal).build(); }
CharAutomaton at_least(const Decimal& bound, bool equal) { return Comparison(bound, false, equal).build(); }

// Follows value mod `multiple` along the digits; behind the point, the value of the digits so far as an integer.
CharAutomaton multiples(const Decimal& multiple) {
  const std::string text = multiple.integer + multiple.fraction;
  int64_t modulus = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), modulus);
  if (error != std::errc() || modulus > kMaxMultiple) {
    fail(ErrorCode::kInvalidArgument, "multipleOf ", multiple.integer, ".", multiple.fraction,
         " is not supported: it may have a value of up to ", kMaxMultiple, " when its point is left out");
  }
  const auto places = static_cast<int64_t>(multiple.fraction.size());
  CharAutomaton result;
  std::map<std::pair<int64_t, int64_t>, uint32_t> known;  // (remainder, digits behind the point; -1 in front of it)
  std::vector<std::pair<int64_t, int64_t>> pending;
  const auto state_of = [&](int64_t remainder, int64_t place) {
    const auto [entry, added] = known.try_emplace({remainder, place}, 0);
    if (added) {
      int64_t scaled = remainder;
      for (int64_t i = std::max<int64_t>(place, 0); i < places; ++i) scaled = scaled * 10 % modulus;
      entry->second = result.add_state(place != 0 && scaled == 0);
      pending.emplace_back(remainder, place);
    }
    return entry->second;
  };
  result.add_jump(0, state_of(0, -1));
  for (size_t i = 0; i < pending.size(); ++i) {
    const auto [remainder, place] = pending[i];
    const uint32_t from = known.at({remainder, place});
    if (place < 0) result.add_edge(from, CharSet::of(U'.'), state_of(remainder, 0));
    for (int64_t digit = 0; digit < 10; ++digit) {
      // Behind the last place that counts only zeros follow a multiple.
      const bool past = place >= places;
      if (past && digit != 0) break;
      const int64_t next = past ? remainder : (remainder * 10 + digit) % modulus;
      result.add_edge(from, digits(static_cast<char>('0' + digit), static_cast<char>('0' + digit)),
                      state_of(next, place < 0 ? -1 : std::max(std::min(place + 1, places), int64_t{1})));
    }
  }
  return result;
}

Decimal zero() { return {.negative = false, .integer = "0", .fraction = ""}; }

// Numbers without a sign that obey the rules when `negative` stands in front of them; nothing if none does.
std::optional<CharAutomaton> magnitudes(const NumberRules& rules, const CharAutomaton& form, bool negative) {
  const auto& near = negative ? rules.maximum : rules.minimum;  // the bound towards zero
  const auto& far = negative ? rules.minimum : rules.maximum;
  const bool near_open = negative ? rules.exclusive_maximum : rules.exclusive_minimum;
  const bool far_open = negative ? rules.exclusive_minimum : rules.exclusive_maximum;
  CharAutomaton result = form;
  const auto on_this_side = [negative](const Decimal& bound) {
    return bound.negative == negative || (bound.integer == "0" && bound.fraction.empty());
  };
  if (far) {
    if (!on_this_side(*far)) return std::nullopt;
    result = intersection(result, at_most(*far, !far_open));
  }
  if (near && on_this_side(*near)) result = intersection(result, at_least(*near, !near_open));
  return result;
}

}  // namespace

Decimal Decimal::parse(std::string_view text) {
  Decimal value;
  if (text.starts_with('-')) {
    value.negative = true;
    text.remove_prefix(1);
  }
  int exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error != std::errc() || std::abs(exponent) > 1000) exponent = digits.starts_with('-') ? -1000 : 1000;
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string all(text.substr(0, point));
  if (point < text.size()) all += text.substr(point + 1);
  int64_t split = static_cast<int64_t>(point) + exponent;  // digits in front of the point
  if (all.find_first_not_of('0') == std::string::npos) return zero();
  if (split < 0) {
    all = concat(std::string(static_cast<size_t>(-split), '0'), all);
    split = 0;
  }
  if (split > std::ssize(all)) all.append(static_cast<size_t>(split) - all.size(), '0');
  value.integer = all.substr(0, static_cast<size_t>(split));
  value.fraction = all.substr(static_cast<size_t>(split));
  value.integer.erase(0, std::min(value.integer.find_first_not_of('0'), value.integer.size()));
  value.fraction.erase(value.fraction.find_last_not_of('0') + 1);
  if (value.integer.empty()) value.integer.push_back('0');
  if (value.integer.size() > kMaxDecimalDigits || value.fraction.size() > kMaxDecimalDigits) {
    fail(ErrorCode::kInvalidArgument, "the bound has more than ", kMaxDecimalDigits,
         " digits on one side of its point");
  }
  return value;
}

CharAutomaton number_text(const NumberRules& rules) {
  size_t integers = kMaxIntegerDigits, fractions = kMaxFractionDigits;
  const bool bounded = rules.minimum || rules.maximum || rules.multiple_of;
  for (const auto* bound : {&rules.minimum, &rules.maximum, &rules.multiple_of}) {
    if (!*bound) continue;
    integers = std::max(integers, (*bound)->integer.size() + 1);
    fractions = std::max(fractions, (*bound)->fraction.size() + 1);
  }
  std::string form = concat("(0|[1-9][0-9]{0,", integers - 1, "})");
  if (!rules.integer) {
    form += concat("(\\.[0-9]{1,", fractions, "})?");
    if (!bounded) form += "([eE][+-]?[0-9]{1,2})?";
  }
  CharAutomaton unsigned_form = compile_regex(form, RegexMatch::kWhole);
  if (rules.multiple_of) unsigned_form = intersection(unsigned_form, multiples(*rules.multiple_of));
  CharAutomaton result = magnitudes(rules, unsigned_form, false).value_or(CharAutomaton());
  if (const auto negative = magnitudes(rules, unsigned_form, true)) result = either(result, prefixed("-", *negative));
  return result.trimmed();
}

}  // namespace folio
