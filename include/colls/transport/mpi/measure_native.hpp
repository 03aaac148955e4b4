// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// measure_native: measures how long the collectives of MPI take, so that they can be compared with
// the predicted times of the algorithms of colls.

#include <colls/algorithm/dissemination.hpp>
#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/reduction/erased_reduction.hpp>
#include <colls/transport/mpi/native_collectives.hpp>

namespace colls::mpi {

/// Runs the native algorithm of `Coll` on the vectors `in` and `out`, or on as many of their
/// elements as all ranks have equal blocks of.
template <collective Coll, channel Channel>
task<> run_once(Channel net, any_buffer in, any_buffer out, const any_op& sum) {
  const partition blocks =
      partition::blocks(in.size() / static_cast<std::size_t>(net.size()), net.size());
  const any_buffer own_in = in.subspan(0, blocks.count(0));
  const any_buffer own_out = out.subspan(0, blocks.count(0));
  const any_buffer all_in = in.subspan(0, blocks.offset(net.size()));
  const any_buffer all_out = out.subspan(0, blocks.offset(net.size()));
  const native_collective<Coll> algorithm;
  if constexpr (Coll == collective::barrier) {
    return algorithm.run(net);
  } else if constexpr (Coll == collective::broadcast) {
    return algorithm.run(net, out, 0);
  } else if constexpr (Coll == collective::all_reduce) {
    return algorithm.run(net, in, out, sum);
  } else if constexpr (Coll == collective::reduce) {
    return algorithm.run(net, in, net.rank() == 0 ? out : any_buffer(), 0, sum);
  } else if constexpr (Coll == collective::reduce_scatter) {
    return algorithm.run(net, all_in, own_out, blocks, sum);
  } else if constexpr (Coll == collective::all_gather) {
    return algorithm.run(net, own_in, all_out, blocks);
  } else if constexpr (Coll == collective::gather) {
    return algorithm.run(net, own_in, net.rank() == 0 ? all_out : any_buffer(), blocks, 0);
  } else if constexpr (Coll == collective::scatter) {
    return algorithm.run(net, net.rank() == 0 ? all_in : any_buffer(), own_out, blocks, 0);
  } else if constexpr (Coll == collective::all_to_all) {
    return algorithm.run(net, all_in, blocks, all_out, blocks);
  } else if constexpr (Coll == collective::scan) {
    return algorithm.run(net, in, out, sum);
  } else {
    return algorithm.run(net, in, out, sum);
  }
}

/// Returns the time of one call of `Coll`, the shortest of a few. A barrier comes before each of
/// them, because a rank that begins late would measure too short a time.
template <collective Coll, channel Channel>
task<picoseconds> time_once(Channel net, any_buffer in, any_buffer out, any_op sum) {
  time_point best = never;
  for (int i = 0; i < 4; ++i) {
    co_await dissemination::barrier.run(net.lane(1));
    const time_point start = net.net().now();
    co_await run_once<Coll>(net, in, out, sum);
    best = std::min(best, net.net().now() - start);
  }
  co_return static_cast<picoseconds>(best) * 1000;
}

template <class Channel>
task<> transport::measure_collectives(Channel net, network_cost& costs) {
  if (net.record().communicator->id() != net.net().id_) co_return;
  const std::size_t most =
      std::max<std::size_t>(native_cost::sizes[native_cost::points - 1],
                            static_cast<std::size_t>(net.size()) * sizeof(float));
  const scratch memory = net.scratch_bytes(2 * most);
  std::memset(memory.data(), 0, 2 * most);
  constexpr plus sum_op;
  const any_op sum = erase<float>(sum_op).op;
  std::vector<picoseconds> times;
  const auto measure_all = [&]<collective... All>() -> task<> {
    for (const std::uint64_t size : native_cost::sizes) {
      // Each rank has a block of at least one element.
      const std::size_t count =
          std::max<std::size_t>(size / sizeof(float), static_cast<std::size_t>(net.size()));
      const any_buffer in(memory.data(), count, sizeof(float));
      const any_buffer out(memory.data() + most, count, sizeof(float));
      (times.push_back(co_await time_once<All>(net, in, out, sum)), ...);
    }
  };
  using enum collective;
  co_await measure_all.template operator()<barrier, broadcast, all_reduce, reduce, reduce_scatter,
                                           all_gather, gather, scatter, all_to_all, scan, exscan>();
  const any_buffer slowest(times.data(), times.size(), sizeof(picoseconds));
  constexpr maximum max_op;
  co_await recursive_doubling::all_reduce.run(net.lane(1), slowest, slowest,
                                              erase<picoseconds>(max_op).op);
  std::size_t i = 0;
  for (int point = 0; point < native_cost::points; ++point) {
    for (native_cost& each : costs.native) each.times[point] = std::max<picoseconds>(times[i++], 1);
  }
}

}  // namespace colls::mpi
