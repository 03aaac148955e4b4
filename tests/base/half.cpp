// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/half.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <utility>

namespace {

using colls::bfloat16;
using colls::float16;

std::uint32_t bits(float value) {
  std::uint32_t result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}
float from_bits(std::uint32_t value) {
  float result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

// The value of a bit pattern, by the definition of the formats.
double value_of(unsigned pattern, int fraction_bits, int bias) {
  const unsigned exponent_mask = (1u << (15 - fraction_bits)) - 1;
  const unsigned exponent = (pattern >> fraction_bits) & exponent_mask;
  const double fraction = std::ldexp(pattern & ((1u << fraction_bits) - 1), -fraction_bits);
  const double sign = (pattern & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == exponent_mask) {
    return fraction == 0 ? sign * HUGE_VAL : static_cast<double>(NAN);
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, static_cast<int>(exponent) - bias);
}

template <class Half>
constexpr std::pair<int, int> format = {10, 15};
template <>
constexpr std::pair<int, int> format<bfloat16> = {7, 127};

template <class Half>
Half of(unsigned pattern) {
  return Half::from_bits(static_cast<std::uint16_t>(pattern));
}

template <class Half>
bool rounds_to(float value, unsigned pattern) {
  const Half half(value);
  if (half.bits() == pattern) return true;
  MESSAGE("value bits " << bits(value) << " gave " << half.bits() << ", wanted " << pattern);
  return false;
}

}  // namespace

TEST_CASE_TEMPLATE("every pattern converts to its value and back", Half, float16, bfloat16) {
  int wrong = 0;
  for (unsigned pattern = 0; pattern <= 0xffff; ++pattern) {
    const double wanted = value_of(pattern, format<Half>.first, format<Half>.second);
    const float got = of<Half>(pattern);
    const Half again(got);
    if (std::isnan(wanted)) {
      wrong += !std::isnan(got) || !std::isnan(float(again));
      wrong += std::signbit(got) != (pattern >= 0x8000);
    } else {
      wrong += double(got) != wanted || std::signbit(got) != (pattern >= 0x8000);
      wrong += again.bits() != pattern;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("numbers between two patterns round to the nearest, ties to even", Half, float16,
                   bfloat16) {
  int wrong = 0;
  const unsigned infinity = std::numeric_limits<Half>::infinity().bits();
  for (unsigned pattern = 0; pattern < infinity && wrong < 5; ++pattern) {
    const float low = of<Half>(pattern);
    // Half a step above the largest finite number rounds up to infinity.
    const double step = pattern + 1 == infinity
                            ? double(low) - double(float(of<Half>(pattern - 1)))
                            : double(float(of<Half>(pattern + 1))) - double(low);
    const auto middle = static_cast<float>(double(low) + step / 2);
    REQUIRE(double(middle) == double(low) + step / 2);
    const unsigned even = pattern % 2 == 0 ? pattern : pattern + 1;
    for (const unsigned sign : {0u, 0x8000u}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      wrong += !rounds_to<Half>(s * middle, sign | even);
      wrong += !rounds_to<Half>(s * std::nextafter(middle, 0.0f), sign | pattern);
      wrong += !rounds_to<Half>(s * std::nextafter(middle, HUGE_VALF), sign | (pattern + 1));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("infinity, the largest and the smallest floats", Half, float16, bfloat16) {
  using limits = std::numeric_limits<Half>;
  using floats = std::numeric_limits<float>;
  CHECK(Half(HUGE_VALF).bits() == limits::infinity().bits());
  CHECK(Half(-HUGE_VALF).bits() == (limits::infinity().bits() | 0x8000));
  CHECK(Half(floats::max()).bits() == limits::infinity().bits());
  CHECK(Half(floats::denorm_min()).bits() == 0);
  CHECK(Half(-floats::denorm_min()).bits() == 0x8000);
  CHECK(Half(-0.0f).bits() == 0x8000);
  for (const std::uint32_t nan :
       {0x7f80'0001u, 0x7f80'ffffu, 0x7fc0'0000u, 0x7fff'ffffu, 0xff80'0001u, 0xffff'ffffu}) {
    const Half half(from_bits(nan));
    CHECK(std::isnan(float(half)));
    CHECK((half.bits() >= 0x8000) == (nan >= 0x8000'0000u));
  }
}

TEST_CASE("arithmetic rounds once") {
  CHECK((float16(1.0f) + float16(0x1p-11f)).bits() == float16(1.0f).bits());
  CHECK((float16(1.0f) + float16(0x1.8p-11f)).bits() == float16(1.0f).bits() + 1);
  CHECK((float16(60000.0f) + float16(60000.0f)).bits() ==
        std::numeric_limits<float16>::infinity().bits());
  CHECK(float(bfloat16(3.0f) * bfloat16(5.0f)) == 15.0f);
  CHECK((bfloat16(1.0f) / bfloat16(3.0f)).bits() == 0x3eab);
  CHECK(float(float16(2.0f) - float16(5.0f)) == -3.0f);
  CHECK((-float16(0.0f)).bits() == 0x8000);
  CHECK((-bfloat16(2.5f)).bits() == bfloat16(-2.5f).bits());
  float16 sum(1.5f);
  sum += float16(2.0f);
  sum -= float16(0.5f);
  sum *= float16(4.0f);
  sum /= float16(8.0f);
  CHECK(float(sum) == 1.5f);
}

TEST_CASE("halves compare as floats") {
  CHECK(float16(1.0f) < float16(2.0f));
  CHECK(bfloat16(-1.0f) > bfloat16(-2.0f));
  CHECK(float16(0.0f) == float16(-0.0f));
  CHECK(bfloat16(2.0f) == 2.0f);
  const auto nan = std::numeric_limits<float16>::quiet_NaN();
  CHECK(nan != nan);
  CHECK_FALSE(nan < nan);
}

TEST_CASE("limits") {
  using f16 = std::numeric_limits<float16>;
  using bf16 = std::numeric_limits<bfloat16>;
  static_assert(f16::is_specialized && bf16::is_specialized && f16::has_infinity);
  CHECK(float(f16::max()) == 65504.0f);
  CHECK(float(f16::lowest()) == -65504.0f);
  CHECK(float(f16::min()) == 0x1p-14f);
  CHECK(float(f16::denorm_min()) == 0x1p-24f);
  CHECK(float(f16::epsilon()) == 0x1p-10f);
  CHECK(float(bf16::max()) == 0x1.fep127f);
  CHECK(float(bf16::min()) == std::numeric_limits<float>::min());
  CHECK(float(bf16::denorm_min()) == 0x1p-133f);
  CHECK(float(bf16::epsilon()) == 0x1p-7f);
  CHECK(std::isnan(float(f16::quiet_NaN())));
  CHECK(std::isnan(float(bf16::signaling_NaN())));
  static_assert(f16::digits == 11 && f16::digits10 == 3 && f16::max_digits10 == 5);
  static_assert(f16::max_exponent == 16 && f16::min_exponent == -13);
  static_assert(f16::max_exponent10 == 4 && f16::min_exponent10 == -4);
  static_assert(bf16::digits == 8 && bf16::digits10 == 2 && bf16::max_digits10 == 4);
  static_assert(bf16::max_exponent == 128 && bf16::min_exponent == -125);
  static_assert(bf16::max_exponent10 == 38 && bf16::min_exponent10 == -37);
}

TEST_CASE("conversions are constant expressions, NaN included") {
  static_assert(float16(1.5f).bits() == 0x3e00 && float(float16::from_bits(0x3e00)) == 1.5f);
  static_assert(float16(std::numeric_limits<float>::quiet_NaN()).bits() == 0x7e00);
  static_assert(bfloat16(std::numeric_limits<float>::quiet_NaN()).bits() == 0x7fc0);
  static_assert(float16(std::numeric_limits<float>::infinity()).bits() == 0x7c00);
  static_assert(float(bfloat16(1.0f) + bfloat16(2.0f)) == 3.0f);
  CHECK(bits(float16::from_bits(0x7e01)) == 0x7fc0'2000u);
}
