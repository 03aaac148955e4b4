// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// simd: reductions in vector registers. The types in this file load, combine and store elements
// with each instruction set. All instruction sets give the same bits, except that NaNs may differ.

#include <colls/base/op.hpp>

#include <cstring>

namespace colls::detail {

/// The instruction sets for which loops are compiled. `basic` is the instruction set for which the
/// program itself is compiled. `avx512_vnni` has an instruction that makes sums of bfloat16 faster,
/// and `avx512_fp16` has arithmetic on float16.
enum class isa : std::uint8_t { basic, avx2, avx512, avx512_vnni, avx512_fp16 };

/// 1 if loops can use the dot product instruction of `avx512_vnni`, and 0 otherwise. The loops use
/// this instruction through inline assembly in `brain16_sum::to_nearest`. The value is 0 with
/// clang. The reason is that clang accepts the operands of this instruction only in functions that
/// are declared for `avx512_vnni`, and `to_nearest` is not such a function.
#if defined(__x86_64__) && !defined(__clang__)
#define COLLS_DETAIL_DOT_PRODUCT 1
#else
#define COLLS_DETAIL_DOT_PRODUCT 0
#endif

/// Returns whether an instruction set converts between float16 and float and compares 64-bit
/// integers. SSE2, the basic set of x86-64, does neither. NEON, the basic set of arm64, does both.
constexpr bool exceeds_sse2(isa set) {
#if defined(__aarch64__)
  return set == isa::basic;
#else
  return set != isa::basic;
#endif
}

/// The widest instruction set for loops that add or multiply elements of type T and compute in
/// float.
template <class T>
inline constexpr isa widest_for = isa::avx512;
template <>
inline constexpr isa widest_for<bfloat16> =
    COLLS_DETAIL_DOT_PRODUCT ? isa::avx512_vnni : isa::avx512;
template <>
inline constexpr isa widest_for<float16> = isa::avx512_fp16;

/// The point at which a loop that computes in float rounds to the element type. With `each_step`,
/// the loop rounds after each operation. The result is then equal to that of a series of loops with
/// two inputs each. With `at_end`, the loop rounds only once, after the last operation.
enum class rounding : std::uint8_t { each_step, at_end };

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

// An object of each of the following types holds a partial result in registers. `begin` loads the
// first input, `add` combines the partial result with another input, and `store` writes the partial
// result to memory. `round` has the same effect as storing the partial result and loading it again.

/// A partial result for numbers that are combined in their own type and not in a wider type. Sums
/// of integers use unsigned lanes (elements of vectors), because unsigned integers wrap around on
/// overflow.
template <class Lane, std::size_t Size>
struct plain_sum {
  static constexpr std::size_t size = Size;
  lanes<Lane, Size> sum;

  [[gnu::always_inline]] void begin(const std::byte* source) { std::memcpy(&sum, source, Size); }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* source) {
    lanes<Lane, Size> more;
    std::memcpy(&more, source, Size);
    combine<Op>(sum, more);
  }
  [[gnu::always_inline]] void round() {}
  [[gnu::always_inline]] void store(std::byte* dest) const { std::memcpy(dest, &sum, Size); }
};

/// A partial result for bfloat16. Each 32-bit word of the input holds two elements, which are
/// widened to floats. `upper` is for the elements in the upper halves of the words, and `lower` is
/// for those in the lower halves.
template <std::size_t Size, isa Set>
struct brain16_sum {
  using words = lanes<std::uint32_t, Size>;
  using floats = lanes<float, Size>;
  static constexpr std::size_t size = Size;
  static constexpr std::uint32_t upper_half = 0xffff'0000u;
  floats upper;
  floats lower;

