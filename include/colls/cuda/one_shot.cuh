// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// one_shot: kernels that perform an all_reduce of a short vector. Each rank must have a GPU of its
// own. The kernel of each rank writes the rank's input into the peer buffers (peer_buffers.hpp) of
// all ranks, and then sets flags in these peer buffers. When all ranks have set their flags in the
// peer buffers of one rank, the kernel of that rank reduces the inputs in these buffers. In the
// one-shot algorithm, each rank reduces the whole vector. In the two-shot algorithm, each rank
// reduces only a share of the vector and writes the result into the peer buffers of all ranks.
//
// A kernel polls the flags only for a limited time. If some flags are still not set, the kernel
// returns, and the CPU launches it again. The new launch reads the flags that this rank has set in
// earlier launches, and skips the steps that these flags mark as done. Therefore a kernel never
// blocks a GPU, even if a peer is late or has failed.

#include <colls/cuda/peer_buffers.hpp>
#include <colls/cuda/reduce.cuh>

#include <atomic>

namespace colls::cuda {

namespace detail {

/// The function object that every thread of the kernel calls. `operator()` does the work of one
/// thread of the thread block `block`. `Fold` is the type of the function object that reduces the
/// inputs in rank order.
template <class T, class Op, class Fold, std::size_t Ranks>
struct one_shot {
  std::byte* buffers[Ranks];
  const T* in;
  T* out;
  std::size_t count;
  std::size_t piece;  // the number of elements of each block that one rank reduces
  std::size_t blocks;
  bool is_two_shot;
  std::size_t rank;
  std::uint64_t sequence;
  std::uint64_t* timed_out;
  unsigned max_polls;
  Op op;
  stages extra;

  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void operator()(Block block) const {
    const span own = all(block);
    if (block.read(flags(rank, 0, block) + rank) != sequence) {
      push_input(block, own);
      signal_all(block, 0);
    }
    if (!await_all(block, 0)) return report_timeout(block);
    if (!is_two_shot) return reduce(block, out + own.first, own.count);
    if (block.read(flags(rank, 1, block) + rank) != sequence) {
      const span share = part(own, rank);
      T* const reduced = sums(rank, block) + (share.first - own.first);
      reduce(block, reduced, share.count);
      block.sync();
      const auto dest = [&](std::size_t r) { return sums(r, block) + (share.first - own.first); };
      copy(block, reduced, share.count, dest, Ranks);
      signal_all(block, 1);
    }
    if (!await_all(block, 1)) return report_timeout(block);
    const auto dest = [&](std::size_t) { return out + own.first; };
    copy(block, sums(rank, block), own.count, dest, 1);
  }

 private:
  struct span {
    std::size_t first;
    std::size_t count;
  };
  COLLS_HOST_DEVICE static span clamp(std::size_t first, std::size_t size, std::size_t end) {
    if (first >= end) return {end, 0};
    return {first, size < end - first ? size : end - first};
  }
  COLLS_HOST_DEVICE std::size_t block_elements() const {
    return is_two_shot ? piece * Ranks : piece;
  }
  template <class Block>
  COLLS_HOST_DEVICE span all(const Block& block) const {
    return clamp(block.number() * block_elements(), block_elements(), count);
  }
  COLLS_HOST_DEVICE span part(const span& whole, std::size_t r) const {
    return clamp(whole.first + r * piece, piece, whole.first + whole.count);
  }

