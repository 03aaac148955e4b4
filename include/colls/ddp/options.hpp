// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// options: the options of data-parallel training, and `timeline`, which records the times of one
// training step.

#include <colls/base/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace colls::ddp {

/// The way in which the communicator that averages the gradients makes progress.
enum class drive : std::uint8_t {
  thread,  // on a second thread with its own connections; needs `dup(executor)`
  hooks,   // on the training thread, when buckets fill and after the backward pass
};

/// The format in which gradients are sent. With a 16-bit format, each rank first rounds its
/// gradients to that format. The ranks then sum the rounded gradients in float and round the
/// average once more.
enum class compression : std::uint8_t { none, bfloat16, float16 };

/// The times of one step, measured by the communicator's clock.
struct timeline {
  /// The size of one bucket, and the times at which its sum over the ranks began and ended.
  struct bucket {
    time_point begin = 0;
    time_point end = 0;
    std::size_t elements = 0;
  };

  time_point begin = 0;           // when the first gradient became ready
  time_point end = 0;             // when all averages had been computed
  std::vector<time_point> ready;  // when `mark_ready` was called for each gradient, or 0
  std::vector<bucket> buckets;
};

/// The options of data-parallel training. All of them except `trace` must be equal on all ranks.
struct options {
  /// The way in which the communicator of the gradients makes progress.
  ddp::drive drive = ddp::drive::thread;
  /// The size in bytes at which the first bucket is full. Every other bucket is full when it holds
  /// at least `bucket_bytes` bytes. A small first bucket lets communication start early.
  std::size_t first_bucket_bytes = 1 << 20;
  std::size_t bucket_bytes = 25 << 20;
  ddp::compression compression = ddp::compression::none;
  /// If true, a gradient that is not ready when a rank calls `finish` counts as zero. If false, the
  /// step then fails with an error that names the parameter. A gradient of an earlier step that the
  /// program has not cleared is averaged as it is if this option is true.
  bool allow_unused = false;
  /// If true, each step copies the buffers of the model, such as the running means of batch norm,
  /// from rank 0 to all ranks.
  bool broadcast_buffers = true;
  /// If not null, each step records its times in this timeline. The timeline must exist as long as
  /// the training uses these options.
  ddp::timeline* trace = nullptr;
};

}  // namespace colls::ddp