  [[gnu::always_inline]] void begin(const std::byte* source) {
    words pairs;
    std::memcpy(&pairs, source, Size);
    upper = reinterpret_cast<floats>(pairs & upper_half);
    lower = reinterpret_cast<floats>(pairs << 16);
  }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* source) {
    brain16_sum more;
    more.begin(source);
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
  [[gnu::always_inline]] void store(std::byte* dest) const {
    words high = reinterpret_cast<words>(upper);
    words low = reinterpret_cast<words>(lower);
    to_nearest(high);
    to_nearest(low);
    const words pairs = (high & upper_half) | (low >> 16);
    std::memcpy(dest, &pairs, Size);
  }

 private:
  /// Rounds each float in `bits` to the nearest bfloat16 by adding at most 0x8000 to its bits. The
  /// upper half of each word is then the bfloat16. A NaN remains a NaN. It comes from an input or
  /// from an invalid operation, and in both cases its lower half is zero. The addition therefore
  /// does not change its upper half.
  [[gnu::always_inline]] static void to_nearest(words& bits) {
    if constexpr (Set == isa::avx512_vnni) {
#if COLLS_DETAIL_DOT_PRODUCT
      // The instruction works on each 32-bit word separately. It multiplies the lower half of
      // `halves` by the lower half of `ones`, and the upper half by the upper half. Both halves of
      // `ones` are 1, so the products are 0x7fff and bit 16 of `bits`, which is the lowest bit that
      // rounding keeps. The instruction adds both products to `bits`.
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

/// A partial result for elements of type float16 that are combined in type float. The processor's
/// conversion instructions widen the inputs to floats. `Size` is the size in bytes of the register
/// that holds the floats.
template <std::size_t Size>
struct binary16_sum {
  using floats = lanes<float, Size>;
  static constexpr std::size_t size = Size / 2;
  floats sum;

#if defined(__clang__)
  using halves = lanes<_Float16, size>;
  [[gnu::always_inline]] static void widen(floats& dest, const halves& source) {
    dest = __builtin_convertvector(source, floats);
  }
  [[gnu::always_inline]] static void narrow(halves& dest, const floats& source) {
    dest = __builtin_convertvector(source, halves);
  }
#else
  using halves = lanes<std::uint16_t, size>;
  [[gnu::always_inline]] static void widen(floats& dest, const halves& source) {
#if defined(__aarch64__)
    asm("fcvtl %0.4s, %1.4h" : "=w"(dest) : "w"(source));
#else
    asm("vcvtph2ps {%1, %0|%0, %1}" : "=v"(dest) : "v"(source));
#endif
  }
  [[gnu::always_inline]] static void narrow(halves& dest, const floats& source) {
#if defined(__aarch64__)
    asm("fcvtn %0.4h, %1.4s" : "=w"(dest) : "w"(source));
#else
    asm("vcvtps2ph {$0, %1, %0|%0, %1, 0}" : "=v"(dest) : "v"(source));
#endif
  }
#endif

  [[gnu::always_inline]] void begin(const std::byte* source) {
#if defined(__x86_64__) && !defined(__clang__)
    // Loads and widens the input with a single instruction. The processor then executes one
    // micro-operation fewer than for a load and a separate conversion.
    asm("vcvtph2ps {%1, %0|%0, %1}"
        : "=v"(sum)
        : "m"(*reinterpret_cast<const std::byte(*)[size]>(source)));
#else
    halves loaded;
    std::memcpy(&loaded, source, size);
    widen(sum, loaded);
#endif
  }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* source) {
    binary16_sum more;
    more.begin(source);
    combine<Op>(sum, more.sum);
  }
  [[gnu::always_inline]] void round() {
    halves rounded;
    narrow(rounded, sum);
    widen(sum, rounded);
  }
  [[gnu::always_inline]] void store(std::byte* dest) const {
    halves rounded;
    narrow(rounded, sum);
    std::memcpy(dest, &rounded, size);
  }
};

/// A partial result for elements of type float16 that are combined by instructions for float16.
/// These instructions round each sum or product to float16. A loop that computes the sum or product
/// in float and then rounds it to float16 gets the same bits, although it rounds twice. The reason
/// is that the significand of a float (24 bits) has at least 2 * 11 + 2 bits, where 11 is the
/// number of bits in the significand of a float16.
template <std::size_t Size>
struct native16_sum {
  static constexpr std::size_t size = Size;
#if defined(__clang__)
  using halves = lanes<_Float16, Size>;
#else
  using halves = lanes<std::uint16_t, Size>;
#endif
  halves sum;

  [[gnu::always_inline]] void begin(const std::byte* source) { std::memcpy(&sum, source, Size); }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* source) {
#if defined(__clang__)
    halves more;
    std::memcpy(&more, source, Size);
    combine<Op>(sum, more);
#else
    const auto& more = *reinterpret_cast<const std::byte(*)[Size]>(source);
    if constexpr (std::same_as<Op, multiplies>) {
      asm("vmulph {%1, %0, %0|%0, %0, %1}" : "+v"(sum) : "m"(more));
    } else {
      asm("vaddph {%1, %0, %0|%0, %0, %1}" : "+v"(sum) : "m"(more));
    }
#endif
  }
  [[gnu::always_inline]] void round() {}
  [[gnu::always_inline]] void store(std::byte* dest) const { std::memcpy(dest, &sum, Size); }
};

/// A partial minimum (if `Least` is true) or maximum of floating-point numbers. The numbers are
/// compared as integer keys (see `order_key`).
template <class T, class Key, bool Least, std::size_t Size>
struct extreme_key {
  using keys = lanes<Key, Size>;
  static constexpr std::size_t size = Size;
  static constexpr int sign = 8 * sizeof(Key) - 1;
  static constexpr Key all = std::numeric_limits<Key>::max();
  static constexpr Key infinity = static_cast<Key>(
      __builtin_bit_cast(Key, std::numeric_limits<T>::infinity()) ^ (Least ? Key(0) : Key(-1)));
  keys best;

  [[gnu::always_inline]] void begin(const std::byte* source) {
    std::memcpy(&best, source, Size);
    flip();
    // If an input is a NaN, the result must be a NaN. The key of a NaN is larger or smaller than
    // the keys of all numbers, depending on the sign of the NaN. A minimum would ignore the larger
    // keys, and a maximum would ignore the smaller ones. This statement inverts each key that would
    // be ignored. The inverted key is that of a NaN with the opposite sign.
    best ^= Least ? best > infinity : best < infinity;
  }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* source) {
    extreme_key more;
    more.begin(source);
    combine<Op>(best, more.best);
  }
  [[gnu::always_inline]] void round() {}
  [[gnu::always_inline]] void store(std::byte* dest) const {
    extreme_key flipped = *this;
    flipped.flip();
    std::memcpy(dest, &flipped.best, Size);
  }

 private:
  [[gnu::always_inline]] void flip() { best ^= (best >> sign) & all; }
};
template <class T>
using key_of = std::conditional_t<sizeof(T) == 2, std::int16_t,
                                  std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;

