// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// kernels: colls' sums, in one thread, beside loops that read and write as many bytes and compute
// next to nothing. Three inputs and more are added up in pieces of the cache's size, as `direct`
// does it. What is compared runs in turn, each twice, and the second time counts: then the caches
// hold what it left there itself. Conversions of halves beside loops of the same. Prints Markdown.

#include "colls_bench/widest.hpp"

#include <colls/half.hpp>
#include <colls/reduction/reduce_into.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

namespace {

using word = std::uint64_t;

#define STREAM(inputs, value)                                                                      \
  WIDEST void stream_##inputs(word* __restrict out, const word* const* in, std::size_t n) {        \
    const word *a = in[0], *b = in[1], *c = in[2], *d = in[3], *e = in[4], *f = in[5], *g = in[6], \
               *h = in[7];                                                                         \
    (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;                                          \
    for (std::size_t i = 0; i < n; ++i) out[i] = (value);                                          \
  }
STREAM(2, a[i] ^ b[i])
STREAM(3, a[i] ^ b[i] ^ c[i])
STREAM(4, a[i] ^ b[i] ^ c[i] ^ d[i])
STREAM(8, a[i] ^ b[i] ^ c[i] ^ d[i] ^ e[i] ^ f[i] ^ g[i] ^ h[i])
#undef STREAM

WIDEST void widen(std::uint32_t* __restrict out, const std::uint16_t* in, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = in[i];
}
WIDEST void narrow(std::uint16_t* __restrict out, const std::uint32_t* in, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint16_t>(in[i]);
}

constexpr std::size_t most = 8;
constexpr std::size_t sizes[] = {64, 256, 1024, 16 * 1024, 128 * 1024};

/// A sum and its inputs, `bytes` each, and a second output.
class vectors {
 public:
  explicit vectors(std::size_t bytes)
      : words_(bytes / sizeof(word)), memory_((most + 2) * (words_ + gap)) {
    for (std::size_t i = 0; i < most; ++i) in_[i] = memory_.data() + (i + 1) * (words_ + gap);
  }
  std::size_t words() const { return words_; }
  word* out() { return memory_.data(); }
  word* second() { return memory_.data() + (most + 1) * (words_ + gap); }
  const word* const* in() const { return in_; }

 private:
  static constexpr std::size_t gap = 136;  // vectors do not lie at equal places of the cache's sets
  std::size_t words_;
  std::vector<word> memory_;
  const word* in_[most];
};

/// out = in[0] + ... + in[inputs - 1], in pieces of 16 KiB; `then(at, size)` follows each, in
/// bytes.
template <class Then>
void add_up(vectors& all, std::size_t inputs, const colls::any_op& op, std::size_t element,
            const Then& then, bool twice = false) {
  constexpr std::size_t piece = 16 * 1024;
  const std::size_t bytes = all.words() * sizeof(word);
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t size = std::min(piece, bytes - at);
    const void* parts[most];
    for (std::size_t i = 0; i < inputs; ++i) parts[i] = all.in()[i] + at / sizeof(word);
    word* const out = all.out() + at / sizeof(word);
    if (twice) {
      op.fold(op.state, out, all.second() + at / sizeof(word), parts, inputs, size / element);
    } else {
      colls::reduce_into(colls::any_buffer(out, size / element, element),
                         std::span<const void* const>(parts, inputs), op);
    }
    then(at / sizeof(word), size);
  }
}

/// The same, one input after another.
void add_in_turn(vectors& all, std::size_t inputs, const colls::any_op& op, std::size_t element) {
  const std::size_t count = all.words() * sizeof(word) / element;
  op(all.out(), all.in()[0], all.in()[1], count);
  for (std::size_t i = 2; i < inputs; ++i) op(all.out(), all.out(), all.in()[i], count);
}

/// The median time of each, in seconds; they run in turn.
std::vector<double> medians(std::span<const std::function<void()>> all, std::size_t bytes) {
  const std::size_t rounds = std::clamp<std::size_t>((std::size_t{1} << 29) / bytes, 7, 400);
  std::vector<std::vector<double>> times(all.size());
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i]();
      const auto began = std::chrono::steady_clock::now();
      all[i]();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      times[i].push_back(took.count());
    }
  }
  std::vector<double> found;
  for (std::vector<double>& each : times) {
    const auto middle = each.begin() + static_cast<std::ptrdiff_t>(rounds / 2);
    std::nth_element(each.begin(), middle, each.end());
    found.push_back(*middle);
  }
  return found;
}

