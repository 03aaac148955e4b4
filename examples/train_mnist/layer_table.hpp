// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Formats a table of a network's layers with their numbers of parameters.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace mnist {

struct layer {
  std::string name, type;
  std::int64_t parameters;
};

/// Formats a count as 320, 18.5 K or 1.2 M.
inline std::string short_count(std::int64_t count) {
  double shown = static_cast<double>(count);
  const char* unit = "";
  for (const char* const larger : {" K", " M", " B"}) {
    if (shown < 1000) break;
    shown /= 1000;
    unit = larger;
  }
  return *unit == 0 ? fmt::format("{}", count) : fmt::format("{:.1f}{}", shown, unit);
}

/// `bytes` is the memory of all parameters.
inline std::string layer_table(const std::vector<layer>& layers, std::int64_t trainable,
                               std::int64_t frozen, std::int64_t bytes) {
  std::size_t name = 4, type = 4;
  for (const layer& entry : layers) {
    name = std::max(name, entry.name.size());
    type = std::max(type, entry.type.size());
  }
  std::string table = fmt::format("   | {:{}} | {:{}} | parameters\n", "name", name, "type", type);
  const std::string rule = std::string(table.size() - 1, '-') + "\n";
  table += rule;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    table += fmt::format("{:2} | {:{}} | {:{}} | {}\n", i, layers[i].name, name, layers[i].type,
                         type, short_count(layers[i].parameters));
  }
  table += rule;
  table += fmt::format("{:8} trainable parameters\n", short_count(trainable));
  table += fmt::format("{:8} non-trainable parameters\n", short_count(frozen));
  table += fmt::format("{:8} parameters in all\n", short_count(trainable + frozen));
  table += fmt::format("{:<8.3f} MB\n", static_cast<double>(bytes) * 1e-6);
  return table;
}

}  // namespace mnist
