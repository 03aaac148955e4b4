// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// The kernels of short sums between GPUs, with the buffers of 2 to 8 ranks on one GPU: their flags,
// their threads, and what they do when a peer is late. A GPU can run all their blocks at the same
// time; where it does not, kernels time out and are launched again. Without a GPU this tests that
// the program compiles.

#include <colls/cuda/one_shot.cuh>
#include <colls/cuda/stream.hpp>
#include <colls/inproc.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <vector>

namespace {

namespace cuda = colls::cuda;
using cuda::peer_buffers;

/// The function x -> a x + b, in 12 bytes. Composing does not commute. The compiler may contract
/// the multiplication and the addition to one rounding, in one kernel and not in another.
struct affine {
  float a, b;
  unsigned count;
};
struct compose {
  __host__ __device__ affine operator()(const affine& first, const affine& then) const {
    return {first.a * then.a, first.b * then.a + then.b, first.count + then.count};
  }
};
struct odd {
  unsigned char bytes[5];
};
struct mix {
  __host__ __device__ odd operator()(const odd& a, const odd& b) const {
    odd made = b;
    made.bytes[0] = static_cast<unsigned char>(a.bytes[0] * 3 + b.bytes[0]);
    return made;
  }
};

template <class T>
T drawn(std::size_t rank, std::uint64_t sum, std::size_t i) {
  const auto x = static_cast<unsigned>((i * 31 + rank * 7919 + sum * 104'729) % 2001);
  if constexpr (std::is_same_v<T, affine>) {
    const auto number = static_cast<float>(x);
    return {0.5F + number / 2001, (number - 1000) / 7, 1};
  } else if constexpr (std::is_same_v<T, odd>) {
    const auto low = static_cast<unsigned char>(x);
    return {{low, static_cast<unsigned char>(x >> 8), low, 4, 5}};
  } else {
    return static_cast<T>((static_cast<float>(x) - 1000) / 7);
  }
}

/// A rank's peer buffers, vectors and stream. The alignment of outputs differs between ranks, so
/// some are written by packs and some are not.
template <class T>
struct part {
  part(std::size_t rank, std::size_t count)
      : queue(0),
        buffers(peer_buffers::bytes),
        data(count),
        shifted(count + 1),
        out(shifted.data() + rank % 2),
        host(count),
        timed_out(1) {
    queue.clear(buffers.data(), peer_buffers::flag_bytes);
  }
  cuda::stream queue;
  cuda::device_buffer<std::byte> buffers;
  cuda::device_buffer<T> data;
  cuda::device_buffer<T> shifted;
  T* out;
  cuda::pinned_buffer<T> host;
  cuda::pinned_buffer<std::uint64_t> timed_out;
};

template <class T, class Op>
class group {
 public:
  group(std::size_t ranks, std::size_t count, bool is_two_shot, Op op)
      : count_(count), is_two_shot_(is_two_shot), op_(op) {
    for (std::size_t r = 0; r < ranks; ++r) {
      buffers_.push_back(parts_.emplace_back(r, count).buffers.data());
    }
  }
  std::size_t size() const { return parts_.size(); }
  part<T>& operator[](std::size_t rank) { return parts_[rank]; }

  void launch(std::size_t rank, std::uint64_t number) {
    part<T>& mine = parts_[rank];
    __atomic_store_n(mine.timed_out.data(), 0, __ATOMIC_RELAXED);
    constexpr unsigned max_polls = 1000;
    const int ranks = static_cast<int>(size());
    colls::detail::one_shot_kernel<T, Op>::launch(
        &op_, {buffers_.data(), ranks, static_cast<int>(rank), mine.data.data(), mine.out, count_,
               is_two_shot_, peer_buffers::max_blocks, number, mine.timed_out.data(), max_polls,
               mine.queue.ref()});
  }
  bool has_timed_out(std::size_t rank) const {
    return __atomic_load_n(parts_[rank].timed_out.data(), __ATOMIC_ACQUIRE) != 0;
  }

 private:
  std::size_t count_;
  bool is_two_shot_;
  Op op_;
  std::deque<part<T>> parts_;
  std::vector<std::byte*> buffers_;
};

/// The expected sums, computed by the CPU.
template <class T, class Op, std::size_t Ranks>
std::vector<T> summed(std::size_t count, std::uint64_t number, Op op) {
  std::array<std::vector<T>, Ranks> in;
  std::vector<T> out(count);
  using compute = colls::default_accumulate_t<Op, T>;
  const int ranks = static_cast<int>(Ranks);
  cuda::detail::fold<T, compute, Op, Ranks> body{out.data(), nullptr, {}, count, op, {true, ranks}};
  for (std::size_t r = 0; r < Ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i) in[r].push_back(drawn<T>(r, number, i));
    body.in[r] = in[r].data();
  }
  body(0, 1);
  return out;
}

/// Whether the result is that of the CPU, in every bit except where operations may be contracted.
template <class T>
bool is_right(const T* got, const std::vector<T>& want) {
  if constexpr (std::is_same_v<T, affine>) {
    const auto alike = [](const affine& one, const affine& other) {
      return one.a == other.a && std::abs(one.b - other.b) < 0.05F && one.count == other.count;
    };
    return std::equal(want.begin(), want.end(), got, alike);
  } else {
    return std::memcmp(got, want.data(), want.size() * sizeof(T)) == 0;
  }
}

/// Sums one after the other. In some of them rank 0 is launched long before the other ranks.
template <std::size_t Ranks, class T, class Op>
colls::task<> sums(const char* what, std::size_t count, bool is_two_shot, Op op, int& wrong) {
  group<T, Op> all(Ranks, count, is_two_shot, op);
  // The flags must be zero before peers set theirs.
  for (std::size_t r = 0; r < Ranks; ++r) co_await all[r].queue.reached();
  constexpr std::uint64_t last = 2 * peer_buffers::sets + 1;
  int bad = 0;
  for (std::uint64_t number = 1; number <= last && bad == 0; ++number) {
    for (std::size_t r = 0; r < Ranks; ++r) {
      for (std::size_t i = 0; i < count; ++i) all[r].host.data()[i] = drawn<T>(r, number, i);
      all[r].queue.copy(all[r].data.data(), all[r].host.data(), count * sizeof(T));
    }
    const bool one_is_early = number % 3 == 0;
    if (one_is_early) {
      all.launch(0, number);
      co_await all[0].queue.reached();
      bad += all.has_timed_out(0) ? 0 : 1;
    }
    for (std::size_t r = 0; r < Ranks; ++r) all.launch(r, number);
    int launches = 0;
    for (std::size_t r = 0; r < Ranks;) {
      co_await all[r].queue.reached();
      if (!all.has_timed_out(r)) {
        ++r;
      } else if (++launches < 10'000) {
        for (std::size_t late = r; late < Ranks; ++late) {
          if (late != r) co_await all[late].queue.reached();
          if (all.has_timed_out(late)) all.launch(late, number);
        }
      } else {
        ++bad;
        break;
      }
    }
    const std::vector<T> want = summed<T, Op, Ranks>(count, number, op);
    const T* const first = all[0].host.data();
    for (std::size_t r = 0; r < Ranks; ++r) {
      all[r].queue.copy(all[r].host.data(), all[r].out, count * sizeof(T));
      co_await all[r].queue.reached();
      bad += is_right(all[r].host.data(), want) ? 0 : 1;
      bad += std::memcmp(all[r].host.data(), first, count * sizeof(T)) == 0 ? 0 : 1;
    }
  }
  std::printf("%s %s, %zu elements of %zu ranks, %s\n", bad == 0 ? "ok   " : "WRONG", what, count,
              Ranks, is_two_shot ? "two shots" : "one shot");
  wrong += bad;
  if constexpr (std::is_same_v<T, affine> && Ranks <= 3) {
    std::array<const T*, Ranks> in;
    for (std::size_t r = 0; r < Ranks; ++r) in[r] = all[r].data.data();
    reduce_into(colls::device_span(all[0].out, count), in, op, all[0].queue.ref());
    T* const folded = all[1].host.data();
    all[0].queue.copy(folded, all[0].out, count * sizeof(T));
    co_await all[0].queue.reached();
    const bool same = std::memcmp(folded, all[0].host.data(), count * sizeof(T)) == 0;
    std::printf("note  the kernel of reduce_into computes %s bits\n",
                same ? "the same" : "different");
    wrong += is_right(folded, summed<T, Op, Ranks>(count, last, op)) ? 0 : 1;
  }
}

template <std::size_t Ranks>
colls::task<> sums_of(bool quick, int& wrong) {
  for (const bool is_two_shot : {false, true}) {
    for (const std::size_t count : {1ul, 1000ul, 20'000ul}) {
      if (quick && count == 1000) continue;
      co_await sums<Ranks, float>("float plus", count, is_two_shot, colls::plus(), wrong);
      co_await sums<Ranks, colls::bfloat16>("bfloat16 plus", count, is_two_shot, colls::plus(),
                                            wrong);
      co_await sums<Ranks, affine>("structs in order", count / 2 + 1, is_two_shot, compose(),
                                   wrong);
      co_await sums<Ranks, odd>("5 bytes", count, is_two_shot, mix(), wrong);
    }
  }
}

}  // namespace

/// An argument, `quick`, selects small sizes, for compute-sanitizer.
int main(int, char** arguments) {
  try {
    std::printf("%d devices\n", cuda::devices());
  } catch (const colls::error& none) {
    std::printf("%s\n", none.what());
    return none.code() == colls::errc::no_device ? 0 : 1;
  }
  const bool quick = arguments[1] != nullptr;
  int wrong = 0;
  colls::inproc_world alone(1);
  colls::sync_wait(alone, sums_of<2>(quick, wrong));
  colls::sync_wait(alone, sums_of<3>(quick, wrong));
  if (!quick) {
    colls::sync_wait(alone, sums_of<4>(quick, wrong));
    colls::sync_wait(alone, sums_of<5>(quick, wrong));
    colls::sync_wait(alone, sums_of<6>(quick, wrong));
    colls::sync_wait(alone, sums_of<7>(quick, wrong));
  }
  colls::sync_wait(alone, sums_of<8>(quick, wrong));
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
