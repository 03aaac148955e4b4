// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// native_collectives: the non-blocking collectives of MPI as algorithms of colls.

#include <colls/transport/mpi/native_call.hpp>

#include <functional>

namespace colls::mpi {

/// Starts a collective of MPI by `post(call)`, and waits until it has ended. Meanwhile each rank
/// sends an empty message to the next one. Its header has the fingerprint of the sender's call, so
/// calls that do not match are found although MPI then waits for ever.
template <channel Channel, class Post>
task<> run_native(Channel net, Post post) {
  native_call call(net.net(), net.record());
  post(call);
  if (net.size() == 1) {
    co_await call.finished();
    co_return;
  }
  const mutable_bytes empty;
  const int next = net.rank() + 1 < net.size() ? net.rank() + 1 : 0;
  const int previous = net.rank() > 0 ? net.rank() - 1 : net.size() - 1;
  co_await when_all(net.send(next, empty), net.recv(previous, empty), call.finished());
}

/// A number of elements of a type of MPI.
struct layout {
  int count;
  MPI_Datatype type;
};
inline layout layout_of(native_call& call, std::size_t bytes) {
  if (bytes <= max_count) return {static_cast<int>(bytes), MPI_BYTE};
  return {1, call.block(bytes)};
}
/// Cuts `size` elements into pieces of at most `max_count`, and calls `post(first, count)` for
/// each.
template <class Post>
void in_pieces(std::size_t size, const Post& post) {
  std::size_t first = 0;
  do {
    const std::size_t count = std::min(size - first, max_count);
    post(first, static_cast<int>(count));
    first += count;
  } while (first < size);
}
inline bool overlap(const any_buffer& a, const any_buffer& b) {
  const auto* const first = static_cast<const std::byte*>(a.data());
  const auto* const second = static_cast<const std::byte*>(b.data());
  const std::less<> before;
  return before(first, second + bytes(b).size) && before(second, first + bytes(a).size);
}

/// The blocks of the ranks, as the calls of MPI take them whose blocks have lengths.
struct block_list {
  int* counts;
  int* places;
};
inline bool is_even(const partition& parts, int ranks) {
  for (int r = 1; r < ranks; ++r) {
    if (parts.count(r) != parts.count(0)) return false;
  }
  return true;
}
inline block_list blocks_of(native_call& call, const partition& parts, int ranks) {
  std::vector<int> counts, places;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(static_cast<int>(parts.count(r)));
    places.push_back(static_cast<int>(parts.offset(r)));
  }
  return {call.request().list(std::move(counts)), call.request().list(std::move(places))};
}

/// The native algorithm of the collective `Coll`.
template <collective Coll>
struct native_collective;

/// The base class of the native algorithms. Their costs have been measured.
template <collective Coll>
struct native_algorithm : built_in<Coll, algorithm::native> {
  static constexpr loggp::phase cost(const loggp_model& model, const algorithm_choice&) {
    loggp::phase result;
    result.critical_path = model.net().native_of(Coll).time(model.bytes());
    return result;
  }
};

/// The type of the functions of MPI that combine vectors elementwise and give every rank a result.
using elementwise_function = int(const void* in, void* out, int count, MPI_Datatype, MPI_Op,
                                 MPI_Comm, MPI_Request*);
/// Runs the function `start` of MPI, which is called `name`. If `has_result` is false, `out` stays
/// as it is.
template <channel Channel>
task<> run_elementwise(Channel net, any_buffer in, any_buffer out, bool has_result,
                       elementwise_function* start, const char* name) {
  return run_native(net, [=](native_call& call) {
    const native_reduction how = call.reduction();
    const std::byte* const source = call.input(in, overlap(in, out));
    std::byte* const dest = has_result ? call.output(out) : call.unused(out);
    in_pieces(in.size(), [&](std::size_t first, int count) {
      const std::size_t place = first * in.element_size();
      check(start(source + place, dest + place, count, how.type, how.op, call.comm(), call.start()),
            name);
    });
  });
}

template <>
struct native_collective<collective::barrier> : native_algorithm<collective::barrier> {
  template <channel Channel>
  static task<> run(Channel net) {
    return run_native(net, [](native_call& call) {
      check(MPI_Ibarrier(call.comm(), call.start()), "MPI_Ibarrier");
    });
  }
};

template <>
struct native_collective<collective::broadcast> : native_algorithm<collective::broadcast> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer data, int root) {
    return run_native(net, [=](native_call& call) {
      // MPI does not write to the buffer of the root.
      std::byte* const memory =
          net.rank() == root ? const_cast<std::byte*>(call.input(data)) : call.output(data);
      in_pieces(bytes(data).size, [&](std::size_t first, int count) {
        check(MPI_Ibcast(memory + first, count, MPI_BYTE, root, call.comm(), call.start()),
              "MPI_Ibcast");
      });
    });
  }
};

template <>
struct native_collective<collective::all_reduce> : native_algorithm<collective::all_reduce> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer in, any_buffer out, any_op) {
    return run_elementwise(net, in, out, true, &MPI_Iallreduce, "MPI_Iallreduce");
  }
};

template <>
struct native_collective<collective::reduce> : native_algorithm<collective::reduce> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer in, any_buffer out, int root, any_op) {
    return run_native(net, [=](native_call& call) {
      const native_reduction how = call.reduction();
      const bool is_root = net.rank() == root;
      const std::byte* const source = call.input(in, is_root && overlap(in, out));
      std::byte* const dest = is_root ? call.output(out) : nullptr;
      in_pieces(in.size(), [&](std::size_t first, int count) {
        const std::size_t place = first * in.element_size();
        check(MPI_Ireduce(source + place, is_root ? dest + place : nullptr, count, how.type, how.op,
                          root, call.comm(), call.start()),
              "MPI_Ireduce");
      });
    });
  }
};

