// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Reductions without types: what algorithms over host memory and the facade see of an operation.

#include <colls/base/buffer.hpp>
#include <colls/reduction/kernels.hpp>

namespace colls {

/// An operation whose element type was erased. Algorithms call it once per segment.
struct any_op {
  /// out[i] = left[i] (+) right[i] for `count` elements at any byte offsets. `out` may be one of
  /// the two inputs; else it does not overlap them. Throws what a user's operation throws.
  void (*combine)(const void* state, void* out, const void* left, const void* right,
                  std::size_t count);
  /// out[i] = parts[0][i] (+) ... (+) parts[inputs - 1][i] in one pass, at any byte offsets;
  /// `second` gets the same unless it is null. Both may be one of the inputs. The bits are those
  /// that `combine` leaves input by input. Null where there is no such pass.
  void (*fold)(const void* state, void* out, void* second, const void* const* parts,
               std::size_t inputs, std::size_t count);
  const void* state;  // the operation; it lives as long as this is used
  bool commutative;
  bool associative;
  std::uint32_t id;

  void operator()(void* out, const void* left, const void* right, std::size_t count) const {
    combine(state, out, left, right, count);
  }
};

// Whether it commutes is known at run time: who chooses the algorithm has to ask.
template <>
inline constexpr bool detail::combines<any_op, any_element> = true;
template <>
inline constexpr bool detail::commutes<any_op> = true;

/// Whether an operation commutes, also an erased one.
template <class Op>
constexpr bool is_commutative(const Op& op) {
  if constexpr (std::is_same_v<Op, any_op>) {
    return op.commutative;
  } else {
    return detail::commutes<Op>;
  }
}

/// A reduction in the memory of a device: out = in[0] (+) in[1] (+) ..., prepared, and finished as
/// of so many ranks; `second`, if any, gets the same.
struct device_pass {
  const void* const* in;
  std::size_t inputs;
  void* out;
  void* second;
  std::size_t count;
  int ranks;  // 0: not finished
  stream_ref on;
  bool is_prepared = false;  // the inputs are already
};

/// A sum over ranks on devices of their own, which write to each other's pages (cuda/one_shot.cuh).
struct device_shot {
  std::byte* const* pages;  // of all ranks, as this one sees them
  int ranks;
  int rank;
  const void* in;
  void* out;
  std::size_t count;
  bool twice;             // each rank sums a share first; else each sums all
  std::size_t blocks;     // of threads, at most
  std::uint64_t number;   // of this sum, from 1 on
  std::uint64_t* missed;  // pinned: gets the number where the kernel has given up waiting
  unsigned looks;         // before it does
  stream_ref on;
};

/// What the facade needs of one (element type, accumulate type, operation).
struct reduction {
  any_op op;  // over the working buffer's elements
  std::uint32_t storage_size;
  std::uint32_t storage_align;
  std::uint32_t accumulate_size;  // of an element of the working buffer
  std::uint32_t storage_id;
  std::uint32_t accumulate_id;  // of the type in which elements are combined
  std::uint32_t state_size;     // of the operation; 0: it has none, and `op.state` stays good

  /// From the user's elements to the working buffer's: null if they stay as they are. Input and
  /// output are the same or do not overlap.
  void (*prepare)(const void* state, void* accumulate_out, const void* storage_in, std::size_t n);
  /// Back again, with the number of ranks: null if they stay as they are.
  void (*finish)(const void* state, void* storage_out, const void* accumulate_in, std::size_t n,
                 int ranks);

  /// All of it by a kernel of the thread's current device, in elements as the user has them, for up
  /// to 8 inputs; null: the CPU does it.
  void (*on_device)(const void* state, const device_pass& what) = nullptr;
  /// An all_reduce by kernels that wait for each other; null: there is none.
  void (*shot_on_device)(const void* state, const device_shot& what) = nullptr;

