// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What data-parallel training may be told, and what it tells of a step.

#include <colls/base/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace colls::ddp {

/// Who turns the communicator on which gradients travel.
enum class drive : std::uint8_t {
  thread,  // a thread of its own, with links of its own: communicators that can dup(executor)
  hooks,   // nobody else: a little progress at each gradient, the rest when backward has ended
};

/// What travels of a gradient. With one of the 16-bit formats each rank's gradient is rounded once,
/// the ranks' gradients are summed in float, and the average is rounded once.
enum class compression : std::uint8_t { none, bfloat16, float16 };

/// One step, for who wants to draw it. Times are those of the communicator's clock.
struct timeline {
  /// From the start of a bucket's operation to its end.
  struct bucket {
    time_point begin = 0;
    time_point end = 0;
    std::size_t elements = 0;
  };

  time_point begin = 0;           // the first gradient was ready
  time_point end = 0;             // all averages were there
  std::vector<time_point> ready;  // by parameter; 0: it got no gradient
  std::vector<bucket> buckets;
};

/// Equal on all ranks, but for `trace`.
struct options {
  ddp::drive drive = ddp::drive::thread;
  /// A bucket is full once it holds so many bytes; the first one is small, so that it starts early.
  std::size_t first_bucket_bytes = 1 << 20;
  std::size_t bucket_bytes = 25 << 20;
  ddp::compression compression = ddp::compression::none;
  /// Parameters that got no gradient count as zero; otherwise they are an error that names them.
  bool allow_unused = false;
  /// After each step every rank holds rank 0's buffers (running means of batch norm, ...).
  bool broadcast_buffers = true;
  /// Filled anew in each step; it outlives the training. Null: nothing is measured.
  ddp::timeline* trace = nullptr;
};

}  // namespace colls::ddp
