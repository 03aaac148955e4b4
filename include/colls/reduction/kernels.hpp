// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The loops of reductions over host memory. Built-in operations on built-in types are compiled for
// several instruction sets; which one runs is chosen when a reduction is made.

#include <colls/reduction/simd.hpp>

#include <initializer_list>

// Functions that a compiler vectorises at every level of optimisation but -O0, and for x86-64 the
// instruction sets above the program's own. No loop adds to a product, which only some of
// them would round once, so all give the same bits (of a NaN: a NaN).
#if defined(__clang__)
#define COLLS_DETAIL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define COLLS_DETAIL_SHORT _Pragma("clang loop vectorize(disable) unroll(disable)")
#define COLLS_DETAIL_VECTOR
#define COLLS_DETAIL_WIDE(sets) [[gnu::target(sets), clang::min_vector_width(512)]]
#else
#define COLLS_DETAIL_INDEPENDENT _Pragma("GCC ivdep")
#define COLLS_DETAIL_SHORT
#define COLLS_DETAIL_VECTOR [[gnu::optimize("O3")]]
#define COLLS_DETAIL_WIDE(sets) [[gnu::target(sets ",prefer-vector-width=512")]]
#endif
#if defined(__x86_64__)
#define COLLS_DETAIL_DISPATCH 1
#else
#define COLLS_DETAIL_DISPATCH 0
#endif

// Sanitizers and low levels of optimisation leave the loops as they are; that is no defect.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

namespace colls::detail {

/// Elements at any byte: users pack them as they like.
struct packed_elements {
  template <class T>
  [[gnu::always_inline]] static inline T get(const void* from, std::size_t i) {
    if constexpr (std::is_same_v<T, bool>) {
      return get<unsigned char>(from, i) != 0;
    } else {
      union element {
        element() {}
        T value;
      } loaded;
      std::memcpy(static_cast<void*>(&loaded.value),
                  static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
      return loaded.value;
    }
  }
  template <class T>
  [[gnu::always_inline]] static inline void put(void* to, std::size_t i, const T& value) {
    std::memcpy(static_cast<std::byte*>(to) + i * sizeof(T), static_cast<const void*>(&value),
                sizeof(T));
  }
};

/// Elements that are aligned. Compilers copy packed structs as integers, and what was stored by
/// members and is read as a whole stalls the processor.
struct aligned_elements {
  template <class T>
  [[gnu::always_inline]] static inline const T& get(const void* from, std::size_t i) {
    return static_cast<const T*>(from)[i];
  }
  template <class T>
  [[gnu::always_inline]] static inline void put(void* to, std::size_t i, const T& value) {
    if constexpr (std::is_copy_assignable_v<T>) {
      static_cast<T*>(to)[i] = value;
    } else {
      packed_elements::put(to, i, value);
    }
  }
};

inline std::size_t misaligned(const void* at, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(at) % alignment;
}

/// An operation without state is made where it is used, so that nothing points to it.
template <class Op>
[[gnu::always_inline]] inline decltype(auto) operation_of(const void* state) {
  if constexpr (std::is_empty_v<Op> && std::is_default_constructible_v<Op>) {
    return Op();
  } else {
    return *static_cast<const Op*>(state);
  }
}

/// The elements of a vector loop before `out` reaches a cache line; short loops gain nothing.
template <class T>
[[gnu::always_inline]] inline std::size_t head(const void* out, std::size_t count) {
  constexpr std::size_t line = 64;
  const std::size_t past = misaligned(out, line);
  if (count < 16 * line / sizeof(T) || past == 0 || past % sizeof(T) != 0) return 0;
  return (line - past) / sizeof(T);
}

/// Iterations that touch nothing of each other's; the first `first` of them apart.
template <class Body>
[[gnu::always_inline]] inline void vector_loop(std::size_t first, std::size_t count,
                                               const Body& body) {
  std::size_t i = 0;
  for (std::size_t end = first; true; end = count) {
    COLLS_DETAIL_INDEPENDENT
    for (std::size_t j = i; j < end; ++j) body(packed_elements(), j);
    if (end == count) return;
    i = end;
  }
}

template <class Body>
[[gnu::always_inline]] inline void plain_loop(bool aligned, std::size_t count, const Body& body) {
  if (aligned) {
    for (std::size_t i = 0; i < count; ++i) body(aligned_elements(), i);
  } else {
    for (std::size_t i = 0; i < count; ++i) body(packed_elements(), i);
  }
}

/// Whether a loop becomes vector code and is worth its versions.
template <class... Element>
inline constexpr bool vectorises =
    ((number<Element> && !std::is_same_v<Element, long double>) && ...);

/// Sums of complex numbers are sums of twice as many real ones.
template <class T, class Compute, class Op>
inline constexpr bool sums_parts = false;
template <complex_number T, class Op>
  requires is_sum<Op>
inline constexpr bool sums_parts<T, T, Op> = vectorises<decltype(T().real())>;

/// The widest instruction set that a loop has a version for.
template <class T, class Compute, class Op>
inline constexpr isa widest_set =
    is_arithmetic<Op> && std::same_as<Compute, float> ? widest_for<T> : isa::avx512;

template <class T, class Compute, class Op, rounding Rounding = rounding::each>
struct fold_loop;
template <class Loop, isa Set>
constexpr auto version();

/// out = left (+) right, elements of type T combined in type Compute.
template <class T, class Compute, class Op>
struct combine_loop {
  static constexpr bool vector =
      sums_parts<T, Compute, Op> || (is_builtin_op<Op> && vectorises<T, Compute>);
  static constexpr isa widest = widest_set<T, Compute, Op>;

