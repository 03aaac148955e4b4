// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The output of colls-bench: the columns of nccl-tests, with three times instead of one, and a line
// of JSON for each size.

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
  report(const options& opts, int ranks, bool has_floor = false)
      : opts_(opts), ranks_(ranks), has_floor_(has_floor) {}

  void head() const {
    std::printf("# %s %s: %d ranks, %s%s, %s\n", opts_.library.c_str(), opts_.collective.c_str(),
                ranks_, opts_.transport.c_str(), opts_.on_device() ? ", memory of a device" : "",
                opts_.in_place ? "in place" : "out of place");
    std::printf("# time: median over iterations of the slowest rank, %s a barrier\n",
                opts_.timed_barrier ? "with" : "after");
    print_names({"size", "count", "type", "redop", "root", "median", "min", "p99", "algbw", "busbw",
                 "#wrong", "floor", "of it"});
    print_names({"(B)", "(elements)", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "",
                 "(us)", ""});
  }

  /// Prints the line of one size. `seconds`: the time of the slowest rank in each iteration.
  void line(std::uint64_t bytes, std::uint64_t element, std::vector<double> seconds,
            double bus_factor, std::uint64_t wrong, double floor = 0) const {
    std::sort(seconds.begin(), seconds.end());
    const auto quantile = [&](double part) {
      const auto last = static_cast<double>(seconds.size() - 1);
      return seconds[static_cast<std::size_t>(part * last + 0.5)];
    };
    const double median = quantile(0.5);
    const double algbw = static_cast<double>(bytes) / median * 1e-9;
    std::printf(
        " %11" PRIu64 " %12" PRIu64 " %9s %8s %5d %10.2f %10.2f %10.2f %8.2f %8.2f %6" PRIu64,
        bytes, bytes / element, opts_.dtype.c_str(), opts_.op.c_str(), opts_.root, median * 1e6,
        quantile(0) * 1e6, quantile(0.99) * 1e6, algbw, algbw * bus_factor, wrong);
    if (has_floor_) std::printf(" %10.2f %6.2f", floor * 1e6, floor / median);
    std::printf("\n");
    std::fflush(stdout);
    if (opts_.json.empty()) return;
    std::FILE* const file = std::fopen(opts_.json.c_str(), "a");
    if (file == nullptr) throw std::runtime_error("cannot write " + opts_.json);
    // The values are plain words, so nothing needs escaping.
    const bool good =
        std::fprintf(file,
                     "{\"library\":\"%s\",\"collective\":\"%s\",\"algorithm\":\"%s\","
                     "\"transport\":\"%s\"%s,\"ranks\":%d,\"bytes\":%" PRIu64
                     ",\"dtype\":\"%s\",\"op\":\"%s\",\"in_place\":%s,\"registered\":%s,"
                     "\"us_min\":%.9g,\"us_median\":%.9g,\"us_p99\":%.9g,\"algbw\":%.9g,"
                     "\"busbw\":%.9g,\"wrong\":%" PRIu64 "}\n",
                     opts_.library.c_str(), opts_.collective.c_str(), opts_.algorithm.c_str(),
                     opts_.transport.c_str(), opts_.on_device() ? ",\"memory\":\"device\"" : "",
                     ranks_, bytes, opts_.dtype.c_str(), opts_.op.c_str(),
                     opts_.in_place ? "true" : "false", opts_.registered ? "true" : "false",
                     quantile(0) * 1e6, median * 1e6, quantile(0.99) * 1e6, algbw,
                     algbw * bus_factor, wrong) > 0;
    if (std::fclose(file) != 0 || !good) throw std::runtime_error("cannot write " + opts_.json);
  }

 private:
  using names = std::array<const char*, 13>;
  void print_names(const names& columns) const {
    std::printf("#%11s %12s %9s %8s %5s %10s %10s %10s %8s %8s %6s", columns[0], columns[1],
                columns[2], columns[3], columns[4], columns[5], columns[6], columns[7], columns[8],
                columns[9], columns[10]);
    if (has_floor_) std::printf(" %10s %6s", columns[11], columns[12]);
    std::printf("\n");
  }

  const options& opts_;
  int ranks_;
  bool has_floor_;
};

}  // namespace bench
