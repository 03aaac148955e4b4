// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// op_arithmetic: the arithmetic of the built-in operations, and the concepts for the types that
// these operations accept.

#include <colls/base/element_type.hpp>

namespace colls::detail {

template <class T>
concept integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

/// Converts an integer to an unsigned type that is at least as wide as unsigned int. Arithmetic on
/// the result wraps around, because its type is not promoted to int.
template <integer T>
COLLS_INLINE constexpr auto wrapping(T value) {
  return static_cast<decltype(std::make_unsigned_t<T>() + 0u)>(value);
}

template <class Result, class T>
concept result_for =
    std::convertible_to<Result, T> &&
    !(std::is_integral_v<T> && (std::is_floating_point_v<Result> || half_type<Result>));

template <class T>
concept addable = number<T> || requires(const T& x) {
  { x + x } -> result_for<T>;
};
template <class T>
concept multipliable = number<T> || requires(const T& x) {
  { x* x } -> result_for<T>;
};
template <class T>
concept ordered = number<T> || requires(const T& x) {
  { x < x } -> std::convertible_to<bool>;
};
template <class T>
concept bitwise = std::is_integral_v<T> || (!number<T> && requires(const T& x) {
                    { x& x } -> result_for<T>;
                    { x | x } -> result_for<T>;
                    { x ^ x } -> result_for<T>;
                  });
template <class T>
concept averageable = addable<T> && !std::is_same_v<T, bool> &&
                      (number<T> || complex_number<T> || requires(const T& x) {
                        { x / 1 } -> result_for<T>;
                      });
/// Whether a value of the arithmetic or complex type T can be multiplied by a value of type Scale.
/// Integers can be multiplied only by integers.
template <class T, class Scale>
concept scales_number = number<Scale> && (complex_number<T> || (integer<T> && integer<Scale>) ||
                                          half_type<T> || std::is_floating_point_v<T>);
template <class T, class Scale>
concept scalable_by = addable<T> && (scales_number<T, Scale> ||
                                     (!number<T> && requires(const T& x, const Scale& scale) {
                                       { x* scale } -> result_for<T>;
                                     }));

template <class T>
COLLS_INLINE constexpr bool is_nan(const T& x) {
  if constexpr (half_type<T>) {
    constexpr std::uint16_t infinity = T(float_of(0x7f80'0000u)).bits();
    return (x.bits() & 0x7fff) > infinity;
  } else {
    return x != x;
  }
}
/// Returns an integer key for a value of a 16-bit floating-point format. A smaller value has a
/// smaller key, and -0 has a smaller key than +0. The key of a NaN is the smallest possible integer
/// if `Least` is true, and the largest possible integer otherwise. Therefore, the minimum or
/// maximum of values that include a NaN is NaN.
template <bool Least, half_type T>
COLLS_INLINE constexpr std::int16_t order_key(T x) {
  // Read as signed integers, the bit patterns of positive numbers have the same order as the
  // numbers, and the bit patterns of negative numbers have the reverse order. Inverting all bits
  // of the negative numbers except the sign bit corrects their order.
  const auto bits = static_cast<std::int16_t>(x.bits());
  const auto key = static_cast<std::int16_t>(bits ^ ((bits >> 15) & 0x7fff));
  constexpr std::int16_t winner = Least ? -0x8000 : 0x7fff;
  return is_nan(x) ? winner : key;
}
template <std::floating_point T>
COLLS_INLINE constexpr bool is_negative(T x) {
  if constexpr (sizeof(T) == 4) {
    return (__builtin_bit_cast(std::uint32_t, x) >> 31) != 0;
  } else if constexpr (sizeof(T) == 8) {
    return (__builtin_bit_cast(std::uint64_t, x) >> 63) != 0;
  } else {
    return __builtin_copysignl(1.0L, x) < 0;
  }
}

/// Returns whether a minimum (if `Least` is true) or a maximum (otherwise) of `left` and `right`
/// should select `left`. For number types, the function has no branches, so that compilers can
/// vectorise loops that call it.
COLLS_ANYWHERE
template <bool Least, class T>
COLLS_INLINE constexpr bool left_wins(const T& left, const T& right) {
  if constexpr (half_type<T>) {
    const std::int16_t left_key = order_key<Least>(left);
    const std::int16_t right_key = order_key<Least>(right);
    return Least ? left_key <= right_key : left_key >= right_key;
  } else if constexpr (std::is_floating_point_v<T>) {
    const bool nan = is_nan(left);
    const bool wins = Least ? left < right : right < left;
    const bool signed_zero = is_negative(left) == Least;
    return nan | wins | ((left == right) & signed_zero);
  } else {
    return Least ? !(right < left) : !(left < right);
  }
}

template <bool Least, class T>
COLLS_INLINE constexpr bool left_wins(const value_index<T>& left, const value_index<T>& right) {
  const bool before = left.index <= right.index;
  if (is_nan(left.value) || is_nan(right.value)) {
    return is_nan(left.value) && (before || !is_nan(right.value));
  }
  return (Least ? left.value < right.value : right.value < left.value) ||
         (left.value == right.value && before);
}

/// The default type in which sums of elements of type T are computed. This is float for 16-bit
/// floating-point formats, and T for all other types.
template <class T>
using wide = std::conditional_t<half_type<T>, float, T>;

}  // namespace colls::detail