  template <isa Set>
  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* left,
                                                const void* right, std::size_t count) {
    if constexpr (sums_parts<T, Compute, Op>) {
      using part = decltype(T().real());
      combine_loop<part, part, plus>::template run<Set>(state, out, left, right, 2 * count);
    } else {
      decltype(auto) op = operation_of<Op>(state);
      const auto combine = [&](auto elements, std::size_t i) __attribute__((always_inline)) {
        const T& a = elements.template get<T>(left, i);
        const T& b = elements.template get<T>(right, i);
        // Evaluated before it is stored: `out` may be an input.
        const T combined =
            static_cast<T>(op(static_cast<const Compute&>(a), static_cast<const Compute&>(b)));
        elements.put(out, i, combined);
      };
      if constexpr (fits_registers<T, Compute, Op, Set>()) {
        if (count == 2) {
          const void* const parts[] = {left, right};
          return fold_loop<T, Compute, Op>::pair(op, out, nullptr, parts, 2);
        }
        const void* const both[] = {left, right};
        version<fold_loop<T, Compute, Op>, Set>()(state, out, nullptr, both, 2, count);
      } else if constexpr (vector) {
        vector_loop(head<T>(out, count), count, combine);
      } else {
        const std::size_t misalignment = misaligned(out, alignof(T)) |
                                         misaligned(left, alignof(T)) |
                                         misaligned(right, alignof(T));
        plain_loop(misalignment == 0, count, combine);
      }
    }
  }
};

/// The first `inputs` parts combined from the left in type Compute and stored as T, to `out` and,
/// unless it is null, to `second`; both may be inputs. Rounded each time, the sum has the bits that
/// combine_loop would leave part by part. For vector code alone: other loops wait for the
/// processor, not for memory.
template <class T, class Compute, class Op, rounding Rounding>
struct fold_loop {
  static constexpr bool vector = combine_loop<T, Compute, Op>::vector;
  static constexpr isa widest = Rounding == rounding::once && std::same_as<T, float16>
                                    ? isa::avx512
                                    : combine_loop<T, Compute, Op>::widest;

  template <isa Set>
  [[gnu::always_inline]] static inline void run(const void* state, void* out, void* second,
                                                const void* const* parts, std::size_t inputs,
                                                std::size_t count) {
    if constexpr (sums_parts<T, Compute, Op>) {
      using part = decltype(T().real());
      fold_loop<part, part, plus>::template run<Set>(state, out, second, parts, inputs, 2 * count);
    } else if constexpr (fits_registers<T, Compute, Op, Set>()) {
      using sum = register_sum<T, Op, Set>;
      using wide = line_sum<sum>;
      const std::size_t size = count * sizeof(T);
      if (size >= wide::size) {
        std::size_t at = head<T>(out, count) * sizeof(T);
        if (at != 0) add_edge<wide, Op, Rounding>(out, second, parts, inputs, 0, 0, at);
        at = add_in_registers<wide, Op, Rounding>(out, second, parts, inputs, at, size);
        if (at == size) return;
        const std::size_t last = size - wide::size;
        return add_edge<wide, Op, Rounding>(out, second, parts, inputs, last, at, size);
      }
      decltype(auto) op = operation_of<Op>(state);
      if (count == 2) return pair(op, out, second, parts, inputs);
      std::size_t i =
          add_in_registers<sum, Op, Rounding>(out, second, parts, inputs, 0, size) / sizeof(T);
      COLLS_DETAIL_SHORT
      for (; i < count; ++i) {
        Compute added = get(parts[0], i);
        COLLS_DETAIL_SHORT
        for (std::size_t k = 1; k < inputs; ++k) added = kept(op(added, get(parts[k], i)));
        packed_elements::put(out, i, static_cast<T>(added));
        if (second != nullptr) packed_elements::put(second, i, static_cast<T>(added));
      }
    } else {
      by_blocks(state, out, second, parts, inputs, count);
    }
  }

