// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// rate_limited_log: warnings that come often, written seldom.

#include <colls/base/log.hpp>

#include <time.h>

#include <cstdint>

namespace colls {

/// Warnings of one kind, at most one in `period_s` seconds; the next says how many were left out.
class rate_limited_log {
 public:
  explicit constexpr rate_limited_log(std::int64_t period_s = 10) : period_s_(period_s) {}

  [[gnu::format(printf, 2, 3)]] void warn(const char* pattern, ...) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    ++seen_;
    if (last_s_ >= 0 && now.tv_sec - last_s_ < period_s_) {
      ++left_out_;
      return;
    }
    last_s_ = now.tv_sec;
    char text[1024];
    std::va_list args;
    va_start(args, pattern);
    std::vsnprintf(text, sizeof text, pattern, args);
    va_end(args);
    if (left_out_ == 0) {
      log_warn("%s", text);
    } else {
      log_warn("%s (and %llu more like it)", text, static_cast<unsigned long long>(left_out_));
    }
    left_out_ = 0;
  }

  /// How many there were, written or not.
  std::uint64_t seen() const { return seen_; }

 private:
  std::int64_t period_s_;
  std::int64_t last_s_ = -1;
  std::uint64_t seen_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace colls
