// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Reductions in vector registers: how some elements are loaded, combined and stored with each
// instruction set. All sets give the same bits (of a NaN: a NaN).

#include <colls/base/op.hpp>

#include <cstring>

namespace colls::detail {

/// Instruction sets that loops are compiled for; `basic` is the program's own. The last two have
/// instructions for sums of bfloat16 and of float16.
enum class isa : std::uint8_t { basic, avx2, avx512, avx512_vnni, avx512_fp16 };

/// clang takes operands of assembly only inside functions of their instruction set, so it has no
/// use for the dot product.
#if defined(__x86_64__) && !defined(__clang__)
#define COLLS_DETAIL_DOT_PRODUCT 1
#else
#define COLLS_DETAIL_DOT_PRODUCT 0
#endif

/// The widest set that a loop which combines elements T in float has a version for.
template <class T>
inline constexpr isa widest_for = isa::avx512;
template <>
inline constexpr isa widest_for<bfloat16> =
    COLLS_DETAIL_DOT_PRODUCT ? isa::avx512_vnni : isa::avx512;
template <>
inline constexpr isa widest_for<float16> = isa::avx512_fp16;

/// Whether the sum of float that was combined is rounded to the element's type each time, as
/// pairwise sums are, or in the end.
enum class rounding : std::uint8_t { each, once };

template <class Lane, std::size_t Size>
struct vector_of {
  typedef Lane type __attribute__((vector_size(Size)));
};
template <class Lane, std::size_t Size>
using lanes = typename vector_of<Lane, Size>::type;

template <class Op>
inline constexpr bool is_sum =
    std::same_as<Op, plus> || std::same_as<Op, average> || is_pre_multiplied_sum<Op>;
template <class Op>
inline constexpr bool is_arithmetic = is_sum<Op> || std::same_as<Op, multiplies>;
template <class Op>
inline constexpr bool is_of_bits =
    std::same_as<Op, bit_and> || std::same_as<Op, bit_or> || std::same_as<Op, bit_xor>;
template <class Op>
inline constexpr bool is_extreme = std::same_as<Op, minimum> || std::same_as<Op, maximum>;

template <class Op, class Numbers>
[[gnu::always_inline]] inline void combine(Numbers& sum, const Numbers& more) {
  if constexpr (std::same_as<Op, multiplies>) {
    sum *= more;
  } else if constexpr (std::same_as<Op, bit_and>) {
    sum &= more;
  } else if constexpr (std::same_as<Op, bit_or>) {
    sum |= more;
  } else if constexpr (std::same_as<Op, bit_xor>) {
    sum ^= more;
  } else if constexpr (std::same_as<Op, minimum>) {
    sum = more < sum ? more : sum;
  } else if constexpr (std::same_as<Op, maximum>) {
    sum = more > sum ? more : sum;
  } else {
    sum += more;
  }
}

// What follows begins with one input, adds others and is stored. Rounded in between, it is as if it
// had been stored and loaded again.

/// Numbers that are combined as they are; sums of integers in unsigned lanes, which wrap around.
template <class Lane, std::size_t Size>
struct plain_sum {
  static constexpr std::size_t size = Size;
  lanes<Lane, Size> sum;

  [[gnu::always_inline]] void begin(const std::byte* from) { std::memcpy(&sum, from, Size); }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* from) {
    lanes<Lane, Size> more;
    std::memcpy(&more, from, Size);
    combine<Op>(sum, more);
  }
  [[gnu::always_inline]] void round() {}
  [[gnu::always_inline]] void store(std::byte* to) const { std::memcpy(to, &sum, Size); }
};

/// bfloat16, two in each word: the upper and the lower ones become floats where they lie.
template <std::size_t Size, isa Set>
struct brain16_sum {
  using words = lanes<std::uint32_t, Size>;
  using floats = lanes<float, Size>;
  static constexpr std::size_t size = Size;
  static constexpr std::uint32_t upper_half = 0xffff'0000u;
  floats upper;
  floats lower;