/// Converts `count` numbers from float16 to float. `Sum` must be a `binary16_sum`.
template <class Sum>
[[gnu::always_inline]] inline void widen(std::byte* dest, const std::byte* source,
                                         std::size_t count) {
  constexpr std::size_t lanes = sizeof(typename Sum::floats) / sizeof(float);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Sum some;
    some.begin(source + i * sizeof(float16));
    std::memcpy(dest + i * sizeof(float), &some.sum, sizeof some.sum);
  }
  for (; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, source + i * sizeof bits, sizeof bits);
    const float value = float16::from_bits(bits);
    std::memcpy(dest + i * sizeof value, &value, sizeof value);
  }
}
/// Converts `count` numbers from float to float16. `Sum` must be a `binary16_sum`.
template <class Sum>
[[gnu::always_inline]] inline void narrow(std::byte* dest, const std::byte* source,
                                          std::size_t count) {
  constexpr std::size_t lanes = sizeof(typename Sum::floats) / sizeof(float);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Sum some;
    std::memcpy(&some.sum, source + i * sizeof(float), sizeof some.sum);
    some.store(dest + i * sizeof(float16));
  }
  for (; i < count; ++i) {
    float value;
    std::memcpy(&value, source + i * sizeof value, sizeof value);
    const std::uint16_t bits = float16(value).bits();
    std::memcpy(dest + i * sizeof bits, &bits, sizeof bits);
  }
}

/// A partial result of `Size` bytes, which is the size of a cache line by default. It consists of
/// one or more partial results of type `Sum`.
template <class Sum, std::size_t Size = 64>
struct line_sum {
  static constexpr std::size_t size = Size;
  line_sum<Sum, Size / 2> first;
  line_sum<Sum, Size / 2> second;

