// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// The kernels of short sums between GPUs, with 2 to 8 pages on one GPU: their flags, their threads
// and what they do when a peer is late. A GPU runs all blocks of these at a time; where it does
// not, kernels give up and are launched again. Without a GPU: that it compiles.

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
using cuda::shot_page;

/// x -> a x + b: of 12 bytes, and does not commute. What is multiplied and added may be contracted
/// to one rounding, in one kernel and not in another.
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

/// A rank's page, vectors and stream. Outputs do not lie alike on all ranks, so that some are
/// written by packs and some are not.
template <class T>
struct part {
  part(std::size_t rank, std::size_t count)
      : on(0),
        page(shot_page::bytes),
        data(count),
        shifted(count + 1),
        out(shifted.data() + rank % 2),
        host(count),
        missed(1) {
    on.clear(page.data(), shot_page::flag_bytes);
  }
  cuda::stream on;
  cuda::device_buffer<std::byte> page;
  cuda::device_buffer<T> data;
  cuda::device_buffer<T> shifted;
  T* out;
  cuda::pinned_buffer<T> host;
  cuda::pinned_buffer<std::uint64_t> missed;
};

template <class T, class Op>
class group {
 public:
  group(std::size_t ranks, std::size_t count, bool twice, Op op)
      : count_(count), twice_(twice), op_(op) {
    for (std::size_t r = 0; r < ranks; ++r) {
      pages_.push_back(parts_.emplace_back(r, count).page.data());
    }
  }
  std::size_t size() const { return parts_.size(); }
  part<T>& operator[](std::size_t rank) { return parts_[rank]; }

  void launch(std::size_t rank, std::uint64_t number) {
    part<T>& mine = parts_[rank];
    __atomic_store_n(mine.missed.data(), 0, __ATOMIC_RELAXED);
    constexpr unsigned looks = 1000;
    const int ranks = static_cast<int>(size());
    colls::detail::device_shots<T, Op>::launch(
        &op_, {pages_.data(), ranks, static_cast<int>(rank), mine.data.data(), mine.out, count_,
               twice_, shot_page::most_blocks, number, mine.missed.data(), looks, mine.on.ref()});
  }
  bool has_missed(std::size_t rank) const {
    return __atomic_load_n(parts_[rank].missed.data(), __ATOMIC_ACQUIRE) != 0;
  }

 private:
  std::size_t count_;
  bool twice_;
  Op op_;
  std::deque<part<T>> parts_;
  std::vector<std::byte*> pages_;
};

/// What rank 0's sums are, by the CPU.
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

/// Whether that is what the CPU makes: each bit, but of what may be contracted.
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

/// Sums one after the other, of some of which rank 0 is launched long before the others.
template <std::size_t Ranks, class T, class Op>
colls::task<> sums(const char* what, std::size_t count, bool twice, Op op, int& wrong) {
  group<T, Op> all(Ranks, count, twice, op);
  // Flags are zero before others raise theirs there.
  for (std::size_t r = 0; r < Ranks; ++r) co_await all[r].on.reached();
  constexpr std::uint64_t last = 2 * shot_page::buffers + 1;
  int bad = 0;
  for (std::uint64_t number = 1; number <= last && bad == 0; ++number) {
    for (std::size_t r = 0; r < Ranks; ++r) {
      for (std::size_t i = 0; i < count; ++i) all[r].host.data()[i] = drawn<T>(r, number, i);
      all[r].on.copy(all[r].data.data(), all[r].host.data(), count * sizeof(T));
    }
    const bool one_is_early = number % 3 == 0;
    if (one_is_early) {
      all.launch(0, number);
      co_await all[0].on.reached();
      bad += all.has_missed(0) ? 0 : 1;
    }
    for (std::size_t r = 0; r < Ranks; ++r) all.launch(r, number);
    int launches = 0;
    for (std::size_t r = 0; r < Ranks;) {
      co_await all[r].on.reached();
      if (!all.has_missed(r)) {
        ++r;
      } else if (++launches < 10'000) {
        for (std::size_t late = r; late < Ranks; ++late) {
          if (late != r) co_await all[late].on.reached();
          if (all.has_missed(late)) all.launch(late, number);
        }
      } else {
        ++bad;
        break;
      }
    }
    const std::vector<T> want = summed<T, Op, Ranks>(count, number, op);
    const T* const first = all[0].host.data();
    for (std::size_t r = 0; r < Ranks; ++r) {
      all[r].on.copy(all[r].host.data(), all[r].out, count * sizeof(T));
      co_await all[r].on.reached();
      bad += is_right(all[r].host.data(), want) ? 0 : 1;
      bad += std::memcmp(all[r].host.data(), first, count * sizeof(T)) == 0 ? 0 : 1;
    }
  }
  std::printf("%s %s, %zu elements of %zu ranks, %s\n", bad == 0 ? "ok   " : "WRONG", what, count,
              Ranks, twice ? "two shots" : "one shot");
  wrong += bad;
  if constexpr (std::is_same_v<T, affine> && Ranks <= 3) {
    std::array<const T*, Ranks> in;
    for (std::size_t r = 0; r < Ranks; ++r) in[r] = all[r].data.data();
    reduce_into(colls::device_span(all[0].out, count), in, op, all[0].on.ref());
    T* const visits = all[1].host.data();
    all[0].on.copy(visits, all[0].out, count * sizeof(T));
    co_await all[0].on.reached();
    const bool same = std::memcmp(visits, all[0].host.data(), count * sizeof(T)) == 0;
    std::printf("note  a visit's kernel makes %s bits of it\n", same ? "the same" : "other");
    wrong += is_right(visits, summed<T, Op, Ranks>(count, last, op)) ? 0 : 1;
  }
}

template <std::size_t Ranks>
colls::task<> sums_of(bool quick, int& wrong) {
  for (const bool twice : {false, true}) {
    for (const std::size_t count : {1ul, 1000ul, 20'000ul}) {
      if (quick && count == 1000) continue;
      co_await sums<Ranks, float>("float plus", count, twice, colls::plus(), wrong);
      co_await sums<Ranks, colls::bfloat16>("bfloat16 plus", count, twice, colls::plus(), wrong);
      co_await sums<Ranks, affine>("structs in order", count / 2 + 1, twice, compose(), wrong);
      co_await sums<Ranks, odd>("5 bytes", count, twice, mix(), wrong);
    }
  }
}

}  // namespace

/// `quick`: little, for compute-sanitizer.
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
