// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A run as Chrome's trace events, for Perfetto and chrome://tracing.

#include "job.hpp"

#include <fmt/format.h>

namespace sim {

/// Writes the whole text, or says why it cannot.
inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw refusal("cannot write " + path);
}

/// Microseconds, with all of the picoseconds.
inline std::string microseconds(colls::simulated::ticks time) {
  return fmt::format("{}.{:06}", time / 1'000'000, time % 1'000'000);
}

/// Each rank has two rows: what leaves it, and what it takes in; an arrow joins the two ends.
inline std::string chrome_trace(const std::vector<colls::simulated::message_trace>& messages,
                                int ranks, colls::simulated::ticks overhead) {
  using colls::simulated::no_time;
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  const auto out = std::back_inserter(text);
  for (int rank = 0; rank < ranks; ++rank) {
    for (const int side : {0, 1}) {
      fmt::format_to(out,
                     "{{\"ph\":\"M\",\"pid\":0,\"tid\":{},\"name\":\"thread_name\",\"args\":"
                     "{{\"name\":\"rank {} {}\"}}}},\n",
                     2 * rank + side, rank, side == 0 ? "out" : "in");
    }
  }
  std::size_t id = 0;
  for (const auto& each : messages) {
    ++id;
    if (each.left == no_time) continue;
    const std::string args = fmt::format("{{\"bytes\":{},\"lane\":{},\"call\":{},\"round\":{}}}",
                                         each.size, each.lane, each.sequence, each.round);
    fmt::format_to(out,
                   "{{\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{},\"dur\":{},\"name\":\"to {}\","
                   "\"args\":{}}},\n",
                   2 * each.from, microseconds(each.started),
                   microseconds(each.left - each.started), each.to, args);
    if (each.received == no_time) continue;
    const auto begun = each.received - overhead;
    fmt::format_to(out,
                   "{{\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{},\"dur\":{},\"name\":\"from {}\","
                   "\"args\":{}}},\n",
                   2 * each.to + 1, microseconds(begun), microseconds(overhead), each.from, args);
    const auto arrow = [&](const char* phase, int row, colls::simulated::ticks when) {
      fmt::format_to(out,
                     "{{\"ph\":\"{}\",\"pid\":0,\"tid\":{},\"ts\":{},\"id\":{},\"cat\":\"message\","
                     "\"name\":\"message\"{}}},\n",
                     phase, row, microseconds(when), id, phase[0] == 'f' ? ",\"bp\":\"e\"" : "");
    };
    arrow("s", 2 * each.from, each.started);
    arrow("f", 2 * each.to + 1, begun);
  }
  text +=
      "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"colls-sim\"}}\n]}\n";
  return text;
}

}  // namespace sim