  template <class Block>
  COLLS_HOST_DEVICE std::uint64_t* flags(std::size_t r, std::size_t phase,
                                         const Block& block) const {
    return peer_buffers::flags(buffers[r], sequence, phase, block.number());
  }
  /// Returns the address in the peer buffers of rank `r` to which rank `source` writes its input
  /// for this thread block. In the two-shot algorithm, `source` writes only the part of its input
  /// that rank `r` reduces.
  template <class Block>
  COLLS_HOST_DEVICE T* input(std::size_t r, std::size_t source, const Block& block) const {
    return data(r) + (source * blocks + block.number()) * piece;
  }
  /// Returns the address of the space for the results of this thread block in the peer buffers of
  /// rank `r`. Only the two-shot algorithm uses this space, which follows the space for the inputs.
  /// Each rank writes its share of the results into this space.
  template <class Block>
  COLLS_HOST_DEVICE T* sums(std::size_t r, const Block& block) const {
    return data(r) + Ranks * blocks * piece + block.number() * block_elements();
  }
  COLLS_HOST_DEVICE T* data(std::size_t r) const {
    return reinterpret_cast<T*>(peer_buffers::data(buffers[r], sequence));
  }

  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void push_input(Block& block, const span& own) const {
    if (!is_two_shot) {
      const auto dest = [&](std::size_t r) { return input(r, rank, block); };
      return copy(block, in + own.first, own.count, dest, Ranks);
    }
    for (std::size_t r = 0; r < Ranks; ++r) {
      const span share = part(own, r);
      const auto dest = [&](std::size_t) { return input(r, rank, block); };
      copy(block, in + share.first, share.count, dest, 1);
    }
  }
  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void reduce(Block& block, T* dest, std::size_t size) const {
    Fold fold{dest, nullptr, {}, size, op, extra};
    for (std::size_t r = 0; r < Ranks; ++r) fold.in[r] = input(rank, r, block);
    fold(block.thread(), block.threads());
  }

  /// Waits until all threads of the block have written their data, and then sets this rank's flag
  /// in the peer buffers of all ranks.
  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void signal_all(Block& block, std::size_t phase) const {
    block.sync();
    for (std::size_t r = block.thread(); r < Ranks; r += block.threads()) {
      block.signal(flags(r, phase, block) + rank, sequence);
    }
  }
  /// Polls the flags in this rank's peer buffers until all ranks have set theirs, and then returns
  /// true. Returns false if some flag is still not set after `max_polls` polls. All threads of the
  /// block get the same result.
  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE bool await_all(Block& block, std::size_t phase) const {
    const std::uint64_t* const own = flags(rank, phase, block);
    for (unsigned poll = 0; poll < max_polls; ++poll) {
      bool all_set = true;
      for (std::size_t r = block.thread(); r < Ranks; r += block.threads()) {
        all_set &= block.read(own + r) == sequence;
      }
      if (block.all(all_set)) return true;
    }
    return false;
  }
  COLLS_ANYWHERE
  template <class Block>
  COLLS_HOST_DEVICE void report_timeout(Block& block) const {
    if (block.thread() == 0) block.signal(timed_out, sequence);
  }

  /// Copies `size` elements from `source` to each of the addresses dest(0), ..., dest(copies - 1).
  /// All these addresses must have the same alignment.
  COLLS_ANYWHERE
  template <class Block, class Dest>
  COLLS_HOST_DEVICE static void copy(Block& block, const T* source, std::size_t size,
                                     const Dest& dest, std::size_t copies) {
    const std::size_t threads = block.threads();
    std::size_t done = 0;
    if constexpr (pack_size<T> != 0) {
      const auto misalignment = [](const T* pointer) {
        return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(quad);
      };
      if (misalignment(source) == 0 && misalignment(dest(0)) == 0) {
        done = size / pack_size<T> * pack_size<T>;
        const std::size_t quads = done * sizeof(T) / sizeof(quad);
        for (std::size_t i = block.thread(); i < quads; i += threads) {
          const quad value = reinterpret_cast<const quad*>(source)[i];
          for (std::size_t k = 0; k < copies; ++k)
            store(reinterpret_cast<quad*>(dest(k)) + i, value);
        }
      }
    }
    for (std::size_t i = done + block.thread(); i < size; i += threads) {
      for (std::size_t k = 0; k < copies; ++k) new (static_cast<void*>(dest(k) + i)) T(source[i]);
    }
  }
};

#ifdef __CUDACC__
struct gpu_block {
  __device__ std::size_t number() const { return blockIdx.x; }
  __device__ std::size_t thread() const { return threadIdx.x; }
  __device__ std::size_t threads() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool all(bool vote) const { return __syncthreads_and(vote ? 1 : 0) != 0; }
  __device__ void signal(std::uint64_t* flag, std::uint64_t value) const {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
  }
  __device__ std::uint64_t read(const std::uint64_t* flag) const {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
  }
};

#pragma GCC visibility push(hidden)
template <class Kernel>
__global__ void __launch_bounds__(256) run_blocks(Kernel kernel) {
  kernel(gpu_block{});
}
#pragma GCC visibility pop
#endif

/// A substitute for a thread block in tests without a GPU. The block has one thread, which runs on
/// the CPU.
class cpu_block {
 public:
  explicit cpu_block(std::size_t number) : number_(number) {}
  std::size_t number() const { return number_; }
  std::size_t thread() const { return 0; }
  std::size_t threads() const { return 1; }
  void sync() const {}
  bool all(bool vote) const { return vote; }
  void signal(std::uint64_t* flag, std::uint64_t value) const {
    std::atomic_ref(*flag).store(value, std::memory_order_release);
  }
  std::uint64_t read(const std::uint64_t* flag) const {
    return std::atomic_ref(*const_cast<std::uint64_t*>(flag)).load(std::memory_order_acquire);
  }

