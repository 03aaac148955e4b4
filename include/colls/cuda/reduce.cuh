// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reduce: kernels that reduce up to 8 inputs in device memory at a time, for any element type and
// any operation whose call operator is __host__ __device__.

#include <colls/base/op.hpp>
#include <colls/cuda/check.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <array>
#include <new>

#if !defined(__CUDACC__) && !defined(COLLS_CUDA_STAND_IN)
#error "colls/cuda/reduce.cuh has kernels: compile this file with nvcc, as a .cu"
#endif
#ifdef __CUDACC__
#include <colls/cuda/half.cuh>
#endif

#ifdef __CUDA_ARCH__
#define COLLS_DETAIL_UNROLL _Pragma("unroll")
#else
#define COLLS_DETAIL_UNROLL
#endif

namespace colls::cuda {

namespace detail {

/// The 16 bytes that a thread loads or stores with one vector instruction.
struct alignas(16) quad {
  std::uint32_t words[4];
};

/// Stores a quad with one instruction. This function is needed because the compiler splits some
/// assignments of a quad into stores of single words.
COLLS_HOST_DEVICE inline void store(quad* dest, const quad& value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(dest)),
               "r"(value.words[0]), "r"(value.words[1]), "r"(value.words[2]), "r"(value.words[3])
               : "memory");
#else
  *dest = value;
#endif
}

template <class T>
COLLS_HOST_DEVICE constexpr std::size_t elements_of_pack() {
  std::size_t bytes = sizeof(T);
  while (bytes % sizeof(quad) != 0) bytes += sizeof(T);
  return bytes <= 64 ? bytes / sizeof(T) : 0;
}
/// The smallest number of elements whose total size is a multiple of the size of a quad, or 0 if
/// this total size exceeds 64 bytes. If `pack_size` is 0, kernels load and store elements one by
/// one.
template <class T>
inline constexpr std::size_t pack_size = elements_of_pack<T>();

template <class T>
union pack {
  COLLS_HOST_DEVICE pack() {}
  quad quads[pack_size<T> * sizeof(T) / sizeof(quad)];
  T elements[pack_size<T>];
};

/// Converts the element `x` to `Compute`, the type in which the kernel combines elements. `narrow`
/// converts a result back to the type of the elements. If the GPU has an instruction for such a
/// conversion, the functions use it. In that case the instruction determines the bits of a NaN.
COLLS_ANYWHERE
template <class Compute, class T>
COLLS_HOST_DEVICE Compute widen(const T& x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float16> && std::is_same_v<Compute, float>) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits()));
    return wide;
  }
#endif
  return static_cast<Compute>(x);
}
COLLS_ANYWHERE
template <class T, class Compute>
COLLS_HOST_DEVICE T narrow(const Compute& x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Compute, float> && std::is_same_v<T, float16>) {
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return T::from_bits(bits);
  }
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<Compute, float> && std::is_same_v<T, bfloat16>) {
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return T::from_bits(bits);
  }
#endif
#endif
  return static_cast<T>(x);
}

/// Returns `op(left, right)`. When nvcc compiles device code, this function is declared
/// `__device__`. An operation that can be called only on the CPU then causes a compile error.
#ifdef __CUDA_ARCH__
template <class Compute, class Op>
__device__ Compute combine(const Op& op, const Compute& left, const Compute& right) {
  return static_cast<Compute>(op(left, right));
}
#else
template <class Compute, class Op>
Compute combine(const Op& op, const Compute& left, const Compute& right) {
  return static_cast<Compute>(op(left, right));
}
#endif

/// The choice of the steps that a kernel performs in addition to combining elements. If `prepare`
/// is true, the kernel applies `op.prepare` to every input. If `finish` is not 0, the kernel
/// applies `op.finish` to every result.
struct stages {
  bool prepare = false;
  int finish = 0;  // the number of ranks, or 0 if the result is not finished
};

/// The function object that every thread of the kernel calls. The kernel computes out[i] = in[0][i]
/// (+) in[1][i] (+) ... for each i, where (+) is `op`. `operator()` does one thread's share of this
/// work. If `second` is not null, the kernel also writes the results to `second`. The kernel
/// combines elements in the type `Compute` and rounds each result once. `out` may be one of the
/// inputs, because a thread reads element i of all inputs before it writes out[i].
template <class T, class Compute, class Op, std::size_t Inputs>
struct fold {
  static_assert(Inputs >= 1 && Inputs <= 8, "colls: a kernel folds 1 to 8 inputs");

