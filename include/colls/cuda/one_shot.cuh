// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shots: all_reduce of short vectors over ranks on GPUs of their own. Each rank's kernel writes
// what others need into their pages, raises its flags there, and sums what its own page holds. In
// one shot each rank sums all; in two each sums a share, and writes that to all.
//
// A kernel awaits flags for a while only, then it ends, and whoever launched it launches it again:
// it goes on where it was, since what has been done is told by its own flags. So it never keeps a
// GPU from anything, whatever the others do.

#include <colls/cuda/peer_buffers.hpp>
#include <colls/cuda/reduce.cuh>

#include <atomic>

namespace colls::cuda {

namespace detail {

/// The body of the kernel, for one thread of a block. `Fold` sums, in the order of the ranks.
template <class T, class Op, class Fold, std::size_t Ranks>
struct shot {
  std::byte* pages[Ranks];
  const T* in;
  T* out;
  std::size_t count;
  std::size_t piece;  // elements that a rank sums of what one block has
  std::size_t blocks;
  bool twice;
  std::size_t rank;
  std::uint64_t number;
  std::uint64_t* missed;
  unsigned looks;
  Op op;
  stages also;

  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void operator()(Block block) const {
    const span own = all(block);
    if (block.read(flags(rank, 0, block) + rank) != number) {
      push_input(block, own);
      raise_everywhere(block, 0);
    }
    if (!all_raised(block, 0)) return give_up(block);
    if (!twice) return sum(block, out + own.first, own.count);
    if (block.read(flags(rank, 1, block) + rank) != number) {
      const span share = part(own, rank);
      T* const done = sums(rank, block) + (share.first - own.first);
      sum(block, done, share.count);
      block.sync();
      const auto to = [&](std::size_t r) { return sums(r, block) + (share.first - own.first); };
      copy(block, done, share.count, to, Ranks);
      raise_everywhere(block, 1);
    }
    if (!all_raised(block, 1)) return give_up(block);
    const auto to = [&](std::size_t) { return out + own.first; };
    copy(block, sums(rank, block), own.count, to, 1);
  }

 private:
  struct span {
    std::size_t first;
    std::size_t count;
  };
  COLLS_HOST_DEVICE static span cut(std::size_t first, std::size_t size, std::size_t end) {
    if (first >= end) return {end, 0};
    return {first, size < end - first ? size : end - first};
  }
  COLLS_HOST_DEVICE std::size_t each() const { return twice ? piece * Ranks : piece; }
  template <class Block>
  COLLS_HOST_DEVICE span all(const Block& block) const {
    return cut(block.number() * each(), each(), count);
  }
  COLLS_HOST_DEVICE span part(const span& of, std::size_t r) const {
    return cut(of.first + r * piece, piece, of.first + of.count);
  }

  template <class Block>
  COLLS_HOST_DEVICE std::uint64_t* flags(std::size_t r, std::size_t row, const Block& block) const {
    return shot_page::flags(pages[r], number, row, block.number());
  }
  /// Where rank `from` puts its part of what rank `r` sums.
  template <class Block>
  COLLS_HOST_DEVICE T* input(std::size_t r, std::size_t from, const Block& block) const {
    return data(r) + (from * blocks + block.number()) * piece;
  }
  /// Where rank `r` has the sums of a block from all ranks, behind all inputs.
  template <class Block>
  COLLS_HOST_DEVICE T* sums(std::size_t r, const Block& block) const {
    return data(r) + Ranks * blocks * piece + block.number() * each();
  }
  COLLS_HOST_DEVICE T* data(std::size_t r) const {
    return reinterpret_cast<T*>(shot_page::data(pages[r], number));
  }

  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void push_input(Block& block, const span& own) const {
    if (!twice) {
      const auto to = [&](std::size_t r) { return input(r, rank, block); };
      return copy(block, in + own.first, own.count, to, Ranks);
    }
    for (std::size_t r = 0; r < Ranks; ++r) {
      const span share = part(own, r);
      const auto to = [&](std::size_t) { return input(r, rank, block); };
      copy(block, in + share.first, share.count, to, 1);
    }
  }
  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void sum(Block& block, T* to, std::size_t size) const {
    Fold fold{to, nullptr, {}, size, op, also};
    for (std::size_t r = 0; r < Ranks; ++r) fold.in[r] = input(rank, r, block);
    fold(block.thread(), block.threads());
  }

  /// What all threads of the block have written comes first.
  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void raise_everywhere(Block& block, std::size_t row) const {
    block.sync();
    for (std::size_t r = block.thread(); r < Ranks; r += block.threads()) {
      block.raise(flags(r, row, block) + rank, number);
    }
  }
  /// Equal for all threads of the block.
  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE bool all_raised(Block& block, std::size_t row) const {
    const std::uint64_t* const own = flags(rank, row, block);
    for (unsigned look = 0; look < looks; ++look) {
      bool raised = true;
      for (std::size_t r = block.thread(); r < Ranks; r += block.threads()) {
        raised &= block.read(own + r) == number;
      }
      if (block.all(raised)) return true;
    }
    return false;
  }
  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void give_up(Block& block) const {
    if (block.thread() == 0) block.raise(missed, number);
  }

