// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Type-erased reductions: the form in which algorithms over host memory and the communicator see an
// operation.

#include <colls/base/buffer.hpp>
#include <colls/reduction/kernels.hpp>

namespace colls {

/// An operation whose element type was erased. Algorithms call it once per segment.
struct any_op {
  /// out[i] = left[i] (+) right[i] for `count` elements at any byte offsets. `out` may be one of
  /// the two inputs; otherwise it does not overlap them. Throws what a user's operation throws.
  void (*combine)(const void* state, void* out, const void* left, const void* right,
                  std::size_t count);
  /// out[i] = parts[0][i] (+) ... (+) parts[inputs - 1][i] in one pass, at any byte offsets. The
  /// result is also written to `second` unless that is null. Both may be one of the inputs. The
  /// result has the same bits as `combine` applied input by input. Null: no such pass exists.
  void (*fold)(const void* state, void* out, void* second, const void* const* parts,
               std::size_t inputs, std::size_t count);
  const void* state;  // the operation; it outlives every use of this object
  bool commutative;
  bool associative;
  std::uint32_t id;

  void operator()(void* out, const void* left, const void* right, std::size_t count) const {
    combine(state, out, left, right, count);
  }
};

// Whether an erased operation commutes is known only at run time: the selection of the algorithm
// checks it.
template <>
inline constexpr bool detail::combines<any_op, any_element> = true;
template <>
inline constexpr bool detail::commutes<any_op> = true;

/// Returns whether an operation commutes; works for erased operations too.
template <class Op>
constexpr bool is_commutative(const Op& op) {
  if constexpr (std::is_same_v<Op, any_op>) {
    return op.commutative;
  } else {
    return detail::commutes<Op>;
  }
}

/// A reduction in device memory: out = in[0] (+) in[1] (+) ..., with the inputs prepared and the
/// result finished for `ranks` ranks. The result is also written to `second` unless that is null.
struct device_pass {
  const void* const* in;
  std::size_t inputs;
  void* out;
  void* second;
  std::size_t count;
  int ranks;  // 0: not finished
  stream_ref stream;
  bool is_prepared = false;  // the inputs have been prepared already
};

/// A reduction over ranks on different devices, which write to each other's peer buffers
/// (cuda/one_shot.cuh).
struct device_one_shot {
  std::byte* const* buffers;  // the peer buffers of all ranks, as mapped by this rank
  int ranks;
  int rank;
  const void* in;
  void* out;
  std::size_t count;
  bool is_two_shot;          // true: each rank reduces a share first; false: each reduces all
  std::size_t max_blocks;    // of threads
  std::uint64_t sequence;    // number of this reduction, from 1 on
  std::uint64_t* timed_out;  // pinned; set to `sequence` by a kernel that stops waiting
  unsigned max_polls;        // of a flag, before the kernel stops waiting
  stream_ref stream;
};

/// A reduction for one combination of element type, accumulate type and operation.
struct reduction {
  any_op op;  // over the working buffer's elements
  std::uint32_t storage_size;
  std::uint32_t storage_align;
  std::uint32_t accumulate_size;  // bytes of an element of the working buffer
  std::uint32_t storage_id;
  std::uint32_t accumulate_id;  // type in which elements are combined
  std::uint32_t state_size;     // of the operation; 0: it has no state, `op.state` stays valid

  /// Converts the user's elements to those of the working buffer. Input and output are the same or
  /// do not overlap. Null: no conversion is needed.
  void (*prepare)(const void* state, void* accumulate_out, const void* storage_in, std::size_t n);
  /// Converts the result in the working buffer to the user's elements, for a reduction over `ranks`
  /// ranks. Null: no conversion is needed.
  void (*finish)(const void* state, void* storage_out, const void* accumulate_in, std::size_t n,
                 int ranks);

  /// Prepares, combines and finishes up to 8 inputs in the user's element type with a kernel on the
  /// thread's current device. Null: the CPU does it.
  void (*run_on_device)(const void* state, const device_pass& pass) = nullptr;
  /// Performs an all_reduce with kernels that wait for each other. Null: there is no such kernel.
  void (*run_one_shot_on_device)(const void* state, const device_one_shot& shot) = nullptr;