  [[gnu::always_inline]] void begin(const std::byte* from) {
    words pairs;
    std::memcpy(&pairs, from, Size);
    upper = reinterpret_cast<floats>(pairs & upper_half);
    lower = reinterpret_cast<floats>(pairs << 16);
  }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* from) {
    brain16_sum more;
    more.begin(from);
    combine<Op>(upper, more.upper);
    combine<Op>(lower, more.lower);
  }
  [[gnu::always_inline]] void round() {
    words high = reinterpret_cast<words>(upper);
    words low = reinterpret_cast<words>(lower);
    to_nearest(high);
    to_nearest(low);
    upper = reinterpret_cast<floats>(high & upper_half);
    lower = reinterpret_cast<floats>(low & upper_half);
  }
  [[gnu::always_inline]] void store(std::byte* to) const {
    words high = reinterpret_cast<words>(upper);
    words low = reinterpret_cast<words>(lower);
    to_nearest(high);
    to_nearest(low);
    const words pairs = (high & upper_half) | (low >> 16);
    std::memcpy(to, &pairs, Size);
  }

 private:
  /// Leaves the nearest in the upper half of each word. The lower half of a NaN is zero, as it is
  /// in all inputs, so it is not rounded to infinity.
  [[gnu::always_inline]] static void to_nearest(words& bits) {
    if constexpr (Set == isa::avx512_vnni) {
#if COLLS_DETAIL_DOT_PRODUCT
      // Adds the products of both halves: 0x7fff and the bit above the lower half, each times one.
      const words halves = (bits & 0x1'0000u) | 0x7fffu;
      words ones = {};
      ones += 0x1'0001u;
      asm("vpdpwssd {%2, %1, %0|%0, %1, %2}" : "+v"(bits) : "v"(halves), "v"(ones));
#endif
    } else {
      bits += ((bits >> 16) & 1u) + 0x7fffu;
    }
  }
};

/// float16 by the instructions that convert it. `Size` bytes of floats.
template <std::size_t Size>
struct binary16_sum {
  using floats = lanes<float, Size>;
  static constexpr std::size_t size = Size / 2;
  floats sum;

#if defined(__clang__)
  using halves = lanes<_Float16, size>;
  [[gnu::always_inline]] static void widen(floats& to, const halves& from) {
    to = __builtin_convertvector(from, floats);
  }
  [[gnu::always_inline]] static void narrow(halves& to, const floats& from) {
    to = __builtin_convertvector(from, halves);
  }
  [[gnu::always_inline]] void begin(const std::byte* from) {
    halves loaded;
    std::memcpy(&loaded, from, size);
    widen(sum, loaded);
  }
#else
  using halves = lanes<std::uint16_t, size>;
  [[gnu::always_inline]] static void widen(floats& to, const halves& from) {
    asm("vcvtph2ps {%1, %0|%0, %1}" : "=v"(to) : "v"(from));
  }
  [[gnu::always_inline]] static void narrow(halves& to, const floats& from) {
    asm("vcvtps2ph {$0, %1, %0|%0, %1, 0}" : "=v"(to) : "v"(from));
  }
  /// From memory it takes one operation of the processor less.
  [[gnu::always_inline]] void begin(const std::byte* from) {
    asm("vcvtph2ps {%1, %0|%0, %1}"
        : "=v"(sum)
        : "m"(*reinterpret_cast<const std::byte(*)[size]>(from)));
  }
#endif

  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* from) {
    binary16_sum more;
    more.begin(from);
    combine<Op>(sum, more.sum);
  }
  [[gnu::always_inline]] void round() {
    halves rounded;
    narrow(rounded, sum);
    widen(sum, rounded);
  }
  [[gnu::always_inline]] void store(std::byte* to) const {
    halves rounded;
    narrow(rounded, sum);
    std::memcpy(to, &rounded, size);
  }
};

/// float16 by the instructions that add and multiply it. They round once, and so do float sums and
/// products that are rounded to float16 then: a float has twice its digits and two more.
template <std::size_t Size>
struct native16_sum {
  static constexpr std::size_t size = Size;
#if defined(__clang__)
  using halves = lanes<_Float16, Size>;
#else
  using halves = lanes<std::uint16_t, Size>;
#endif
  halves sum;

