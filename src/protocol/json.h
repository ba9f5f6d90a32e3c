// JSON from outside, and the two ways in which it goes out again.
//
// Own code because the text of prompts depends on what other readers lose: the digits of a number, the order of keys,
// lone surrogates (protocol spec 1.6, 2.10).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace folio {

struct JsonLimits {
  int depth = 128;                  // containers inside containers
  size_t values = size_t{1} << 23;  // in the whole document
  bool non_finite = false;          // accept NaN, Infinity and -Infinity, which are not JSON, as Python does
};

// A JSON value. Objects keep the order of their keys.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json();  // null
  explicit Json(bool value);
  explicit Json(int64_t value);
  explicit Json(std::string value);
  explicit Json(const char* value);
  explicit Json(Array value);
  explicit Json(Object value);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  // Reads one document. A lone surrogate becomes U+FFFD; of a key that comes twice the last value counts, in the first
  // place. Linear in the size of `text`. Throws Error(kInvalidArgument) with the place when it is not UTF-8, not JSON
  // or beyond the limits.
  static Json parse(std::string_view text, const JsonLimits& limits = {});

  bool is_null() const;
  // Each is absent, or null, when the value is of another type.
  std::optional<bool> boolean() const;
  std::optional<int64_t> integer() const;  // also absent for 1.0, 1e3 and what 64 bits do not hold
  std::optional<double> number() const;    // infinite when a double does not hold it
  const std::string* string() const;
  const Array* array() const;
  const Object* object() const;
  Array* array();
  Object* object();

  // The value of a key, null when there is none or this is no object. Linear in the number of keys.
  const Json* find(std::string_view key) const;
  // Sets the value of a key of an object, in its place or behind the others. A null becomes an object first.
  void set(std::string_view key, Json value);

  // "null", "a boolean", "a number", "a string", "an array", "an object": for messages.
  std::string_view type_name() const;

  friend bool operator==(const Json&, const Json&);

 private:
  friend class JsonReader;
  friend class JsonWriter;
  struct Number {
    std::string text;  // as it was written
    bool operator==(const Number&) const = default;
  };
  std::variant<std::monostate, bool, Number, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
  bool operator==(const Member&) const = default;
};

// The text that Python's json.dumps(value, ensure_ascii=False) gives (protocol spec 2.10), which is what stands in
// prompts: ", " and ": ", numbers as Python prints them (1.50 -> 1.5, 1e5 -> 100000.0, 1E400 -> Infinity).
std::string python_json(const Json& value);

// The same, but with numbers as they were written: always JSON again.
std::string json_text(const Json& value);

// A string in quotes, escaped as above.
std::string json_quote(std::string_view text);
// The inside of such a string.
void append_json_escaped(std::string_view text, std::string& out);

}  // namespace folio