  /// Returns whether the user's elements are combined as they are, without `prepare` and `finish`.
  bool is_plain() const {
    return prepare == nullptr && finish == nullptr && accumulate_size == storage_size;
  }
};

/// Stands for the default accumulate type of an operation and an element type: float for sums and
/// products of float16 and bfloat16, otherwise the element type.
struct automatic_accumulate {};

namespace detail {

/// `launch(state, pass)` is the value of `reduction::run_on_device`.
/// <colls/cuda/reduce.cuh> defines it.
template <class T, class Op>
struct device_kernel;
/// `launch(state, shot)` is the value of `reduction::run_one_shot_on_device`.
/// <colls/cuda/one_shot.cuh> defines it.
template <class T, class Op>
struct one_shot_kernel;

template <class T, class Working, class Compute, rounding Rounding, class Op>
reduction erase_as(const Op& op) {
  reduction result{{best_version<combine_loop<Working, Compute, Op>>(), nullptr, &op, commutes<Op>,
                    associates<Op>, op_id(op)},
                   sizeof(T),
                   alignof(T),
                   sizeof(Working),
                   type_id<T>(),
                   type_id<Compute>(),
                   std::is_empty_v<Op> ? 0 : sizeof(Op),
                   nullptr,
                   nullptr};
  constexpr bool rounds = !std::is_same_v<Working, Compute>;
  using fold = fold_loop<Working, Compute, Op, rounds ? Rounding : rounding::each_step>;
  if constexpr (fold::vector) result.op.fold = best_version<fold>();
  if constexpr (prepares<Op, Compute>) {
    result.prepare = best_version<prepare_loop<T, Compute, Working, Op>>();
  } else if constexpr (!std::is_same_v<T, Working>) {
    result.prepare = best_version<prepare_loop<T, Compute, Working, conversion>>();
  }
  if constexpr (finishes<Op, Compute>) {
    result.finish = best_version<finish_loop<Working, Compute, T, Op>>();
  } else if constexpr (!std::is_same_v<T, Working>) {
    result.finish = best_version<finish_loop<Working, Compute, T, conversion>>();
  }
  return result;
}

}  // namespace detail

/// Returns the reduction of elements of type T by `op`. `op` must outlive every use of the result.
/// The working buffer holds the accumulate type, and results are rounded to T once. With
/// wire::storage the working buffer holds T, and each combination is rounded.
template <class T, class Accumulate = automatic_accumulate, class Op>
reduction erase(const Op& op, wire format = wire::accumulate) {
  using compute = std::conditional_t<std::is_same_v<Accumulate, automatic_accumulate>,
                                     default_accumulate_t<Op, T>, Accumulate>;
  static_assert(supported_type<T> && accumulator_for<compute, T> && reduction_for<Op, compute>);
  constexpr auto each_step = detail::rounding::each_step;
  if constexpr (!std::is_same_v<T, compute>) {
    if (format == wire::storage) return detail::erase_as<T, T, compute, each_step>(op);
  }
  return detail::erase_as<T, compute, compute, each_step>(op);
}
template <class T, class Accumulate = automatic_accumulate, class Op>
reduction erase(const Op&& op, wire format = wire::accumulate) = delete;

namespace detail {

/// Returns the reduction by an operation without state. It is created once in the program and keeps
/// its own copy of the operation.
template <class T, class Op>
const reduction& cached_reduction(const Op& op, wire format) {
  static_assert(std::is_empty_v<Op>);
  struct formats {
    explicit formats(const Op& operation)
        : op(operation), accumulated(erase<T>(op)), stored(erase<T>(op, wire::storage)) {}
    formats(const formats&) = delete;

    Op op;
    reduction accumulated;
    reduction stored;
  };
  static const formats cached(op);
  return format == wire::storage ? cached.stored : cached.accumulated;
}

}  // namespace detail

}  // namespace colls

// COLLS_REDUCTIONS(extern) declares explicit instantiations of the most common reductions;
// COLLS_REDUCTIONS() defines them.
#define COLLS_REDUCTIONS(linkage)                                              \
  COLLS_REDUCTIONS_OF(linkage, int)                                            \
  COLLS_REDUCTIONS_OF(linkage, long)                                           \
  COLLS_REDUCTIONS_OF(linkage, float)                                          \
  COLLS_REDUCTIONS_OF(linkage, double)                                         \
  COLLS_REDUCTION(linkage, unsigned, plus)                                     \
  COLLS_REDUCTION(linkage, unsigned long, plus)                                \
  COLLS_REDUCTION(linkage, unsigned char, maximum)                             \
  COLLS_REDUCTION(linkage, colls::bfloat16, maximum)                           \
  COLLS_WIDE_REDUCTION(linkage, colls::float16, plus)                          \
  COLLS_WIDE_REDUCTION(linkage, colls::bfloat16, plus)                         \
  COLLS_WIDE_REDUCTION(linkage, colls::bfloat16, average)                      \
  COLLS_ERASE_AS(linkage, colls::float16, colls::float16, float, at_end, plus) \
  COLLS_ERASE_AS(linkage, colls::bfloat16, colls::bfloat16, float, at_end, plus)
#define COLLS_REDUCTIONS_OF(linkage, type) \
  COLLS_REDUCTION(linkage, type, plus)     \
  COLLS_REDUCTION(linkage, type, maximum)  \
  COLLS_REDUCTION(linkage, type, minimum)  \
  COLLS_REDUCTION(linkage, type, average)
#define COLLS_REDUCTION(linkage, type, op) COLLS_ERASE_AS(linkage, type, type, type, each_step, op)
#define COLLS_WIDE_REDUCTION(linkage, type, op)             \
  COLLS_ERASE_AS(linkage, type, type, float, each_step, op) \
  COLLS_ERASE_AS(linkage, type, float, float, each_step, op)
#define COLLS_ERASE_AS(linkage, type, working, compute, rounds, op)                            \
  linkage template colls::reduction                                                            \
  colls::detail::erase_as<type, working, compute, colls::detail::rounding::rounds, colls::op>( \
      const colls::op&);

#ifdef COLLS_SEPARATE_COMPILATION
COLLS_REDUCTIONS(extern)
#endif
