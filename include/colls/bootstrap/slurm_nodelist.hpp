// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Slurm's shorthands: lists of hosts and of tasks per node.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace colls::detail {

/// The hosts that `node[003-7,9],gpu1` means, in order, at most `most`; none if it cannot be read.
inline std::vector<std::string> expand_nodelist(const std::string& list, std::size_t most = 65536) {
  std::vector<std::string> all;
  std::vector<std::string> open{""};  // what the piece being read has grown to
  std::size_t at = 0;
  const auto finish = [&] {
    for (std::string& host : open) {
      if (!host.empty() && all.size() < most) all.push_back(std::move(host));
    }
    open.assign(1, "");
  };
  while (at < list.size()) {
    if (list[at] == ',') {
      finish();
      ++at;
      continue;
    }
    if (list[at] != '[') {
      const std::size_t end = std::min(list.find_first_of(",[", at), list.size());
      for (std::string& host : open) host.append(list, at, end - at);
      at = end;
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string::npos) return {};
    std::vector<std::string> grown;
    for (const std::string& host : open) {
      for (std::size_t range = at + 1; range < close && grown.size() < most;) {
        const std::size_t end = std::min(list.find(',', range), close);
        const std::string low = list.substr(range, std::min(list.find('-', range), end) - range);
        const std::string high =
            range + low.size() < end
                ? list.substr(range + low.size() + 1, end - range - low.size() - 1)
                : low;
        range = end + 1;
        if (low.empty() || (low + high).find_first_not_of("0123456789") != std::string::npos ||
            low.size() > 9 || high.size() > 9 || high.empty()) {
          return {};
        }
        const long last = std::strtol(high.c_str(), nullptr, 10);
        for (long n = std::strtol(low.c_str(), nullptr, 10); n <= last && grown.size() < most;
             ++n) {
          std::string digits = std::to_string(n);
          if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
          grown.push_back(host + digits);
        }
      }
    }
    open = std::move(grown);
    at = close + 1;
  }
  finish();
  return all;
}

/// How many tasks `2(x3),1` gives to node `node`; -1 if it does not say.
inline int tasks_on_node(const std::string& text, int node) {
  const char* at = text.c_str();
  const auto take_number = [&at] {
    char* end = nullptr;
    const long found = *at >= '0' && *at <= '9' ? std::strtol(at, &end, 10) : 0;
    if (found < 1 || found > 1'000'000'000) return -1;
    at = end;
    return static_cast<int>(found);
  };
  while (*at != 0) {
    const int tasks = take_number();
    int times = 1;
    if (at[0] == '(' && at[1] == 'x') {
      at += 2;
      times = take_number();
      if (*at++ != ')') return -1;
    }
    if (tasks < 0 || times < 0) return -1;
    if (node < times) return tasks;
    node -= times;
    if (*at != ',') return -1;
    ++at;
  }
  return -1;
}

}  // namespace colls::detail
