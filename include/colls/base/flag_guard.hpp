// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// flag_guard: clears a flag at the end of a scope.

namespace colls {

/// Sets a flag to false when it is destroyed, also if its scope ends by an exception.
class flag_guard {
 public:
  explicit flag_guard(bool& flag) : flag_(flag) {}
  flag_guard(const flag_guard&) = delete;
  flag_guard& operator=(const flag_guard&) = delete;
  ~flag_guard() { flag_ = false; }

 private:
  bool& flag_;
};

}  // namespace colls
