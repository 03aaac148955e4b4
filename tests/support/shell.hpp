// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shell: scripts that start worlds by launchers, and checks of what every_collective prints in
// them.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace scripts {

using strings = std::vector<std::string>;

struct outcome {
  int status = -1;   // 124: it did not end in time
  std::string text;  // standard output and error
};

/// Runs a script in an environment without variables of a launcher. In it `program`, `run` and
/// `self` are the paths of every_collective, colls-run and this program.
inline outcome shell(const std::string& script, int seconds = 60) {
  const std::string here = std::filesystem::current_path();
  std::string file = std::filesystem::temp_directory_path() / "colls-worlds-XXXXXX";
  const int made = ::mkstemp(file.data());
  REQUIRE(made >= 0);
  ::close(made);
  std::ofstream(file) << "self=" << std::filesystem::read_symlink("/proc/self/exe").string() << '\n'
                      << "program=" << here << "/examples/every_collective\n"
                      << "run=" << here << "/tools/colls-run\n"
                      << script << '\n';
  const std::string command =
      "exec env -i PATH=\"$PATH:/usr/sbin:/sbin\" HOME=\"$HOME\" timeout -k 5 " +
      std::to_string(seconds) + " sh " + file + " 2>&1 </dev/null";
  outcome found;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char piece[4096];
  while (const std::size_t size = std::fread(piece, 1, sizeof piece, pipe)) {
    found.text.append(piece, size);
  }
  const int status = ::pclose(pipe);
  found.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::filesystem::remove(file);
  return found;
}

/// The names in lines `NAME ok`, whatever a launcher writes before them.
inline strings names_in(const std::string& text) {
  strings names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with(" ok")) continue;
    line.resize(line.size() - 3);
    names.push_back(line.substr(line.find_last_of(" ]:") + 1));
  }
  return names;
}

/// The names of all checks, as a world of one process without a launcher prints them.
inline const strings& all_names() {
  static const strings names = names_in(shell("$program").text);
  return names;
}

inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

inline void check_all(const outcome& ran) {
  CAPTURE(ran.text);
  CHECK(ran.status == 0);
  CHECK(names_in(ran.text) == all_names());
}

inline bool has(const std::string& command) { return shell("command -v " + command).status == 0; }

}  // namespace scripts
