// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// op_traits: the requirements on the operation of a reduction. An operation has up to three steps.
// `prepare` is applied once to each input. The call operator combines two values. `finish` is
// applied once to each result and also receives the number of ranks. Unless the operation is
// commutative, the left argument of the call operator comes from lower ranks than the right
// argument.

#include <colls/base/op_arithmetic.hpp>

namespace colls {

namespace detail {

/// The base class of the built-in operations. `Number` identifies the operation when ranks check
/// that they have called a collective with equal arguments.
template <std::uint32_t Number>
struct builtin_op {
  static constexpr bool commutative = true;
  static constexpr std::uint32_t op_number = Number;
};
template <class Op>
concept is_builtin_op = requires { requires std::is_base_of_v<builtin_op<Op::op_number>, Op>; };

/// A callable that behaves like `Function` and is declared to be commutative.
template <class Function>
struct commuting : Function {
  static constexpr bool commutative = true;
  using Function::operator();
};

template <class Result, class Left, class Right>
struct function_pointer {
  Result (*call)(Left, Right);
  constexpr Result operator()(Left left, Right right) const { return call(left, right); }
};

// The following traits read static members of the operation. They ignore non-static members of the
// same names.
template <class Op>
inline constexpr bool commutes = false;
template <class Op>
  requires requires { typename std::bool_constant<Op::commutative>; }
inline constexpr bool commutes<Op> = Op::commutative;

template <class Op>
inline constexpr bool associates = true;
template <class Op>
  requires requires { typename std::bool_constant<Op::associative>; }
inline constexpr bool associates<Op> = Op::associative;

template <class Op, class T>
concept prepares = requires(const Op& op, const T& x) { op.prepare(x); };
template <class Op, class T>
concept finishes = requires(const Op& op, const T& x) { op.finish(x, 1); };

template <class Op, class T>
inline constexpr bool combines = requires(const Op& op, const T& x) {
  { op(x, x) } -> result_for<T>;
};

/// The type that a reduction with the operation Op uses for elements of type T. If Op is built in
/// or does not accept T, this is `counterpart_t<T>`, the type of colls that corresponds to T.
/// Otherwise it is T itself.
template <class T, class Op>
using combined_as = std::conditional_t<is_builtin_op<Op> || !combines<Op, T>, counterpart_t<T>, T>;

/// The default type in which an operation combines elements of type T (the accumulate type). This
/// is `Op::accumulate<T>` if the operation has such a member, and T otherwise.
template <class Op, class T>
struct default_accumulate {
  using type = T;
};
template <class Op, class T>
  requires requires { typename Op::template accumulate<T>; }
struct default_accumulate<Op, T> {
  using type = typename Op::template accumulate<T>;
};

}  // namespace detail

/// Declares that a callable is commutative, which means that the result is the same if the two
/// arguments are exchanged. Without this declaration, colls assumes that a callable is associative
/// but not commutative, and combines the inputs in rank order.
template <class Function>
  requires std::is_class_v<Function>
constexpr auto commutative(Function function) {
  return detail::commuting<Function>{function};
}
template <class Result, class Left, class Right>
constexpr auto commutative(Result (*function)(Left, Right)) {
  using pointer = detail::function_pointer<Result, Left, Right>;
  return detail::commuting<pointer>{pointer{function}};
}

/// An operation that can combine elements of type T. It is a callable that takes two values of type
/// T, returns a T, and can be called on a const object. Its class may have the static members
/// `constexpr bool commutative`, `constexpr bool associative` and `constexpr const char* name`. Its
/// class may also have two const member functions: `T prepare(T)`, which colls calls for every
/// input, and `T finish(T, int ranks)`, which colls calls for every result.
template <class Op, class T>
concept reduction_for = supported_type<T> && detail::combines<Op, T>;

/// An operation whose inputs may be combined in any order.
template <class Op, class T>
concept commutative_for = reduction_for<Op, T> && detail::commutes<Op>;

/// A type in which elements of type T can be combined. Each of the two types must be convertible to
/// the other.
template <class Accumulate, class T>
concept accumulator_for = supported_type<Accumulate> && supported_type<T> &&
                          requires(const Accumulate& wide, const T& narrow) {
                            static_cast<Accumulate>(narrow);
                            static_cast<T>(wide);
                          };

template <class Op, class T>
using default_accumulate_t = typename detail::default_accumulate<Op, T>::type;

/// Returns true if an operation can reduce elements of type T. If it cannot, compilation fails with
/// a message that explains why.
template <class Op, class T, class Accumulate = default_accumulate_t<Op, T>>
constexpr bool check_reduction() {
  static_assert(supported_type<T>,
                "colls: elements have to be trivially copyable and no pointers, ranges or spans");
  if constexpr (supported_type<T>) {
    static_assert(accumulator_for<Accumulate, T>,
                  "colls: the accumulate type and the element type have to convert to each other");
  }
  if constexpr (accumulator_for<Accumulate, T>) {
    static_assert(reduction_for<Op, Accumulate>,
                  "colls: this operation cannot be applied to elements of this type");
  }
  return accumulator_for<Accumulate, T> && reduction_for<Op, Accumulate>;
}

/// Returns the number that identifies an operation when ranks check that they have called a
/// collective with equal arguments. The number of a built-in operation is fixed. The number of any
/// other operation is a hash of its name, if it has one, and of whether it is commutative and
/// associative.
template <class Op>
constexpr std::uint32_t op_id() {
  if constexpr (detail::is_builtin_op<Op>) {
    return Op::op_number;
  } else {
    detail::name_hash hash;
    hash.add(detail::commutes<Op> ? 1 : 0).add(detail::associates<Op> ? 1 : 0);
    if constexpr (detail::named<Op>) hash.add(static_cast<const char*>(Op::name));
    return hash.user_id();
  }
}
template <class Op>
constexpr std::uint32_t op_id(const Op&) {
  return op_id<Op>();
}

/// Returns the name of the operation with the number `id`, as it appears in command lines, error
/// messages and JSON. Returns "user operation" if the operation is not built in.
constexpr const char* op_name(std::uint32_t id) {
  constexpr const char* names[] = {
      "none",    "plus",    "multiplies", "minimum",           "maximum",
      "bit_and", "bit_or",  "bit_xor",    "logical_and",       "logical_or",
      "min_loc", "max_loc", "average",    "pre_multiplied_sum"};
  return id < sizeof names / sizeof *names ? names[id] : "user operation";
}

}  // namespace colls
