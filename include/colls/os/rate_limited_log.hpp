// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// rate_limited_log: limits how often a frequent warning is written to the log.

#include <colls/base/log.hpp>

#include <time.h>

#include <cstdint>

namespace colls {

/// A log that writes at most one warning every `period_s` seconds and suppresses all others. If
/// warnings have been suppressed, the next warning that the log writes tells their number.
class rate_limited_log {
 public:
  explicit constexpr rate_limited_log(std::int64_t period_s = 10) : period_s_(period_s) {}

  [[gnu::format(printf, 2, 3)]] void warn(const char* pattern, ...) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    ++count_;
    if (last_s_ >= 0 && now.tv_sec - last_s_ < period_s_) {
      ++suppressed_;
      return;
    }
    last_s_ = now.tv_sec;
    char text[1024];
    std::va_list args;
    va_start(args, pattern);
    std::vsnprintf(text, sizeof text, pattern, args);
    va_end(args);
    if (suppressed_ == 0) {
      log_warn("%s", text);
    } else {
      log_warn("%s (and %llu more like it)", text, static_cast<unsigned long long>(suppressed_));
    }
    suppressed_ = 0;
  }

  /// Returns the number of calls of `warn` so far, including calls that wrote nothing.
  std::uint64_t count() const { return count_; }

 private:
  std::int64_t period_s_;
  std::int64_t last_s_ = -1;
  std::uint64_t count_ = 0;
  std::uint64_t suppressed_ = 0;
};

}  // namespace colls
