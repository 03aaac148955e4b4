// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/reduction/reduce_into.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "../support/sanitized.hpp"

namespace {

using namespace colls;
using detail::rounding;

static_assert(commutative_for<any_op, any_element> && reduction_for<any_op, any_element>);
static_assert(!reduction_for<any_op, float>);

struct matrix {
  int a, b, c, d;
  friend bool operator==(const matrix&, const matrix&) = default;
};
constexpr auto product = [](const matrix& l, const matrix& r) {
  return matrix{l.a * r.a + l.b * r.c, l.a * r.b + l.b * r.d, l.c * r.a + l.d * r.c,
                l.c * r.b + l.d * r.d};
};

// A type without a default constructor and without assignment.
struct awkward {
  explicit awkward(int v) : value(v) {}
  awkward(const awkward&) = default;
  awkward& operator=(const awkward&) = delete;
  int value;
};

struct root_mean_square {
  static constexpr bool commutative = true;
  double operator()(double l, double r) const { return l + r; }
  double prepare(double x) const { return x * x; }
  double finish(double sum, int ranks) const { return std::sqrt(sum / ranks); }
};

// --- inputs: a sequence that differs at each index, with the special values of each type ---------

std::uint64_t mixed(std::size_t i) {
  std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ULL;
  return x ^ (x >> 32);
}

template <class T>
T sample(std::size_t i) {
  const std::uint64_t bits = mixed(i);
  if constexpr (std::is_same_v<T, bool>) {
    return bits % 2 != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else if constexpr (std::is_floating_point_v<T>) {
    constexpr T special[] = {0,
                             T(-0.0),
                             std::numeric_limits<T>::infinity(),
                             -std::numeric_limits<T>::infinity(),
                             std::numeric_limits<T>::max(),
                             std::numeric_limits<T>::denorm_min()};
    if (bits % 16 < 6) return special[bits % 16];
    constexpr T nan = std::numeric_limits<T>::quiet_NaN();
    if (bits % 32 == 31) return bits % 64 == 31 ? nan : -nan;
    return static_cast<T>(static_cast<std::int64_t>(bits)) / static_cast<T>(1LL << 50);
  } else if constexpr (half_type<T>) {
    return T::from_bits(static_cast<std::uint16_t>(bits));  // NaN and subnormal numbers included
  } else if constexpr (detail::complex_number<T>) {
    using part = typename T::value_type;
    return T(static_cast<part>(static_cast<int>(bits % 1000)),
             static_cast<part>(static_cast<int>(bits / 1000 % 1000)));
  } else if constexpr (std::is_same_v<T, matrix>) {
    const auto digit = [&](int k) { return static_cast<int>(bits >> (8 * k) & 15); };
    return {digit(0), digit(1), digit(2), digit(3)};
  } else if constexpr (std::is_same_v<T, awkward>) {
    return awkward(static_cast<int>(bits % 100));
  } else {
    return {sample<decltype(T::value)>(i), static_cast<std::int64_t>(bits % 5)};
  }
}

// Equal bit for bit, except for the sign and payload of NaN, which depend on the order of operands
// that the compiler chose.
template <class T>
bool equal(const T& actual, const T& expected) {
  if constexpr (detail::number<T>) {
    return (actual != actual && expected != expected) ||
           (actual == expected && std::signbit(static_cast<long double>(actual)) ==
                                      std::signbit(static_cast<long double>(expected)));
  } else if constexpr (std::is_same_v<T, awkward>) {
    return actual.value == expected.value;
  } else if constexpr (detail::is_value_index<T>) {
    return equal(actual.value, expected.value) && actual.index == expected.index;
  } else {
    return actual == expected;
  }
}

/// `count` elements at a byte offset from a cache line, with guard bytes on both sides.
template <class T>
class packed {
 public:
  packed(std::size_t offset, std::size_t count, std::size_t seed)
      : count_(count), memory_(count * sizeof(T) + offset + 3 * line, guard) {
    const auto past = reinterpret_cast<std::uintptr_t>(memory_.data()) % line;
    offset_ = 2 * line - past + offset;
    for (std::size_t i = 0; i < count; ++i) put(i, sample<T>(seed + i));
  }

  std::byte* data() { return memory_.data() + offset_; }
  T operator[](std::size_t i) { return detail::packed_elements::get<T>(data(), i); }
  void put(std::size_t i, const T& value) {
    std::memcpy(data() + i * sizeof(T), static_cast<const void*>(&value), sizeof(T));
  }
  bool guards_hold() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= offset_ && i < offset_ + count_ * sizeof(T);
      if (!inside && memory_[i] != guard) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t line = 64;
  static constexpr std::byte guard{0xa5};
  std::size_t offset_;
  std::size_t count_;
  std::vector<std::byte> memory_;
};

constexpr std::size_t counts[] = {0, 1, 2, 3, 7, 16, 31, 64, 65, 127, 1021, 2050};

template <class T>
std::vector<std::size_t> offsets() {
  if (sizeof(T) == 1) return {0, 1, 63};
  return {0, sizeof(T), 1, 3, 7, 16};
}

// Checks combine in its three placements, at all counts and offsets, against `wanted` element by
// element.
template <class T, class Wanted>
bool combines_right(const any_op& op, Wanted wanted) {
  for (const std::size_t count : counts) {
    for (const std::size_t offset : offsets<T>()) {
      // One of the three buffers is at the offset, or all of them are.
      for (const int at : {1, 2, 4, 7}) {
        const std::size_t left_offset = (at & 1) != 0 ? offset : 0;
        const std::size_t right_offset = (at & 2) != 0 ? offset : 0;
        packed<T> left(left_offset, count, 11);
        packed<T> right(right_offset, count, 5000);
        packed<T> out((at & 4) != 0 ? offset : 0, count, 0);
        packed<T> left_out(left_offset, count, 11);
        packed<T> right_out(right_offset, count, 5000);
        op(out.data(), left.data(), right.data(), count);
        op(left_out.data(), left_out.data(), right.data(), count);
        op(right_out.data(), left.data(), right_out.data(), count);
        for (std::size_t i = 0; i < count; ++i) {
          const T want = wanted(sample<T>(11 + i), sample<T>(5000 + i));
          if (!equal<T>(out[i], want) || !equal<T>(left_out[i], want) ||
              !equal<T>(right_out[i], want) || !equal<T>(left[i], sample<T>(11 + i))) {
            MESSAGE("element " << i << " of " << count << " at offset " << offset);
            return false;
          }
        }
        if (!out.guards_hold() || !left_out.guards_hold() || !right_out.guards_hold()) return false;
      }
    }
  }
  return true;
}

template <class T, class Op>
bool combines_as_called(const Op& op) {
  return combines_right<T>(erase<T, T>(op).op, [&](const T& l, const T& r) { return op(l, r); });
}

// In place of the index of a part: the result has separate memory.
constexpr std::size_t separate = 99;

/// Reduces two to nine parts, into separate memory and into every part that may be overwritten, and
/// compares the results with the same operations element by element in type Compute, rounded after
/// each operation or once.
template <class T, class Compute = T, rounding Rounding = rounding::each_step, class Op>
bool adds_up_parts(const Op& called) {
  const any_op op = detail::erase_as<T, T, Compute, Rounding>(called).op;
  const bool folds = op.fold != nullptr;
  for (std::size_t k = 2; k <= 9; ++k) {
    for (const std::size_t count : {0U, 1U, 2U, 15U, 64U, 67U, 1021U}) {
      for (const std::size_t into : {separate, std::size_t{0}, std::size_t{1}, k / 2, k - 1}) {
        if (into != separate && into > 1 && !folds) continue;
        for (const std::size_t also : {separate, k - 1, std::size_t{0}}) {
          if (also == into && also != separate) continue;
          std::vector<packed<T>> in;
          for (std::size_t i = 0; i < k; ++i) {
            in.emplace_back(i % 3 * sizeof(T) + (k > 5 ? i : 0), count, 100 * i);
          }
          packed<T> first(k % 4 * sizeof(T), count, 0);
          packed<T> second(k % 2, count, 0);
          packed<T>& out = into == separate ? first : in[into];
          packed<T>& copy = also == separate ? second : in[also];
          std::vector<const void*> parts;
          for (packed<T>& each : in) parts.push_back(each.data());
          reduce_into(any_buffer(out.data(), count, sizeof(T)), std::span<const void* const>(parts),
                      op, folds ? copy.data() : nullptr);
          for (std::size_t i = 0; i < count; ++i) {
            Compute sum = static_cast<Compute>(sample<T>(i));
            for (std::size_t j = 1; j < k; ++j) {
              sum = called(sum, static_cast<Compute>(sample<T>(100 * j + i)));
              if (Rounding == rounding::each_step) sum = static_cast<Compute>(static_cast<T>(sum));
            }
            const T wanted = static_cast<T>(sum);
            if (!equal<T>(out[i], wanted) || (folds && !equal<T>(copy[i], wanted))) {
              MESSAGE("element " << i << " of " << count << ", " << k << " parts into " << into
                                 << " and " << also);
              return false;
            }
          }
          for (std::size_t j = 0; j < k; ++j) {
            const bool kept = j != into && (!folds || j != also);
            if (!in[j].guards_hold()) return false;
            if (kept && count != 0 && !equal<T>(in[j][count / 2], sample<T>(100 * j + count / 2))) {
              return false;
            }
          }
          if (!first.guards_hold() || !second.guards_hold()) return false;
        }
      }
    }
  }
  return true;
}

#if COLLS_DETAIL_DISPATCH
bool supports(detail::isa set) {
  switch (set) {
    case detail::isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    case detail::isa::avx512:
      return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
    case detail::isa::avx512_vnni:
      return supports(detail::isa::avx512) && __builtin_cpu_supports("avx512vnni");
    case detail::isa::avx512_fp16:
      return supports(detail::isa::avx512) && __builtin_cpu_supports("avx512fp16");
    case detail::isa::basic:
      break;
  }
  return true;
}
#endif

/// Calls check(version) for each version of a loop that this machine can run.
template <class Loop, class Check>
void with_versions(const Check& check) {
  using versions = detail::versions<Loop>;
  check(versions::vector);
#if COLLS_DETAIL_DISPATCH
  using detail::isa;
  if (supports(isa::avx2)) check(versions::avx2);
  if (supports(isa::avx512)) check(versions::avx512);
  if constexpr (Loop::widest == isa::avx512_vnni) {
    if (supports(isa::avx512_vnni)) check(versions::avx512_vnni);
  }
  if constexpr (Loop::widest == isa::avx512_fp16) {
    if (supports(isa::avx512_fp16)) check(versions::avx512_fp16);
  }
#endif
}

/// The last of these versions, which go from the narrowest instruction set to the widest.
template <class Loop>
auto widest_version() {
  decltype(detail::best_version<Loop>()) widest = nullptr;
  with_versions<Loop>([&](auto* version) { widest = version; });
  return widest;
}

// Checks that all versions of a loop write the same bits when call(version, out) runs them.
template <class T, class Loop, class Call>
void require_versions_agree(const Call& call) {
  static_assert(Loop::vector);
  const std::size_t count = 3000;
  packed<T> basic(0, count, 0);
  packed<T> other(0, count, 0);
  call(detail::versions<Loop>::vector, basic.data(), count);
  with_versions<Loop>([&](auto* version) {
    call(version, other.data(), count);
    bool agrees = true;
    for (std::size_t i = 0; i < count; ++i) agrees &= equal<T>(basic[i], other[i]);
    CHECK(agrees);
  });
}

template <class T, class Compute = T, class Op>
void require_sums_agree(const Op& op) {
  require_versions_agree<T, detail::combine_loop<T, Compute, Op>>(
      [&](auto* version, std::byte* out, std::size_t count) {
        packed<T> left(0, count, 3);
        packed<T> right(0, count, 77);
        version(&op, out, left.data(), right.data(), count);
      });
}

template <class T, class Compute = T, rounding Rounding = rounding::each_step, class Op>
void require_folds_agree(const Op& op) {
  for (std::size_t inputs = 2; inputs <= 8; ++inputs) {
    require_versions_agree<T, detail::fold_loop<T, Compute, Op, Rounding>>(
        [&](auto* version, std::byte* out, std::size_t count) {
          std::vector<packed<T>> in;
          std::vector<const void*> parts;
          for (std::size_t i = 0; i < inputs; ++i) in.emplace_back(0, count, 3 + 77 * i);
          for (packed<T>& each : in) parts.push_back(each.data());
          packed<T> second(0, count, 0);
          version(&op, out, second.data(), parts.data(), inputs, count);
          REQUIRE(std::memcmp(out, second.data(), count * sizeof(T)) == 0);
        });
  }
}

/// Compares one pass over one to nine inputs by this version of the loop with pairwise combinations
/// by the plain version. The samples of halves contain all bit patterns.
template <class T, class Op>
bool folds_as_pairs(auto* version) {
  constexpr Op op;
  const auto combine = detail::versions<detail::combine_loop<T, float, Op>>::plain;
  for (std::size_t k = 1; k <= 9; ++k) {
    for (const std::size_t count : {1U, 31U, 67U, 1021U, 4099U}) {
      for (const std::size_t into : {separate, std::size_t{0}, k / 2, k - 1}) {
        std::vector<packed<T>> in;
        for (std::size_t i = 0; i < k; ++i) in.emplace_back(2 * i, count, 10'000 * i);
        packed<T> wanted(0, count, 0);
        packed<T> first(2 * k, count, 7);
        packed<T> second(1, count, 7);
        packed<T>& out = into == separate ? first : in[into];
        std::vector<const void*> parts;
        for (packed<T>& each : in) parts.push_back(each.data());
        for (std::size_t i = 1; i < k; ++i) {
          combine(&op, wanted.data(), wanted.data(), parts[i], count);
        }
        version(&op, out.data(), second.data(), parts.data(), k, count);
        for (std::size_t i = 0; i < count; ++i) {
          if (equal<T>(out[i], wanted[i]) && equal<T>(second[i], wanted[i])) continue;
          MESSAGE("element " << i << " of " << count << ", " << k << " parts into " << into);
          return false;
        }
        if (!out.guards_hold() || !second.guards_hold()) return false;
      }
    }
  }
  return true;
}

/// Adds other values to every bit pattern by this version of the loop for many inputs, and returns
/// the number of wrong sums.
template <class T>
int wrong_sums(auto* version) {
  constexpr std::size_t patterns = 0x10000;
  constexpr unsigned others[] = {0,      0x8000, 1,      0x8001, 0x007f, 0x0080, 0x807f, 0x03ff,
                                 0x0400, 0x8400, 0x3c00, 0x3c01, 0xbc00, 0x3f80, 0x3f81, 0xbf80,
                                 0x4049, 0x7bff, 0x7c00, 0xfc00, 0x7c01, 0x7e01, 0xfe00, 0x7f7f,
                                 0xff7f, 0x7f80, 0xff80, 0x7f81, 0x7fc1, 0xffff, 0x1234, 0xb4d7};
  std::vector<T> left(patterns);
  // Adjacent elements have distant values, so that few of them are special cases at the same time.
  for (std::size_t i = 0; i < patterns; ++i) {
    left[i] = T::from_bits(static_cast<std::uint16_t>(i * 40'503));
  }
  std::vector<T> right(patterns);
  std::vector<T> out(patterns);
  int wrong = 0;
  for (const unsigned other : others) {
    const T added = T::from_bits(static_cast<std::uint16_t>(other));
    std::fill(right.begin(), right.end(), added);
    const void* const parts[] = {left.data(), right.data()};
    version(nullptr, out.data(), nullptr, parts, 2, patterns);
    for (std::size_t i = 0; i < patterns; ++i) {
      const T wanted = left[i] + added;
      const bool same = out[i].bits() == wanted.bits();
      wrong += std::isnan(float(wanted)) ? !std::isnan(float(out[i])) : !same;
    }
  }
  return wrong;
}

}  // namespace

// With sanitizers the tests use few types: the loop is the same for every type, and compiling it
// for all of them takes minutes.
#ifdef ADDRESS_SANITIZED
#define NUMBERS bool, std::int8_t, std::uint16_t, std::int32_t, float, long double, bfloat16
#define NUMBERS_IN_REGISTERS std::int8_t, std::int64_t, float, bfloat16
#else
#define NUMBERS_IN_REGISTERS \
  std::int8_t, std::uint16_t, std::int32_t, std::int64_t, float, double, float16, bfloat16
#define NUMBERS                                                                                    \
  bool, char, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, \
      std::int64_t, std::uint64_t, float, double, long double, float16, bfloat16
#endif

TEST_CASE_TEMPLATE("every operation on numbers, in place and out of place, at every offset", T,
                   NUMBERS) {
  CHECK(combines_as_called<T>(plus{}));
  CHECK(combines_as_called<T>(multiplies{}));
  CHECK(combines_as_called<T>(minimum{}));
  CHECK(combines_as_called<T>(maximum{}));
  CHECK(combines_as_called<T>(logical_and{}));
  CHECK(combines_as_called<T>(logical_or{}));
  if constexpr (std::is_integral_v<T>) {
    CHECK(combines_as_called<T>(bit_and{}));
    CHECK(combines_as_called<T>(bit_or{}));
    CHECK(combines_as_called<T>(bit_xor{}));
  }
  if constexpr (!std::is_same_v<T, bool>) CHECK(combines_as_called<T>(average{}));
  CHECK(combines_as_called<value_index<T>>(min_loc{}));
  CHECK(combines_as_called<value_index<T>>(max_loc{}));
}

TEST_CASE_TEMPLATE("all instruction sets give the same bits", T, NUMBERS_IN_REGISTERS) {
  require_sums_agree<T>(plus{});
  require_sums_agree<T>(multiplies{});
  require_sums_agree<T>(minimum{});
  require_sums_agree<T>(maximum{});
  require_sums_agree<T>(logical_or{});
  require_folds_agree<T>(plus{});
  require_folds_agree<T>(minimum{});
  require_folds_agree<T>(maximum{});
  if constexpr (half_type<T>) {
    require_sums_agree<T, float>(plus{});
    require_folds_agree<T, float>(plus{});
    require_folds_agree<T, float, rounding::at_end>(plus{});
  }
}

TEST_CASE_TEMPLATE("a reduction runs on the widest instruction set that the machine has", T,
                   NUMBERS_IN_REGISTERS) {
  using compute = default_accumulate_t<plus, T>;
  const plus sum;
  const any_op op = erase<T>(sum, wire::storage).op;
  CHECK((op.combine == widest_version<detail::combine_loop<T, compute, plus>>()));
  CHECK((op.fold == widest_version<detail::fold_loop<T, compute, plus>>()));
  if constexpr (half_type<T>) {
    using to_float = detail::prepare_loop<T, float, float, detail::conversion>;
    using from_float = detail::finish_loop<float, float, T, detail::conversion>;
    const reduction wide = erase<T>(sum);
    CHECK((wide.prepare == widest_version<to_float>()));
    CHECK((wide.finish == widest_version<from_float>()));
  }
}

TEST_CASE_TEMPLATE("sums of halves are those of float rounded to nearest even, for every pattern",
                   T, float16, bfloat16) {
  using loop = detail::fold_loop<T, float, plus>;
  CHECK(wrong_sums<T>(detail::versions<loop>::plain) == 0);
  with_versions<loop>([](auto* version) { CHECK(wrong_sums<T>(version) == 0); });
}

TEST_CASE_TEMPLATE("one pass over halves leaves the bits of one sum after another", T, float16,
                   bfloat16) {
  with_versions<detail::fold_loop<T, float, plus>>(
      [](auto* version) { CHECK(folds_as_pairs<T, plus>(version)); });
  with_versions<detail::fold_loop<T, float, multiplies>>(
      [](auto* version) { CHECK(folds_as_pairs<T, multiplies>(version)); });
}

TEST_CASE_TEMPLATE("typed sums of halves are rounded once", T, float16, bfloat16) {
  // If every partial sum were rounded, the result would be 1.
  const T one(1.0f);
  const T little(static_cast<float>(std::numeric_limits<T>::epsilon()) / 2);
  const void* const parts[] = {&one, &little, &little};
  T sum;
  reduce_into(std::span(&sum, 1), parts, plus());
  CHECK(static_cast<float>(sum) == 1 + 2 * static_cast<float>(little));
  const plus erased;
  reduce_into(any_buffer(&sum, 1, sizeof sum), parts, erase<T>(erased, wire::storage).op);
  CHECK(static_cast<float>(sum) == 1);
}

TEST_CASE_TEMPLATE("many parts add up as one after another", T, std::uint8_t, std::int32_t, double,
                   float16, bfloat16, std::complex<float>) {
  CHECK(adds_up_parts<T>(plus{}));
  CHECK(adds_up_parts<T>(multiplies{}));
  if constexpr (!detail::complex_number<T>) CHECK(adds_up_parts<T>(minimum{}));
  if constexpr (!detail::complex_number<T>) CHECK(adds_up_parts<T>(maximum{}));
  if constexpr (std::is_integral_v<T>) {
    CHECK(adds_up_parts<T>(bit_and{}));
    CHECK(adds_up_parts<T>(bit_or{}));
    CHECK(adds_up_parts<T>(bit_xor{}));
  }
  if constexpr (half_type<T>) CHECK((adds_up_parts<T, float>(plus{})));
  if constexpr (half_type<T>) CHECK((adds_up_parts<T, float>(multiplies{})));
  if constexpr (half_type<T>) CHECK((adds_up_parts<T, float, rounding::at_end>(plus{})));
  constexpr plus added;
  CHECK((erase<T>(added).op.fold != nullptr));
}

TEST_CASE("many parts add up in a wider type that registers do not hold") {
  CHECK((adds_up_parts<float, double>(plus{})));
  CHECK((adds_up_parts<float, double, rounding::at_end>(plus{})));
}

TEST_CASE("many parts of users' types keep their order") {
  const auto bounded = [](const matrix& l, const matrix& r) {
    const matrix made = product(l, r);
    return matrix{made.a % 1009, made.b % 1009, made.c % 1009, made.d % 1009};
  };
  CHECK(adds_up_parts<matrix>(bounded));
  CHECK(adds_up_parts<int>([](int l, int r) { return l / 3 - r / 5; }));
}

TEST_CASE_TEMPLATE("complex numbers", T, std::complex<float>, std::complex<double>,
                   std::complex<long double>) {
  CHECK(combines_as_called<T>(plus{}));
  CHECK(combines_as_called<T>(multiplies{}));
  CHECK(combines_as_called<T>(average{}));
  CHECK(combines_as_called<T>(pre_multiplied_sum{2.0f}));
}

TEST_CASE("users' types and operations: the left operand stays on the left") {
  CHECK(combines_as_called<matrix>(product));
  CHECK(combines_as_called<int>([](int l, int r) { return l / 3 - r / 5; }));
  int calls = 0;
  const auto counting = [&calls](int l, int r) { return ++calls, l ^ r; };
  CHECK(combines_right<int>(erase<int>(counting).op, bit_xor{}));
  CHECK(calls != 0);
  const auto add = [](const awkward& l, const awkward& r) { return awkward(l.value + r.value); };
  CHECK(combines_as_called<awkward>(add));
  CHECK(erase<matrix>(product).op.commutative == false);
  CHECK(erase<matrix>(product).op.associative);
  CHECK(erase<int>(counting).op.id == op_id(counting));
}

TEST_CASE(
    "an exception of a user's operation leaves the kernel, and elements before it are reduced") {
  const auto failing = [](int l, int r) { return r == 3 ? throw 7 : l + r; };
  const reduction sum = erase<int>(failing);
  int data[] = {1, 1, 1};
  const int other[] = {1, 3, 1};
  CHECK_THROWS_AS(sum.op(data, data, other, 3), int);
  CHECK(data[0] == 2);
}

TEST_CASE("a reduction by an operation without a state is made once, for each wire") {
  const auto made = [](const plus& sum, wire wire_type) {
    return &detail::cached_reduction<float16>(sum, wire_type);
  };
  const reduction* const wide = made(plus{}, wire::accumulate);
  const reduction* const narrow = made(plus{}, wire::storage);
  CHECK(made(plus{}, wire::accumulate) == wide);
  CHECK(made(plus{}, wire::storage) == narrow);
  CHECK(wide->accumulate_size == 4);
  CHECK(narrow->accumulate_size == 2);
  for (const reduction* each : {wide, narrow}) {
    CHECK(each->state_size == 0);
    CHECK(each->op.state != nullptr);
    CHECK(each->op.id == 1);
  }
  float16 sum(0.0F);
  const float16 left(1.5F);
  const float16 right(2.0F);
  narrow->op(&sum, &left, &right, 1);
  CHECK(static_cast<float>(sum) == 3.5F);
}

TEST_CASE("a reduction describes itself") {
  const plus sum;
  const reduction f = erase<float>(sum);
  CHECK(f.storage_size == 4);
  CHECK(f.storage_align == 4);
  CHECK(f.accumulate_size == 4);
  CHECK(f.storage_id == type_id<float>());
  CHECK(f.accumulate_id == type_id<float>());
  CHECK(f.op.commutative);
  CHECK(f.op.id == 1);
  CHECK((f.prepare == nullptr));
  CHECK((f.finish == nullptr));

  const reduction h = erase<float16>(sum);
  CHECK(h.storage_size == 2);
  CHECK(h.accumulate_size == 4);
  CHECK(h.storage_id == type_id<float16>());
  CHECK(h.accumulate_id == type_id<float>());
  CHECK((h.prepare != nullptr));
  CHECK((h.finish != nullptr));

  const reduction s = erase<float16>(sum, wire::storage);
  CHECK(s.accumulate_size == 2);
  CHECK(s.accumulate_id == type_id<float>());
  CHECK((s.prepare == nullptr));
  CHECK((s.finish == nullptr));

  const minimum least;
  const reduction m = erase<float16>(least);
  CHECK(m.accumulate_size == 2);
  CHECK((m.prepare == nullptr));
  CHECK((m.finish == nullptr));

  const average mean;
  CHECK((erase<float>(mean).prepare == nullptr));
  CHECK((erase<float>(mean).finish != nullptr));
  const pre_multiplied_sum scaled(0.5f);
  CHECK((erase<float>(scaled).prepare != nullptr));
  CHECK((erase<float>(scaled).finish == nullptr));
  CHECK(erase<float>(scaled).op.state == &scaled);

  const reduction w = erase<std::int8_t, std::int64_t>(sum);
  CHECK(w.accumulate_size == 8);
  CHECK(w.accumulate_id == type_id<std::int64_t>());
}

// Applies prepare, combine and finish to the inputs of three ranks; element i of rank r is
// sample(100 r + i).
template <class T, class Accumulate, class Op>
bool reduces_right(const Op& op, wire wire_type, auto wanted) {
  const reduction made = erase<T, Accumulate>(op, wire_type);
  const std::size_t width = made.accumulate_size;
  for (const std::size_t count : counts) {
    for (const std::size_t offset : offsets<T>()) {
      std::vector<std::byte> working[3];
      for (std::size_t rank = 0; rank < 3; ++rank) {
        packed<T> input(offset, count, 100 * rank);
        working[rank].resize(count * width + offset);
        if (made.prepare != nullptr) {
          made.prepare(made.op.state, working[rank].data() + offset, input.data(), count);
        } else {
          REQUIRE(width == sizeof(T));
          if (count != 0) std::memcpy(working[rank].data() + offset, input.data(), count * width);
        }
      }
      std::byte* const sum = working[0].data() + offset;
      made.op(sum, sum, working[1].data() + offset, count);
      made.op(sum, sum, working[2].data() + offset, count);
      packed<T> out(offset, count, 0);
      if (made.finish != nullptr) {
        made.finish(made.op.state, out.data(), sum, count, 3);
      } else if (count != 0) {
        std::memcpy(out.data(), sum, count * sizeof(T));
      }
      for (std::size_t i = 0; i < count; ++i) {
        const T want = wanted(sample<T>(i), sample<T>(100 + i), sample<T>(200 + i));
        if (!equal<T>(out[i], want)) {
          MESSAGE("element " << i << " of " << count << " at offset " << offset);
          return false;
        }
      }
      if (!out.guards_hold()) return false;
    }
  }
  return true;
}

TEST_CASE_TEMPLATE("halves are summed in float and rounded once, or at each hop", T, float16,
                   bfloat16) {
  const auto wide = [](T a, T b, T c) { return T(float(a) + float(b) + float(c)); };
  const auto narrow = [](T a, T b, T c) { return T(float(T(float(a) + float(b))) + float(c)); };
  CHECK(reduces_right<T, automatic_accumulate>(plus{}, wire::accumulate, wide));
  CHECK(reduces_right<T, automatic_accumulate>(plus{}, wire::storage, narrow));
  CHECK(reduces_right<T, T>(plus{}, wire::accumulate, narrow));
  CHECK(reduces_right<T, automatic_accumulate>(average{}, wire::accumulate, [](T a, T b, T c) {
    return T((float(a) + float(b) + float(c)) / 3.0f);
  }));
  CHECK(reduces_right<T, automatic_accumulate>(
      average{}, wire::storage, [&](T a, T b, T c) { return T(float(narrow(a, b, c)) / 3.0f); }));
  CHECK(reduces_right<T, automatic_accumulate>(
      pre_multiplied_sum{0.3f}, wire::accumulate,
      [](T a, T b, T c) { return T(float(a) * 0.3f + float(b) * 0.3f + float(c) * 0.3f); }));
}

TEST_CASE("averages, scaled sums and wide accumulation of other types") {
  CHECK(reduces_right<float, float>(average{}, wire::accumulate,
                                    [](float a, float b, float c) { return (a + b + c) / 3.0f; }));
  CHECK(reduces_right<std::int8_t, std::int32_t>(
      average{}, wire::accumulate,
      [](int a, int b, int c) { return static_cast<std::int8_t>((a + b + c) / 3); }));
  CHECK(reduces_right<std::int32_t, std::int32_t>(
      average{}, wire::accumulate, [](std::int32_t a, std::int32_t b, std::int32_t c) {
        return static_cast<std::int32_t>(static_cast<unsigned>(a) + static_cast<unsigned>(b) +
                                         static_cast<unsigned>(c)) /
               3;
      }));
  CHECK(reduces_right<float, double>(plus{}, wire::accumulate, [](float a, float b, float c) {
    return static_cast<float>(static_cast<double>(a) + static_cast<double>(b) +
                              static_cast<double>(c));
  }));
  CHECK(reduces_right<double, double>(pre_multiplied_sum{0.1}, wire::accumulate,
                                      [](double a, double b, double c) {
                                        const double x = a * 0.1;
                                        const double y = b * 0.1;
                                        const double z = c * 0.1;
                                        return x + y + z;
                                      }));
  using complex = std::complex<float>;
  CHECK(reduces_right<complex, std::complex<double>>(
      average{}, wire::accumulate, [](complex a, complex b, complex c) {
        return complex(
            (std::complex<double>(a) + std::complex<double>(b) + std::complex<double>(c)) / 3.0);
      }));
  CHECK(reduces_right<complex, complex>(
      average{}, wire::accumulate,
      [](complex a, complex b, complex c) { return (a + b + c) / 3.0f; }));
}

TEST_CASE("a user's operation may prepare and finish") {
  const auto wanted = [](float a, float b, float c) {
    const double x = a;
    const double y = b;
    const double z = c;
    return static_cast<float>(std::sqrt((x * x + y * y + z * z) / 3));
  };
  CHECK(reduces_right<float, double>(root_mean_square{}, wire::accumulate, wanted));
}
