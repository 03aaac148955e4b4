// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/one_shot.cuh>

#include <doctest/doctest.h>

#include "../support/slow_build.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

// Runs the body of the kernels on the CPU: block after block in any order, with complete launches
// that time out between them, and with threads that really run concurrently. tests/cuda/ipc.cu
// shows that it compiles for a GPU.

namespace {

namespace cuda = colls::cuda;
using cuda::peer_buffers;
using cuda::detail::cpu_block;

struct vec3 {
  float x, y, z;
};
/// Does not commute, and is not associative because of rounding.
struct fold3 {
  vec3 operator()(const vec3& a, const vec3& b) const {
    return {a.x * 0.75f + b.x, a.y + b.y * b.x, a.z - b.z / 3};
  }
};
struct odd {
  unsigned char bytes[5];
};
struct mix5 {
  odd operator()(const odd& a, const odd& b) const {
    odd made = b;
    made.bytes[0] = static_cast<unsigned char>(a.bytes[0] * 3 + b.bytes[0]);
    return made;
  }
};

template <class T>
T drawn(std::mt19937& random) {
  T made;
  if constexpr (std::is_same_v<T, odd>) {
    for (auto& each : made.bytes) each = static_cast<unsigned char>(random());
  } else if constexpr (std::is_same_v<T, vec3>) {
    const auto one = [&] { return static_cast<float>(random() % 2000) / 7 - 100; };
    made = {one(), one(), one()};
  } else {
    made = static_cast<T>(static_cast<float>(random() % 2000) / 7 - 100);
  }
  return made;
}

/// A rank's peer buffers. As in device memory, only the flags have defined values.
struct rank_buffers {
  std::unique_ptr<std::byte[]> memory{new std::byte[peer_buffers::bytes + 64]};
  std::byte* data() const {
    const auto at = reinterpret_cast<std::uintptr_t>(memory.get());
    return memory.get() + (64 - at % 64);
  }
  rank_buffers() {
    std::memset(data(), 0xcd, peer_buffers::bytes);
    std::memset(data(), 0, peer_buffers::flag_bytes);
  }
  friend bool operator==(const rank_buffers& one, const rank_buffers& other) {
    return std::memcmp(one.data(), other.data(), peer_buffers::bytes) == 0;
  }
};

/// The sums of a test, which all ranks make one after the other.
struct plan {
  std::size_t count;
  std::size_t max_blocks;
  bool is_two_shot;
  bool in_place;
  std::size_t in_shift;  // elements past an aligned address
  std::size_t out_shift;
  int sums;
  unsigned max_polls;
};

template <class T, class Op, std::size_t Ranks>
class ranks_of {
 public:
  using compute = colls::default_accumulate_t<Op, T>;
  using kernel = cuda::detail::one_shot<T, Op, cuda::detail::fold<T, compute, Op, Ranks>, Ranks>;

  explicit ranks_of(const plan& how)
      : how_(how),
        layout_(
            cuda::detail::layout_for<T>(how.count, how.max_blocks, how.is_two_shot ? Ranks : 1)) {
    for (std::size_t r = 0; r < Ranks; ++r) {
      in_[r].resize(how.count + 16);
      out_[r].resize(how.count + 16);
    }
  }
  std::size_t blocks() const { return layout_.blocks; }

  /// A rank's input of one sum; equal in every call.
  std::vector<T> input(std::size_t rank, int sum) const {
    std::mt19937 random(static_cast<unsigned>(rank * 1000 + static_cast<std::size_t>(sum)));
    std::vector<T> made;
    for (std::size_t i = 0; i < how_.count; ++i) made.push_back(drawn<T>(random));
    return made;
  }
  kernel begin(std::size_t rank, int sum, std::uint64_t number) {
    const std::vector<T> from = input(rank, sum);
    T* const in = aligned(in_[rank]) + how_.in_shift;
    std::memcpy(static_cast<void*>(in), from.data(), how_.count * sizeof(T));
    timed_out_[rank] = 0;
    kernel made{{},
                in,
                out(rank),
                how_.count,
                layout_.piece,
                layout_.blocks,
                how_.is_two_shot,
                rank,
                number,
                &timed_out_[rank],
                how_.max_polls,
                Op(),
                {true, static_cast<int>(Ranks)}};
    for (std::size_t r = 0; r < Ranks; ++r) made.buffers[r] = buffers_[r].data();
    return made;
  }
  bool has_timed_out(std::size_t rank) { return std::exchange(timed_out_[rank], 0) != 0; }

  /// Compares every bit of a rank's result.
  void expect(std::size_t rank, int sum) {
    std::vector<std::vector<T>> all;
    for (std::size_t r = 0; r < Ranks; ++r) all.push_back(input(r, sum));
    for (std::size_t i = 0; i < how_.count; ++i) {
      auto left = static_cast<compute>(all[0][i]);
      for (std::size_t r = 1; r < Ranks; ++r) {
        left = static_cast<compute>(Op()(left, static_cast<compute>(all[r][i])));
      }
      if constexpr (colls::detail::finishes<Op, compute>) left = Op().finish(left, int{Ranks});
      const T want = static_cast<T>(left);
      if (std::memcmp(&want, out(rank) + i, sizeof want) == 0) continue;
      FAIL_CHECK("rank " << rank << " of " << Ranks << ", sum " << sum << ", element " << i);
      return;
    }
  }

