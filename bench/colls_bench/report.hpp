// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What colls-bench prints: nccl-tests' columns with three times for its one, and a line of JSON for
// each size.

#include "options.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

class report {
 public:
  report(const options& how, int ranks, bool has_floor = false)
      : how_(how), ranks_(ranks), has_floor_(has_floor) {}

  void head() const {
    std::printf("# %s %s: %d ranks, %s%s, %s\n", how_.library.c_str(), how_.collective.c_str(),
                ranks_, how_.transport.c_str(), how_.on_device() ? ", memory of a device" : "",
                how_.in_place ? "in place" : "out of place");
    std::printf("# time: median over iterations of the slowest rank, %s a barrier\n",
                how_.turns ? "with" : "after");
    print_names({"size", "count", "type", "redop", "root", "median", "min", "p99", "algbw", "busbw",
                 "#wrong", "floor", "of it"});
    print_names({"(B)", "(elements)", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "",
                 "(us)", ""});
  }

  /// `seconds`: of the slowest rank, one for each iteration.
  void line(std::uint64_t bytes, std::uint64_t element, std::vector<double> seconds,
            double bus_factor, std::uint64_t wrong, double floor = 0) const {
    std::sort(seconds.begin(), seconds.end());
    const auto at = [&](double part) {
      const auto last = static_cast<double>(seconds.size() - 1);
      return seconds[static_cast<std::size_t>(part * last + 0.5)];
    };
    const double median = at(0.5);
    const double algbw = static_cast<double>(bytes) / median * 1e-9;
    std::printf(" %11" PRIu64 " %12" PRIu64
                " %9s %8s %5d %10.2f %10.2f %10.2f %8.2f %8.2f %6" PRIu64,
                bytes, bytes / element, how_.dtype.c_str(), how_.op.c_str(), how_.root,
                median * 1e6, at(0) * 1e6, at(0.99) * 1e6, algbw, algbw * bus_factor, wrong);
    if (has_floor_) std::printf(" %10.2f %6.2f", floor * 1e6, floor / median);
    std::printf("\n");
    std::fflush(stdout);
    if (how_.json.empty()) return;
    std::FILE* const file = std::fopen(how_.json.c_str(), "a");
    if (file == nullptr) throw std::runtime_error("cannot write " + how_.json);
    // Names of options are words: there is nothing to escape.
    const bool good =
        std::fprintf(file,
                     "{\"library\":\"%s\",\"collective\":\"%s\",\"algorithm\":\"%s\","
                     "\"transport\":\"%s\"%s,\"ranks\":%d,\"bytes\":%" PRIu64
                     ",\"dtype\":\"%s\",\"op\":\"%s\",\"in_place\":%s,\"registered\":%s,"
                     "\"us_min\":%.9g,\"us_median\":%.9g,\"us_p99\":%.9g,\"algbw\":%.9g,"
                     "\"busbw\":%.9g,\"wrong\":%" PRIu64 "}\n",
                     how_.library.c_str(), how_.collective.c_str(), how_.algorithm.c_str(),
                     how_.transport.c_str(), how_.on_device() ? ",\"memory\":\"device\"" : "",
                     ranks_, bytes, how_.dtype.c_str(), how_.op.c_str(),
                     how_.in_place ? "true" : "false", how_.registered ? "true" : "false",
                     at(0) * 1e6, median * 1e6, at(0.99) * 1e6, algbw, algbw * bus_factor,
                     wrong) > 0;
    if (std::fclose(file) != 0 || !good) throw std::runtime_error("cannot write " + how_.json);
  }

 private:
  using names = std::array<const char*, 13>;
  void print_names(const names& of) const {
    std::printf("#%11s %12s %9s %8s %5s %10s %10s %10s %8s %8s %6s", of[0], of[1], of[2], of[3],
                of[4], of[5], of[6], of[7], of[8], of[9], of[10]);
    if (has_floor_) std::printf(" %10s %6s", of[11], of[12]);
    std::printf("\n");
  }

  const options& how_;
  int ranks_;
  bool has_floor_;
};

}  // namespace bench