  /// Whether sums are made in the user's elements, with nothing to do before and after.
  bool is_plain() const {
    return prepare == nullptr && finish == nullptr && accumulate_size == storage_size;
  }
};

/// Stands for the accumulate type that suits operation and element type: float for sums and
/// products of float16 and bfloat16, else the element type.
struct automatic_accumulate {};

namespace detail {

/// `launch(state, pass)`: what `reduction::on_device` is; <colls/cuda/reduce.cuh> defines it.
template <class T, class Op>
struct device_kernel;
/// The same for `reduction::shot_on_device`; <colls/cuda/one_shot.cuh> defines it.
template <class T, class Op>
struct device_shots;

template <class T, class Working, class Compute, rounding Rounding, class Op>
reduction erase_as(const Op& op) {
  reduction made{{best_version<combine_loop<Working, Compute, Op>>(), nullptr, &op, commutes<Op>,
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
  using fold = fold_loop<Working, Compute, Op, rounds ? Rounding : rounding::each>;
  if constexpr (fold::vector) made.op.fold = best_version<fold>();
  if constexpr (prepares<Op, Compute>) {
    made.prepare = best_version<prepare_loop<T, Compute, Working, Op>>();
  } else if constexpr (!std::is_same_v<T, Working>) {
    made.prepare = best_version<prepare_loop<T, Compute, Working, conversion>>();
  }
  if constexpr (finishes<Op, Compute>) {
    made.finish = best_version<finish_loop<Working, Compute, T, Op>>();
  } else if constexpr (!std::is_same_v<T, Working>) {
    made.finish = best_version<finish_loop<Working, Compute, T, conversion>>();
  }
  return made;
}

}  // namespace detail

/// The reduction of elements of type T by `op`, which stays alive as long as the result is used.
/// The working buffer holds the accumulate type, and results are rounded to T once; with
/// wire::storage it holds T, and each combination is rounded.
template <class T, class Accumulate = automatic_accumulate, class Op>
reduction erase(const Op& op, wire travels = wire::accumulate) {
  using compute = std::conditional_t<std::is_same_v<Accumulate, automatic_accumulate>,
                                     default_accumulate_t<Op, T>, Accumulate>;
  static_assert(supported_type<T> && accumulator_for<compute, T> && reduction_for<Op, compute>);
  constexpr auto each = detail::rounding::each;
  if constexpr (!std::is_same_v<T, compute>) {
    if (travels == wire::storage) return detail::erase_as<T, T, compute, each>(op);
  }
  return detail::erase_as<T, compute, compute, each>(op);
}
template <class T, class Accumulate = automatic_accumulate, class Op>
reduction erase(const Op&& op, wire travels = wire::accumulate) = delete;

namespace detail {

/// The same, made once in a program: of an operation without a state, which it keeps.
template <class T, class Op>
const reduction& erased_once(const Op& op, wire travels) {
  static_assert(std::is_empty_v<Op>);
  struct made {
    explicit made(const Op& given)
        : op(given), accumulated(erase<T>(op)), stored(erase<T>(op, wire::storage)) {}
    made(const made&) = delete;

    Op op;
    reduction accumulated;
    reduction stored;
  };
  static const made all(op);
  return travels == wire::storage ? all.stored : all.accumulated;
}

}  // namespace detail

}  // namespace colls

// COLLS_REDUCTIONS(extern) says that what programs reduce most is compiled elsewhere;
// COLLS_REDUCTIONS() compiles it.
#define COLLS_REDUCTIONS(where)                                            \
  COLLS_REDUCTIONS_OF(where, int)                                          \
  COLLS_REDUCTIONS_OF(where, long)                                         \
  COLLS_REDUCTIONS_OF(where, float)                                        \
  COLLS_REDUCTIONS_OF(where, double)                                       \
  COLLS_REDUCTION(where, unsigned, plus)                                   \
  COLLS_REDUCTION(where, unsigned long, plus)                              \
  COLLS_REDUCTION(where, unsigned char, maximum)                           \
  COLLS_REDUCTION(where, colls::bfloat16, maximum)                         \
  COLLS_WIDE_REDUCTION(where, colls::float16, plus)                        \
  COLLS_WIDE_REDUCTION(where, colls::bfloat16, plus)                       \
  COLLS_WIDE_REDUCTION(where, colls::bfloat16, average)                    \
  COLLS_ERASE_AS(where, colls::float16, colls::float16, float, once, plus) \
  COLLS_ERASE_AS(where, colls::bfloat16, colls::bfloat16, float, once, plus)
#define COLLS_REDUCTIONS_OF(where, type) \
  COLLS_REDUCTION(where, type, plus)     \
  COLLS_REDUCTION(where, type, maximum)  \
  COLLS_REDUCTION(where, type, minimum)  \
  COLLS_REDUCTION(where, type, average)
#define COLLS_REDUCTION(where, type, op) COLLS_ERASE_AS(where, type, type, type, each, op)
#define COLLS_WIDE_REDUCTION(where, type, op)        \
  COLLS_ERASE_AS(where, type, type, float, each, op) \
  COLLS_ERASE_AS(where, type, float, float, each, op)
#define COLLS_ERASE_AS(where, type, working, compute, rounds, op)                              \
  where template colls::reduction                                                              \
  colls::detail::erase_as<type, working, compute, colls::detail::rounding::rounds, colls::op>( \
      const colls::op&);

#ifdef COLLS_SEPARATE_COMPILATION
COLLS_REDUCTIONS(extern)
#endif
