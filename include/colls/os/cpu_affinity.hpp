// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Which cores threads may run on: what a launcher, taskset or a container leaves them.

#include <sched.h>
#include <unistd.h>

#include <cstring>

namespace colls::detail {

/// Cores that a thread may run on, or several together. Empty: the system does not say.
class core_set {
 public:
  /// Longest text.
  static constexpr int longest = 2 * sizeof(cpu_set_t);

  core_set() { CPU_ZERO(&cores_); }
  static core_set of_this_thread() {
    core_set mine;
    if (::sched_getaffinity(0, sizeof mine.cores_, &mine.cores_) != 0) CPU_ZERO(&mine.cores_);
    return mine;
  }

  int count() const { return CPU_COUNT(&cores_); }
  void add(const core_set& other) { CPU_OR(&cores_, &cores_, &other.cores_); }

  /// Hexadecimal, core 0 in the first digit, ended by a zero; at least one digit.
  void write(char (&into)[longest + 1]) const {
    int end = 1;
    for (int digit = 0; digit < longest; ++digit) {
      int value = 0;
      for (int i = 0; i < 4; ++i) value |= CPU_ISSET(4 * digit + i, &cores_) ? 1 << i : 0;
      into[digit] = digits[value];
      if (value != 0) end = digit + 1;
    }
    into[end] = 0;
  }
  /// False: that is none.
  static bool read(const char* text, core_set& into) {
    into = {};
    for (int digit = 0; text[digit] != 0; ++digit) {
      const char* const found = std::strchr(digits, text[digit]);
      if (found == nullptr || digit == longest) return false;
      for (int i = 0; i < 4; ++i) {
        if (((found - digits) >> i & 1) != 0) CPU_SET(4 * digit + i, &into.cores_);
      }
    }
    return true;
  }

 private:
  static constexpr char digits[] = "0123456789abcdef";

  cpu_set_t cores_;
};

/// How many cores this thread may run on.
inline int cores() {
  const int mine = core_set::of_this_thread().count();
  return mine > 0 ? mine : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace colls::detail