  /// to(0)[i] = ... = to(places - 1)[i] = from[i]; these places lie alike.
  COLLS_ANYWHERE
  template <class Block, class To>
  COLLS_HOST_DEVICE static void copy(Block& block, const T* from, std::size_t size, const To& to,
                                     std::size_t places) {
    const std::size_t threads = block.threads();
    std::size_t done = 0;
    if constexpr (pack_size<T> != 0) {
      const auto past = [](const T* at) {
        return reinterpret_cast<std::uintptr_t>(at) % sizeof(quad);
      };
      if (past(from) == 0 && past(to(0)) == 0) {
        done = size / pack_size<T> * pack_size<T>;
        const std::size_t quads = done * sizeof(T) / sizeof(quad);
        for (std::size_t i = block.thread(); i < quads; i += threads) {
          const quad taken = reinterpret_cast<const quad*>(from)[i];
          for (std::size_t k = 0; k < places; ++k) store(reinterpret_cast<quad*>(to(k)) + i, taken);
        }
      }
    }
    for (std::size_t i = done + block.thread(); i < size; i += threads) {
      for (std::size_t k = 0; k < places; ++k) new (static_cast<void*>(to(k) + i)) T(from[i]);
    }
  }
};

#ifdef __CUDACC__
struct gpu_block {
  __device__ std::size_t number() const { return blockIdx.x; }
  __device__ std::size_t thread() const { return threadIdx.x; }
  __device__ std::size_t threads() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool all(bool mine) const { return __syncthreads_and(mine ? 1 : 0) != 0; }
  __device__ void raise(std::uint64_t* flag, std::uint64_t number) const {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(flag), "l"(number) : "memory");
  }
  __device__ std::uint64_t read(const std::uint64_t* flag) const {
    std::uint64_t number;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(number) : "l"(flag) : "memory");
    return number;
  }
};

#pragma GCC visibility push(hidden)
template <class Kernel>
__global__ void __launch_bounds__(256) run_blocks(Kernel kernel) {
  kernel(gpu_block{});
}
#pragma GCC visibility pop
#endif

/// A block of one thread, on the CPU.
class lone_block {
 public:
  explicit lone_block(std::size_t number) : number_(number) {}
  std::size_t number() const { return number_; }
  std::size_t thread() const { return 0; }
  std::size_t threads() const { return 1; }
  void sync() const {}
  bool all(bool mine) const { return mine; }
  void raise(std::uint64_t* flag, std::uint64_t number) const {
    std::atomic_ref(*flag).store(number, std::memory_order_release);
  }
  std::uint64_t read(const std::uint64_t* flag) const {
    return std::atomic_ref(*const_cast<std::uint64_t*>(flag)).load(std::memory_order_acquire);
  }

 private:
  std::size_t number_;
};

template <class Kernel>
void launch_blocks(const Kernel& kernel, std::size_t blocks, stream_ref on) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
#ifdef __CUDACC__
  Kernel copy = kernel;
  void* arguments[] = {&copy};
  check(api::heard(cudaLaunchKernel(reinterpret_cast<const void*>(&run_blocks<Kernel>),
                                    dim3(static_cast<unsigned>(blocks)), dim3(256), arguments, 0,
                                    api::native(on))),
        "the launch of a reduction");
#else
  const auto body = [](const void* closure, std::size_t block, std::size_t) {
    (*static_cast<const Kernel*>(closure))(lone_block(block));
  };
  check(api::launch(body, &kernel, sizeof kernel, blocks, on), "the launch of a reduction");
#endif
}

/// How a vector is cut: packs stay whole, and each block has 4 KiB where there are blocks enough.
struct shot_cut {
  std::size_t piece;
  std::size_t blocks;
};
template <class T>
constexpr shot_cut cut_for(std::size_t count, std::size_t most_blocks, std::size_t pieces) {
  constexpr std::size_t unit = pack_size<T> != 0 ? pack_size<T> : 1;
  const auto parts_of = [](std::size_t all, std::size_t size) { return (all + size - 1) / size; };
  const std::size_t wanted = parts_of(count * sizeof(T), 4096);
  const std::size_t blocks = wanted < most_blocks ? wanted : most_blocks;
  const std::size_t piece = parts_of(parts_of(count, blocks * pieces), unit) * unit;
  return {piece, parts_of(count, piece * pieces)};
}

}  // namespace detail

}  // namespace colls::cuda

namespace colls::detail {

template <class T, class Op>
struct device_shots {
  static void launch(const void* state, const device_shot& what) {
    const Op& op = *static_cast<const Op*>(state);
    const auto ranks = static_cast<std::size_t>(what.ranks);
    with_count<2>(ranks, [&](auto n) { launch_of<decltype(n)::value>(op, what); });
  }

 private:
  template <std::size_t Ranks>
  static void launch_of(const Op& op, const device_shot& what) {
    using compute = default_accumulate_t<Op, T>;
    using kernel = cuda::detail::shot<T, Op, cuda::detail::fold<T, compute, Op, Ranks>, Ranks>;
    const cuda::detail::shot_cut cut =
        cuda::detail::cut_for<T>(what.count, what.blocks, what.twice ? Ranks : 1);
    cuda::detail::require_aligned(static_cast<const T*>(what.in));
    cuda::detail::require_aligned(static_cast<T*>(what.out));
    const auto rank = static_cast<std::size_t>(what.rank);
    kernel body{{},
                static_cast<const T*>(what.in),
                static_cast<T*>(what.out),
                what.count,
                cut.piece,
                cut.blocks,
                what.twice,
                rank,
                what.number,
                what.missed,
                what.looks,
                op,
                {true, what.ranks}};
    for (std::size_t r = 0; r < Ranks; ++r) body.pages[r] = what.pages[r];
    cuda::detail::launch_blocks(body, cut.blocks, what.on);
  }
};

}  // namespace colls::detail
