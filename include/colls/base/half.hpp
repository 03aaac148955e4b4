// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// half: the 16-bit floating-point types float16 and bfloat16. Arithmetic with these types is done
// in float.

#include <colls/base/compiler.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace colls {

namespace detail {

// The conversions below have no branches, so that compilers can vectorise loops that contain them.
// They do no floating-point arithmetic on a NaN, so that they are constant expressions for every
// value.

COLLS_INLINE constexpr std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
COLLS_INLINE constexpr float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

/// Returns `condition ? a : b` without a branch.
COLLS_INLINE constexpr std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

COLLS_INLINE constexpr float binary16_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t rebias = (127u - 15u) << 23;
  // The exponent field of infinity and NaN is 31 in float16 and 255 in float. The difference is
  // 224, which is twice the difference between the exponent biases, 127 - 15 = 112.
  const std::uint32_t normal = (magnitude << 13) + select(magnitude < 0x7c00u, rebias, 2 * rebias);
  const std::uint32_t subnormal =
      bits_of(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  return float_of(sign | select(magnitude < 0x0400u, subnormal, normal));
}

COLLS_INLINE constexpr std::uint16_t binary16_from_float(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fff'ffffu;
  const std::uint32_t smallest_normal = (127u - 14u) << 23;
  // Subnormal float16 numbers are multiples of 2^-24. The lowest bit of 0.5f has the weight 2^-24,
  // so adding 0.5f to a small magnitude rounds it to such a multiple.
  const bool small = magnitude < smallest_normal;
  const std::uint32_t subnormal =
      bits_of(float_of(select(small, magnitude, 0)) + 0.5f) - bits_of(0.5f);
  const std::uint32_t rebiased = magnitude - ((127u - 15u) << 23);
  const std::uint32_t rounded = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
  const std::uint32_t normal = select(rounded < 0x7c00u, rounded, 0x7c00u);
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x01ffu);
  const std::uint32_t number = select(small, subnormal, normal);
  return static_cast<std::uint16_t>(sign | select(magnitude > 0x7f80'0000u, nan, number));
}

COLLS_INLINE constexpr float brain16_to_float(std::uint16_t half) {
  return float_of(static_cast<std::uint32_t>(half) << 16);
}

COLLS_INLINE constexpr std::uint16_t brain16_from_float(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const std::uint32_t nan = bits | 0x0040'0000u;
  return static_cast<std::uint16_t>(((bits & 0x7fff'ffffu) > 0x7f80'0000u ? nan : rounded) >> 16);
}

}  // namespace detail

/// The format binary16 of IEEE 754. The conversion to float is implicit and exact. The conversion
/// from float is explicit and rounds to nearest even. Both conversions preserve infinities and NaN,
/// and both support subnormal numbers. Comparisons convert both operands to float.
class float16 {
 public:
  float16() = default;
  COLLS_INLINE constexpr explicit float16(float value)
      : bits_(detail::binary16_from_float(value)) {}
  COLLS_INLINE constexpr operator float() const { return detail::binary16_to_float(bits_); }

  COLLS_INLINE static constexpr float16 from_bits(std::uint16_t bits) {
    float16 half(0.0f);
    half.bits_ = bits;
    return half;
  }
  COLLS_INLINE constexpr std::uint16_t bits() const { return bits_; }

 private:
  std::uint16_t bits_;
};

/// A format that consists of the upper 16 bits of a float. It has the range of float and 8 bits of
/// precision. Conversions and comparisons work like those of float16.
class bfloat16 {
 public:
  bfloat16() = default;
  COLLS_INLINE constexpr explicit bfloat16(float value)
      : bits_(detail::brain16_from_float(value)) {}
  COLLS_INLINE constexpr operator float() const { return detail::brain16_to_float(bits_); }

  COLLS_INLINE static constexpr bfloat16 from_bits(std::uint16_t bits) {
    bfloat16 half(0.0f);
    half.bits_ = bits;
    return half;
  }
  COLLS_INLINE constexpr std::uint16_t bits() const { return bits_; }

 private:
  std::uint16_t bits_;
};

template <class T>
concept half_type = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16> &&
              std::is_trivially_default_constructible_v<float16>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16> &&
              std::is_trivially_default_constructible_v<bfloat16>);

/// Returns the sum of `a` and `b`, computed in float and rounded once. The other binary operators
/// also compute in float and round once.
template <half_type T>
COLLS_INLINE constexpr T operator+(T a, T b) {
  return T(float(a) + float(b));
}
template <half_type T>
COLLS_INLINE constexpr T operator-(T a, T b) {
  return T(float(a) - float(b));
}
template <half_type T>
COLLS_INLINE constexpr T operator*(T a, T b) {
  return T(float(a) * float(b));
}
template <half_type T>
COLLS_INLINE constexpr T operator/(T a, T b) {
  return T(float(a) / float(b));
}
template <half_type T>
COLLS_INLINE constexpr T operator-(T a) {
  return T::from_bits(static_cast<std::uint16_t>(a.bits() ^ 0x8000u));
}
template <half_type T>
COLLS_HOST_DEVICE constexpr T& operator+=(T& a, T b) {
  return a = a + b;
}
template <half_type T>
COLLS_HOST_DEVICE constexpr T& operator-=(T& a, T b) {
  return a = a - b;
}
template <half_type T>
COLLS_HOST_DEVICE constexpr T& operator*=(T& a, T b) {
  return a = a * b;
}
template <half_type T>
COLLS_HOST_DEVICE constexpr T& operator/=(T& a, T b) {
  return a = a / b;
}

namespace detail {

/// The base class of std::numeric_limits for a 16-bit format with `Digits` bits of precision and
/// the largest exponent `MaxExponent`.
template <class Half, int Digits, int MaxExponent>
class half_limits : public std::numeric_limits<float> {
  static constexpr int fraction = Digits - 1;
  static constexpr unsigned infinite = (2u * MaxExponent - 1) << fraction;

