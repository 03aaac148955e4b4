// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The launcher's standard output and standard error.

#include "sink.hpp"

#include <optional>

namespace launcher {

class outputs {
 public:
  explicit outputs(colls::engine& on) : out_(on, 1) {
    // One terminal or one file for both: one queue, so that lines stay whole.
    if (!same_file(1, 2)) err_.emplace(on, 2);
  }

  sink& out() { return out_; }
  sink& err() { return err_ ? *err_ : out_; }

  /// A line of the launcher itself.
  void say(const std::string& line) {
    err().line({}, line);
    err().settle();
  }
  bool empty() { return out_.empty() && err().empty(); }
  /// Nobody reads what the ranks print.
  bool broken() { return out_.broken() != 0 || err().broken() != 0; }
  void on_change(const std::function<void()>& call) {
    out_.on_change(call);
    err().on_change(call);
  }

 private:
  static bool same_file(int a, int b) {
    struct stat first, second;
    return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
  }

  sink out_;
  std::optional<sink> err_;
};

}  // namespace launcher
