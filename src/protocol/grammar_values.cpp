#include "protocol/grammar_values.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "protocol/grammar_number.h"
#include "protocol/grammar_regex.h"

namespace folio {
namespace {

// Days that there are, in years of four digits that do not begin with 0.
std::string date() {
  const std::string year = "[1-9][0-9]{3}";
  const std::string leap = "([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)";
  return "((" + year + "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|" +
         "02-(0[1-9]|1[0-9]|2[0-8])))|" + leap + "-02-29)";
}

std::string time() {
  return R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
}

std::string duration() {
  // Something must follow P, and something T: the alternatives list what comes first.
  const std::string clock = "T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S)";
  const std::string calendar = "([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)";
  return "P(" + calendar + "(" + clock + ")?|" + clock + "|[0-9]{1,9}W)";
}

std::string ipv4() {
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  return "(" + byte + "\\.){3}" + byte;
}

std::string ipv6() {
  const std::string h = "[0-9a-fA-F]{1,4}";
  std::string all = "((" + h + ":){7}" + h;
  // "::" stands for one group or more: up to six groups in front of it or behind it, seven in all.
  for (int front = 0; front <= 7; ++front) {
    const std::string before = front == 0 ? ":" : "(" + h + ":){" + std::to_string(front) + "}";
    const int rest = 7 - front;
    all += "|" + before + ":" + (rest == 0 ? "" : "(" + h + "(:" + h + "){0," + std::to_string(rest - 1) + "})?");
  }
  return all + ")";
}

std::string host_name() {
  const std::string label = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
  return label + "(\\." + label + "){0,2}";
}

}  // namespace

std::optional<std::string> format_pattern(std::string_view format) {
  const std::string hex = "[0-9a-fA-F]";
  if (format == "date") return date();
  if (format == "time") return time();
  if (format == "date-time") return date() + "T" + time();
  if (format == "duration") return duration();
  if (format == "ipv4") return ipv4();
  if (format == "ipv6") return ipv6();
  if (format == "hostname") return host_name();
  if (format == "uuid") return hex + "{8}-" + hex + "{4}-" + hex + "{4}-" + hex + "{4}-" + hex + "{12}";
  if (format == "email") {
    return "[a-zA-Z0-9_%+-]{1,32}(\\.[a-zA-Z0-9_%+-]{1,15}){0,2}@" + host_name() + "\\.[a-zA-Z]{2,24}";
  }
  if (format == "uri") return "[a-zA-Z][a-zA-Z0-9+.-]{0,30}:[a-zA-Z0-9._~:/?#@!$&'()*+,;=-]+";
  return std::nullopt;
}

std::optional<int64_t> count_keyword(const SchemaKeywords& keywords, std::string_view key) {
  const SchemaPlace* place = keywords.find(key);
  if (place == nullptr) return std::nullopt;
  const auto value = place->json->number();
  if (!value || *value < 0 || *value != std::floor(*value)) {
    fail_schema(place->path, "must be a whole number of at least 0, but it is ", json_text(*place->json).substr(0, 40));
  }
  constexpr double kLargest = 1e15;  // more than anything can be counted to here
  return static_cast<int64_t>(std::min(*value, kLargest));
}

namespace {

const std::string& text_of(const SchemaPlace& place) {
  if (place.json->string() == nullptr) fail_schema(place.path, "must be a string, but it is ", place.json->type_name());
  return *place.json->string();
}

// What `make` returns; what it throws is said with the place.
template <typename Make>
auto at_place(const std::string& path, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    fail_schema(path, error.what());
  }
}

std::optional<Decimal> bound(const SchemaPlace* place) {
  if (place == nullptr) return std::nullopt;
  if (!place->json->number()) fail_schema(place->path, "must be a number, but it is ", place->json->type_name());
  return at_place(place->path, [&] { return Decimal::parse(json_text(*place->json)); });
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = a.integer.size() != b.integer.size() ? (a.integer.size() < b.integer.size() ? -1 : 1)
                                                   : a.integer.compare(b.integer);
  if (order == 0) order = a.fraction.compare(b.fraction);
  return a.negative ? -order : order;
}

}  // namespace

CharAutomaton string_text(const SchemaKeywords& keywords, const std::string& path) {
  CharAutomaton text = CharAutomaton::any_text();
  bool any = true;
  const auto also = [&](const std::string& where, const auto& make) {
    text = at_place(where, [&] {
      CharAutomaton part = make();
      return any ? std::move(part) : intersection(text, part);
    });
    any = false;
  };
  const auto least = count_keyword(keywords, "minLength"), most = count_keyword(keywords, "maxLength");
  if (least || most) {
    const std::string& where = keywords.find(most ? "maxLength" : "minLength")->path;
    also(where, [&] { return CharAutomaton::length(least.value_or(0), most.value_or(-1)); });
  }
  if (const SchemaPlace* pattern = keywords.find("pattern")) {
    also(pattern->path, [&] { return compile_regex(text_of(*pattern), RegexMatch::kAnywhere); });
  }
  if (const SchemaPlace* format = keywords.find("format")) {
    const auto known = format_pattern(text_of(*format));
    if (!known) {
      fail_schema(format->path, "the format \"", text_of(*format), "\" is not supported; there are date, time, ",
                  "date-time, duration, email, hostname, ipv4, ipv6, uri and uuid");
    }
    also(format->path, [&] { return compile_regex(*known, RegexMatch::kWhole); });
  }
  if (text.empty()) fail_schema(path, "no string can satisfy it");
  return text;
}

CharAutomaton number_text(const SchemaKeywords& keywords, bool integer, const std::string& path) {
  NumberRules rules{.integer = integer,
                    .minimum = bound(keywords.find("minimum")),
                    .maximum = bound(keywords.find("maximum")),
                    .multiple_of = bound(keywords.find("multipleOf"))};
  const auto above = bound(keywords.find("exclusiveMinimum")), below = bound(keywords.find("exclusiveMaximum"));
  if (above && (!rules.minimum || compare(*above, *rules.minimum) >= 0)) {
    rules.minimum = above;
    rules.exclusive_minimum = true;
  }
  if (below && (!rules.maximum || compare(*below, *rules.maximum) <= 0)) {
    rules.maximum = below;
    rules.exclusive_maximum = true;
  }
  if (rules.multiple_of && compare(*rules.multiple_of, Decimal::parse("0")) <= 0) {
    fail_schema(keywords.find("multipleOf")->path, "must be above 0");
  }
  CharAutomaton text = at_place(path, [&] { return number_text(rules); });
  if (text.empty()) fail_schema(path, "no number can satisfy it");
  return text;
}

}  // namespace folio