 private:
  T* aligned(std::vector<T>& in) {
    T* at = in.data();
    for (int i = 0; i < 16 && reinterpret_cast<std::uintptr_t>(at) % 16 != 0; ++i) ++at;
    return at;
  }
  T* out(std::size_t rank) {
    if (how_.in_place) return aligned(in_[rank]) + how_.in_shift;
    return aligned(out_[rank]) + how_.out_shift;
  }

  plan how_;
  cuda::detail::one_shot_layout layout_;
  std::array<rank_buffers, Ranks> buffers_;
  std::array<std::vector<T>, Ranks> in_;
  std::array<std::vector<T>, Ranks> out_;
  std::array<std::uint64_t, Ranks> timed_out_{};
};

/// Runs the ranks block by block, in an order drawn by the seed: some launch repeatedly before
/// another rank has begun, some are one sum ahead.
template <class T, class Op, std::size_t Ranks>
void in_any_order(const plan& how, unsigned seed) {
  ranks_of<T, Op, Ranks> all(how);
  std::mt19937 random(seed);
  struct progress {
    int sum = 0;
    std::vector<std::size_t> to_run;
  };
  std::array<progress, Ranks> at;
  std::deque<typename ranks_of<T, Op, Ranks>::kernel> kernels;
  static const rank_buffers untouched;
  const rank_buffers gone;
  const auto launch = [&](std::size_t rank) {
    at[rank].to_run.resize(all.blocks());
    std::iota(at[rank].to_run.begin(), at[rank].to_run.end(), std::size_t{0});
    std::shuffle(at[rank].to_run.begin(), at[rank].to_run.end(), random);
  };
  // Sums of one slot, which use its two sets in turn.
  const auto number = [](int sum) {
    return static_cast<std::uint64_t>(sum + 1) * peer_buffers::slots;
  };
  for (std::size_t r = 0; r < Ranks; ++r) {
    kernels.push_back(all.begin(r, 0, number(0)));
    launch(r);
  }
  std::size_t left = Ranks;
  for (int steps = 0; left > 0; ++steps) {
    REQUIRE(steps < 1'000'000);
    const std::size_t r = random() % Ranks;
    progress& mine = at[r];
    if (mine.sum == how.sums) continue;
    kernels[r](cpu_block(mine.to_run.back()));
    mine.to_run.pop_back();
    if (!mine.to_run.empty()) continue;
    if (all.has_timed_out(r)) {
      // The buffers of a rank that has its sum may have been freed.
      for (std::size_t other = 0; other < Ranks; ++other) {
        if (at[other].sum > mine.sum) kernels[r].buffers[other] = gone.data();
      }
      launch(r);
      continue;
    }
    all.expect(r, mine.sum);
    if (++mine.sum == how.sums) {
      --left;
    } else {
      kernels[r] = all.begin(r, mine.sum, number(mine.sum));
      launch(r);
    }
  }
  CHECK(gone == untouched);
}

template <class T, class Op, std::size_t Ranks>
void in_any_order_of_all() {
  unsigned seed = 0;
  for (const bool is_two_shot : {false, true}) {
    for (const std::size_t count : {1u, 2u, 17u, 1000u, 2500u}) {
      for (const std::size_t max_blocks : {1u, 3u, 8u}) {
        for (const bool in_place : {true, false}) {
          ++seed;
          in_any_order<T, Op, Ranks>(
              {count, max_blocks, is_two_shot, in_place, seed % 3 / 2, seed % 2, 5, 1}, seed);
        }
      }
    }
  }
}

TEST_CASE("sums of any type and number of ranks, launched in any order") {
  in_any_order_of_all<float, colls::plus, 2>();
  in_any_order_of_all<float, colls::plus, 3>();
  in_any_order_of_all<std::int64_t, colls::maximum, 4>();
  in_any_order_of_all<colls::bfloat16, colls::plus, 5>();
  in_any_order_of_all<colls::float16, colls::average, 6>();
  in_any_order_of_all<vec3, fold3, 7>();
  in_any_order_of_all<odd, mix5, 8>();
  in_any_order_of_all<double, colls::plus, 8>();
}

TEST_CASE("vectors of one or two shots fit into the peer buffers") {
  for (const std::size_t element : {1u, 2u, 12u, 16u, 80u, 5000u}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      std::size_t longest[3] = {};
      for (std::size_t bytes = element; bytes <= 2 * peer_buffers::capacity;
           bytes += 16 * element) {
        longest[cuda::shot_count(bytes, element, ranks)] = bytes;
      }
      if (element <= 80) {
        CHECK(longest[1] >= peer_buffers::capacity / static_cast<std::size_t>(ranks) / 2);
        if (ranks > 2) CHECK(longest[2] > longest[1]);
      }
      struct large {
        std::byte all[5000];
      };
      const auto used = [&](std::size_t bytes, bool is_two_shot) {
        const auto all = static_cast<std::size_t>(ranks);
        const std::size_t pieces = is_two_shot ? all : 1;
        const std::size_t count = bytes / element;
        const auto layout =
            element == 1    ? cuda::detail::layout_for<char>(count, 32, pieces)
            : element == 2  ? cuda::detail::layout_for<colls::float16>(count, 32, pieces)
            : element == 12 ? cuda::detail::layout_for<vec3>(count, 32, pieces)
            : element == 16 ? cuda::detail::layout_for<cpu_block>(count, 32, pieces)
            : element == 80 ? cuda::detail::layout_for<std::array<double, 10>>(count, 32, pieces)
                            : cuda::detail::layout_for<large>(count, 32, pieces);
        CHECK(layout.blocks <= 32);
        CHECK(layout.blocks * layout.piece * pieces >= count);
        return layout.blocks * layout.piece * element * (is_two_shot ? 2 * all : all);
      };
      if (longest[1] != 0) CHECK(used(longest[1], false) <= peer_buffers::capacity);
      if (longest[2] != 0) CHECK(used(longest[2], true) <= peer_buffers::capacity);
    }
  }
}

