#include "svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace folio {
namespace {

constexpr const char* kStyle = R"(<style>
  :root { color-scheme: light dark; --ink: #23211d; --muted: #66625a; --line: #e6e1d8; --a: #24735f; --b: #38699f; --c: #b5762a; }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #ebe7de; --muted: #a8a297; --line: #45423c; --a: #6fc3a8; --b: #7fb0e3; --c: #dba65c; }
  }
  text { font: 12px system-ui, sans-serif; fill: var(--muted); }
  .head { font-size: 17px; font-weight: 600; fill: var(--ink); }
  .title { font-size: 14px; font-weight: 600; fill: var(--ink); }
  .end { text-anchor: end; }
  .middle { text-anchor: middle; }
  .grid { stroke: var(--line); }
  .line1, .line2, .line3 { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .line1 { stroke: var(--a); } .line2 { stroke: var(--b); } .line3 { stroke: var(--c); }
  .fill1 { fill: var(--a); } .fill2 { fill: var(--b); } .fill3 { fill: var(--c); }
</style>
)";

}  // namespace

std::string svg_number(double value) {
  char text[32];
  const int digits = value == 0 ? 0 : std::clamp(2 - static_cast<int>(std::floor(std::log10(std::abs(value)))), 0, 6);
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  std::string result = text;
  if (result.find('.') != std::string::npos) {
    while (result.ends_with('0')) result.pop_back();
    if (result.ends_with('.')) result.pop_back();
  }
  return result;
}

double nice_ceiling(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0}) {
    if (step * power >= value) return step * power;
  }
  return 10 * power;
}

std::string svg_escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return escaped;
}

std::string svg_text(double x, double y, const std::string& style, const std::string& text) {
  return concat("<text x=\"", svg_number(x), "\" y=\"", svg_number(y), "\" class=\"", style, "\">", svg_escape(text),
                "</text>\n");
}

std::string svg_head(double width, double height, const std::string& label) {
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", svg_number(width), " ", svg_number(height),
                "\" role=\"img\" aria-label=\"", svg_escape(label), "\">\n", kStyle);
}

}  // namespace folio
