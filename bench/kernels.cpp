// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// kernels: compares the sums of colls, in one thread, with loops that read and write as many bytes
// and compute almost nothing. Three and more inputs are added in pieces of the cache's size, as
// `direct` does it. Candidates run in turn, each twice, and the second run counts, in which the
// caches hold what the first one left there. Compares conversions of halves with such loops, too.
// Prints Markdown.

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

constexpr std::size_t max_inputs = 8;
constexpr std::size_t sizes[] = {64, 256, 1024, 16 * 1024, 128 * 1024};

/// A sum and its inputs, `bytes` each, and a second output.
class vectors {
 public:
  explicit vectors(std::size_t bytes)
      : words_(bytes / sizeof(word)), memory_((max_inputs + 2) * (words_ + gap)) {
    for (std::size_t i = 0; i < max_inputs; ++i) in_[i] = memory_.data() + (i + 1) * (words_ + gap);
  }
  std::size_t words() const { return words_; }
  word* out() { return memory_.data(); }
  word* second() { return memory_.data() + (max_inputs + 1) * (words_ + gap); }
  const word* const* in() const { return in_; }

 private:
  static constexpr std::size_t gap = 136;  // vectors begin in different sets of the cache
  std::size_t words_;
  std::vector<word> memory_;
  const word* in_[max_inputs];
};

/// out = in[0] + ... + in[inputs - 1], in pieces of 16 KiB. Calls `after_piece(offset in words,
/// size in bytes)` after each piece. With `twice` the sums are also stored to the second output.
template <class Callback>
void sum_in_pieces(vectors& all, std::size_t inputs, const colls::any_op& op, std::size_t element,
                   const Callback& after_piece, bool twice = false) {
  constexpr std::size_t piece = 16 * 1024;
  const std::size_t bytes = all.words() * sizeof(word);
  for (std::size_t offset = 0; offset < bytes; offset += piece) {
    const std::size_t size = std::min(piece, bytes - offset);
    const std::size_t first = offset / sizeof(word);
    const void* parts[max_inputs];
    for (std::size_t i = 0; i < inputs; ++i) parts[i] = all.in()[i] + first;
    word* const out = all.out() + first;
    if (twice) {
      op.fold(op.state, out, all.second() + first, parts, inputs, size / element);
    } else {
      colls::reduce_into(colls::any_buffer(out, size / element, element),
                         std::span<const void* const>(parts, inputs), op);
    }
    after_piece(first, size);
  }
}

/// Computes the same sum, adding one input after another.
void sum_one_by_one(vectors& all, std::size_t inputs, const colls::any_op& op,
                    std::size_t element) {
  const std::size_t count = all.words() * sizeof(word) / element;
  op(all.out(), all.in()[0], all.in()[1], count);
  for (std::size_t i = 2; i < inputs; ++i) op(all.out(), all.out(), all.in()[i], count);
}

/// Runs the candidates in turn and returns the median time of each, in seconds.
std::vector<double> medians(std::span<const std::function<void()>> candidates, std::size_t bytes) {
  const std::size_t rounds = std::clamp<std::size_t>((std::size_t{1} << 29) / bytes, 7, 400);
  std::vector<std::vector<double>> times(candidates.size());
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      candidates[i]();
      const auto began = std::chrono::steady_clock::now();
      candidates[i]();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      times[i].push_back(took.count());
    }
  }
  std::vector<double> result;
  for (std::vector<double>& samples : times) {
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(rounds / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    result.push_back(*middle);
  }
  return result;
}

template <class T, class Op = colls::plus>
void rows(const char* type, std::span<const std::size_t> in_kib = sizes) {
  constexpr Op typed_op;
  const colls::any_op op = colls::erase<T>(typed_op, colls::wire::storage).op;
  for (const std::size_t kib : in_kib) {
    vectors data(kib * 1024);
    const auto nothing = [](std::size_t, std::size_t) {};
    const auto copy = [&](std::size_t first, std::size_t size) {
      std::memcpy(data.second() + first, data.out() + first, size);
    };
    const std::function<void()> candidates[] = {
        [&] { stream_2(data.out(), data.in(), data.words()); },
        [&] { stream_3(data.out(), data.in(), data.words()); },
        [&] { stream_4(data.out(), data.in(), data.words()); },
        [&] { stream_8(data.out(), data.in(), data.words()); },
        [&] { sum_one_by_one(data, 2, op, sizeof(T)); },
        [&] { sum_in_pieces(data, 3, op, sizeof(T), nothing); },
        [&] { sum_in_pieces(data, 4, op, sizeof(T), nothing); },
        [&] { sum_in_pieces(data, 8, op, sizeof(T), nothing); },
        [&] { sum_one_by_one(data, 4, op, sizeof(T)); },
        [&] { sum_in_pieces(data, 2, op, sizeof(T), copy); },
        [&] { sum_in_pieces(data, 2, op, sizeof(T), nothing, true); },
    };
    const std::vector<double> took = medians(candidates, kib * 1024);
    const double gb = static_cast<double>(kib) * 1024 / 1e9;
    fmt::print("| {} | {} KiB | {:.1f} | {:.1f} |", type, kib, 3 * gb / took[0], 5 * gb / took[2]);
    for (std::size_t i = 0; i < 4; ++i) fmt::print(" {:.2f} |", took[i] / took[i + 4]);
    fmt::print(" {:.2f} | {:.2f} |\n", took[8] / took[6], took[9] / took[10]);
  }
}

/// Conversions to float before a sum in float, and back.
template <class T>
void conversion_rows(const char* type) {
  constexpr colls::plus plus;
  const colls::reduction sum = colls::erase<T>(plus);
  for (const std::size_t kib : sizes) {
    const std::size_t n = kib * 1024 / sizeof(float);
    std::vector<std::uint32_t> wide(n);
    std::vector<std::uint16_t> half(n);
    const std::function<void()> candidates[] = {
        [&] { widen(wide.data(), half.data(), n); },
        [&] { narrow(half.data(), wide.data(), n); },
        [&] { sum.prepare(&plus, wide.data(), half.data(), n); },
        [&] { sum.finish(&plus, half.data(), wide.data(), n, 1); },
    };
    const std::vector<double> took = medians(candidates, kib * 1024);
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
