// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/op.hpp>

#include <doctest/doctest.h>

#include <array>
#include <bitset>
#include <cmath>
#include <complex>
#include <memory>
#include <span>
#include <string_view>

namespace {

using namespace colls;

struct vector3 {
  double x, y, z;
  friend constexpr vector3 operator+(vector3 l, vector3 r) {
    return {l.x + r.x, l.y + r.y, l.z + r.z};
  }
  friend constexpr vector3 operator/(vector3 v, double s) { return {v.x / s, v.y / s, v.z / s}; }
  friend constexpr vector3 operator*(vector3 v, double s) { return {v.x * s, v.y * s, v.z * s}; }
};
struct plain_struct {
  float a, b, c;
};
struct labelled {
  char name[12];  // a data member, not the name of the type
};
struct owner {
  std::shared_ptr<int> p;
};
enum class colour : std::uint16_t { red };

// --- types ------------------------------------------------------------------------------------

template <class... T>
constexpr bool all_supported = (supported_type<T> && ...);
template <class... T>
constexpr bool none_supported = (!supported_type<T> && ...);

static_assert(all_supported<bool, char, signed char, unsigned char, char8_t, char16_t, char32_t,
                            wchar_t, short, unsigned short, int, unsigned, long, unsigned long,
                            long long, unsigned long long, float, double, long double>);
static_assert(all_supported<std::complex<float>, std::complex<double>, std::complex<long double>,
                            float16, bfloat16, value_index<float>, vector3, plain_struct, labelled,
                            colour, std::byte, std::bitset<70>>);
static_assert(none_supported<int*, int vector3::*, std::nullptr_t, int[3], const int, int&, void,
                             owner, std::array<int, 3>, std::span<int>, std::string_view>);

static_assert(type_id<float>() == 0x404 && type_id<double>() == 0x408);
static_assert(type_id<bool>() == 0x101 && type_id<float16>() == 0x402);
static_assert(type_id<bfloat16>() == 0x502 && type_id<std::complex<float>>() == 0x608);
static_assert(type_id<std::int8_t>() == 0x201 && type_id<std::uint64_t>() == 0x308);
static_assert(type_id<long long>() == type_id<std::int64_t>());
static_assert(type_id<unsigned long>() ==
              (sizeof(long) == 8 ? type_id<unsigned long long>() : type_id<unsigned>()));
static_assert(type_id<char16_t>() == type_id<std::uint16_t>());
static_assert(type_id<colour>() == type_id<std::uint16_t>());
static_assert(type_id<std::byte>() == type_id<std::uint8_t>());
static_assert(type_id<long double>() != type_id<double>() || sizeof(long double) == 8);
static_assert(type_id<value_index<float>>() != type_id<value_index<int>>());

struct twelve_bytes {
  std::uint32_t words[3];
};
struct twelve_aligned_bytes {
  alignas(4) std::uint8_t bytes[12];
};
struct twelve_loose_bytes {
  std::uint8_t bytes[12];
};
struct named_one {
  static constexpr const char* name = "one";
  float a, b, c;
};
struct named_two {
  static constexpr const char* name = "two";
  float a, b, c;
};
static_assert(type_id<twelve_bytes>() == type_id<plain_struct>());
static_assert(type_id<twelve_bytes>() == type_id<twelve_aligned_bytes>());
static_assert(type_id<twelve_bytes>() != type_id<twelve_loose_bytes>());
static_assert(type_id<labelled>() == type_id<twelve_loose_bytes>());
static_assert(type_id<named_one>() != type_id<plain_struct>());
static_assert(type_id<named_one>() != type_id<named_two>());
static_assert(type_id<named_one>() >= 0x8000'0000u);
// Programs that were built by different compilers exchange these numbers.
static_assert(type_id<plain_struct>() == 0xb05c9e8du);
static_assert(type_id<named_one>() == 0x99fbaaa7u);

// --- which operation accepts which type ---------------------------------------------------------

template <class Op, class... T>
constexpr bool takes = (reduction_for<Op, T> && ...);
template <class Op, class... T>
constexpr bool refuses = (!reduction_for<Op, T> && ...);
using complex = std::complex<float>;

static_assert(
    takes<plus, bool, char, wchar_t, int, long double, float16, bfloat16, complex, vector3>);
static_assert(refuses<plus, plain_struct, value_index<int>, int*, colour, std::byte>);
static_assert(takes<multiplies, bool, short, double, float16, complex>);
static_assert(refuses<multiplies, vector3>);
static_assert(takes<minimum, bool, int, float, bfloat16> && takes<maximum, char, long double>);
static_assert(refuses<minimum, complex, vector3> && refuses<maximum, complex, value_index<int>>);
static_assert(takes<bit_and, bool, int, std::byte, std::bitset<70>> && takes<bit_xor, char8_t>);
static_assert(refuses<bit_xor, float, double, float16, complex, vector3>);
static_assert(refuses<bit_and, float16> && refuses<bit_or, float, bfloat16>);
static_assert(takes<logical_and, bool, int, float, float16> &&
              refuses<logical_or, complex, vector3>);
static_assert(takes<min_loc, value_index<int>, value_index<float16>> &&
              refuses<min_loc, int, float>);
static_assert(refuses<max_loc, value_index<complex>>);
static_assert(takes<average, int, float, bfloat16, complex, vector3>);
static_assert(refuses<average, bool, plain_struct>);
static_assert(takes<pre_multiplied_sum<float>, float, double, float16, complex, vector3>);
static_assert(takes<pre_multiplied_sum<int>, int, std::uint8_t, float>);
static_assert(refuses<pre_multiplied_sum<float>, int, bool, plain_struct>);
static_assert(commutative_for<plus, float> && commutative_for<max_loc, value_index<double>>);
static_assert(accumulator_for<float, float16> && accumulator_for<double, std::int8_t>);
static_assert(accumulator_for<std::complex<double>, complex> && !accumulator_for<float, vector3>);

static_assert(std::is_same_v<default_accumulate_t<plus, float16>, float>);
static_assert(std::is_same_v<default_accumulate_t<average, bfloat16>, float>);
static_assert(std::is_same_v<default_accumulate_t<minimum, float16>, float16>);
static_assert(std::is_same_v<default_accumulate_t<plus, int>, int>);

// --- the user's own operations ----------------------------------------------------------------

constexpr auto second = [](vector3, vector3 right) { return right; };
constexpr auto larger = [](int left, int right) { return left > right ? left : right; };
constexpr auto growing = [count = 0](int left, int) mutable { return left + ++count; };
constexpr auto halved = [](int left, int right) { return (left + right) / 2.0; };
int smaller(int left, int right) { return left < right ? left : right; }

struct gcd {
  static constexpr bool commutative = true;
  static constexpr const char* name = "gcd";
  constexpr unsigned operator()(unsigned left, unsigned right) const {
    while (right != 0) {
      const unsigned rest = left % right;
      left = right;
      right = rest;
    }
    return left;
  }
};
struct difference {
  static constexpr bool associative = false;
  constexpr int operator()(int left, int right) const { return left - right; }
};
struct cautious {
  bool commutative = true;  // a data member, which says nothing about the type
  constexpr int operator()(int left, int) const { return left; }
};

static_assert(takes<decltype(second), vector3> && !commutative_for<decltype(second), vector3>);
static_assert(refuses<decltype(second), float>);
static_assert(takes<decltype(larger), int, short, bool>);
static_assert(refuses<decltype(growing), int> && refuses<decltype(halved), int>);
static_assert(takes<decltype(halved), double>);
static_assert(takes<int (*)(int, int), int> && takes<decltype(commutative(smaller)), int>);
static_assert(commutative_for<decltype(commutative(larger)), int>);
static_assert(commutative_for<decltype(commutative(smaller)), int>);
static_assert(commutative_for<gcd, unsigned> && !commutative_for<cautious, int>);
static_assert(detail::associates<gcd> && !detail::associates<difference>);
static_assert(!detail::associates<decltype(commutative(difference{}))>);

static_assert(op_id(plus{}) == 1 && op_id(pre_multiplied_sum{2.0f}) == 13);
static_assert(op_id(commutative(plus{})) == 1);
static_assert(op_id(larger) == op_id(second) && op_id(larger) != op_id(commutative(larger)));
static_assert(op_id(difference{}) != op_id(larger) && op_id(gcd{}) != op_id(commutative(larger)));
static_assert(op_id(commutative(gcd{})) == op_id(gcd{}));
static_assert(op_id(larger) >= 0x8000'0000u && op_id(gcd{}) >= 0x8000'0000u);
static_assert(op_id(gcd{}) == 0x814536a1u);

}  // namespace

TEST_CASE("names") {
  const auto type = [](std::uint32_t id) { return std::string_view(type_name(id)); };
  CHECK(type(type_id<float>()) == "float");
  CHECK(type(type_id<double>()) == "double");
  CHECK(type(type_id<bool>()) == "bool");
  CHECK(type(type_id<std::int8_t>()) == "int8");
  CHECK(type(type_id<std::uint16_t>()) == "uint16");
  CHECK(type(type_id<int>()) == "int32");
  CHECK(type(type_id<unsigned long long>()) == "uint64");
  CHECK(type(type_id<float16>()) == "float16");
  CHECK(type(type_id<bfloat16>()) == "bfloat16");
  CHECK(type(type_id<std::complex<float>>()) == "complex_float");
  CHECK(type(type_id<std::complex<double>>()) == "complex_double");
  CHECK(type(type_id<value_index<float>>()) == "value_index");
  CHECK(type(type_id<vector3>()) == "user type");
  CHECK(type(type_id<named_one>()) == "user type");
  CHECK(type(0) == "user type");
  const auto op = [](std::uint32_t id) { return std::string_view(op_name(id)); };
  CHECK(op(op_id(plus{})) == "plus");
  CHECK(op(op_id(multiplies{})) == "multiplies");
  CHECK(op(op_id(minimum{})) == "minimum");
  CHECK(op(op_id(maximum{})) == "maximum");
  CHECK(op(op_id(bit_and{})) == "bit_and");
  CHECK(op(op_id(bit_or{})) == "bit_or");
  CHECK(op(op_id(bit_xor{})) == "bit_xor");
  CHECK(op(op_id(logical_and{})) == "logical_and");
  CHECK(op(op_id(logical_or{})) == "logical_or");
  CHECK(op(op_id(min_loc{})) == "min_loc");
  CHECK(op(op_id(max_loc{})) == "max_loc");
  CHECK(op(op_id(average{})) == "average");
  CHECK(op(op_id(pre_multiplied_sum{1})) == "pre_multiplied_sum");
  CHECK(op(op_id(larger)) == "user operation");
  CHECK(op(14) == "user operation");
  CHECK(op(0) == "none");
}

TEST_CASE("integers wrap around") {
  static_assert(plus{}(0x7fff'ffff, 1) == -0x7fff'ffff - 1);
  static_assert(plus{}(std::uint8_t{255}, std::uint8_t{2}) == 1);
  static_assert(plus{}(std::int8_t{-128}, std::int8_t{-1}) == 127);
  static_assert(multiplies{}(std::uint16_t{65535}, std::uint16_t{65535}) == 1);
  static_assert(multiplies{}(std::int16_t{-32768}, std::int16_t{-1}) == -32768);
  static_assert(multiplies{}(std::int64_t{1} << 62, std::int64_t{4}) == 0);
  static_assert(pre_multiplied_sum{2}.prepare(0x7fff'ffff) == -2);
  static_assert(plus{}(true, true) && !multiplies{}(true, false) && !plus{}(false, false));
  CHECK(plus{}(3, 4) == 7);
  CHECK(plus{}(vector3{1, 2, 3}, vector3{4, 5, 6}).z == 9);
}

TEST_CASE("logical and bit operations") {
  static_assert(logical_and{}(2, 4) == 1 && logical_and{}(2, 0) == 0);
  static_assert(logical_or{}(0.5f, 0.0f) == 1.0f && logical_or{}(0.0f, -0.0f) == 0.0f);
  CHECK(float(logical_and{}(float16(0.5f), float16(2.0f))) == 1.0f);
  static_assert(bit_and{}(12, 10) == 8 && bit_or{}(12, 10) == 14 && bit_xor{}(12, 10) == 6);
  static_assert(bit_xor{}(std::uint8_t{0xff}, std::uint8_t{0x0f}) == 0xf0);
  static_assert(bit_or{}(std::byte{1}, std::byte{2}) == std::byte{3});
}

TEST_CASE_TEMPLATE("a NaN is the minimum and the maximum; -0 is below +0", T, float, double,
                   long double, float16, bfloat16) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T infinity = std::numeric_limits<T>::infinity();
  const auto of = [](float value) { return static_cast<T>(value); };
  const auto is_nan = [](T x) { return x != x; };
  for (const T other : {of(1), of(-1), of(0), infinity, -infinity}) {
    for (const T either : {nan, -nan}) {
      CHECK(is_nan(minimum{}(either, other)));
      CHECK(is_nan(minimum{}(other, either)));
      CHECK(is_nan(maximum{}(either, other)));
      CHECK(is_nan(maximum{}(other, either)));
    }
  }
  CHECK(is_nan(minimum{}(nan, -nan)));
  const auto negative = [](T x) { return std::signbit(static_cast<float>(x)); };
  CHECK(negative(minimum{}(of(-0.0f), of(0.0f))));
  CHECK(negative(minimum{}(of(0.0f), of(-0.0f))));
  CHECK_FALSE(negative(maximum{}(of(-0.0f), of(0.0f))));
  CHECK_FALSE(negative(maximum{}(of(0.0f), of(-0.0f))));
  const T sorted[] = {-infinity, of(-3), of(-1), of(-0x1p-14f), of(0), of(0.5), of(2), infinity};
  for (const T& low : sorted) {
    for (const T& high : sorted) {
      const bool in_order = &low <= &high;
      CHECK(minimum{}(low, high) == (in_order ? low : high));
      CHECK(maximum{}(low, high) == (in_order ? high : low));
    }
  }
}

TEST_CASE("minimum and maximum of integers") {
  static_assert(minimum{}(-3, 2) == -3 && maximum{}(-3, 2) == 2 && minimum{}(2, -3) == -3);
  static_assert(maximum{}(std::uint8_t{200}, std::uint8_t{100}) == 200);
  static_assert(!minimum{}(true, false) && maximum{}(true, false));
}

TEST_CASE_TEMPLATE("min_loc and max_loc: of equal values the one with the smaller index wins", T,
                   int, float, bfloat16) {
  using item = value_index<T>;
  const auto make = [](int value, std::int64_t index) {
    return item{static_cast<T>(static_cast<float>(value)), index};
  };
  CHECK(min_loc{}(make(1, 9), make(2, 3)).index == 9);
  CHECK(min_loc{}(make(2, 3), make(1, 9)).index == 9);
  CHECK(max_loc{}(make(1, 9), make(2, 3)).index == 3);
  CHECK(max_loc{}(make(2, 3), make(1, 9)).index == 3);
  CHECK(min_loc{}(make(1, 9), make(1, 3)).index == 3);
  CHECK(min_loc{}(make(1, 3), make(1, 9)).index == 3);
  CHECK(max_loc{}(make(1, 9), make(1, 3)).index == 3);
  CHECK(max_loc{}(make(1, 3), make(1, 9)).index == 3);
}

TEST_CASE("min_loc and max_loc find NaN, the first one") {
  using item = value_index<float>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float other : {-1.0f, 1.0f, -HUGE_VALF, HUGE_VALF}) {
    CHECK(min_loc{}(item{nan, 5}, item{other, 1}).index == 5);
    CHECK(min_loc{}(item{other, 1}, item{nan, 5}).index == 5);
    CHECK(max_loc{}(item{nan, 5}, item{other, 1}).index == 5);
    CHECK(max_loc{}(item{other, 1}, item{nan, 5}).index == 5);
  }
  CHECK(min_loc{}(item{nan, 5}, item{nan, 4}).index == 4);
  CHECK(max_loc{}(item{nan, 4}, item{nan, 5}).index == 4);
  CHECK(min_loc{}(item{-0.0f, 7}, item{0.0f, 2}).index == 2);
}

TEST_CASE("average divides once, integers toward zero") {
  static_assert(average{}.finish(7, 2) == 3 && average{}.finish(-7, 2) == -3);
  static_assert(average{}.finish(std::uint8_t{255}, 300) == 0);
  static_assert(average{}.finish(std::int8_t{-128}, 300) == 0);
  static_assert(average{}.finish(std::uint64_t{1} << 63, 2) == std::uint64_t{1} << 62);
  static_assert(average{}.finish(std::int64_t{-9}, 4) == -2);
  static_assert(average{}.finish(1.0f, 3) == 1.0f / 3.0f);
  CHECK(float(average{}.finish(bfloat16(512.0f), 257)) == 1.9921875f);  // bfloat16 has no 257
  CHECK(average{}.finish(complex(6, 4), 2) == complex(3, 2));
  CHECK(average{}.finish(vector3{2, 4, 6}, 2).z == 3);
  CHECK(average{}(2.5f, 3.5f) == 6.0f);
}

TEST_CASE("pre_multiplied_sum scales every input") {
  static_assert(pre_multiplied_sum{0.5f}.prepare(3.0f) == 1.5f);
  static_assert(pre_multiplied_sum{0.5f}.prepare(3.0) == 1.5);
  static_assert(pre_multiplied_sum{3}.prepare(std::uint8_t{100}) == 44);
  CHECK(float(pre_multiplied_sum{0.25f}.prepare(float16(3.0f))) == 0.75f);
  CHECK(pre_multiplied_sum{0.5}.prepare(complex(2, 4)) == complex(1, 2));
  CHECK(pre_multiplied_sum{complex(0, 1)}.prepare(complex(2, 4)) == complex(-4, 2));
  CHECK(pre_multiplied_sum{2.0}.prepare(vector3{1, 2, 3}).y == 4);
  CHECK(pre_multiplied_sum{2.0f}(1.0f, 2.0f) == 3.0f);
}

TEST_CASE("a user's operation keeps its order and its state") {
  int bias = 100;
  const auto biased = commutative([bias](int left, int right) { return left + right + bias; });
  CHECK(biased(1, 2) == 103);
  CHECK(commutative(smaller)(4, 3) == 3);
  CHECK(gcd{}(12, 18) == 6);
  CHECK(commutative(difference{})(5, 3) == 2);
  static_assert(check_reduction<plus, float>() && check_reduction<gcd, unsigned>());
  static_assert(check_reduction<plus, float16, double>());
}