  /// Two elements, stored as one: whoever copies what was stored by halves waits for it.
  [[gnu::always_inline]] static inline void pair(const Op& op, void* out, void* second,
                                                 const void* const* parts, std::size_t inputs) {
    Compute added[] = {get(parts[0], 0), get(parts[0], 1)};
    COLLS_DETAIL_SHORT
    for (std::size_t k = 1; k < inputs; ++k) {
      added[0] = kept(op(added[0], get(parts[k], 0)));
      added[1] = kept(op(added[1], get(parts[k], 1)));
    }
    const T both[] = {static_cast<T>(added[0]), static_cast<T>(added[1])};
    std::memcpy(out, both, sizeof both);
    if (second != nullptr) std::memcpy(second, both, sizeof both);
  }

 private:
  [[gnu::always_inline]] static inline Compute get(const void* from, std::size_t i) {
    const T& element = packed_elements::get<T>(from, i);
    return static_cast<const Compute&>(element);
  }
  [[gnu::always_inline]] static inline Compute kept(const Compute& sum) {
    if constexpr (Rounding == rounding::each) {
      return static_cast<Compute>(static_cast<T>(sum));
    } else {
      return sum;
    }
  }

  /// Sums stand in memory, in the nearest cache.
  [[gnu::always_inline]] static inline void by_blocks(const void* state, void* out, void* second,
                                                      const void* const* parts, std::size_t inputs,
                                                      std::size_t count) {
    decltype(auto) op = operation_of<Op>(state);
    constexpr std::size_t block = 1024 / sizeof(Compute);
    Compute sums[block];
    for (std::size_t at = 0; at < count; at += block) {
      const std::size_t n = count - at < block ? count - at : block;
      vector_loop(0, n, [&](auto, std::size_t i) __attribute__((always_inline)) {
        sums[i] = get(parts[0], at + i);
      });
      for (std::size_t k = 1; k < inputs; ++k) {
        const void* const part = parts[k];
        vector_loop(0, n, [&](auto, std::size_t i) __attribute__((always_inline)) {
          sums[i] = kept(op(sums[i], get(part, at + i)));
        });
      }
      for (void* const to : {out, second}) {
        if (to == nullptr) continue;
        vector_loop(0, n, [&](auto elements, std::size_t i) __attribute__((always_inline)) {
          elements.put(to, at + i, static_cast<T>(sums[i]));
        });
      }
    }
  }
};

/// Stands for an operation that neither prepares nor finishes: then conversion is all there is, and
/// it is compiled once for all operations.
struct conversion : builtin_op<0> {
  template <class T>
  COLLS_INLINE constexpr T prepare(const T& input) const {
    return input;
  }
  template <class T>
  COLLS_INLINE constexpr T finish(const T& result, int) const {
    return result;
  }
};

/// Whether the processor's own instructions convert float16 to float, or back, or both.
template <isa Set, class T, class Compute, class To>
inline constexpr bool converts_binary16 =
    Set != isa::basic && std::same_as<Compute, float> &&
    ((std::same_as<T, float16> && (std::same_as<To, float> || std::same_as<To, float16>)) ||
     (std::same_as<T, float> && std::same_as<To, float16>));

/// convert(values[i]) of floats in the nearest cache, from and to T and To, of which one is
/// float16.
template <isa Set, class T, class To, class Convert>
[[gnu::always_inline]] inline void convert_binary16(std::byte* out, const std::byte* in,
                                                    std::size_t count, const Convert& convert) {
  using halves = register_sum<float16, plus, Set>;
  constexpr std::size_t block = 256;
  std::byte values[block * sizeof(float)];
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t n = count - at < block ? count - at : block;
    const std::byte* from = in + at * sizeof(T);
    if constexpr (std::same_as<T, float16>) {
      widen<halves>(values, from, n);
      from = values;
    }
    constexpr bool narrows = std::same_as<To, float16>;
    std::byte* const to = narrows ? values : out + at * sizeof(To);
    vector_loop(0, n, [&](auto elements, std::size_t i) __attribute__((always_inline)) {
      elements.put(to, i, convert(elements.template get<float>(from, i)));
    });
    if constexpr (narrows) narrow<halves>(out + at * sizeof(To), values, n);
  }
}