  COLLS_HOST_DEVICE static constexpr Half from_bits(unsigned bits) {
    return Half::from_bits(static_cast<std::uint16_t>(bits));
  }

 public:
  static constexpr bool is_iec559 = Digits == 11;
  static constexpr int digits = Digits;
  static constexpr int digits10 = (Digits - 1) * 30103 / 100000;
  static constexpr int max_digits10 = Digits * 30103 / 100000 + 2;
  static constexpr int max_exponent = MaxExponent;
  static constexpr int min_exponent = 3 - MaxExponent;
  static constexpr int max_exponent10 = (MaxExponent * 30103 - 1) / 100000;
  static constexpr int min_exponent10 = (min_exponent - 1) * 30103 / 100000;

  COLLS_HOST_DEVICE static constexpr Half min() noexcept { return from_bits(1u << fraction); }
  COLLS_HOST_DEVICE static constexpr Half max() noexcept { return from_bits(infinite - 1); }
  COLLS_HOST_DEVICE static constexpr Half lowest() noexcept {
    return from_bits(0x8000u | (infinite - 1));
  }
  COLLS_HOST_DEVICE static constexpr Half epsilon() noexcept {
    return Half(1.0f / (1 << fraction));
  }
  COLLS_HOST_DEVICE static constexpr Half round_error() noexcept { return Half(0.5f); }
  COLLS_HOST_DEVICE static constexpr Half infinity() noexcept { return from_bits(infinite); }
  COLLS_HOST_DEVICE static constexpr Half quiet_NaN() noexcept {
    return from_bits(infinite | (1u << (fraction - 1)));
  }
  COLLS_HOST_DEVICE static constexpr Half signaling_NaN() noexcept {
    return from_bits(infinite | 1u);
  }
  COLLS_HOST_DEVICE static constexpr Half denorm_min() noexcept { return from_bits(1u); }
};

}  // namespace detail

}  // namespace colls

template <>
struct std::numeric_limits<colls::float16> : colls::detail::half_limits<colls::float16, 11, 16> {};
template <>
struct std::numeric_limits<colls::bfloat16> : colls::detail::half_limits<colls::bfloat16, 8, 128> {
};