/// A block of threads that run concurrently; each sleeps now and then.
class thread_block {
 public:
  explicit thread_block(std::size_t threads)
      : threads_(threads), barrier_(static_cast<std::ptrdiff_t>(threads)) {}

  class handle {
   public:
    handle(thread_block& of, std::size_t number, std::size_t thread, unsigned seed)
        : of_(&of), number_(number), thread_(thread), random_(seed) {}
    std::size_t number() const { return number_; }
    std::size_t thread() {
      if (random_() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      return thread_;
    }
    std::size_t threads() const { return of_->threads_; }
    void sync() const { of_->barrier_.arrive_and_wait(); }
    bool all(bool mine) const {
      if (mine) of_->votes_.fetch_add(1);
      sync();
      const bool every = of_->votes_.load() == of_->threads_;
      sync();
      if (thread_ == 0) of_->votes_.store(0);
      sync();
      return every;
    }
    void signal(std::uint64_t* flag, std::uint64_t number) const {
      cpu_block(0).signal(flag, number);
    }
    std::uint64_t read(const std::uint64_t* flag) const {
      std::this_thread::yield();
      return cpu_block(0).read(flag);
    }

   private:
    thread_block* of_;
    std::size_t number_;
    std::size_t thread_;
    std::minstd_rand random_;
  };

 private:
  std::size_t threads_;
  std::barrier<> barrier_;
  std::atomic<std::size_t> votes_{0};
};

template <class T, class Op, std::size_t Ranks>
void concurrently(const plan& how, std::size_t threads, unsigned seed) {
  ranks_of<T, Op, Ranks> all(how);
  const auto rank_main = [&](std::size_t rank) {
    std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
    for (int sum = 0; sum < how.sums; ++sum) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      const auto kernel =
          all.begin(rank, sum, static_cast<std::uint64_t>(sum + 1) * peer_buffers::slots);
      do {
        std::deque<thread_block> blocks;
        std::vector<std::jthread> running;
        for (std::size_t b = 0; b < all.blocks(); ++b) {
          blocks.emplace_back(threads);
          for (std::size_t t = 0; t < threads; ++t) {
            const thread_block::handle mine(blocks.back(), b, t,
                                            static_cast<unsigned>(random()) | 1);
            running.emplace_back([kernel, mine] { kernel(mine); });
          }
        }
      } while (all.has_timed_out(rank));
      all.expect(rank, sum);
    }
  };
  std::vector<std::jthread> ranks;
  for (std::size_t r = 0; r < Ranks; ++r) ranks.emplace_back(rank_main, r);
}

TEST_CASE("sums of ranks whose threads run concurrently") {
  constexpr int sums = is_slow_build ? 4 : 10;
  unsigned seed = 0;
  for (const bool is_two_shot : {false, true}) {
    for (const bool in_place : {true, false}) {
      ++seed;
      concurrently<float, colls::plus, 2>({500, 1, is_two_shot, in_place, 0, 0, 2 * sums, 20}, 3,
                                          seed);
      concurrently<vec3, fold3, 3>({700, 2, is_two_shot, in_place, 0, 1, sums, 20}, 2, seed);
      concurrently<colls::bfloat16, colls::plus, 4>({900, 1, is_two_shot, in_place, 1, 0, sums, 50},
                                                    2, seed);
    }
  }
}

TEST_CASE("a kernel whose peers do not launch ends and reports a timeout") {
  for (const bool is_two_shot : {false, true}) {
    ranks_of<float, colls::plus, 2> all({100, 1, is_two_shot, false, 0, 0, 1, 1000});
    const auto kernel = all.begin(0, 0, peer_buffers::slots);
    for (int launches = 0; launches < 3; ++launches) {
      kernel(cpu_block(0));
      CHECK(all.has_timed_out(0));
    }
  }
}

}  // namespace