/// out[i] = convert(in[i]) from type T to type To by way of type Compute.
template <isa Set, bool Vector, class T, class Compute, class To, class Op, class Convert>
[[gnu::always_inline]] inline void convert_loop(void* out, const void* in, std::size_t count,
                                                const Convert& convert) {
  if constexpr (Vector && converts_binary16<Set, T, Compute, To>) {
    auto* const to = static_cast<std::byte*>(out);
    const auto* const from = static_cast<const std::byte*>(in);
    if constexpr (!std::same_as<Op, conversion>) {
      convert_binary16<Set, T, To>(to, from, count, convert);
    } else if constexpr (std::same_as<T, float16>) {
      widen<register_sum<float16, plus, Set>>(to, from, count);
    } else {
      narrow<register_sum<float16, plus, Set>>(to, from, count);
    }
  } else {
    const auto one = [&](auto elements, std::size_t i) __attribute__((always_inline)) {
      const T& input = elements.template get<T>(in, i);
      const To converted = static_cast<To>(convert(static_cast<const Compute&>(input)));
      elements.put(out, i, converted);
    };
    if constexpr (Vector) {
      vector_loop(head<To>(out, count), count, one);
    } else {
      plain_loop((misaligned(out, alignof(To)) | misaligned(in, alignof(T))) == 0, count, one);
    }
  }
}

/// From T to To by way of type Compute, in which the operation prepares.
template <class T, class Compute, class To, class Op>
struct prepare_loop {
  static constexpr bool vector = is_builtin_op<Op> && vectorises<T, Compute, To>;
  static constexpr isa widest = isa::avx512;

  template <isa Set>
  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* in,
                                                std::size_t count) {
    decltype(auto) op = operation_of<Op>(state);
    convert_loop<Set, vector, T, Compute, To, Op>(
        out, in, count,
        [&](const Compute& input) __attribute__((always_inline)) { return op.prepare(input); });
  }
};

/// From T to To by way of type Compute, in which the operation finishes.
template <class T, class Compute, class To, class Op>
struct finish_loop {
  static constexpr bool vector = is_builtin_op<Op> && vectorises<T, Compute, To>;
  static constexpr isa widest = isa::avx512;

  template <isa Set>
  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* in,
                                                std::size_t count, int ranks) {
    decltype(auto) op = operation_of<Op>(state);
    convert_loop<Set, vector, T, Compute, To, Op>(
        out, in, count, [&](const Compute& result) __attribute__((always_inline)) {
          return op.finish(result, ranks);
        });
  }
};

template <class Loop, class Signature = decltype(&Loop::template run<isa::basic>)>
struct versions;
template <class Loop, class... Args>
struct versions<Loop, void (*)(Args...)> {
  static void plain(Args... args) { Loop::template run<isa::basic>(args...); }
  COLLS_DETAIL_VECTOR static void vector(Args... args) { Loop::template run<isa::basic>(args...); }
#if COLLS_DETAIL_DISPATCH
  COLLS_DETAIL_VECTOR [[gnu::target("avx2,f16c")]] static void avx2(Args... args) {
    Loop::template run<isa::avx2>(args...);
  }
  COLLS_DETAIL_VECTOR COLLS_DETAIL_WIDE("avx512f,avx512bw,avx512vl,avx512dq") static void avx512(
      Args... args) {
    Loop::template run<isa::avx512>(args...);
  }
  COLLS_DETAIL_VECTOR COLLS_DETAIL_WIDE(
      "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni") static void avx512_vnni(Args... args) {
    Loop::template run<isa::avx512_vnni>(args...);
  }
  COLLS_DETAIL_VECTOR COLLS_DETAIL_WIDE(
      "avx512f,avx512bw,avx512vl,avx512dq,avx512fp16") static void avx512_fp16(Args... args) {
    Loop::template run<isa::avx512_fp16>(args...);
  }
#endif
};

template <class Loop, isa Set>
constexpr auto version() {
#if COLLS_DETAIL_DISPATCH
  if constexpr (Set == isa::avx2) return &versions<Loop>::avx2;
  if constexpr (Set == isa::avx512) return &versions<Loop>::avx512;
  if constexpr (Set == isa::avx512_vnni) return &versions<Loop>::avx512_vnni;
  if constexpr (Set == isa::avx512_fp16) return &versions<Loop>::avx512_fp16;
#endif
  if constexpr (Set == isa::basic) return &versions<Loop>::vector;
}

/// The version of a loop for the machine that runs the program.
template <class Loop>
auto best_version() {
  if constexpr (!Loop::vector) {
    return &versions<Loop>::plain;
  } else {
#if COLLS_DETAIL_DISPATCH
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      if constexpr (Loop::widest == isa::avx512_vnni) {
        if (__builtin_cpu_supports("avx512vnni")) return version<Loop, isa::avx512_vnni>();
      }
      if constexpr (Loop::widest == isa::avx512_fp16) {
        if (__builtin_cpu_supports("avx512fp16")) return version<Loop, isa::avx512_fp16>();
      }
      return version<Loop, isa::avx512>();
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
      return version<Loop, isa::avx2>();
    }
#endif
    return version<Loop, isa::basic>();
  }
}

}  // namespace colls::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
#undef COLLS_DETAIL_INDEPENDENT
#undef COLLS_DETAIL_SHORT
#undef COLLS_DETAIL_VECTOR
#undef COLLS_DETAIL_WIDE