  T* out;
  T* second;  // null if there is no second output
  const T* in[Inputs];
  std::size_t count;
  Op op;
  stages extra;

  /// Returns the least n such that the address of element n is a multiple of sizeof(quad) in every
  /// array. Returns SIZE_MAX if there is no such n, or if `pack_size<T>` is 0.
  COLLS_HOST_DEVICE std::size_t head() const {
    if constexpr (pack_size<T> == 0) return SIZE_MAX;
    const auto misalignment = [](const T* pointer) {
      return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(quad);
    };
    const std::uintptr_t start = misalignment(out);
    bool same = second == nullptr || misalignment(second) == start;
    for (std::size_t i = 0; i < Inputs; ++i) same &= misalignment(in[i]) == start;
    if (!same) return SIZE_MAX;
    for (std::size_t n = 0; n < sizeof(quad); ++n) {
      if ((start + n * sizeof(T)) % sizeof(quad) == 0) return n;
    }
    return SIZE_MAX;
  }

  COLLS_ANYWHERE
  COLLS_HOST_DEVICE void operator()(std::size_t thread, std::size_t threads) const {
    const std::size_t before = head();
    if constexpr (pack_size<T> != 0) {
      if (before < count) {
        constexpr std::size_t size = pack_size<T>;
        const std::size_t packs = (count - before) / size;
        // A thread issues several loads before it uses the first loaded value. Otherwise the kernel
        // would not reach the full memory bandwidth.
        constexpr std::size_t batch = Inputs <= 2 ? 4 : Inputs <= 4 ? 2 : 1;
        std::size_t index = thread;
        for (; index + (batch - 1) * threads < packs; index += batch * threads) {
          fold_packs<batch>(before, index, threads);
        }
        for (; index < packs; index += threads) fold_packs<1>(before, index, threads);
        fold_elements(thread, threads, before);
        fold_elements(before + packs * size + thread, threads, count);
        return;
      }
    }
    fold_elements(thread, threads, count);
  }

 private:
  COLLS_ANYWHERE
  COLLS_HOST_DEVICE Compute load(const T& x) const {
    if constexpr (colls::detail::prepares<Op, Compute>) {
      if (extra.prepare) return op.prepare(widen<Compute>(x));
    }
    return widen<Compute>(x);
  }
  COLLS_ANYWHERE
  COLLS_HOST_DEVICE T finished(const Compute& x) const {
    if constexpr (colls::detail::finishes<Op, Compute>) {
      if (extra.finish != 0) return narrow<T>(static_cast<Compute>(op.finish(x, extra.finish)));
    }
    return narrow<T>(x);
  }
  /// Returns the fold (the reduction in order) of `input(0)`, `input(1)` and so on.
  COLLS_ANYWHERE
  COLLS_HOST_DEVICE T folded(const auto& input) const {
    if constexpr (Inputs == 1) {
      return finished(load(input(0)));
    } else {
      return finished(combined<1>(load(input(0)), input));
    }
  }
  COLLS_ANYWHERE
  template <std::size_t Next>
  COLLS_HOST_DEVICE Compute combined(const Compute& left, const auto& input) const {
    const Compute more = combine<Compute>(op, left, load(input(Next)));
    if constexpr (Next + 1 < Inputs) {
      return combined<Next + 1>(more, input);
    } else {
      return more;
    }
  }

  COLLS_ANYWHERE
  template <std::size_t Batch>
  COLLS_HOST_DEVICE void fold_packs(std::size_t before, std::size_t index,
                                    std::size_t threads) const {
    constexpr std::size_t size = pack_size<T>;
    constexpr std::size_t quads = size * sizeof(T) / sizeof(quad);
    const auto position = [&](auto* base, std::size_t k) {
      return base + before + (index + k * threads) * size;
    };
    pack<T> loaded[Batch][Inputs];
    COLLS_DETAIL_UNROLL
    for (std::size_t k = 0; k < Batch; ++k) {
      COLLS_DETAIL_UNROLL
      for (std::size_t i = 0; i < Inputs; ++i) {
        const auto* const source = reinterpret_cast<const quad*>(position(in[i], k));
        COLLS_DETAIL_UNROLL
        for (std::size_t q = 0; q < quads; ++q) loaded[k][i].quads[q] = source[q];
      }
    }
    COLLS_DETAIL_UNROLL
    for (std::size_t k = 0; k < Batch; ++k) {
      pack<T> done;
      COLLS_DETAIL_UNROLL
      for (std::size_t e = 0; e < size; ++e) {
        const auto input = [&](std::size_t i) -> const T& { return loaded[k][i].elements[e]; };
        put(done.elements[e], folded(input));
      }
      auto* const dest = reinterpret_cast<quad*>(position(out, k));
      COLLS_DETAIL_UNROLL
      for (std::size_t q = 0; q < quads; ++q) store(dest + q, done.quads[q]);
      if (second != nullptr) {
        auto* const copy = reinterpret_cast<quad*>(position(second, k));
        COLLS_DETAIL_UNROLL
        for (std::size_t q = 0; q < quads; ++q) store(copy + q, done.quads[q]);
      }
    }
  }

