// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions that parse Slurm's compressed lists of hosts and of tasks per node.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace colls::detail {

/// Expands a list of hosts such as `node[003-7,9],gpu1`. Returns the hosts in order, but at most
/// `max` of them. Returns an empty vector if the list is malformed.
inline std::vector<std::string> expand_nodelist(const std::string& list, std::size_t max = 65536) {
  std::vector<std::string> hosts;
  std::vector<std::string> open{""};  // the expansions of the list element that is being parsed
  std::size_t position = 0;
  const auto finish = [&] {
    for (std::string& host : open) {
      if (!host.empty() && hosts.size() < max) hosts.push_back(std::move(host));
    }
    open.assign(1, "");
  };
  while (position < list.size()) {
    if (list[position] == ',') {
      finish();
      ++position;
      continue;
    }
    if (list[position] != '[') {
      const std::size_t end = std::min(list.find_first_of(",[", position), list.size());
      for (std::string& host : open) host.append(list, position, end - position);
      position = end;
      continue;
    }
    const std::size_t close = list.find(']', position);
    if (close == std::string::npos) return {};
    std::vector<std::string> grown;
    for (const std::string& host : open) {
      for (std::size_t range = position + 1; range < close && grown.size() < max;) {
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
        for (long n = std::strtol(low.c_str(), nullptr, 10); n <= last && grown.size() < max; ++n) {
          std::string digits = std::to_string(n);
          if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
          grown.push_back(host + digits);
        }
      }
    }
    open = std::move(grown);
    position = close + 1;
  }
  finish();
  return hosts;
}

/// Returns the number of tasks on the node with the index `node`. `text` is a list such as
/// `2(x3),1`, which means three nodes with 2 tasks each and one node with 1 task. Returns -1 if
/// the list is malformed or has no such node.
inline int tasks_on_node(const std::string& text, int node) {
  const char* position = text.c_str();
  const auto take_number = [&position] {
    char* end = nullptr;
    const long number = *position >= '0' && *position <= '9' ? std::strtol(position, &end, 10) : 0;
    if (number < 1 || number > 1'000'000'000) return -1;
    position = end;
    return static_cast<int>(number);
  };
  while (*position != 0) {
    const int tasks = take_number();
    int times = 1;
    if (position[0] == '(' && position[1] == 'x') {
      position += 2;
      times = take_number();
      if (*position++ != ')') return -1;
    }
    if (tasks < 0 || times < 0) return -1;
    if (node < times) return tasks;
    node -= times;
    if (*position != ',') return -1;
    ++position;
  }
  return -1;
}

}  // namespace colls::detail
