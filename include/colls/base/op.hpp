// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// op: the built-in operations of reductions, such as sum, minimum and average.

#include <colls/base/op_traits.hpp>

namespace colls {

/// The sum. Integers wrap around on overflow.
struct plus : detail::builtin_op<1> {
  template <class T>
  using accumulate = detail::wide<T>;

  COLLS_ANYWHERE
  template <detail::addable T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    if constexpr (detail::integer<T>) {
      return static_cast<T>(detail::wrapping(left) + detail::wrapping(right));
    } else {
      return static_cast<T>(left + right);
    }
  }
};

/// The product. Integers wrap around on overflow.
struct multiplies : detail::builtin_op<2> {
  template <class T>
  using accumulate = detail::wide<T>;

  COLLS_ANYWHERE
  template <detail::multipliable T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    if constexpr (detail::integer<T>) {
      return static_cast<T>(detail::wrapping(left) * detail::wrapping(right));
    } else {
      return static_cast<T>(left * right);
    }
  }
};

/// The smaller value as defined by IEEE 754-2019: if an input is NaN, the result is NaN, and -0 is
/// smaller than +0.
struct minimum : detail::builtin_op<3> {
  COLLS_ANYWHERE
  template <detail::ordered T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    return detail::left_wins<true>(left, right) ? left : right;
  }
};

/// The larger value as defined by IEEE 754-2019: if an input is NaN, the result is NaN, and +0 is
/// larger than -0.
struct maximum : detail::builtin_op<4> {
  COLLS_ANYWHERE
  template <detail::ordered T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    return detail::left_wins<false>(left, right) ? left : right;
  }
};

/// The bitwise AND of integers.
struct bit_and : detail::builtin_op<5> {
  COLLS_ANYWHERE
  template <detail::bitwise T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    return static_cast<T>(left & right);
  }
};

/// The bitwise OR of integers.
struct bit_or : detail::builtin_op<6> {
  COLLS_ANYWHERE
  template <detail::bitwise T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    return static_cast<T>(left | right);
  }
};

/// The bitwise XOR of integers.
struct bit_xor : detail::builtin_op<7> {
  COLLS_ANYWHERE
  template <detail::bitwise T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    return static_cast<T>(left ^ right);
  }
};

/// The logical AND. The result is 1 if neither input is 0, and otherwise 0.
struct logical_and : detail::builtin_op<8> {
  template <detail::number T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    const bool first = left != T(0);
    const bool second = right != T(0);
    return T(first & second);
  }
};

/// The logical OR. The result is 0 if both inputs are 0, and otherwise 1.
struct logical_or : detail::builtin_op<9> {
  template <detail::number T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    const bool first = left != T(0);
    const bool second = right != T(0);
    return T(first | second);
  }
};

/// The smallest value, together with the index that the caller has stored next to it in a
/// `value_index`. If several inputs have this value, the result has the smallest of their indices.
/// NaN counts as smaller than every other value.
struct min_loc : detail::builtin_op<10> {
  template <detail::number T>
  COLLS_INLINE constexpr value_index<T> operator()(const value_index<T>& left,
                                                   const value_index<T>& right) const {
    return detail::left_wins<true>(left, right) ? left : right;
  }
};

/// The largest value, together with the index that the caller has stored next to it in a
/// `value_index`. If several inputs have this value, the result has the smallest of their indices.
/// NaN counts as larger than every other value.
struct max_loc : detail::builtin_op<11> {
  template <detail::number T>
  COLLS_INLINE constexpr value_index<T> operator()(const value_index<T>& left,
                                                   const value_index<T>& right) const {
    return detail::left_wins<false>(left, right) ? left : right;
  }
};

/// The sum divided by the number of ranks. The sum of integers wraps around on overflow. A caller
/// can avoid this with a wider accumulate type (the type in which elements are combined). The
/// quotient of integers is rounded toward zero.
struct average : detail::builtin_op<12> {
  template <class T>
  using accumulate = detail::wide<T>;

  COLLS_ANYWHERE
  template <detail::averageable T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    return plus{}(left, right);
  }
  COLLS_ANYWHERE
  template <detail::averageable T>
  COLLS_INLINE constexpr T finish(const T& sum, int ranks) const {
    if constexpr (detail::integer<T>) {
      using promoted = decltype(sum + 0);
      return static_cast<T>(static_cast<promoted>(sum) / static_cast<promoted>(ranks));
    } else if constexpr (detail::number<T>) {
      using wide = detail::wide<T>;
      return static_cast<T>(static_cast<wide>(sum) / static_cast<wide>(ranks));
    } else if constexpr (detail::complex_number<T>) {
      return sum / static_cast<decltype(sum.real())>(ranks);
    } else {
      return static_cast<T>(sum / ranks);
    }
  }
};

/// The sum of the inputs of all ranks, where each rank first multiplies its input by its own
/// `scale`. The scales of the ranks may differ.
template <class Scale>
struct pre_multiplied_sum : detail::builtin_op<13> {
  template <class T>
  using accumulate = detail::wide<T>;

  Scale scale;

  COLLS_HOST_DEVICE constexpr explicit pre_multiplied_sum(Scale factor) : scale(factor) {}

  COLLS_ANYWHERE
  template <detail::scalable_by<Scale> T>
  COLLS_INLINE constexpr T prepare(const T& input) const {
    if constexpr (detail::integer<T>) {
      return multiplies{}(input, static_cast<T>(scale));
    } else if constexpr (detail::number<T>) {
      using wide = detail::wide<T>;
      return static_cast<T>(static_cast<wide>(input) * static_cast<wide>(scale));
    } else if constexpr (detail::complex_number<T> && detail::number<Scale>) {
      return input * static_cast<decltype(input.real())>(scale);
    } else {
      return static_cast<T>(input * scale);
    }
  }
  COLLS_ANYWHERE
  template <detail::scalable_by<Scale> T>
  COLLS_INLINE constexpr T operator()(const T& left, const T& right) const {
    return plus{}(left, right);
  }
};

namespace detail {

template <class Op>
inline constexpr bool is_pre_multiplied_sum = false;
template <class Scale>
inline constexpr bool is_pre_multiplied_sum<pre_multiplied_sum<Scale>> = true;

}  // namespace detail

}  // namespace colls
