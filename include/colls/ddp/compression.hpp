// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Hooks: how the gradients of a bucket are summed over the ranks, as they are or compressed.

#include <colls/call/communicator.hpp>
#include <colls/ddp/options.hpp>
#include <colls/reduction/reduce_into.hpp>

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace colls::ddp {

/// Afterwards every rank's bucket holds the sum of all ranks' buckets, with the same bits. The
/// calls that it makes on the communicator are the same on all ranks; buckets take turns, so there
/// may be several.
template <class T, class Communicator>
using bucket_hook = std::function<task<>(Communicator&, std::span<T>)>;

namespace detail {

namespace kernels = colls::detail;

/// out[i] = in[i] rounded to type To, through float.
template <class From, class To>
void convert(To* out, const From* in, std::size_t count) {
  kernels::best_version<kernels::prepare_loop<From, float, To, kernels::conversion>>()(nullptr, out,
                                                                                       in, count);
}

/// data[i] *= factor, rounded once; a factor of 0 makes zeros of whatever was there.
template <class T>
void scale(std::span<T> data, double factor) {
  if (factor == 1) return;
  if (factor == 0) {
    std::fill(data.begin(), data.end(), T());
    return;
  }
  using compute = kernels::wide<T>;
  const pre_multiplied_sum<compute> by(static_cast<compute>(factor));
  kernels::best_version<kernels::prepare_loop<T, compute, T, pre_multiplied_sum<compute>>>()(
      &by, data.data(), data.data(), data.size());
}

/// sum[i] = blocks[0][i] + blocks[1][i] + ..., in float, rounded once. `sum` is none of the blocks.
template <half_type Half>
void sum_blocks(std::span<Half> sum, const Half* blocks, std::size_t count) {
  if (count == 1) {
    std::copy_n(blocks, sum.size(), sum.data());
    return;
  }
  kernels::recycled_vector<const void*> parts(count);
  for (std::size_t i = 0; i < count; ++i) parts[i] = blocks + i * sum.size();
  reduce_into(sum, parts, plus());
}

template <class T, class Communicator>
task<> plain_sum(Communicator& comm, std::span<T> bucket) {
  co_await comm.all_reduce(bucket);
}

/// Each rank gets all ranks' part of one block, so that the sum needs no rounding on its way.
template <half_type Half, class T, class Communicator>
class compressed_sum {
 public:
  task<> operator()(Communicator& comm, std::span<T> bucket) const {
    return run(*kept_, comm, bucket);
  }

 private:
  // Kept for the next bucket: fresh memory of this size costs more than what is done with it.
  struct blocks {
    std::vector<Half> whole;
    std::vector<Half> parts;
  };

  static task<> run(blocks& with, Communicator& comm, std::span<T> bucket) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t block = (bucket.size() + ranks - 1) / ranks;
    if (with.whole.size() < block * ranks) {
      with.whole.resize(block * ranks);
      with.parts.resize(block * ranks);
    }
    const std::span<Half> whole(with.whole.data(), block * ranks);
    const std::span<Half> parts(with.parts.data(), block * ranks);
    convert(whole.data(), bucket.data(), bucket.size());
    co_await comm.all_to_all(whole, parts);
    const std::span<Half> own = whole.subspan(static_cast<std::size_t>(comm.rank()) * block, block);
    sum_blocks(own, parts.data(), ranks);
    co_await comm.all_gather(own, whole);
    convert(bucket.data(), whole.data(), bucket.size());
  }

  std::shared_ptr<blocks> kept_ = std::make_shared<blocks>();
};

}  // namespace detail

/// The hook that does what the option says.
template <class T, class Communicator>
bucket_hook<T, Communicator> hook_for(compression how) {
  switch (how) {
    case compression::bfloat16:
      return detail::compressed_sum<bfloat16, T, Communicator>();
    case compression::float16:
      return detail::compressed_sum<float16, T, Communicator>();
    case compression::none:
      break;
  }
  return detail::plain_sum<T, Communicator>;
}

}  // namespace colls::ddp