  [[gnu::always_inline]] void begin(const std::byte* source) {
    first.begin(source);
    second.begin(source + size / 2);
  }
  template <class Op>
  [[gnu::always_inline]] void add(const std::byte* source) {
    first.template add<Op>(source);
    second.template add<Op>(source + size / 2);
  }
  [[gnu::always_inline]] void round() {
    first.round();
    second.round();
  }
  [[gnu::always_inline]] void store(std::byte* dest) const {
    first.store(dest);
    second.store(dest + size / 2);
  }
};
template <class Sum, std::size_t Size>
  requires(Size == Sum::size)
struct line_sum<Sum, Size> : Sum {};

/// Returns whether a loop for the instruction set `Set` can combine elements of type `T` in vector
/// registers. `Compute` is the type in which the loop computes.
template <class T, class Compute, class Op, isa Set>
constexpr bool fits_registers() {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, long double> || !number<T>) {
    return false;
  } else if constexpr (is_extreme<Op>) {
    return std::is_same_v<T, Compute> && (sizeof(T) < 8 || exceeds_sse2(Set));
  } else if constexpr (half_type<T>) {
    return std::is_same_v<Compute, float> && is_arithmetic<Op> &&
           (std::is_same_v<T, bfloat16> || exceeds_sse2(Set));
  } else {
    return std::is_same_v<T, Compute> && (is_arithmetic<Op> || is_of_bits<Op>);
  }
}

/// Returns the type of partial results for elements of type T. With `isa::basic`, this type uses
/// 16-byte registers. With the other sets, it uses 32-byte registers if memory bandwidth limits the
/// loop, and the widest registers of the set if computation limits the loop.
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

/// Combines the elements at the byte offset `offset` of all `count` parts into `sum`.
template <class Sum, class Op, rounding Rounding>
[[gnu::always_inline]] inline void add_up(Sum& sum, const void* const* parts, std::size_t count,
                                          std::size_t offset) {
  const auto part = [&](std::size_t i) __attribute__((always_inline)) {
    return static_cast<const std::byte*>(parts[i]) + offset;
  };
  sum.begin(part(0));
  if (count > 1) sum.template add<Op>(part(1));
  for (std::size_t i = 2; i < count; ++i) {
    if constexpr (Rounding == rounding::each_step) sum.round();
    sum.template add<Op>(part(i));
  }
}

/// Combines the bytes from `offset` to `size` of all `count` parts, Sum::size bytes at a time.
/// Stores the result to `out`, and also to `second` unless `second` is null. `out` and `second` may
/// each be one of the parts. Stops when fewer than Sum::size bytes are left, and returns the offset
/// of the bytes that are left.
template <class Sum, class Op, rounding Rounding>
[[gnu::always_inline]] inline std::size_t add_in_registers(void* out, void* second,
                                                           const void* const* parts,
                                                           std::size_t count, std::size_t offset,
                                                           std::size_t size) {
  for (; size - offset >= Sum::size; offset += Sum::size) {
    Sum sum;
    add_up<Sum, Op, Rounding>(sum, parts, count, offset);
    sum.store(static_cast<std::byte*>(out) + offset);
    if (second != nullptr) sum.store(static_cast<std::byte*>(second) + offset);
  }
  return offset;
}

/// Combines the Sum::size bytes at `offset` of all parts, but stores only the bytes from `first` to
/// `end`. No other call may store these bytes. If `out` is one of the parts, the later one of two
/// such calls would read the result of the earlier one as an input.
template <class Sum, class Op, rounding Rounding>
[[gnu::always_inline]] inline void add_edge(void* out, void* second, const void* const* parts,
                                            std::size_t count, std::size_t offset,
                                            std::size_t first, std::size_t end) {
  Sum sum;
  add_up<Sum, Op, Rounding>(sum, parts, count, offset);
  std::byte line[Sum::size];
  sum.store(line);
  std::memcpy(static_cast<std::byte*>(out) + first, line + (first - offset), end - first);
  if (second == nullptr) return;
  std::memcpy(static_cast<std::byte*>(second) + first, line + (first - offset), end - first);
}

}  // namespace colls::detail