template <class T, class Op = colls::plus>
void rows(const char* type, std::span<const std::size_t> in_kib = sizes) {
  constexpr Op called;
  const colls::any_op op = colls::erase<T>(called, colls::wire::storage).op;
  for (const std::size_t kib : in_kib) {
    vectors on(kib * 1024);
    const auto nothing = [](std::size_t, std::size_t) {};
    const auto copy = [&](std::size_t at, std::size_t size) {
      std::memcpy(on.second() + at, on.out() + at, size);
    };
    const std::function<void()> all[] = {
        [&] { stream_2(on.out(), on.in(), on.words()); },
        [&] { stream_3(on.out(), on.in(), on.words()); },
        [&] { stream_4(on.out(), on.in(), on.words()); },
        [&] { stream_8(on.out(), on.in(), on.words()); },
        [&] { add_in_turn(on, 2, op, sizeof(T)); },
        [&] { add_up(on, 3, op, sizeof(T), nothing); },
        [&] { add_up(on, 4, op, sizeof(T), nothing); },
        [&] { add_up(on, 8, op, sizeof(T), nothing); },
        [&] { add_in_turn(on, 4, op, sizeof(T)); },
        [&] { add_up(on, 2, op, sizeof(T), copy); },
        [&] { add_up(on, 2, op, sizeof(T), nothing, true); },
    };
    const std::vector<double> took = medians(all, kib * 1024);
    const double gb = static_cast<double>(kib) * 1024 / 1e9;
    fmt::print("| {} | {} KiB | {:.1f} | {:.1f} |", type, kib, 3 * gb / took[0], 5 * gb / took[2]);
    for (std::size_t i = 0; i < 4; ++i) fmt::print(" {:.2f} |", took[i] / took[i + 4]);
    fmt::print(" {:.2f} | {:.2f} |\n", took[8] / took[6], took[9] / took[10]);
  }
}

/// To float before a sum is made in float, and back.
template <class T>
void conversion_rows(const char* type) {
  constexpr colls::plus plus;
  const colls::reduction sum = colls::erase<T>(plus);
  for (const std::size_t kib : sizes) {
    const std::size_t n = kib * 1024 / sizeof(float);
    std::vector<std::uint32_t> wide(n);
    std::vector<std::uint16_t> half(n);
    const std::function<void()> all[] = {
        [&] { widen(wide.data(), half.data(), n); },
        [&] { narrow(half.data(), wide.data(), n); },
        [&] { sum.prepare(&plus, wide.data(), half.data(), n); },
        [&] { sum.finish(&plus, half.data(), wide.data(), n, 1); },
    };
    const std::vector<double> took = medians(all, kib * 1024);
    const double gb = 6 * static_cast<double>(n) / 1e9;
    fmt::print("| {} | {} KiB | {:.1f} | {:.2f} | {:.1f} | {:.2f} |\n", type, kib, gb / took[0],
               took[0] / took[2], gb / took[1], took[1] / took[3]);
  }
}

}  // namespace

int main() {
  fmt::print(
      "| one thread | a vector | loop of two inputs, GB/s | of four | colls beside the loop: "
      "two | three | four | eight | four beside one after another | second output beside a copy "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n");
  rows<float>("float");
  rows<colls::bfloat16>("bfloat16");
  rows<colls::float16>("float16");
  rows<std::int32_t>("int32");
  constexpr std::size_t two[] = {1024, 128 * 1024};
  rows<double>("double", two);
  rows<std::int8_t>("int8", two);
  rows<std::int16_t>("int16", two);
  rows<float, colls::multiplies>("float, product", two);
  rows<colls::bfloat16, colls::multiplies>("bfloat16, product", two);
  rows<colls::float16, colls::multiplies>("float16, product", two);
  rows<std::int32_t, colls::multiplies>("int32, product", two);
  rows<float, colls::minimum>("float, minimum", two);
  rows<double, colls::minimum>("double, minimum", two);
  rows<colls::bfloat16, colls::minimum>("bfloat16, minimum", two);
  rows<std::int32_t, colls::minimum>("int32, minimum", two);
  fmt::print(
      "\n| conversions, one thread | the floats | to float: loop GB/s | colls beside it | from "
      "float: loop GB/s | colls beside it |\n|---|---|---|---|---|---|\n");
  conversion_rows<colls::bfloat16>("bfloat16");
  conversion_rows<colls::float16>("float16");
}
