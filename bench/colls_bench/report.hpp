// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What colls-bench prints: the columns of nccl-tests, and a line of JSON for each size.

#include "options.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

class report {
 public:
  report(const options& how, int ranks) : how_(how), ranks_(ranks) {}

  void head() const {
    fmt::print("# {} {}: {} ranks, {}, {}\n", how_.library, how_.collective, ranks_, how_.transport,
               how_.in_place ? "in place" : "out of place");
    fmt::print("# time: median over iterations of the slowest rank, after a barrier\n");
    fmt::print("#{:>11} {:>12} {:>9} {:>8} {:>5} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6}\n", "size",
               "count", "type", "redop", "root", "median", "min", "p99", "algbw", "busbw",
               "#wrong");
    fmt::print("#{:>11} {:>12} {:>9} {:>8} {:>5} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6}\n", "(B)",
               "(elements)", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
  }

  /// `seconds`: of the slowest rank, one for each iteration.
  void line(std::uint64_t bytes, std::uint64_t element, std::vector<double> seconds,
            double bus_factor, std::uint64_t wrong) const {
    std::sort(seconds.begin(), seconds.end());
    const auto at = [&](double part) {
      const auto last = static_cast<double>(seconds.size() - 1);
      return seconds[static_cast<std::size_t>(part * last + 0.5)];
    };
    const double median = at(0.5);
    const double algbw = static_cast<double>(bytes) / median * 1e-9;
    fmt::print(
        " {:>11} {:>12} {:>9} {:>8} {:>5} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.2f} {:>8.2f} {:>6}\n",
        bytes, bytes / element, how_.dtype, how_.op, how_.root, median * 1e6, at(0) * 1e6,
        at(0.99) * 1e6, algbw, algbw * bus_factor, wrong);
    std::fflush(stdout);
    if (how_.json.empty()) return;
    const nlohmann::ordered_json record{{"library", how_.library},
                                        {"collective", how_.collective},
                                        {"algorithm", how_.algorithm},
                                        {"transport", how_.transport},
                                        {"ranks", ranks_},
                                        {"bytes", bytes},
                                        {"dtype", how_.dtype},
                                        {"op", how_.op},
                                        {"in_place", how_.in_place},
                                        {"registered", how_.registered},
                                        {"us_min", at(0) * 1e6},
                                        {"us_median", median * 1e6},
                                        {"us_p99", at(0.99) * 1e6},
                                        {"algbw", algbw},
                                        {"busbw", algbw * bus_factor},
                                        {"wrong", wrong}};
    std::ofstream file(how_.json, std::ios::app);
    file << record.dump() << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + how_.json);
  }

 private:
  const options& how_;
  int ranks_;
};

}  // namespace bench
