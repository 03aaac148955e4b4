// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The launcher's standard output and standard error.

#include "sink.hpp"

#include <optional>

namespace launcher {

class outputs {
 public:
  explicit outputs(colls::engine& driver) : out_(driver, 1) {
    // If both are one terminal or file, they share a queue, so that lines are not mixed.
    if (!same_file(1, 2)) err_.emplace(driver, 2);
  }

  sink& out() { return out_; }
  sink& err() { return err_ ? *err_ : out_; }

  /// Prints a line of the launcher itself.
  void print(const std::string& line) {
    err().line({}, line);
    err().update();
  }
  bool empty() { return out_.empty() && err().empty(); }
  /// Returns whether an output failed, for example because its reader has closed it.
  bool broken() { return out_.broken() != 0 || err().broken() != 0; }
  void on_change(const std::function<void()>& callback) {
    out_.on_change(callback);
    err().on_change(callback);
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
