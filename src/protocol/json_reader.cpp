// Json::parse.
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "protocol/json.h"
#include "tokenizer/utf8.h"

namespace folio {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Value of a hexadecimal digit, -1 if it is none.
int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr char32_t kNoEscape = 0xFFFFFFFF;

// Where the keys of an object stand. Few are searched, many are hashed.
class KeyPlaces {
 public:
  // The place of `key`, or where it will stand: behind the others.
  size_t find_or_add(const std::string& key, const Json::Object& object) {
    constexpr size_t kFew = 16;
    if (object.size() < kFew) {
      size_t place = 0;
      while (place < object.size() && object[place].key != key) ++place;
      return place;
    }
    if (places_.empty()) {
      for (size_t i = 0; i < object.size(); ++i) places_.emplace(object[i].key, i);
    }
    return places_.try_emplace(key, object.size()).first->second;
  }

 private:
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace

class JsonReader {
 public:
  JsonReader(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  Json read_document() {
    if (const size_t bad = find_invalid_utf8(text_); bad != text_.size()) {
      at_ = bad;
      refuse("not UTF-8");
    }
    Json value = read_value(0);
    skip_space();
    if (at_ != text_.size()) refuse("text behind the end of the value");
    return value;
  }

 private:
  [[noreturn]] void refuse(const char* reason) const {
    fail(ErrorCode::kInvalidArgument, "not valid JSON at byte ", at_, ": ", reason);
  }

  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\n\r", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json read_value(int depth) {
    skip_space();
    if (++values_ > limits_.values) refuse("more values than are allowed");
    switch (peek()) {
      case '{':
        return read_object(depth);
      case '[':
        return read_array(depth);
      case '"':
        ++at_;
        return Json(read_string());
      default:
        break;
    }
    if (take_word("null")) return {};
    if (take_word("true")) return Json(true);
    if (take_word("false")) return Json(false);
    return read_number();
  }

  void open(int depth) {
    if (depth >= limits_.depth) refuse("nested too deep");
    ++at_;
    skip_space();
  }

  Json read_array(int depth) {
    open(depth);
    Json::Array array;
    if (!take(']')) {
      do {
        array.push_back(read_value(depth + 1));
        skip_space();
      } while (take(','));
      if (!take(']')) refuse("expected ',' or ']'");
    }
    return Json(std::move(array));
  }

  Json read_object(int depth) {
    open(depth);
    Json::Object object;
    KeyPlaces places;
    if (!take('}')) {
      do {
        skip_space();
        if (!take('"')) refuse("expected a key in quotes");
        std::string key = read_string();
        skip_space();
        if (!take(':')) refuse("expected ':'");
        Json value = read_value(depth + 1);
        if (const size_t place = places.find_or_add(key, object); place < object.size()) {
          object[place].value = std::move(value);
        } else {
          object.push_back({std::move(key), std::move(value)});
        }
        skip_space();
      } while (take(','));
      if (!take('}')) refuse("expected ',' or '}'");
    }
    return Json(std::move(object));
  }

  // Behind the opening quote.
  std::string read_string() {
    std::string value;
    for (;;) {
      const size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && !is_control(text_[at_])) ++at_;
      value.append(text_.substr(begin, at_ - begin));
      if (take('"')) return value;
      if (!take('\\')) refuse(at_ < text_.size() ? "a control character in a string" : "a string without its end");
      read_escape(value);
    }
  }

  static bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

  // Behind a backslash.
  void read_escape(std::string& value) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (take('u')) {
      append_code_point(read_code_point(), value);
      return;
    }
    const size_t which = at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
    if (which == std::string_view::npos) refuse("an unknown escape in a string");
    value += kMeanings[which];
    ++at_;
  }

  // Behind \u; a surrogate without its other half is U+FFFD.
  char32_t read_code_point() {
    constexpr char32_t kReplacement = 0xFFFD;
    const char32_t unit = read_hex(at_);
    if (unit == kNoEscape) refuse("\\u needs four hexadecimal digits");
    at_ += 4;
    if (unit < 0xD800 || unit > 0xDFFF) return unit;
    if (unit > 0xDBFF || text_.substr(at_, 2) != "\\u") return kReplacement;
    const char32_t low = read_hex(at_ + 2);
    if (low < 0xDC00 || low > 0xDFFF) return kReplacement;  // its own escape is read next
    at_ += 6;
    return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
  }

  // The four hexadecimal digits at `at`; kNoEscape when they are not there.
  char32_t read_hex(size_t at) const {
    if (at + 4 > text_.size()) return kNoEscape;
    char32_t unit = 0;
    for (size_t i = at; i < at + 4; ++i) {
      const int digit = hex_value(text_[i]);
      if (digit < 0) return kNoEscape;
      unit = unit << 4 | static_cast<char32_t>(digit);
    }
    return unit;
  }

  Json read_number() {
    const size_t begin = at_;
    if (limits_.non_finite && (take_word("NaN") || take_word("Infinity") || take_word("-Infinity"))) {
      return number(begin);
    }
    take('-');
    if (!is_digit(peek())) {
      at_ = begin;
      refuse(at_ < text_.size() ? "expected a value" : "the text ends where a value should be");
    }
    if (!take('0')) take_digits();
    if (take('.')) take_digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      take_digits();
    }
    return number(begin);
  }

  void take_digits() {
    if (!is_digit(peek())) refuse("expected a digit");
    while (is_digit(peek())) ++at_;
  }

  Json number(size_t begin) const {
    Json json;
    json.value_ = Json::Number{std::string(text_.substr(begin, at_ - begin))};
    return json;
  }

  std::string_view text_;
  JsonLimits limits_;
  size_t at_ = 0;
  size_t values_ = 0;
};

Json Json::parse(std::string_view text, const JsonLimits& limits) { return JsonReader(text, limits).read_document(); }

}  // namespace folio
