// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A picture of a run: time from left to right, a row for each rank, an arrow for each message.

#include "job.hpp"
#include "trace.hpp"

#include <algorithm>

namespace sim {

/// SVG. `title` is its first line.
class picture {
 public:
  using message = colls::simulated::message_trace;
  using ticks = colls::simulated::ticks;

  picture(const std::vector<message>& messages, const job& what, int ranks, ticks begin,
          std::string title)
      : messages_(messages), what_(what), ranks_(ranks), begin_(begin), title_(std::move(title)) {
    for (const message& each : messages_) {
      if (each.received != colls::simulated::no_time) end_ = std::max(end_, each.received - begin_);
    }
    row_height_ = ranks <= 8 ? 64 : ranks <= 16 ? 44 : 30;
    labelled_ = ranks <= 8 && messages_.size() <= 160 &&
                std::any_of(messages_.begin(), messages_.end(),
                            [&](const message& each) { return !carried(each).empty(); });
  }

  std::string text() {
    const double height = top + row_height_ * (ranks_ - 1) + bottom;
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n",
        left + width + right, height);
    put("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    head();
    axis(height);
    for (int rank = 0; rank < ranks_; ++rank) row(rank);
    for (const message& each : messages_) bar(each);
    for (const message& each : messages_) arrow(each);
    if (labelled_) {
      for (const message& each : messages_) label(each);
    }
    put("</svg>\n");
    return text_;
  }

 private:
  static constexpr double left = 74;
  static constexpr double right = 28;
  static constexpr double width = 980;
  static constexpr double top = 84;
  static constexpr double bottom = 48;
  static constexpr const char* copied = "#1f6fb2";
  static constexpr const char* folded = "#d9661f";

  template <class... Args>
  void put(fmt::format_string<Args...> pattern, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), pattern, std::forward<Args>(args)...);
  }

  double x(ticks time) const {
    const double whole = static_cast<double>(std::max<ticks>(end_, 1));
    return left + width * static_cast<double>(time - begin_) / whole;
  }
  double y(int rank) const { return top + row_height_ * rank; }
  static const char* color(const message& of) { return of.folded ? folded : copied; }
  static bool has_come(const message& of) { return of.received != colls::simulated::no_time; }

  void head() {
    put("<text x=\"{:.0f}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n", left,
        title_);
    const auto any = [&](bool reduced) {
      return std::any_of(messages_.begin(), messages_.end(), [&](const message& each) {
        return has_come(each) && each.folded == reduced;
      });
    };
    double at = left;
    const auto key = [&](const char* ink, std::string_view words) {
      put("<path d=\"M{:.0f} 44h26\" stroke=\"{}\" stroke-width=\"2.5\"/>"
          "<text x=\"{:.0f}\" y=\"48.5\" fill=\"#444444\">{}</text>\n",
          at, ink, at + 34, words);
      at += 62 + 7.2 * static_cast<double>(words.size());
    };
    if (any(true)) key(folded, "reduced with what is there");
    if (any(false)) key(copied, "copied");
    if (labelled_) {
      put("<text x=\"{:.0f}\" y=\"48.5\" fill=\"#444444\">numbers: elements of the whole vector"
          "</text>\n",
          at);
    }
    for (const char* ink : {copied, folded}) {
      put("<marker id=\"{}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
          "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0.6L8 4L0 7.4z\" "
          "fill=\"{}\"/></marker>\n",
          ink + 1, ink);
    }
  }

  // Ticks at 1, 2 or 5 times a power of ten, eight or so of them.
  void axis(double height) {
    const double whole = static_cast<double>(std::max<ticks>(end_, 1)) * 1e-6;
    double step = std::pow(10, std::ceil(std::log10(whole)) - 1);
    if (whole / step < 2.5) {
      step /= 5;
    } else if (whole / step < 5) {
      step /= 2;
    }
    const double low = height - bottom + 18;
    for (int i = 0; i * step <= whole * 1.0001; ++i) {
      const double at = left + width * (i * step / whole);
      put("<path d=\"M{0:.1f} {1:.0f}V{2:.0f}\" stroke=\"#e3e3e3\"/>"
          "<text x=\"{0:.1f}\" y=\"{3:.0f}\" text-anchor=\"middle\" "
          "fill=\"#666666\">{4:g}{5}</text>\n",
          at, top - 18, low - 4, low + 12, i * step, i == 0 ? " us" : "");
    }
  }

  void row(int rank) {
    put("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">rank {}</text>"
        "<path d=\"M{:.0f} {:.1f}h{:.0f}\" stroke=\"#9a9a9a\"/>\n",
        left - 12, y(rank) + 4.5, rank, left, y(rank), width);
  }

  // While the message leaves its sender.
  void bar(const message& of) {
    if (of.left == colls::simulated::no_time || x(of.left) - x(of.started) < 0.75) return;
    put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"{}\" stroke-width=\"5\"/>\n", x(of.started),
        y(of.from), x(of.left), color(of));
  }

  void arrow(const message& of) {
    if (!has_come(of)) return;
    const bool many = messages_.size() > 300;
    put("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" stroke-width=\"{}\" "
        "stroke-opacity=\"{}\" marker-end=\"url(#{})\"/>\n",
        x(of.started), y(of.from), x(of.received), y(of.to), color(of), many ? "0.8" : "1.5",
        many ? "0.6" : "1", color(of) + 1);
  }

  // What it carries: elements of the whole vector, or nothing where it comes from other memory.
  std::string carried(const message& of) const {
    const std::int64_t first = of.size == 0 ? -1 : what_.element_at(of.from, of.data);
    if (!has_come(of) || first < 0) return {};
    const std::int64_t last = what_.element_at(of.from, of.data + of.size - 1);
    return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }

  // Near its sender, where arrows have not crossed yet; further on where another label is.
  void label(const message& of) {
    const std::string words = carried(of);
    if (words.empty()) return;
    const double way_x = x(of.received) - x(of.started);
    const double way_y = y(of.to) - y(of.from);
    const double half = 3.6 * static_cast<double>(words.size()) + 2;
    double reach = std::min(0.3, 24 / std::abs(way_y));
    for (int tries = 0; tries < 5; ++tries, reach += 0.13) {
      const place at{x(of.started) + way_x * reach, y(of.from) + way_y * reach, half};
      const auto overlaps = [&](const place& other) {
        return std::abs(at.x - other.x) < half + other.half && std::abs(at.y - other.y) < 13;
      };
      if (std::any_of(labels_.begin(), labels_.end(), overlaps)) continue;
      labels_.push_back(at);
      put("<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\" font-size=\"11.5\" "
          "fill=\"{2}\" stroke=\"#ffffff\" stroke-width=\"4\" "
          "paint-order=\"stroke\">{3}</text>\n",
          at.x, at.y + 4, color(of), words);
      return;
    }
  }

  struct place {
    double x;
    double y;
    double half;  // of its width
  };

  const std::vector<message>& messages_;
  const job& what_;
  int ranks_;
  ticks begin_;
  ticks end_ = 0;
  std::string title_;
  double row_height_;
  bool labelled_;
  std::vector<place> labels_;
  std::string text_;
};

}  // namespace sim
