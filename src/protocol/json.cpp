#include "protocol/json.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace folio {

Json::Json() = default;
Json::Json(bool value) : value_(value) {}
Json::Json(int64_t value) : value_(Number{std::to_string(value)}) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(Array value) : value_(std::move(value)) {}
Json::Json(Object value) : value_(std::move(value)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

bool operator==(const Json& a, const Json& b) { return a.value_ == b.value_; }

bool Json::is_null() const { return std::holds_alternative<std::monostate>(value_); }

std::optional<bool> Json::boolean() const {
  const bool* value = std::get_if<bool>(&value_);
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

std::optional<int64_t> Json::integer() const {
  const Number* number = std::get_if<Number>(&value_);
  if (number == nullptr) return std::nullopt;
  int64_t value = 0;
  const char* end = number->text.data() + number->text.size();
  const auto read = std::from_chars(number->text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

namespace {

// A number as the nearest double. What is beyond all doubles is infinite; what is too small is 0.
double to_double(std::string_view text) {
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const bool negative = text.starts_with('-');
  if (text.ends_with("Infinity")) return negative ? -HUGE_VAL : HUGE_VAL;
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc::result_out_of_range) return value;
  const size_t exponent = text.find_first_of("eE");
  const std::string_view whole = text.substr(negative ? 1 : 0);
  const bool tiny = exponent != std::string_view::npos ? text[exponent + 1] == '-' : whole.starts_with('0');
  return std::copysign(tiny ? 0 : HUGE_VAL, negative ? -1 : 1);
}

}  // namespace

std::optional<double> Json::number() const {
  const Number* number = std::get_if<Number>(&value_);
  return number != nullptr ? std::optional(to_double(number->text)) : std::nullopt;
}

const std::string* Json::string() const { return std::get_if<std::string>(&value_); }
const Json::Array* Json::array() const { return std::get_if<Array>(&value_); }
const Json::Object* Json::object() const { return std::get_if<Object>(&value_); }
Json::Array* Json::array() { return std::get_if<Array>(&value_); }
Json::Object* Json::object() { return std::get_if<Object>(&value_); }

const Json* Json::find(std::string_view key) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  FOLIO_CHECK(object() != nullptr);
  for (Member& member : *object()) {
    if (member.key == key) {
      member.value = std::move(value);
      return;
    }
  }
  object()->push_back({std::string(key), std::move(value)});
}

std::string_view Json::type_name() const {
  constexpr std::string_view kNames[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
  return kNames[value_.index()];
}

// Writes values; `python` decides how numbers look.
class JsonWriter {
 public:
  explicit JsonWriter(bool python) : python_(python) {}

  void write(const Json& json) {
    if (json.is_null()) {
      out += "null";
    } else if (const auto boolean = json.boolean()) {
      out += *boolean ? "true" : "false";
    } else if (const auto* number = std::get_if<Json::Number>(&json.value_)) {
      write_number(number->text);
    } else if (const std::string* text = json.string()) {
      write_string(*text);
    } else if (const Json::Array* array = json.array()) {
      out += '[';
      for (size_t i = 0; i < array->size(); ++i) {
        if (i > 0) out += ", ";
        write((*array)[i]);
      }
      out += ']';
    } else {
      out += '{';
      for (size_t i = 0; i < json.object()->size(); ++i) {
        const Json::Member& member = (*json.object())[i];
        if (i > 0) out += ", ";
        write_string(member.key);
        out += ": ";
        write(member.value);
      }
      out += '}';
    }
  }

  void write_string(std::string_view text) {
    out += '"';
    append_json_escaped(text, out);
    out += '"';
  }

  std::string out;

 private:
  void write_number(std::string_view text) {
    if (!python_) {
      out += text;
    } else if (text.find_first_of(".eENI") == std::string_view::npos) {
      out += text == "-0" ? "0" : text;  // integers keep all their digits
    } else {
      write_double(to_double(text));
    }
  }

  // Python's repr(): the shortest digits that give the same double, as a decimal where the exponent is -4 to 15.
  void write_double(double value) {
    if (std::isnan(value)) {
      out += "NaN";
      return;
    }
    if (std::signbit(value)) out += '-';
    value = std::fabs(value);
    if (std::isinf(value)) {
      out += "Infinity";
      return;
    }
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
    const std::string_view shortest(buffer, static_cast<size_t>(end.ptr - buffer));
    const size_t e = shortest.find('e');
    std::string digits(shortest.substr(0, e));
    std::erase(digits, '.');
    int exponent = 0;
    const size_t sign = e + 1;
    std::from_chars(buffer + sign + 1, end.ptr, exponent);
    if (buffer[sign] == '-') exponent = -exponent;
    place_point(digits, exponent);
  }

  // digits[0].digits[1...] times ten to the `exponent`.
  void place_point(std::string digits, int exponent) {
    if (exponent < -4 || exponent >= 16) {
      out += digits[0];
      if (digits.size() > 1) out.append(".").append(digits, 1);
      out += exponent < 0 ? "e-" : "e+";
      const std::string size = std::to_string(std::abs(exponent));
      out.append(size.size() < 2 ? "0" : "").append(size);
    } else if (exponent < 0) {
      out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
    } else {
      const size_t whole = static_cast<size_t>(exponent) + 1;
      if (digits.size() <= whole) digits.append(whole + 1 - digits.size(), '0');
      out.append(digits, 0, whole).append(".").append(digits, whole);
    }
  }

  bool python_;
};

std::string python_json(const Json& value) {
  JsonWriter writer(true);
  writer.write(value);
  return std::move(writer.out);
}

std::string json_text(const Json& value) {
  JsonWriter writer(false);
  writer.write(value);
  return std::move(writer.out);
}

std::string json_quote(std::string_view text) {
  JsonWriter writer(true);
  writer.write_string(text);
  return std::move(writer.out);
}

void append_json_escaped(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out.append("\\u00").append({kHex[c >> 4], kHex[c & 15]});
        } else {
          out += c;
        }
    }
  }
}

}  // namespace folio
