// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// sampler: assigns the samples of a data set to ranks. All ranks compute the same random order from
// a seed and divide it into batches or shards.

#include <colls/base/error.hpp>
#include <colls/base/fingerprint.hpp>
#include <colls/base/partition.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace colls::ddp {

/// A random generator that returns 64 bits per call. The sequence of numbers depends only on the
/// seed and the stream, not on the compiler or the platform.
class random_bits {
 public:
  /// Constructs a generator. Generators with the same seed and different streams return different
  /// sequences.
  constexpr explicit random_bits(std::uint64_t seed, std::uint64_t stream = 0)
      : state_(mix(mix(0, seed), stream)) {}

  constexpr std::uint64_t next() { return mix(state_++, 0); }

  /// Returns a random number from 0 to `n - 1`. All these numbers are equally probable. `n` must
  /// not be 0.
  constexpr std::uint64_t below(std::uint64_t n) {
    // `bits % n` is uniform only if the number of possible values of `bits` is a multiple of `n`.
    // Therefore the loop rejects the `excess` largest 64-bit values.
    const std::uint64_t excess = (UINT64_MAX % n + 1) % n;
    std::uint64_t bits = next();
    while (bits > UINT64_MAX - excess) bits = next();
    return bits % n;
  }

  /// Returns a random number that is uniformly distributed in [0, 1).
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// Returns a permutation of the numbers 0 to `n - 1` that depends only on `n`, `seed` and `epoch`.
constexpr std::vector<std::size_t> shuffled(std::size_t n, std::uint64_t seed,
                                            std::uint64_t epoch = 0) {
  std::vector<std::size_t> order;
  order.reserve(n);
  for (std::size_t i = 0; i < n; ++i) order.push_back(i);
  random_bits random(seed, epoch);
  for (std::size_t left = n; left > 1; --left) {
    const std::size_t chosen = random.below(left);
    const std::size_t last = order[left - 1];
    order[left - 1] = order[chosen];
    order[chosen] = last;
  }
  return order;
}

/// The position of a training run in its data set. A checkpoint stores this position. The position
/// does not depend on the number of ranks.
struct sampler_state {
  std::uint64_t samples = 0;  // the number of samples in the data set
  std::uint64_t batch = 0;    // the number of samples per step of all ranks together
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;  // counted from 0
  std::uint64_t step = 0;   // counted from 0 in each epoch
  friend constexpr bool operator==(const sampler_state&, const sampler_state&) = default;
};

/// A sampler that divides the samples of a data set into batches. The batches do not depend on the
/// number of ranks. Every sample occurs once in each epoch, and each epoch has a new order. The
/// last batch of an epoch may be shorter than the others. The ranks may get different numbers of
/// samples of a batch, and a rank may get none. The caller must therefore average gradients over
/// the samples and not over the ranks.
class batch_sampler {
 public:
  /// Constructs a sampler that begins at the position `initial`. Throws `errc::invalid_argument` if
  /// `initial.samples` or `initial.batch` is 0, or if the epoch has no step `initial.step`.
  constexpr explicit batch_sampler(sampler_state initial) : state_(initial) {
    if (state_.samples == 0 || state_.batch == 0) {
      throw error(errc::invalid_argument, "a sampler needs samples, and a batch of at least one");
    }
    if (state_.step >= steps()) {
      throw error(errc::invalid_argument, "the sampler's step is beyond the end of its epoch");
    }
    order_ = shuffled(state_.samples, state_.seed, state_.epoch);
  }

  /// Returns the number of steps in an epoch.
  constexpr std::uint64_t steps() const {
    return state_.samples / state_.batch + (state_.samples % state_.batch != 0 ? 1 : 0);
  }

  /// Returns the indices of this step's samples for all ranks together. The result is valid until
  /// `advance` is called.
  constexpr std::span<const std::size_t> batch() const {
    const std::uint64_t first = state_.step * state_.batch;
    const std::uint64_t left = state_.samples - first;
    return std::span(order_).subspan(first, left < state_.batch ? left : state_.batch);
  }

  /// Returns the indices of those samples of this step that `rank` processes. `ranks` is the number
  /// of ranks. The result is valid until `advance` is called.
  constexpr std::span<const std::size_t> batch(int rank, int ranks) const {
    const std::span<const std::size_t> all = batch();
    const partition parts(all.size(), ranks);
    return all.subspan(parts.offset(rank), parts.count(rank));
  }

  /// Moves to the next step. After the last step of an epoch, moves to the next epoch.
  constexpr void advance() {
    if (++state_.step < steps()) return;
    state_.step = 0;
    order_ = shuffled(state_.samples, state_.seed, ++state_.epoch);
  }

  constexpr const sampler_state& state() const { return state_; }

 private:
  sampler_state state_;
  std::vector<std::size_t> order_;
};

/// The way in which `shard_indices` makes all shards equally long if the number of samples is not a
/// multiple of the number of ranks. `pad` repeats samples from the front of the shuffled order.
/// `drop_last` leaves out samples at the end of the shuffled order.
enum class uneven { pad, drop_last };

/// Returns the indices of the samples of `rank` in an epoch. Every rank gets the same number of
/// samples. The indices are every `ranks`-th element of `shuffled(n, seed, epoch)`, beginning at
/// position `rank`, as in PyTorch's DistributedSampler.
constexpr std::vector<std::size_t> shard_indices(std::size_t n, int rank, int ranks,
                                                 uneven remainder, std::uint64_t seed,
                                                 std::uint64_t epoch = 0) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw error(errc::invalid_argument, "there is no such rank to have a shard");
  }
  const partition parts(n, ranks);
  const std::vector<std::size_t> order = shuffled(n, seed, epoch);
  const std::size_t per_rank = remainder == uneven::pad ? parts.longest() : parts.count(ranks - 1);
  std::vector<std::size_t> shard;
  shard.reserve(per_rank);
  auto position = static_cast<std::size_t>(rank);
  for (; shard.size() < per_rank; position += static_cast<std::size_t>(ranks))
    shard.push_back(order[position % n]);
  return shard;
}

}  // namespace colls::ddp
