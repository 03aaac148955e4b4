// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// options: the options of data-parallel training, and the timeline that it can record.

#include <colls/base/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace colls::ddp {

/// How the communicator of the gradients makes progress.
enum class drive : std::uint8_t {
  thread,  // on a second thread, with its own connections; needs dup(executor)
  hooks,   // on the training thread: polls as buckets fill, does the rest after backward
};

/// The format in which gradients are sent. With a 16-bit format each rank's gradient is rounded
/// once. The ranks' gradients are then summed in float, and the average is rounded once.
enum class compression : std::uint8_t { none, bfloat16, float16 };

/// The times of one step, by the communicator's clock.
struct timeline {
  /// The operation of one bucket, from its start to its end.
  struct bucket {
    time_point begin = 0;
    time_point end = 0;
    std::size_t elements = 0;
  };

  time_point begin = 0;           // when the first gradient was ready
  time_point end = 0;             // when all averages were in place
  std::vector<time_point> ready;  // by parameter; 0 if it got no gradient
  std::vector<bucket> buckets;
};

/// The options of data-parallel training. All but `trace` have to be equal on all ranks.
struct options {
  /// What drives the communicator.
  ddp::drive drive = ddp::drive::thread;
  /// A bucket is full once it holds this many bytes. A small first bucket starts early.
  std::size_t first_bucket_bytes = 1 << 20;
  std::size_t bucket_bytes = 25 << 20;
  ddp::compression compression = ddp::compression::none;
  /// If true, a parameter that got no gradient counts as zero. Otherwise it is an error that names
  /// the parameter.
  bool allow_unused = false;
  /// If true, each step copies rank 0's buffers (such as running means of batch norm) to all ranks.
  bool broadcast_buffers = true;
  /// If not null, each step records its times here. Has to outlive the training.
  ddp::timeline* trace = nullptr;
};

}  // namespace colls::ddp
