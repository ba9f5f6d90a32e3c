#include "calibration_chart.h"

#include <algorithm>

#include "base/error.h"
#include "svg.h"

namespace folio {
namespace {

constexpr double kTop = 76, kLeft = 64, kGap = 34;

// A rectangle of the picture in which values from 0 to the highest are drawn.
struct Frame {
  double left, width, height, x_most, y_most;

  double x(double value) const { return left + width * value / x_most; }
  double y(double value) const { return kTop + height * (1 - value / y_most); }

  std::string axes(bool numbers_left) const {
    std::string svg;
    for (const double part : {0.0, 0.5, 1.0}) {
      svg += concat("<line x1=\"", svg_number(left), "\" x2=\"", svg_number(left + width), "\" y1=\"",
                    svg_number(y(part * y_most)), "\" y2=\"", svg_number(y(part * y_most)), "\" class=\"grid\"/>\n");
      if (numbers_left) svg += svg_text(left - 8, y(part * y_most) + 4, "small end", svg_number(part * y_most));
      svg += svg_text(x(part * x_most), kTop + height + 18, "small middle", svg_number(part * x_most));
    }
    return svg;
  }
  std::string line(const std::vector<std::pair<double, double>>& points, const std::string& style) const {
    std::string path;
    for (const auto& [px, py] : points) {
      path += concat(path.empty() ? "M" : "L", svg_number(x(px)), " ", svg_number(y(py)));
    }
    return concat("<path d=\"", path, "\" class=\"", style, "\"/>\n");
  }
  std::string dot(double px, double py, double radius, const std::string& style, const std::string& tip) const {
    return concat("<circle cx=\"", svg_number(x(px)), "\" cy=\"", svg_number(y(py)), "\" r=\"", svg_number(radius),
                  "\" class=\"", style, "\"><title>", svg_escape(tip), "</title></circle>\n");
  }
};

std::string legend(double x, const std::string& style, const std::string& name) {
  return concat("<circle cx=\"", svg_number(x), "\" cy=\"44\" r=\"4\" class=\"", style, "\"/>\n",
                svg_text(x + 10, 48, "small", name));
}

std::string draw_bins(const Frame& frame, const Reliability& reliability, int colour) {
  std::string dots;
  std::vector<std::pair<double, double>> points;
  for (const ReliabilityBin& bin : reliability.bins) {
    if (bin.blocks == 0) continue;
    points.emplace_back(bin.predicted, bin.observed);
    dots += frame.dot(
        bin.predicted, bin.observed, 3, concat("fill", colour),
        concat(bin.blocks, " blocks: predicted ", svg_number(bin.predicted), ", observed ", svg_number(bin.observed)));
  }
  return frame.line(points, concat("line", colour)) + dots;
}

}  // namespace

std::string reliability_chart(std::span<const Reliability> before, std::span<const Reliability> after,
                              const std::string& title) {
  constexpr double kSize = 170;
  const auto panels = static_cast<double>(after.size());
  std::string svg =
      svg_head(kLeft + panels * (kSize + kGap), kTop + kSize + 70, title) + svg_text(kLeft, 26, "head", title);
  svg += legend(kLeft + 4, "fill3", "temperature 1") + legend(kLeft + 120, "fill1", "fitted");
  for (size_t i = 0; i < after.size(); ++i) {
    const Frame frame{kLeft + static_cast<double>(i) * (kSize + kGap), kSize, kSize, 1, 1};
    svg += frame.axes(i == 0) + frame.line({{0, 0}, {1, 1}}, "grid");
    svg += draw_bins(frame, before[i], 3) + draw_bins(frame, after[i], 1);
    svg += svg_text(frame.left, kTop - 8, "small",
                    concat("draft ", i + 1, ": ECE ", svg_number(before[i].ece), " to ", svg_number(after[i].ece)));
  }
  svg += svg_text(kLeft, kTop + kSize + 44, "small", "observed over predicted probability that a draft survives");
  return svg + "</svg>\n";
}

std::string throughput_chart(const MeasuredSteps& measured, std::span<const double> steps_per_second,
                             const std::string& title) {
  constexpr double kWidth = 620, kHeight = 260;
  double most = steps_per_second.front();
  for (const MeasuredSteps::Point& point : measured.points) most = std::max(most, 1 / point.seconds);
  const Frame frame{kLeft, kWidth, kHeight, static_cast<double>(steps_per_second.size() - 1), nice_ceiling(most)};
  std::string svg = svg_head(kLeft + kWidth + 40, kTop + kHeight + 70, title) + svg_text(kLeft, 26, "head", title);
  svg += legend(kLeft + 4, "fill2", "measured") + legend(kLeft + 100, "fill1", "table");
  svg += frame.axes(true);
  std::vector<std::pair<double, double>> line;
  for (size_t rows = 0; rows < steps_per_second.size(); ++rows) {
    line.emplace_back(static_cast<double>(rows), steps_per_second[rows]);
  }
  svg += frame.line(line, "line1");
  for (const MeasuredSteps::Point& point : measured.points) {
    svg += frame.dot(
        point.requests * point.rows_each, 1 / point.seconds, 3, "fill2",
        concat(point.requests, " requests of ", point.rows_each, " rows: ", svg_number(1e3 * point.seconds), " ms"));
  }
  svg += svg_text(kLeft, kTop + kHeight + 44, "small", "steps a second over the rows of a step");
  return svg + "</svg>\n";
}

}  // namespace folio
