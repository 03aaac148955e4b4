// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// options: the options of data-parallel training, and the timeline of a step that a training can
// record.

#include <colls/base/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace colls::ddp {

/// How the communicator of the gradients makes progress.
enum class drive : std::uint8_t {
  thread,  // runs on a second thread with its own connections; needs dup(executor)
  hooks,   // runs on the training thread, when buckets fill and after backward
};

/// The format in which gradients are sent. With a 16-bit format each rank first rounds its
/// gradient. The gradients of all ranks are then summed in float, and the average is rounded once
/// more.
enum class compression : std::uint8_t { none, bfloat16, float16 };

/// The times of one step, measured by the communicator's clock.
struct timeline {
  /// The times and the size of one bucket's operation.
  struct bucket {
    time_point begin = 0;
    time_point end = 0;
    std::size_t elements = 0;
  };

  time_point begin = 0;           // when the first gradient became ready
  time_point end = 0;             // when all averages had been computed
  std::vector<time_point> ready;  // by parameter, or 0 if it got no gradient
  std::vector<bucket> buckets;
};

/// The options of data-parallel training. All of them except `trace` must be equal on all ranks.
struct options {
  /// The way in which the communicator makes progress.
  ddp::drive drive = ddp::drive::thread;
  /// A bucket is full when it holds at least this many bytes. A small first bucket lets
  /// communication start early.
  std::size_t first_bucket_bytes = 1 << 20;
  std::size_t bucket_bytes = 25 << 20;
  ddp::compression compression = ddp::compression::none;
  /// If true, a parameter that got no gradient counts as zero. Otherwise the step fails with an
  /// error that names the parameter.
  bool allow_unused = false;
  /// If true, each step copies the buffers of rank 0 (such as the running means of batch norm) to
  /// all ranks.
  bool broadcast_buffers = true;
  /// If not null, each step records its times in this timeline, which must outlive the training.
  ddp::timeline* trace = nullptr;
};

}  // namespace colls::ddp