template <>
struct native_collective<collective::reduce_scatter>
    : native_algorithm<collective::reduce_scatter> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer in, any_buffer out, partition parts, any_op) {
    return run_native(net, [=](native_call& call) {
      const native_reduction how = call.reduction();
      const std::byte* const source = call.input(in, overlap(in, out));
      std::byte* const dest = call.output(out);
      if (is_even(parts, net.size())) {
        check(MPI_Ireduce_scatter_block(source, dest, static_cast<int>(parts.count(0)), how.type,
                                        how.op, call.comm(), call.start()),
              "MPI_Ireduce_scatter_block");
      } else {
        check(MPI_Ireduce_scatter(source, dest, blocks_of(call, parts, net.size()).counts, how.type,
                                  how.op, call.comm(), call.start()),
              "MPI_Ireduce_scatter");
      }
    });
  }
};

template <>
struct native_collective<collective::all_gather> : native_algorithm<collective::all_gather> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer in, any_buffer out, partition parts) {
    return run_native(net, [=](native_call& call) {
      const std::byte* const source = call.input(in, overlap(in, out));
      std::byte* const dest = call.output(out);
      if (is_even(parts, net.size())) {
        const layout own = layout_of(call, bytes(in).size);
        check(MPI_Iallgather(source, own.count, own.type, dest, own.count, own.type, call.comm(),
                             call.start()),
              "MPI_Iallgather");
      } else {
        const MPI_Datatype element = call.block(in.element_size());
        const block_list all = blocks_of(call, parts, net.size());
        check(MPI_Iallgatherv(source, static_cast<int>(in.size()), element, dest, all.counts,
                              all.places, element, call.comm(), call.start()),
              "MPI_Iallgatherv");
      }
    });
  }
};

template <>
struct native_collective<collective::gather> : native_algorithm<collective::gather> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer own, any_buffer all, partition parts, int root) {
    return run_native(net, [=](native_call& call) {
      const bool is_root = net.rank() == root;
      const std::byte* const source = call.input(own, is_root && overlap(own, all));
      std::byte* const dest = is_root ? call.output(all) : nullptr;
      if (is_even(parts, net.size())) {
        const layout block = layout_of(call, bytes(own).size);
        check(MPI_Igather(source, block.count, block.type, dest, block.count, block.type, root,
                          call.comm(), call.start()),
              "MPI_Igather");
      } else {
        const MPI_Datatype element = call.block(own.element_size());
        const block_list blocks = blocks_of(call, parts, net.size());
        check(MPI_Igatherv(source, static_cast<int>(own.size()), element, dest, blocks.counts,
                           blocks.places, element, root, call.comm(), call.start()),
              "MPI_Igatherv");
      }
    });
  }
};

template <>
struct native_collective<collective::scatter> : native_algorithm<collective::scatter> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer all, any_buffer own, partition parts, int root) {
    return run_native(net, [=](native_call& call) {
      const bool is_root = net.rank() == root;
      const std::byte* const source = is_root ? call.input(all, overlap(own, all)) : nullptr;
      std::byte* const dest = call.output(own);
      if (is_even(parts, net.size())) {
        const layout block = layout_of(call, bytes(own).size);
        check(MPI_Iscatter(source, block.count, block.type, dest, block.count, block.type, root,
                           call.comm(), call.start()),
              "MPI_Iscatter");
      } else {
        const MPI_Datatype element = call.block(own.element_size());
        const block_list blocks = blocks_of(call, parts, net.size());
        check(MPI_Iscatterv(source, blocks.counts, blocks.places, element, dest,
                            static_cast<int>(own.size()), element, root, call.comm(), call.start()),
              "MPI_Iscatterv");
      }
    });
  }
};

template <>
struct native_collective<collective::all_to_all> : native_algorithm<collective::all_to_all> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer in, partition parts, any_buffer out, partition) {
    return run_native(net, [=](native_call& call) {
      const layout block = layout_of(call, parts.count(0) * in.element_size());
      const std::byte* const source = call.input(in);
      check(MPI_Ialltoall(source, block.count, block.type, call.output(out), block.count,
                          block.type, call.comm(), call.start()),
            "MPI_Ialltoall");
    });
  }
};

template <>
struct native_collective<collective::scan> : native_algorithm<collective::scan> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer in, any_buffer out, any_op) {
    return run_elementwise(net, in, out, true, &MPI_Iscan, "MPI_Iscan");
  }
};

template <>
struct native_collective<collective::exscan> : native_algorithm<collective::exscan> {
  template <channel Channel>
  static task<> run(Channel net, any_buffer in, any_buffer out, any_op) {
    // Rank 0 has no result, but MPI may write to its buffer.
    return run_elementwise(net, in, out, net.rank() != 0, &MPI_Iexscan, "MPI_Iexscan");
  }
};

}  // namespace colls::mpi

namespace colls::detail {

template <collective Coll>
  requires(Coll >= collective::barrier && Coll <= collective::exscan)
inline constexpr auto native_algorithms<Coll, mpi::transport> =
    algorithm_list<mpi::native_collective<Coll>{}>();

}  // namespace colls::detail