  [[gnu::always_inline]] void begin(const std::byte* from) { std::memcpy(&sum, from, Size); }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* from) {
#if defined(__clang__)
    halves more;
    std::memcpy(&more, from, Size);
    combine<Op>(sum, more);
#else
    const auto& more = *reinterpret_cast<const std::byte(*)[Size]>(from);
    if constexpr (std::same_as<Op, multiplies>) {
      asm("vmulph {%1, %0, %0|%0, %0, %1}" : "+v"(sum) : "m"(more));
    } else {
      asm("vaddph {%1, %0, %0|%0, %0, %1}" : "+v"(sum) : "m"(more));
    }
#endif
  }
  [[gnu::always_inline]] void round() {}
  [[gnu::always_inline]] void store(std::byte* to) const { std::memcpy(to, &sum, Size); }
};

/// The minimum (Least) or maximum of numbers with a sign bit, as integers that order them (see
/// order_key).
template <class T, class Key, bool Least, std::size_t Size>
struct extreme_key {
  using keys = lanes<Key, Size>;
  static constexpr std::size_t size = Size;
  static constexpr int sign = 8 * sizeof(Key) - 1;
  static constexpr Key all = std::numeric_limits<Key>::max();
  static constexpr Key infinity = static_cast<Key>(
      __builtin_bit_cast(Key, std::numeric_limits<T>::infinity()) ^ (Least ? Key(0) : Key(-1)));
  keys best;

  [[gnu::always_inline]] void begin(const std::byte* from) {
    std::memcpy(&best, from, Size);
    turn();
    // Of the NaN at the other end a NaN is made at this one.
    best ^= Least ? best > infinity : best < infinity;
  }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* from) {
    extreme_key more;
    more.begin(from);
    combine<Op>(best, more.best);
  }
  [[gnu::always_inline]] void round() {}
  [[gnu::always_inline]] void store(std::byte* to) const {
    extreme_key turned = *this;
    turned.turn();
    std::memcpy(to, &turned.best, Size);
  }

 private:
  [[gnu::always_inline]] void turn() { best ^= (best >> sign) & all; }
};
template <class T>
using key_of = std::conditional_t<sizeof(T) == 2, std::int16_t,
                                  std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;

/// `count` numbers of type float16 become floats, and floats float16.
template <class Sum>
[[gnu::always_inline]] inline void widen(std::byte* to, const std::byte* from, std::size_t count) {
  constexpr std::size_t lanes = sizeof(typename Sum::floats) / sizeof(float);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Sum some;
    some.begin(from + i * sizeof(float16));
    std::memcpy(to + i * sizeof(float), &some.sum, sizeof some.sum);
  }
  for (; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
    const float value = float16::from_bits(bits);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}
template <class Sum>
[[gnu::always_inline]] inline void narrow(std::byte* to, const std::byte* from, std::size_t count) {
  constexpr std::size_t lanes = sizeof(typename Sum::floats) / sizeof(float);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Sum some;
    std::memcpy(&some.sum, from + i * sizeof(float), sizeof some.sum);
    some.store(to + i * sizeof(float16));
  }
  for (; i < count; ++i) {
    float value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    const std::uint16_t bits = float16(value).bits();
    std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
  }
}

/// As many one after the other as make a cache line.
template <class Sum, std::size_t Size = 64>
struct line_sum {
  static constexpr std::size_t size = Size;
  line_sum<Sum, Size / 2> first;
  line_sum<Sum, Size / 2> second;

  [[gnu::always_inline]] void begin(const std::byte* from) {
    first.begin(from);
    second.begin(from + size / 2);
  }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* from) {
    first.template add<Op>(from);
    second.template add<Op>(from + size / 2);
  }
  [[gnu::always_inline]] void round() {
    first.round();
    second.round();
  }
  [[gnu::always_inline]] void store(std::byte* to) const {
    first.store(to);
    second.store(to + size / 2);
  }
};
template <class Sum, std::size_t Size>
  requires(Size == Sum::size)
struct line_sum<Sum, Size> : Sum {};