 private:
  std::size_t number_;
};

template <class Kernel>
void launch_blocks(const Kernel& kernel, std::size_t blocks, stream_ref stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
#ifdef __CUDACC__
  Kernel copy = kernel;
  void* arguments[] = {&copy};
  check(api::consume_error(cudaLaunchKernel(reinterpret_cast<const void*>(&run_blocks<Kernel>),
                                            dim3(static_cast<unsigned>(blocks)), dim3(256),
                                            arguments, 0, api::native(stream))),
        "the launch of a reduction");
#else
  const auto body = [](const void* closure, std::size_t block, std::size_t) {
    (*static_cast<const Kernel*>(closure))(cpu_block(block));
  };
  check(api::launch(body, &kernel, sizeof kernel, blocks, stream), "the launch of a reduction");
#endif
}

/// The division of a vector into blocks, one for each thread block. In the two-shot algorithm, a
/// block consists of one piece for each rank. In the one-shot algorithm, a block is one piece. The
/// division never splits a pack, which is the unit of vectorised access. A block has about 4 KiB,
/// or more if there would otherwise be too many blocks.
struct one_shot_layout {
  std::size_t piece;
  std::size_t blocks;
};
template <class T>
constexpr one_shot_layout layout_for(std::size_t count, std::size_t max_blocks,
                                     std::size_t pieces) {
  constexpr std::size_t unit = pack_size<T> != 0 ? pack_size<T> : 1;
  const auto divide = [](std::size_t total, std::size_t size) { return (total + size - 1) / size; };
  const std::size_t wanted = divide(count * sizeof(T), 4096);
  const std::size_t blocks = wanted < max_blocks ? wanted : max_blocks;
  const std::size_t piece = divide(divide(count, blocks * pieces), unit) * unit;
  return {piece, divide(count, piece * pieces)};
}

}  // namespace detail

}  // namespace colls::cuda

namespace colls::detail {

template <class T, class Op>
struct one_shot_kernel {
  static void launch(const void* state, const device_one_shot& shot) {
    const Op& op = *static_cast<const Op*>(state);
    const auto ranks = static_cast<std::size_t>(shot.ranks);
    with_count<2>(ranks, [&](auto n) { launch_of<decltype(n)::value>(op, shot); });
  }

 private:
  template <std::size_t Ranks>
  static void launch_of(const Op& op, const device_one_shot& shot) {
    using compute = default_accumulate_t<Op, T>;
    using kernel = cuda::detail::one_shot<T, Op, cuda::detail::fold<T, compute, Op, Ranks>, Ranks>;
    const cuda::detail::one_shot_layout layout =
        cuda::detail::layout_for<T>(shot.count, shot.max_blocks, shot.is_two_shot ? Ranks : 1);
    cuda::detail::require_aligned(static_cast<const T*>(shot.in));
    cuda::detail::require_aligned(static_cast<T*>(shot.out));
    const auto rank = static_cast<std::size_t>(shot.rank);
    kernel body{{},
                static_cast<const T*>(shot.in),
                static_cast<T*>(shot.out),
                shot.count,
                layout.piece,
                layout.blocks,
                shot.is_two_shot,
                rank,
                shot.sequence,
                shot.timed_out,
                shot.max_polls,
                op,
                {true, shot.ranks}};
    for (std::size_t r = 0; r < Ranks; ++r) body.buffers[r] = shot.buffers[r];
    cuda::detail::launch_blocks(body, layout.blocks, shot.stream);
  }
};

}  // namespace colls::detail
