// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// compression: bucket hooks. A bucket hook is a function that sums the gradients of one bucket over
// the ranks, with or without compression.

#include <colls/call/communicator.hpp>
#include <colls/ddp/options.hpp>
#include <colls/reduction/reduce_into.hpp>

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace colls::ddp {

/// A function that replaces a bucket with the sum of that bucket over all ranks. The result must
/// have the same bits on all ranks. A hook may call several operations of the communicator. All
/// ranks must call the same operations in the same order. Hooks for different buckets never run
/// concurrently.
template <class T, class Communicator>
using bucket_hook = std::function<task<>(Communicator&, std::span<T>)>;

namespace detail {

namespace kernels = colls::detail;

/// Sets out[i] to in[i], converted to float and then rounded to the type `To`.
template <class From, class To>
void convert(To* out, const From* in, std::size_t count) {
  kernels::best_version<kernels::prepare_loop<From, float, To, kernels::conversion>>()(nullptr, out,
                                                                                       in, count);
}

/// Multiplies each element by `factor` and rounds the product once. If `factor` is 0, all results
/// are 0, even for infinities and NaNs.
template <class T>
void scale(std::span<T> data, double factor) {
  if (factor == 1) return;
  if (factor == 0) {
    std::fill(data.begin(), data.end(), T());
    return;
  }
  using compute = kernels::wide<T>;
  const pre_multiplied_sum<compute> op(static_cast<compute>(factor));
  kernels::best_version<kernels::prepare_loop<T, compute, T, pre_multiplied_sum<compute>>>()(
      &op, data.data(), data.data(), data.size());
}

/// Sets sum[i] to blocks[0][i] + blocks[1][i] + ..., where blocks[k] is the k-th of `count`
/// consecutive blocks of sum.size() elements. The sum is computed in float and rounded once. `sum`
/// must not be one of the blocks.
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

/// A hook that sends 16 bits per number. It performs an all_to_all, a local sum and an all_gather.
/// Each rank receives one block of the bucket from every rank and sums these blocks in float.
/// Therefore no rank sends a partial sum or rounds one to 16 bits.
template <half_type Half, class T, class Communicator>
class compressed_sum {
 public:
  task<> operator()(Communicator& comm, std::span<T> bucket) const {
    return run(*blocks_, comm, bucket);
  }

 private:
  // The buffers of the hook. The hook keeps them for the next bucket, because allocating so much
  // memory would take longer than the conversions and sums that use it.
  struct blocks {
    std::vector<Half> all;
    std::vector<Half> parts;
  };

  static task<> run(blocks& memory, Communicator& comm, std::span<T> bucket) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t block = (bucket.size() + ranks - 1) / ranks;
    if (memory.all.size() < block * ranks) {
      memory.all.resize(block * ranks);
      memory.parts.resize(block * ranks);
    }
    const std::span<Half> all(memory.all.data(), block * ranks);
    const std::span<Half> parts(memory.parts.data(), block * ranks);
    convert(all.data(), bucket.data(), bucket.size());
    co_await comm.all_to_all(all, parts);
    const std::span<Half> own_block =
        all.subspan(static_cast<std::size_t>(comm.rank()) * block, block);
    sum_blocks(own_block, parts.data(), ranks);
    co_await comm.all_gather(own_block, all);
    convert(bucket.data(), all.data(), bucket.size());
  }

  std::shared_ptr<blocks> blocks_ = std::make_shared<blocks>();
};

}  // namespace detail

/// Returns a hook that sends gradients in the format `format`. With `compression::none`, the hook
/// sends them as numbers of type `T`.
template <class T, class Communicator>
bucket_hook<T, Communicator> make_hook(compression format) {
  switch (format) {
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
