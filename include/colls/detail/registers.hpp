// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Sums in vector registers: how some elements are loaded, added up and stored with each instruction
// set. All sets give the same bits (of a NaN: a NaN).

#include <colls/detail/arithmetic.hpp>

#include <cstring>

namespace colls::detail {

/// Instruction sets that loops are compiled for; `basic` is the program's own.
enum class isa : std::uint8_t { basic, avx2, avx512, avx512_bf16 };

/// clang takes operands of assembly for this only inside functions of that instruction set.
#if defined(__x86_64__) && !defined(__clang__)
#define COLLS_DETAIL_BFLOAT16_INSTRUCTION 1
#else
#define COLLS_DETAIL_BFLOAT16_INSTRUCTION 0
#endif

template <class Lane, std::size_t Size>
struct vector_of {
  typedef Lane type __attribute__((vector_size(Size)));
};
template <class Lane, std::size_t Size>
using lanes = typename vector_of<Lane, Size>::type;

/// Numbers that are added as they are; integers in unsigned lanes, which wrap around.
template <class Lane, std::size_t Size>
struct plain_sum {
  static constexpr std::size_t size = Size;
  lanes<Lane, Size> sum;

  [[gnu::always_inline]] void begin(const std::byte* from) { std::memcpy(&sum, from, Size); }
  [[gnu::always_inline]] void add(const std::byte* from) {
    lanes<Lane, Size> more;
    std::memcpy(&more, from, Size);
    sum += more;
  }
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
  [[gnu::always_inline]] void add(const std::byte* from) {
    brain16_sum more;
    more.begin(from);
    upper += more.upper;
    lower += more.lower;
  }
  [[gnu::always_inline]] void store(std::byte* to) const {
#if COLLS_DETAIL_BFLOAT16_INSTRUCTION
    if constexpr (Set == isa::avx512_bf16) {
      if (is_free_of_subnormals()) return store_by_instruction(to);
    }
#endif
    // The lower half of a NaN is zero, as it is in all inputs, so it is not rounded to infinity.
    words high = reinterpret_cast<words>(upper);
    words low = reinterpret_cast<words>(lower);
    high += ((high >> 16) & 1u) + 0x7fffu;
    low += ((low >> 16) & 1u) + 0x7fffu;
    const words rounded = (high & upper_half) | (low >> 16);
    std::memcpy(to, &rounded, Size);
  }

 private:
#if COLLS_DETAIL_BFLOAT16_INSTRUCTION
  /// The instruction makes zeros of them.
  [[gnu::always_inline]] bool is_free_of_subnormals() const {
    std::uint16_t high;
    std::uint16_t low;
    asm("vfpclassps {$32, %1, %0|%0, %1, 32}" : "=k"(high) : "v"(upper));
    asm("vfpclassps {$32, %1, %0|%0, %1, 32}" : "=k"(low) : "v"(lower));
    return __builtin_expect((high | low) == 0, 1) != 0;
  }
  [[gnu::always_inline]] void store_by_instruction(std::byte* to) const {
    using halves = lanes<std::uint16_t, Size>;
    const halves from_both = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                              8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    halves rounded;  // the lower ones before the upper ones
    asm("vcvtne2ps2bf16 {%2, %1, %0|%0, %1, %2}" : "=v"(rounded) : "v"(upper), "v"(lower));
    rounded = __builtin_shuffle(rounded, from_both);
    std::memcpy(to, &rounded, Size);
  }
#endif
};

/// float16 by the instructions that convert it. `Size` bytes of floats.
template <std::size_t Size>
struct binary16_sum {
  using floats = lanes<float, Size>;
  static constexpr std::size_t size = Size / 2;
  floats sum;

#if defined(__clang__)
  using halves = lanes<_Float16, Size / 2>;
  [[gnu::always_inline]] static void widen(floats& to, const halves& from) {
    to = __builtin_convertvector(from, floats);
  }
  [[gnu::always_inline]] static void narrow(halves& to, const floats& from) {
    to = __builtin_convertvector(from, halves);
  }
#else
  using halves = lanes<std::uint16_t, Size / 2>;
  [[gnu::always_inline]] static void widen(floats& to, const halves& from) {
    asm("vcvtph2ps {%1, %0|%0, %1}" : "=v"(to) : "vm"(from));
  }
  [[gnu::always_inline]] static void narrow(halves& to, const floats& from) {
    asm("vcvtps2ph {$0, %1, %0|%0, %1, 0}" : "=v"(to) : "v"(from));
  }
#endif

  [[gnu::always_inline]] void begin(const std::byte* from) {
    halves loaded;
    std::memcpy(&loaded, from, size);
    widen(sum, loaded);
  }
  [[gnu::always_inline]] void add(const std::byte* from) {
    binary16_sum more;
    more.begin(from);
    sum += more.sum;
  }
  [[gnu::always_inline]] void store(std::byte* to) const {
    halves rounded;
    narrow(rounded, sum);
    std::memcpy(to, &rounded, size);
  }
};

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
  [[gnu::always_inline]] void add(const std::byte* from) {
    first.add(from);
    second.add(from + size / 2);
  }
  [[gnu::always_inline]] void store(std::byte* to) const {
    first.store(to);
    second.store(to + size / 2);
  }
};
template <class Sum, std::size_t Size>
requires(Size == Sum::size) struct line_sum<Sum, Size> : Sum {};

/// Whether sums of elements T, made in type Compute, are made in registers.
template <class T, class Compute, isa Set>
inline constexpr bool sums_in_registers =
    !std::is_same_v<T, bool> && !std::is_same_v<T, long double> &&
    (half_type<T>
         ? std::is_same_v<Compute, float> && (std::is_same_v<T, bfloat16> || Set != isa::basic)
         : number<T> && std::is_same_v<T, Compute>);

/// What waits for memory is quicker in registers of 32 bytes than in those of 64.
template <class T, isa Set>
struct registers_for {
  static constexpr std::size_t plain = Set == isa::basic ? 16 : 32;
  static constexpr std::size_t half = Set == isa::basic ? 16 : Set == isa::avx2 ? 32 : 64;
  using lane =
      std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>;
  using sum = plain_sum<typename lane::type, plain>;
};
template <isa Set>
struct registers_for<bfloat16, Set> {
  using sum = brain16_sum<registers_for<float, Set>::half, Set>;
};
template <isa Set>
struct registers_for<float16, Set> {
  using sum = binary16_sum<registers_for<float, Set>::half>;
};
template <class T, isa Set>
using register_sum = typename registers_for<T, Set>::sum;

/// Adds up bytes `at` to `size` of all `count` parts into `out` and, unless it is null, `second`,
/// both of which may be parts. Returns where it stopped, less than Sum::size before the end.
template <class Sum>
[[gnu::always_inline]] inline std::size_t add_in_registers(void* out, void* second,
                                                           const void* const* parts,
                                                           std::size_t count, std::size_t at,
                                                           std::size_t size) {
  for (; size - at >= Sum::size; at += Sum::size) {
    Sum sum;
    sum.begin(static_cast<const std::byte*>(parts[0]) + at);
    for (std::size_t i = 1; i < count; ++i) sum.add(static_cast<const std::byte*>(parts[i]) + at);
    sum.store(static_cast<std::byte*>(out) + at);
    if (second != nullptr) sum.store(static_cast<std::byte*>(second) + at);
  }
  return at;
}

}  // namespace colls::detail