  COLLS_ANYWHERE
  COLLS_HOST_DEVICE void fold_elements(std::size_t first, std::size_t step, std::size_t end) const {
    for (std::size_t i = first; i < end; i += step) {
      const auto input = [&](std::size_t k) -> const T& { return in[k][i]; };
      const T done = folded(input);
      put(out[i], done);
      if (second != nullptr) put(second[i], done);
    }
  }

  /// Writes `value` to `dest`. Constructs a copy there instead of assigning, because T is trivially
  /// copyable but may not be assignable.
  COLLS_HOST_DEVICE static void put(T& dest, const T& value) {
    new (static_cast<void*>(&dest)) T(value);
  }
};

#ifdef __CUDACC__
// Two shared libraries may contain the same kernel. The kernels are hidden symbols, so that each
// library uses its own copy.
#pragma GCC visibility push(hidden)
template <class Kernel>
__global__ void __launch_bounds__(256) run(Kernel kernel) {
  kernel(std::size_t{blockIdx.x} * blockDim.x + threadIdx.x, std::size_t{gridDim.x} * blockDim.x);
}
#pragma GCC visibility pop
#endif

/// Returns how many thread blocks of the kernel `Kernel` a multiprocessor can run at a time. Each
/// block has `size` threads. The first call determines the number for the thread's current device,
/// and all later calls return the same number. In tests without CUDA, returns 8.
template <class Kernel>
std::size_t resident_blocks([[maybe_unused]] std::size_t size) {
#ifdef __CUDACC__
  static const int blocks = [size] {
    int count = 0;
    check(api::consume_error(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
              &count, &run<Kernel>, static_cast<int>(size), 0)),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    return count;
  }();
  return static_cast<std::size_t>(blocks);
#else
  return 8;
#endif
}

/// Launches the kernel with enough blocks of 256 threads to give each of the `work` items a thread,
/// but with at most as many blocks as the device can run at a time.
template <class Kernel>
void launch(const Kernel& kernel, std::size_t work, stream_ref stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  constexpr std::size_t block = 256;
  int device = 0;
  int processors = 0;
  check(api::current_device(device), "cudaGetDevice");
  check(api::count_processors(device, processors), "cudaDeviceGetAttribute");
  const std::size_t max_blocks =
      static_cast<std::size_t>(processors) * resident_blocks<Kernel>(block);
  const std::size_t wanted = (work + block - 1) / block;
  const std::size_t blocks = wanted < max_blocks ? wanted : max_blocks;
#ifdef __CUDACC__
  Kernel copy = kernel;
  void* arguments[] = {&copy};
  check(api::consume_error(cudaLaunchKernel(
            reinterpret_cast<const void*>(&run<Kernel>), dim3(static_cast<unsigned>(blocks)),
            dim3(static_cast<unsigned>(block)), arguments, 0, api::native(stream))),
        "the launch of a reduction");
#else
  check(api::launch(
            [](const void* closure, std::size_t thread, std::size_t threads) {
              (*static_cast<const Kernel*>(closure))(thread, threads);
            },
            &kernel, sizeof kernel, blocks * block, stream),
        "the launch of a reduction");
#endif
}

template <class T>
void require_aligned(const T* pointer) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) == 0) return;
  throw error(errc::invalid_argument, "a device buffer is not aligned as its elements have to be");
}
template <class T>
void require_in_memory(const T* data, std::size_t count, int device) {
  const any_buffer buffer(const_cast<T*>(data), count, sizeof(T));
  const char* const reason = usage_error(buffer, device);
  if (reason != nullptr) throw error(errc::invalid_argument, reason);
}
template <class T>
void require_disjoint(const T* first, const T* second, std::size_t count) {
  if (first == nullptr || second == nullptr || first == second) return;
  if (first >= second + count || second >= first + count) return;
  throw error(errc::invalid_argument, "device buffers of a reduction overlap in part");
}

