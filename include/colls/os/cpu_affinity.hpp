// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cpu_affinity: the set of cores on which the launcher, taskset or the container allows threads to
// run.

#include <sched.h>
#include <unistd.h>

#include <cstring>

namespace colls::detail {

/// A set of cores. `of_this_thread` returns the cores on which the calling thread may run, or an
/// empty set if the system does not report these cores.
class core_set {
 public:
  /// The maximum number of digits in the text form of a set.
  static constexpr int max_digits = 2 * sizeof(cpu_set_t);

  core_set() { CPU_ZERO(&cores_); }
  static core_set of_this_thread() {
    core_set allowed;
    if (::sched_getaffinity(0, sizeof allowed.cores_, &allowed.cores_) != 0) {
      CPU_ZERO(&allowed.cores_);
    }
    return allowed;
  }

  int count() const { return CPU_COUNT(&cores_); }
  void add(const core_set& other) { CPU_OR(&cores_, &cores_, &other.cores_); }

  /// Writes the set to `text` as a null-terminated string of hexadecimal digits. The first digit
  /// stands for cores 0 to 3. Omits trailing 0 digits, but writes at least one digit.
  void write(char (&text)[max_digits + 1]) const {
    int end = 1;
    for (int digit = 0; digit < max_digits; ++digit) {
      int value = 0;
      for (int i = 0; i < 4; ++i) value |= CPU_ISSET(4 * digit + i, &cores_) ? 1 << i : 0;
      text[digit] = digits[value];
      if (value != 0) end = digit + 1;
    }
    text[end] = 0;
  }
  /// Reads a set from its text form. Returns false if `text` is not a valid set.
  static bool read(const char* text, core_set& result) {
    result = {};
    for (int digit = 0; text[digit] != 0; ++digit) {
      const char* const match = std::strchr(digits, text[digit]);
      if (match == nullptr || digit == max_digits) return false;
      for (int i = 0; i < 4; ++i) {
        if (((match - digits) >> i & 1) != 0) CPU_SET(4 * digit + i, &result.cores_);
      }
    }
    return true;
  }

 private:
  static constexpr char digits[] = "0123456789abcdef";

  cpu_set_t cores_;
};

/// Returns the number of cores on which this thread may run. If the system does not report these
/// cores, returns the number of online cores.
inline int cores() {
  const int allowed = core_set::of_this_thread().count();
  return allowed > 0 ? allowed : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace colls::detail
