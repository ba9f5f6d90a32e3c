// What the charts of the commands are made of: SVG that follows the reader's colour scheme.
#pragma once

#include <string>

namespace folio {

// Three significant digits, no exponent.
std::string svg_number(double value);
// A round number that is not below `value`, to end an axis with.
double nice_ceiling(double value);
std::string svg_escape(const std::string& text);
// `style`: classes of the style sheet: head, title, small, and end or middle for where the text stands.
std::string svg_text(double x, double y, const std::string& style, const std::string& text);
// The beginning of a picture; "</svg>" ends it. Its style sheet has line1 .. line3, fill1 .. fill3 and grid.
std::string svg_head(double width, double height, const std::string& label);

}  // namespace folio