/// Whether elements T are combined in type Compute in registers.
template <class T, class Compute, class Op, isa Set>
constexpr bool fits_registers() {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, long double> || !number<T>) {
    return false;
  } else if constexpr (is_extreme<Op>) {
    return std::is_same_v<T, Compute> && (sizeof(T) < 8 || Set != isa::basic);
  } else if constexpr (half_type<T>) {
    return std::is_same_v<Compute, float> && is_arithmetic<Op> &&
           (std::is_same_v<T, bfloat16> || Set != isa::basic);
  } else {
    return std::is_same_v<T, Compute> && (is_arithmetic<Op> || is_of_bits<Op>);
  }
}

/// What waits for memory is quicker in registers of 32 bytes than in those of 64.
template <class T, class Op, isa Set>
constexpr auto register_for() {
  constexpr std::size_t plain = Set == isa::basic ? 16 : 32;
  constexpr std::size_t busy = Set == isa::basic ? 16 : Set == isa::avx2 ? 32 : 64;
  if constexpr (is_extreme<Op> && !std::is_integral_v<T>) {
    return std::type_identity<extreme_key<T, key_of<T>, std::same_as<Op, minimum>, busy>>();
  } else if constexpr (std::same_as<T, bfloat16>) {
    return std::type_identity<brain16_sum<busy, Set>>();
  } else if constexpr (std::same_as<T, float16> && Set == isa::avx512_fp16) {
    return std::type_identity<native16_sum<plain>>();
  } else if constexpr (std::same_as<T, float16>) {
    return std::type_identity<binary16_sum<busy>>();
  } else if constexpr (std::is_signed_v<T> && std::is_integral_v<T> && is_extreme<Op>) {
    return std::type_identity<plain_sum<std::make_signed_t<T>, plain>>();
  } else if constexpr (std::is_integral_v<T>) {
    return std::type_identity<plain_sum<std::make_unsigned_t<T>, plain>>();
  } else {
    return std::type_identity<plain_sum<T, plain>>();
  }
}
template <class T, class Op, isa Set>
using register_sum = typename decltype(register_for<T, Op, Set>())::type;

/// Combines what lies at byte `at` of all `count` parts.
template <class Sum, class Op, rounding Rounding>
[[gnu::always_inline]] inline void add_up(Sum& sum, const void* const* parts, std::size_t count,
                                          std::size_t at) {
  const auto part = [&](std::size_t i) __attribute__((always_inline)) {
    return static_cast<const std::byte*>(parts[i]) + at;
  };
  sum.begin(part(0));
  if (count > 1) sum.template add<Op>(part(1));
  for (std::size_t i = 2; i < count; ++i) {
    if constexpr (Rounding == rounding::each) sum.round();
    sum.template add<Op>(part(i));
  }
}

/// Combines bytes `at` to `size` of all `count` parts into `out` and, unless it is null, `second`,
/// both of which may be parts. Returns where it stopped, less than Sum::size before the end.
template <class Sum, class Op, rounding Rounding>
[[gnu::always_inline]] inline std::size_t add_in_registers(void* out, void* second,
                                                           const void* const* parts,
                                                           std::size_t count, std::size_t at,
                                                           std::size_t size) {
  for (; size - at >= Sum::size; at += Sum::size) {
    Sum sum;
    add_up<Sum, Op, Rounding>(sum, parts, count, at);
    sum.store(static_cast<std::byte*>(out) + at);
    if (second != nullptr) sum.store(static_cast<std::byte*>(second) + at);
  }
  return at;
}

/// The same for bytes `first` to `end` of what lies at `at`. The bytes around them, which may have
/// been combined before, are read in vain.
template <class Sum, class Op, rounding Rounding>
[[gnu::always_inline]] inline void add_edge(void* out, void* second, const void* const* parts,
                                            std::size_t count, std::size_t at, std::size_t first,
                                            std::size_t end) {
  Sum sum;
  add_up<Sum, Op, Rounding>(sum, parts, count, at);
  std::byte line[Sum::size];
  sum.store(line);
  std::memcpy(static_cast<std::byte*>(out) + first, line + (first - at), end - first);
  if (second == nullptr) return;
  std::memcpy(static_cast<std::byte*>(second) + first, line + (first - at), end - first);
}

}  // namespace colls::detail
