// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Writes a run as Chrome trace events, for Perfetto and chrome://tracing.

#include "job.hpp"

#include <fmt/format.h>

namespace sim {

/// Writes the text to the file. Throws `refusal` if that fails.
inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw refusal("cannot write " + path);
}

/// Formats a time in microseconds, exact to the picosecond.
inline std::string microseconds(colls::simulated::ticks time) {
  return fmt::format("{}.{:06}", time / 1'000'000, time % 1'000'000);
}

/// Returns the trace as JSON. Each rank has two rows, one for the messages that it sends and one
/// for those that it receives. An arrow joins the two ends of a message.
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
  for (const auto& sent : messages) {
    ++id;
    if (sent.left == no_time) continue;
    const std::string args = fmt::format("{{\"bytes\":{},\"lane\":{},\"call\":{},\"round\":{}}}",
                                         sent.size, sent.lane, sent.sequence, sent.round);
    fmt::format_to(out,
                   "{{\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{},\"dur\":{},\"name\":\"to {}\","
                   "\"args\":{}}},\n",
                   2 * sent.source, microseconds(sent.started),
                   microseconds(sent.left - sent.started), sent.dest, args);
    if (sent.received == no_time) continue;
    const auto begun = sent.received - overhead;
    fmt::format_to(out,
                   "{{\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{},\"dur\":{},\"name\":\"from {}\","
                   "\"args\":{}}},\n",
                   2 * sent.dest + 1, microseconds(begun), microseconds(overhead), sent.source,
                   args);
    const auto arrow = [&](const char* phase, int row, colls::simulated::ticks time) {
      fmt::format_to(out,
                     "{{\"ph\":\"{}\",\"pid\":0,\"tid\":{},\"ts\":{},\"id\":{},\"cat\":\"message\","
                     "\"name\":\"message\"{}}},\n",
                     phase, row, microseconds(time), id, phase[0] == 'f' ? ",\"bp\":\"e\"" : "");
    };
    arrow("s", 2 * sent.source, sent.started);
    arrow("f", 2 * sent.dest + 1, begun);
  }
  text +=
      "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"colls-sim\"}}\n]}\n";
  return text;
}

}  // namespace sim
