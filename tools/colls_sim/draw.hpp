// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Draws a run: time from left to right, a row for each rank, an arrow for each message.

#include "job.hpp"
#include "trace.hpp"

#include <algorithm>

namespace sim {

/// The picture of a run as SVG, with `title` as its first line.
class picture {
 public:
  using message = colls::simulated::message_trace;
  using ticks = colls::simulated::ticks;

  picture(const std::vector<message>& messages, const job& work, int ranks, ticks begin,
          std::string title)
      : messages_(messages), job_(work), ranks_(ranks), begin_(begin), title_(std::move(title)) {
    for (const message& sent : messages_) {
      if (sent.received != colls::simulated::no_time) end_ = std::max(end_, sent.received - begin_);
    }
    row_height_ = ranks <= 8 ? 64 : ranks <= 16 ? 44 : 30;
    labelled_ = ranks <= 8 && messages_.size() <= 160 &&
                std::any_of(messages_.begin(), messages_.end(),
                            [&](const message& sent) { return !label_text(sent).empty(); });
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
    for (const message& sent : messages_) bar(sent);
    for (const message& sent : messages_) arrow(sent);
    if (labelled_) {
      for (const message& sent : messages_) label(sent);
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
    const double duration = static_cast<double>(std::max<ticks>(end_, 1));
    return left + width * static_cast<double>(time - begin_) / duration;
  }
  double y(int rank) const { return top + row_height_ * rank; }
  static const char* color_of(const message& sent) { return sent.folded ? folded : copied; }
  static bool was_received(const message& sent) {
    return sent.received != colls::simulated::no_time;
  }

  void head() {
    put("<text x=\"{:.0f}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n", left,
        title_);
    const auto any = [&](bool reduced) {
      return std::any_of(messages_.begin(), messages_.end(), [&](const message& sent) {
        return was_received(sent) && sent.folded == reduced;
      });
    };
    double next_x = left;
    const auto key = [&](const char* ink, std::string_view words) {
      put("<path d=\"M{:.0f} 44h26\" stroke=\"{}\" stroke-width=\"2.5\"/>"
          "<text x=\"{:.0f}\" y=\"48.5\" fill=\"#444444\">{}</text>\n",
          next_x, ink, next_x + 34, words);
      next_x += 62 + 7.2 * static_cast<double>(words.size());
    };
    if (any(true)) key(folded, "reduced with what is there");
    if (any(false)) key(copied, "copied");
    if (labelled_) {
      put("<text x=\"{:.0f}\" y=\"48.5\" fill=\"#444444\">numbers: elements of the whole vector"
          "</text>\n",
          next_x);
    }
    for (const char* ink : {copied, folded}) {
      put("<marker id=\"{}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
          "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0.6L8 4L0 7.4z\" "
          "fill=\"{}\"/></marker>\n",
          ink + 1, ink);
    }
  }

  // Draws about eight ticks, at multiples of 1, 2 or 5 times a power of ten.
  void axis(double height) {
    const double duration = static_cast<double>(std::max<ticks>(end_, 1)) * 1e-6;
    double step = std::pow(10, std::ceil(std::log10(duration)) - 1);
    if (duration / step < 2.5) {
      step /= 5;
    } else if (duration / step < 5) {
      step /= 2;
    }
    const double low = height - bottom + 18;
    for (int i = 0; i * step <= duration * 1.0001; ++i) {
      const double tick_x = left + width * (i * step / duration);
      put("<path d=\"M{0:.1f} {1:.0f}V{2:.0f}\" stroke=\"#e3e3e3\"/>"
          "<text x=\"{0:.1f}\" y=\"{3:.0f}\" text-anchor=\"middle\" "
          "fill=\"#666666\">{4:g}{5}</text>\n",
          tick_x, top - 18, low - 4, low + 12, i * step, i == 0 ? " us" : "");
    }
  }

  void row(int rank) {
    put("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">rank {}</text>"
        "<path d=\"M{:.0f} {:.1f}h{:.0f}\" stroke=\"#9a9a9a\"/>\n",
        left - 12, y(rank) + 4.5, rank, left, y(rank), width);
  }

  // Marks the time in which the message leaves its sender.
  void bar(const message& sent) {
    if (sent.left == colls::simulated::no_time || x(sent.left) - x(sent.started) < 0.75) return;
    put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"{}\" stroke-width=\"5\"/>\n", x(sent.started),
        y(sent.source), x(sent.left), color_of(sent));
  }

  void arrow(const message& sent) {
    if (!was_received(sent)) return;
    const bool many = messages_.size() > 300;
    put("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" stroke-width=\"{}\" "
        "stroke-opacity=\"{}\" marker-end=\"url(#{})\"/>\n",
        x(sent.started), y(sent.source), x(sent.received), y(sent.dest), color_of(sent),
        many ? "0.8" : "1.5", many ? "0.6" : "1", color_of(sent) + 1);
  }

  // The elements of the whole vector that the message carries; empty if it comes from other memory.
  std::string label_text(const message& sent) const {
    const std::int64_t first = sent.size == 0 ? -1 : job_.element_at(sent.source, sent.data);
    if (!was_received(sent) || first < 0) return {};
    const std::int64_t last = job_.element_at(sent.source, sent.data + sent.size - 1);
    return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }

  // Puts the label near the sender, where arrows have not crossed yet, or further along the arrow
  // if another label is there.
  void label(const message& sent) {
    const std::string words = label_text(sent);
    if (words.empty()) return;
    const double way_x = x(sent.received) - x(sent.started);
    const double way_y = y(sent.dest) - y(sent.source);
    const double half = 3.6 * static_cast<double>(words.size()) + 2;
    double reach = std::min(0.3, 24 / std::abs(way_y));
    for (int tries = 0; tries < 5; ++tries, reach += 0.13) {
      const label_box box{x(sent.started) + way_x * reach, y(sent.source) + way_y * reach, half};
      const auto overlaps = [&](const label_box& other) {
        return std::abs(box.x - other.x) < half + other.half && std::abs(box.y - other.y) < 13;
      };
      if (std::any_of(labels_.begin(), labels_.end(), overlaps)) continue;
      labels_.push_back(box);
      put("<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\" font-size=\"11.5\" "
          "fill=\"{2}\" stroke=\"#ffffff\" stroke-width=\"4\" "
          "paint-order=\"stroke\">{3}</text>\n",
          box.x, box.y + 4, color_of(sent), words);
      return;
    }
  }

  struct label_box {
    double x;
    double y;
    double half;  // of the width
  };

  const std::vector<message>& messages_;
  const job& job_;
  int ranks_;
  ticks begin_;
  ticks end_ = 0;
  std::string title_;
  double row_height_;
  bool labelled_;
  std::vector<label_box> labels_;
  std::string text_;
};

}  // namespace sim
