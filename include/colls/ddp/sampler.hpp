// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// sampler: assigns samples to ranks, by a seeded order that is the same on all ranks, cut into
// batches or shards.

#include <colls/base/error.hpp>
#include <colls/base/fingerprint.hpp>
#include <colls/base/partition.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace colls::ddp {

/// A random generator with 64 bits per call. Its sequence depends only on the seed and the stream,
/// not on the compiler or the platform.
class random_bits {
 public:
  /// The streams of a seed are different sequences.
  constexpr explicit random_bits(std::uint64_t seed, std::uint64_t stream = 0)
      : state_(mix(mix(0, seed), stream)) {}

  constexpr std::uint64_t next() { return mix(state_++, 0); }

  /// Returns a number from 0 to n-1, all with equal probability. `n` is not 0.
  constexpr std::uint64_t below(std::uint64_t n) {
    // Rejects the last, incomplete run of n, which would favour small numbers.
    const std::uint64_t excess = (UINT64_MAX % n + 1) % n;
    std::uint64_t bits = next();
    while (bits > UINT64_MAX - excess) bits = next();
    return bits % n;
  }

  /// Returns a number of [0, 1).
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// Returns a permutation of 0 to n-1, which depends on the seed and the epoch only.
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

/// The position of training in the data, for a checkpoint. It does not depend on the number of
/// ranks.
struct sampler_state {
  std::uint64_t samples = 0;  // in the data
  std::uint64_t batch = 0;    // samples per step, of all ranks together
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;  // from 0
  std::uint64_t step = 0;   // in this epoch, from 0
  friend constexpr bool operator==(const sampler_state&, const sampler_state&) = default;
};

/// Goes through the data in batches that are the same for every number of ranks. Each epoch has
/// every sample once, in another order. The last batch of an epoch may be shorter, and a rank's
/// part of it may be empty. So average gradients by samples, not by ranks.
class batch_sampler {
 public:
  /// Starts at `initial`. Throws `errc::invalid_argument` if there are no samples, the batch is
  /// empty, or the step is beyond the end of the epoch.
  constexpr explicit batch_sampler(sampler_state initial) : state_(initial) {
    if (state_.samples == 0 || state_.batch == 0) {
      throw error(errc::invalid_argument, "a sampler needs samples, and a batch of at least one");
    }
    if (state_.step >= steps()) {
      throw error(errc::invalid_argument, "the sampler's step is beyond the end of its epoch");
    }
    order_ = shuffled(state_.samples, state_.seed, state_.epoch);
  }

  /// The number of steps of an epoch.
  constexpr std::uint64_t steps() const {
    return state_.samples / state_.batch + (state_.samples % state_.batch != 0 ? 1 : 0);
  }

  /// The samples of this step, of all ranks together. Valid until `advance`.
  constexpr std::span<const std::size_t> batch() const {
    const std::uint64_t first = state_.step * state_.batch;
    const std::uint64_t left = state_.samples - first;
    return std::span(order_).subspan(first, left < state_.batch ? left : state_.batch);
  }

  /// The samples of this step that one rank has. Valid until `advance`.
  constexpr std::span<const std::size_t> batch(int rank, int ranks) const {
    const std::span<const std::size_t> all = batch();
    const partition parts(all.size(), ranks);
    return all.subspan(parts.offset(rank), parts.count(rank));
  }

  /// Moves to the next step, after the last one to the next epoch.
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

/// The treatment of the remaining samples if the number of ranks does not divide their number.
enum class uneven { pad, drop_last };

/// Returns one rank's samples of an epoch if every rank is to have equally many. They are every
/// `ranks`-th of `shuffled`, from position `rank` on, as in PyTorch's DistributedSampler. If the
/// number of ranks does not divide n, `pad` repeats samples from the front, and `drop_last` leaves
/// out the last n % ranks samples.
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