/// Enqueues a reduction as `reduce_into` (below) does, but does not check that the buffers are in
/// the device's memory. `extra` selects additional steps of the kernel.
template <class T, class Op, std::size_t Inputs>
void fold_into(device_span<T> out, const std::array<const T*, Inputs>& inputs, const Op& op,
               stream_ref stream, T* second, stages extra) {
  using compute = default_accumulate_t<Op, T>;
  static_assert(check_reduction<Op, T>());
  static_assert(
      sizeof(Op) <= 64 && std::is_trivially_copyable_v<Op>,
      "colls: an operation is copied to the device: at most 64 bytes, trivially copyable");
  if (out.size() == 0) return;
  require_aligned(out.data());
  require_aligned(second);
  require_disjoint<T>(out.data(), second, out.size());
  for (const T* const input : inputs) {
    require_aligned(input);
    require_disjoint<T>(out.data(), input, out.size());
    require_disjoint<T>(second, input, out.size());
  }
  if (second == out.data()) second = nullptr;
  using kernel = fold<T, compute, Op, Inputs>;
  constexpr std::size_t unit = pack_size<T> != 0 ? pack_size<T> : 1;
  kernel body{out.data(), second, {}, out.size(), op, extra};
  for (std::size_t i = 0; i < Inputs; ++i) body.in[i] = inputs[i];
  launch(body, (out.size() + unit - 1) / unit, stream);
}

}  // namespace detail

}  // namespace colls::cuda

#undef COLLS_DETAIL_UNROLL

namespace colls {

/// Enqueues on `stream` a kernel that computes out[i] = inputs[0][i] (+) inputs[1][i] (+) ... from
/// left to right, where (+) is `op`. If `second` is not null, the kernel also writes the result to
/// `second`. All buffers must have out.size() elements and be in the memory of the thread's current
/// device. `out` and `second` may each be one of the inputs. The buffers must stay valid until the
/// stream has done the work. The kernel computes sums of half-precision types in float and rounds
/// each sum once. Throws `errc::invalid_argument` and launches nothing if an argument is invalid,
/// for example if a buffer is in host memory or in the memory of another device.
template <class T, class Op, std::size_t Inputs>
void reduce_into(device_span<T> out, const std::array<const T*, Inputs>& inputs, const Op& op,
                 stream_ref stream, T* second = nullptr) {
  using element = detail::combined_as<T, Op>;
  int device = 0;
  cuda::check(cuda::api::current_device(device), "cudaGetDevice");
  cuda::detail::require_in_memory(out.data(), out.size(), device);
  if (second != nullptr) cuda::detail::require_in_memory(second, out.size(), device);
  std::array<const element*, Inputs> in{};
  for (std::size_t i = 0; i < Inputs; ++i) {
    cuda::detail::require_in_memory(inputs[i], out.size(), device);
    in[i] = reinterpret_cast<const element*>(inputs[i]);
  }
  const device_span<element> dest{reinterpret_cast<element*>(out.data()), out.size()};
  cuda::detail::fold_into(dest, in, op, stream, reinterpret_cast<element*>(second), {});
}

namespace detail {

/// Calls `use` with the value `n` as a compile-time constant, so that a kernel is compiled for each
/// possible value. `n` must be in the range from `First` to 8.
template <std::size_t First, class Use>
void with_count(std::size_t n, const Use& use) {
  if constexpr (First < 8) {
    if (n != First) return with_count<First + 1>(n, use);
  }
  use(std::integral_constant<std::size_t, First>());
}

template <class T, class Op>
struct device_kernel {
  static_assert(!std::is_same_v<T, long double>, "colls: a GPU has no long double");

  static void launch(const void* state, const device_pass& pass) {
    const Op& op = *static_cast<const Op*>(state);
    with_count<1>(pass.inputs, [&](auto n) { launch_of<decltype(n)::value>(op, pass); });
  }

 private:
  template <std::size_t Inputs>
  static void launch_of(const Op& op, const device_pass& pass) {
    std::array<const T*, Inputs> in{};
    for (std::size_t i = 0; i < Inputs; ++i) in[i] = static_cast<const T*>(pass.in[i]);
    cuda::detail::fold_into(device_span<T>{static_cast<T*>(pass.out), pass.count}, in, op,
                            pass.stream, static_cast<T*>(pass.second),
                            {!pass.is_prepared, pass.ranks});
  }
};

}  // namespace detail

}  // namespace colls
