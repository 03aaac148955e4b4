// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// folder: a folder for the time of a test.

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

/// A new folder for temporary files, which is removed with all that it contains.
class folder {
 public:
  folder() {
    if (::mkdtemp(path.data()) == nullptr) throw std::system_error(errno, std::generic_category());
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() { std::filesystem::remove_all(path); }

  std::string operator/(const std::string& name) const { return path + "/" + name; }

  std::string path = std::filesystem::temp_directory_path() / "colls-test-XXXXXX";
};
