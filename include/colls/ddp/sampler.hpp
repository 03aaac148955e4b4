// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Which samples are whose: a seeded order that is the same everywhere, cut into batches or shards.

#include <colls/base/error.hpp>
#include <colls/base/fingerprint.hpp>
#include <colls/base/partition.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace colls::ddp {

/// 64 random bits a call, the same for a seed with every compiler and on every platform.
class random_bits {
 public:
  /// Each stream of a seed is a sequence of its own.
  constexpr explicit random_bits(std::uint64_t seed, std::uint64_t stream = 0)
      : state_(mix(mix(0, seed), stream)) {}

  constexpr std::uint64_t next() { return mix(state_++, 0); }

  /// Each of 0 to n-1 equally often; n is not 0.
  constexpr std::uint64_t below(std::uint64_t n) {
    // The last, incomplete run of n would favour the small numbers.
    const std::uint64_t excess = (UINT64_MAX % n + 1) % n;
    std::uint64_t bits = next();
    while (bits > UINT64_MAX - excess) bits = next();
    return bits % n;
  }

  /// From 0 to 1, without 1.
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// 0 to n-1 in the order of that seed and epoch, the same on every rank.
constexpr std::vector<std::size_t> shuffled(std::size_t n, std::uint64_t seed,
                                            std::uint64_t epoch = 0) {
  std::vector<std::size_t> order;
  order.reserve(n);
  for (std::size_t i = 0; i < n; ++i) order.push_back(i);
  random_bits random(seed, epoch);
  for (std::size_t left = n; left > 1; --left) {
    const std::size_t taken = random.below(left);
    const std::size_t last = order[left - 1];
    order[left - 1] = order[taken];
    order[taken] = last;
  }
  return order;
}

/// Where training stands, for a checkpoint: it does not depend on the number of ranks.
struct sampler_state {
  std::uint64_t samples = 0;  // in the data
  std::uint64_t batch = 0;    // samples of a step, those of all ranks together
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;  // from 0
  std::uint64_t step = 0;   // of this epoch, from 0
  friend constexpr bool operator==(const sampler_state&, const sampler_state&) = default;
};

/// Walks through the data in batches that are the same for every number of ranks. Each sample comes
/// once an epoch, in an order of its own each epoch; the last batch of an epoch may be shorter, and
/// a rank's part of it empty: gradients are averaged by samples, not by ranks.
class batch_sampler {
 public:
  /// Goes on from there. Throws `errc::invalid_argument` if there are no samples, the batch is
  /// empty, or the step is not one of an epoch.
  constexpr explicit batch_sampler(sampler_state from) : at_(from) {
    if (at_.samples == 0 || at_.batch == 0) {
      throw error(errc::invalid_argument, "a sampler needs samples, and a batch of at least one");
    }
    if (at_.step >= steps()) {
      throw error(errc::invalid_argument, "the sampler's step is beyond the end of its epoch");
    }
    order_ = shuffled(at_.samples, at_.seed, at_.epoch);
  }

  /// Of one epoch.
  constexpr std::uint64_t steps() const {
    return at_.samples / at_.batch + (at_.samples % at_.batch != 0 ? 1 : 0);
  }

  /// The samples of this step, all ranks' together. Good until `advance`.
  constexpr std::span<const std::size_t> batch() const {
    const std::uint64_t first = at_.step * at_.batch;
    const std::uint64_t left = at_.samples - first;
    return std::span(order_).subspan(first, left < at_.batch ? left : at_.batch);
  }

  /// Those of one rank. Good until `advance`.
  constexpr std::span<const std::size_t> batch(int rank, int ranks) const {
    const std::span<const std::size_t> all = batch();
    const partition parts(all.size(), ranks);
    return all.subspan(parts.offset(rank), parts.count(rank));
  }

  /// To the next step, and after the last one to the next epoch.
  constexpr void advance() {
    if (++at_.step < steps()) return;
    at_.step = 0;
    order_ = shuffled(at_.samples, at_.seed, ++at_.epoch);
  }

  constexpr const sampler_state& state() const { return at_; }

 private:
  sampler_state at_;
  std::vector<std::size_t> order_;
};

/// What becomes of the samples that are left when the ranks do not divide them.
enum class uneven { pad, drop_last };

/// One rank's samples of an epoch where each rank has equally many: every `ranks`-th of `shuffled`,
/// from `rank` on, as PyTorch's DistributedSampler. `pad` takes samples again from the front until
/// all ranks have one more; `drop_last` leaves the last n % ranks out.
constexpr std::vector<std::size_t> shard_indices(std::size_t n, int rank, int ranks, uneven rest,
                                                 std::uint64_t seed, std::uint64_t epoch = 0) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw error(errc::invalid_argument, "there is no such rank to have a shard");
  }
  const partition parts(n, ranks);
  const std::vector<std::size_t> order = shuffled(n, seed, epoch);
  const std::size_t each = rest == uneven::pad ? parts.longest() : parts.count(ranks - 1);
  std::vector<std::size_t> mine;
  mine.reserve(each);
  auto at = static_cast<std::size_t>(rank);
  for (; mine.size() < each; at += static_cast<std::size_t>(ranks)) mine.push_back(order[at % n]);
  return mine;
}

}  // namespace colls::ddp
