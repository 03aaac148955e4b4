// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// erased_reduction: reductions whose element type is erased. Communicators and the algorithms for
// CPU memory use reductions in this form. In formulas, (+) stands for the operation.

#include <colls/base/buffer.hpp>
#include <colls/reduction/kernels.hpp>

namespace colls {

/// An operation whose element type is erased. One call of `combine` or `fold` combines all elements
/// of a segment and not only one element. A segment is a piece of the data that an algorithm sends
/// at once.
struct any_op {
  /// Computes out[i] = left[i] (+) right[i] for `count` elements, which may have any alignment.
  /// `out` may be equal to `left` or `right`, but must not overlap them otherwise. If a
  /// user-defined operation throws an exception, passes that exception on.
  void (*combine)(const void* state, void* out, const void* left, const void* right,
                  std::size_t count);
  /// Computes out[i] = parts[0][i] (+) ... (+) parts[inputs - 1][i] in one pass for `count`
  /// elements, which may have any alignment. Also writes the result to `second` unless `second` is
  /// null. `out` and `second` may each be one of the inputs. With `rounding::each_step`, the result
  /// has the same bits as if `combine` were applied to one input after another. With
  /// `rounding::at_end`, the result is rounded only once. The pointer `fold` is null if the
  /// operation cannot combine several inputs in one pass.
  void (*fold)(const void* state, void* out, void* second, const void* const* parts,
               std::size_t inputs, std::size_t count);
  const void* state;  // the operation, which must outlive every use of this object
  bool commutative;
  bool associative;
  std::uint32_t id;

  void operator()(void* out, const void* left, const void* right, std::size_t count) const {
    combine(state, out, left, right, count);
  }
};

// These constants let every erased operation pass the checks at compile time, including the check
// that an operation is commutative. Whether an erased operation is in fact commutative is known
// only at run time. The code that selects an algorithm checks it at run time.
template <>
inline constexpr bool detail::combines<any_op, any_element> = true;
template <>
inline constexpr bool detail::commutes<any_op> = true;

/// Returns whether `op`, which may be an erased operation, is commutative.
template <class Op>
constexpr bool is_commutative(const Op& op) {
  if constexpr (std::is_same_v<Op, any_op>) {
    return op.commutative;
  } else {
    return detail::commutes<Op>;
  }
}

/// The arguments of a reduction in device memory (the memory of a GPU). The reduction first
/// prepares the inputs (see `reduction::prepare`). Then it computes out = in[0] (+) in[1] (+) ...
/// and finishes the result (see `reduction::finish`). It also writes the result to `second` unless
/// `second` is null.
struct device_pass {
  const void* const* in;
  std::size_t inputs;
  void* out;
  void* second;
  std::size_t count;
  int ranks;  // the number of ranks, or 0 if the result is not to be finished
  stream_ref stream;
  bool is_prepared = false;  // whether the inputs have been prepared already
};

/// The arguments of an all_reduce between ranks that each have a GPU of their own. Each rank has
/// peer buffers, which are buffers in the memory of its GPU. All ranks have mapped these buffers
/// and write to them (see cuda/one_shot.cuh).
struct device_one_shot {
  std::byte* const* buffers;  // the peer buffers of all ranks, as mapped by this rank
  int ranks;
  int rank;
  const void* in;
  void* out;
  std::size_t count;
  bool is_two_shot;  // whether each rank reduces a share of the vector and writes it to all ranks
  std::size_t max_blocks;    // the largest number of blocks of threads
  std::uint64_t sequence;    // the number of this reduction, counted from 1
  std::uint64_t* timed_out;  // pinned memory; a kernel that stops waiting stores `sequence` there
  unsigned max_polls;        // the number of polls of a flag before the kernel stops waiting
  stream_ref stream;
};

/// A reduction for one combination of element type, accumulate type (the type in which elements are
/// combined) and operation. Partial results are combined in a working buffer.
struct reduction {
  any_op op;  // combines elements of the working buffer
  std::uint32_t storage_size;
  std::uint32_t storage_align;
  std::uint32_t accumulate_size;  // the size of an element of the working buffer
  std::uint32_t storage_id;
  std::uint32_t accumulate_id;  // the accumulate type
  /// The size of the object `*op.state`, or 0 if the operation has no state. If the size is not 0,
  /// each collective call copies the object, because the call may outlive the user's object. If the
  /// size is 0, `op.state` stays valid after the call without a copy.
  std::uint32_t state_size;

  /// Converts `n` elements of the user's buffer to elements of the working buffer. If the user's
  /// operation has a function `prepare`, also applies that function to each element. The two
  /// buffers must be equal or must not overlap. This function pointer is null if the elements need
  /// no conversion and the operation has no function `prepare`.
  void (*prepare)(const void* state, void* accumulate_out, const void* storage_in, std::size_t n);
  /// Converts `n` elements of the working buffer, which holds the result, to elements of the user's
  /// buffer. If the user's operation has a function `finish`, also applies that function to each
  /// element and passes it `ranks`, the number of ranks. This function pointer is null if the
  /// elements need no conversion and the operation has no function `finish`.
  void (*finish)(const void* state, void* storage_out, const void* accumulate_in, std::size_t n,
                 int ranks);

  /// Launches a kernel that performs the reduction described by `pass`. The reduction has at most 8
  /// inputs, and their elements have the user's element type. The kernel runs on the current device
  /// of the calling thread. This function pointer is null if the CPU or a library such as NCCL
  /// performs the reduction.
  void (*run_on_device)(const void* state, const device_pass& pass) = nullptr;
  /// Launches this rank's kernel for the all_reduce described by `shot`. Each rank runs such a
  /// kernel on its own device, and the kernels wait for each other. This function pointer is null
  /// if there is no such kernel.
  void (*run_one_shot_on_device)(const void* state, const device_one_shot& shot) = nullptr;

  /// Returns whether the elements of the user's buffer are combined as they are, without `prepare`
  /// and `finish`.
  bool is_plain() const { return prepare == nullptr && finish == nullptr; }
};

/// A tag type that stands for the default accumulate type of an operation and an element type. The
/// default is float for the built-in sums, products and averages of float16 or bfloat16 elements.
/// For all other combinations of a built-in operation and an element type, it is the element type.
struct automatic_accumulate {};

namespace detail {

/// The kernel of a reduction on one device. The header <colls/cuda/reduce.cuh> defines this
/// template. `reduction::run_on_device` points to its member function `launch(state, pass)`.
template <class T, class Op>
struct device_kernel;
/// The kernel of an all_reduce between devices. The header <colls/cuda/one_shot.cuh> defines this
/// template. `reduction::run_one_shot_on_device` points to its member function
/// `launch(state, shot)`.
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

/// Returns the reduction of elements of type `T` by `op`. The object `op` must outlive every use of
/// the returned reduction. `format` selects the element type of the working buffer. With
/// `wire::accumulate`, this is the accumulate type, and each result is rounded to `T` once, at the
/// end. With `wire::storage`, it is `T`, and a value is rounded to `T` whenever two elements have
/// been combined.
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

/// Returns the reduction of elements of type `T` by `op` for the wire format `format`. The
/// operation must have no state. The first call copies `op` and creates the reductions for both
/// formats. Later calls return the same reductions. The reductions refer to the copy, so the caller
/// may destroy `op`.
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
