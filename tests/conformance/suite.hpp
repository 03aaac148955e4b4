// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The conformance suite: every algorithm of every collective, over any world of transports, against
// plain loops; what arrives where, what stays untouched, and how many messages and bytes it took.

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "harness.hpp"

namespace conformance {

using colls::algorithm;
using colls::any_buffer;
using colls::collective;
using colls::partition;

/// What is being run, for messages.
struct situation {
  collective what;
  algorithm how;
  int ranks;
  const char* element;
  std::size_t n;
  pieces cut;
  std::size_t shift;
  int root = -1;
  const char* variant = "";

  std::string text(int rank) const {
    std::string all = std::string(name(what)) + " " + name(how) + " of " + std::to_string(n) + " " +
                      element + " on rank " + std::to_string(rank) + " of " + std::to_string(ranks);
    if (root >= 0) all += ", root " + std::to_string(root);
    all += ", segment " + std::to_string(cut.segment) + " x " + std::to_string(cut.lanes);
    return all + ", shift " + std::to_string(shift) + " " + variant;
  }
};

/// The chunks of all ranks, some of them perhaps empty.
struct layout {
  std::vector<std::size_t> offsets;
  partition parts;
};

/// n elements as evenly as possible; n for each rank; a number of its own for each, some zero. Of
/// long buffers only the first.
inline std::vector<layout> layouts(int ranks, std::size_t n) {
  std::vector<layout> all(3);
  all[0].parts = partition(n, ranks);
  all[1].parts = partition::blocks(n, ranks);
  all[2].offsets.push_back(0);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t count = rank % 3 == 1 ? 0 : n * static_cast<std::size_t>((5 * rank + 2) % 7);
    all[2].offsets.push_back(all[2].offsets.back() + count);
  }
  all[2].parts = partition::from_offsets(all[2].offsets.data(), ranks);
  if (n > 10'000) all.resize(1);
  return all;
}

inline bool is_power_of_two(int ranks) { return (ranks & (ranks - 1)) == 0; }
inline int ceil_log2(int ranks) { return static_cast<int>(std::bit_width(unsigned(ranks - 1))); }
/// The hypercube of recursive doubling: its dimension, its corners, the ranks that it leaves over.
inline int floor_log2(int ranks) { return static_cast<int>(std::bit_width(unsigned(ranks))) - 1; }
inline int corners(int ranks) { return 1 << floor_log2(ranks); }
inline int left_over(int ranks) { return ranks - corners(ranks); }

template <class World>
class suite {
 public:
  using ranks = team<World>;
  using channel = typename ranks::channel;
  using catalogue = typename ranks::catalogue;

  static void barrier() {
    for (const int p : sizes) {
      ranks all(p);
      for (const auto& row : catalogue::barrier) {
        for (int late = 0; late < p; ++late) {
          int entered = 0;
          bool early = false;
          const auto body = [&](channel net) -> colls::task<> {
            for (int i = 0; net.rank() == late && i < 3000; ++i) co_await pause{};
            ++entered;
            co_await row.run(net);
            early = early || entered != p;
          };
          const traffic sent = all.run(collective::barrier, {}, body);
          const situation at{collective::barrier, row.how, p, "nothing", 0, {}, 0, late};
          REQUIRE_MESSAGE(!early, at.text(late));
          const int messages = row.how == algorithm::linear ? 2 * (p - 1) : p * ceil_log2(p);
          expect_cost(at, sent, messages, 0);
        }
      }
    }
  }

  static void broadcast() {
    sweep([](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
      for (const auto& row : catalogue::broadcast) {
        for (const int root : roots(all.size())) {
          const situation at{
              collective::broadcast, row.how, all.size(), with.name, n, cut, shift, root};
          auto data = buffers(all.size(), n * with.size, shift);
          fill(with, of(data, root).data(), root, 0, n);
          const traffic sent = all.run(at.what, cut, [&](channel net) {
            return row.run(net, erased(of(data, net.rank()), with), root);
          });
          const auto want = folded(with, root, root + 1, 0, n);
          for (int rank = 0; rank < all.size(); ++rank) {
            expect(at, with, rank, of(data, rank), want, true);
          }
          expect_cost(at, sent, all.size() - 1, count(all.size() - 1) * n * with.size);
        }
      }
    });
  }

  static void all_reduce() {
    sweep([](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
      const int p = all.size();
      for (const auto& row : catalogue::all_reduce) {
        if (!legal(row, with)) continue;
        const situation at{collective::all_reduce, row.how, p, with.name, n, cut, shift};
        auto data = inputs(with, p, n, shift);
        const traffic sent = all.run(at.what, cut, [&](channel net) {
          return row.run(net, erased(of(data, net.rank()), with), with.op);
        });
        const auto want = folded(with, 0, p, 0, n);
        for (int rank = 0; rank < p; ++rank) {
          expect(at, with, rank, of(data, rank), want, in_order(row, with));
          REQUIRE_MESSAGE(same_bytes(of(data, rank), of(data, 0)), at.text(rank));
        }
        const std::uint64_t bytes = n * with.size;
        switch (row.how) {
          case algorithm::linear:
            expect_cost(at, sent, 2 * (p - 1), count(2 * (p - 1)) * bytes);
            break;
          case algorithm::ring:
            expect_cost(at, sent, 2 * p * (p - 1) * segments(partition(n, p), with, cut),
                        count(2 * (p - 1)) * bytes);
            break;
          case algorithm::recursive_doubling: {
            const int messages = corners(p) * floor_log2(p) + 2 * left_over(p);
            expect_cost(at, sent, messages, count(messages) * bytes);
            break;
          }
          default:
            unknown_cost(at);
        }
      }
    });
  }

  static void reduce() {
    sweep([](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
      const int p = all.size();
      for (const auto& row : catalogue::reduce) {
        if (!legal(row, with)) continue;
        for (const int root : roots(p)) {
          for (const bool in_place : {false, true}) {
            const situation at{
                collective::reduce,        row.how, p, with.name, n, cut, shift, root,
                in_place ? "in place" : ""};
            auto in = inputs(with, p, n, shift);
            memory out(n * with.size, (shift + 3) % 8);
            memory& sum = in_place ? of(in, root) : out;
            const traffic sent = all.run(at.what, cut, [&](channel net) {
              return row.run(net, erased(of(in, net.rank()), with),
                             net.rank() == root ? erased(sum, with) : any_buffer(), root, with.op);
            });
            expect(at, with, root, sum, folded(with, 0, p, 0, n), in_order(row, with));
            for (int rank = 0; rank < p; ++rank) {
              if (in_place && rank == root) continue;
              expect(at, with, rank, of(in, rank), folded(with, rank, rank + 1, 0, n), true);
            }
            int messages = p - 1;
            if (row.how == algorithm::binomial_tree && !with.op.commutative && root != 0)
              ++messages;
            expect_cost(at, sent, messages, count(messages) * n * with.size);
          }
        }
      }
    });
  }

  static void reduce_scatter() {
    sweep([](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
      const int p = all.size();
      for (const auto& row : catalogue::reduce_scatter) {
        if (!legal(row, with)) continue;
        for (const layout& chunks : layouts(p, n)) {
          const partition parts = chunks.parts;
          for (const bool in_place : {false, true}) {
            const situation at{collective::reduce_scatter, row.how, p, with.name, n, cut, shift, -1,
                               in_place ? "in place" : ""};
            auto in = inputs(with, p, parts.total(), shift);
            std::vector<memory> out;
            for (int rank = 0; rank < p; ++rank)
              out.emplace_back(parts.count(rank) * with.size, shift);
            const traffic sent = all.run(at.what, cut, [&](channel net) {
              const any_buffer data = erased(of(in, net.rank()), with);
              const any_buffer mine = in_place ? colls::chunks{data, parts}[net.rank()]
                                               : erased(of(out, net.rank()), with);
              return row.run(net, data, mine, parts, with.op);
            });
            for (int rank = 0; rank < p; ++rank) {
              const std::size_t start = parts.offset(rank);
              const std::size_t length = parts.count(rank);
              const auto want = folded(with, 0, p, start, length);
              auto unchanged = folded(with, rank, rank + 1, 0, parts.total());
              if (in_place) {
                expect_part(at, with, rank, of(in, rank).data() + start * with.size, want,
                            in_order(row, with));
                std::copy_n(of(in, rank).data() + start * with.size, length * with.size,
                            unchanged.data() + start * with.size);
              } else {
                expect(at, with, rank, of(out, rank), want, in_order(row, with));
              }
              expect(at, with, rank, of(in, rank), unchanged, true);
            }
            const int cuts = row.how == algorithm::ring ? segments(parts, with, cut) : 1;
            if (row.how != algorithm::ring && row.how != algorithm::linear) unknown_cost(at);
            expect_cost(at, sent, p * (p - 1) * cuts, count(p - 1) * parts.total() * with.size);
          }
        }
      }
    });
  }

  static void all_gather() {
    sweep([](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
      const int p = all.size();
      for (const auto& row : catalogue::all_gather) {
        for (const layout& chunks : layouts(p, n)) {
          const partition parts = chunks.parts;
          const situation at{collective::all_gather, row.how, p, with.name, n, cut, shift};
          auto data = buffers(p, parts.total() * with.size, shift);
          std::vector<std::byte> want(parts.total() * with.size);
          for (int rank = 0; rank < p; ++rank) {
            const std::size_t start = parts.offset(rank);
            fill(with, of(data, rank).data() + start * with.size, rank, start, parts.count(rank));
            fill(with, want.data() + start * with.size, rank, start, parts.count(rank));
          }
          const traffic sent = all.run(at.what, cut, [&](channel net) {
            return row.run(net, erased(of(data, net.rank()), with), parts);
          });
          for (int rank = 0; rank < p; ++rank) expect(at, with, rank, of(data, rank), want, true);
          const std::uint64_t bytes = parts.total() * with.size;
          switch (row.how) {
            case algorithm::linear:
              expect_cost(at, sent, p * (p - 1), count(p - 1) * bytes);
              break;
            case algorithm::ring:
              expect_cost(at, sent, p * (p - 1) * segments(parts, with, cut), count(p - 1) * bytes);
              break;
            case algorithm::recursive_doubling: {
              std::uint64_t total = count(corners(p) - 1 + left_over(p)) * bytes;
              for (int k = 0; k < left_over(p); ++k) total += parts.count(2 * k) * with.size;
              expect_cost(at, sent, corners(p) * floor_log2(p) + 2 * left_over(p), total);
              break;
            }
            default:
              unknown_cost(at);
          }
        }
      }
    });
  }

  static void gather() { to_or_from_root(catalogue::gather, collective::gather); }
  static void scatter() { to_or_from_root(catalogue::scatter, collective::scatter); }

  static void all_to_all() {
    sweep([](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
      const int p = all.size();
      for (const auto& row : catalogue::all_to_all) {
        for (const bool equal : {true, false}) {
          const auto length = [&](int from, int to) {
            return equal ? n : n * count((from + 2 * to) % 3);
          };
          const situation at{
              collective::all_to_all,        row.how, p, with.name, n, cut, shift, -1,
              equal ? "" : "of many lengths"};
          std::vector<layout> sent_to(count(p));
          std::vector<layout> got_from(count(p));
          std::uint64_t travelling = 0;
          for (int rank = 0; rank < p; ++rank) {
            const auto describe = [&](layout& parts, const auto& length_of) {
              parts.offsets.push_back(0);
              for (int peer = 0; peer < p; ++peer) {
                parts.offsets.push_back(parts.offsets.back() + length_of(peer));
              }
              parts.parts = partition::from_offsets(parts.offsets.data(), p);
            };
            describe(of(sent_to, rank), [&](int peer) { return length(rank, peer); });
            describe(of(got_from, rank), [&](int peer) { return length(peer, rank); });
            travelling += of(sent_to, rank).parts.total() - length(rank, rank);
          }
          std::vector<memory> in;
          std::vector<memory> out;
          for (int rank = 0; rank < p; ++rank) {
            const std::size_t total = of(sent_to, rank).parts.total();
            in.emplace_back(total * with.size, (count(rank) + shift) % 8);
            fill(with, in.back().data(), rank, 0, total);
            out.emplace_back(of(got_from, rank).parts.total() * with.size, shift);
          }
          const traffic sent = all.run(at.what, cut, [&](channel net) {
            return row.run(net, erased(of(in, net.rank()), with), of(sent_to, net.rank()).parts,
                           erased(of(out, net.rank()), with), of(got_from, net.rank()).parts);
          });
          for (int rank = 0; rank < p; ++rank) {
            std::vector<std::byte> want(of(out, rank).size());
            for (int peer = 0; peer < p; ++peer) {
              fill(with, want.data() + of(got_from, rank).parts.offset(peer) * with.size, peer,
                   of(sent_to, peer).parts.offset(rank), length(peer, rank));
            }
            expect(at, with, rank, of(out, rank), want, true);
            expect(at, with, rank, of(in, rank),
                   folded(with, rank, rank + 1, 0, of(sent_to, rank).parts.total()), true);
          }
          expect_cost(at, sent, p * (p - 1), travelling * with.size);
        }
      }
    });
  }

  static void scan() { prefix_sums(catalogue::scan, collective::scan); }
  static void exscan() { prefix_sums(catalogue::exscan, collective::exscan); }

 private:
  static constexpr int sizes[] = {1, 2, 3, 4, 5, 7, 8};

  /// Lets everybody else go on.
  struct pause {
    bool start(colls::completion& done) {
      done.post();
      return false;
    }
    void result() {}
  };

  template <class Test>
  static void sweep(const Test& test) {
    for (const int p : sizes) {
      ranks all(p);
      const std::size_t ranks_ = count(p);
      // Primes, one less and one more than the ranks, and chunks around 16 elements: a segment.
      std::vector<std::size_t> counts = {
          0,  1,   ranks_ - 1,  ranks_,          ranks_ + 1,  13,
          31, 101, 16 * ranks_, 16 * ranks_ + 1, 17 * ranks_, 48 * ranks_ - 1};
      std::sort(counts.begin(), counts.end());
      counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
      for (const element_and_op& with : elements_and_ops()) {
        for (const std::size_t n : counts) {
          for (std::size_t shift = 0; shift < (n == 13 ? 8 : 1); ++shift) {
            test(all, with, n, pieces{}, shift);
            test(all, with, n, pieces{24, 3}, shift);
          }
          test(all, with, n, pieces{64, 2}, 0);
        }
      }
      // Above every eager limit, in one piece and in many.
      test(all, elements_and_ops()[0], 40'009, pieces{}, 1);
      test(all, elements_and_ops()[2], 40'009, pieces{100'000, 2}, 0);
    }
  }

  template <class Rows>
  static void to_or_from_root(const Rows& rows, collective what) {
    sweep(
        [&](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
          const int p = all.size();
          for (const auto& row : rows) {
            for (const int root : roots(p)) {
              for (const layout& chunks : layouts(p, n)) {
                for (const bool in_place : {false, true}) {
                  const situation at{
                      what, row.how, p, with.name, n, cut, shift, root, in_place ? "in place" : ""};
                  one_root(all, row, at, chunks.parts, with, in_place);
                }
              }
            }
          }
        });
  }

  // Chunk r, wherever it lies, has the values of rank r from the chunk's offset on.
  template <class Row>
  static void one_root(ranks& all, const Row& row, const situation& at, const partition& parts,
                       const element_and_op& with, bool in_place) {
    const bool gathers = at.what == collective::gather;
    const int p = at.ranks;
    memory whole(parts.total() * with.size, (at.shift + 5) % 8);
    std::vector<memory> mine;
    std::vector<std::byte> want(parts.total() * with.size);
    std::uint64_t hops = 0;
    for (int rank = 0; rank < p; ++rank) {
      const std::size_t start = parts.offset(rank);
      mine.emplace_back(parts.count(rank) * with.size, (count(rank) + at.shift) % 8);
      fill(with, want.data() + start * with.size, rank, start, parts.count(rank));
      std::byte* const here =
          in_place && rank == at.root ? whole.data() + start * with.size : mine.back().data();
      if (gathers) fill(with, here, rank, start, parts.count(rank));
      const auto relative = unsigned((rank - at.root + p) % p);
      const int travels = row.how == algorithm::linear ? relative != 0 : std::popcount(relative);
      hops += count(travels) * parts.count(rank) * with.size;
    }
    if (!gathers) std::copy(want.begin(), want.end(), whole.data());
    const traffic sent = all.run(at.what, at.cut, [&](channel net) {
      const bool at_root = net.rank() == at.root;
      const any_buffer everything = at_root ? erased(whole, with) : any_buffer();
      const any_buffer own = at_root && in_place ? colls::chunks{everything, parts}[at.root]
                                                 : erased(of(mine, net.rank()), with);
      return gathers ? row.run(net, own, everything, parts, at.root)
                     : row.run(net, everything, own, parts, at.root);
    });
    expect(at, with, at.root, whole, want, true);
    for (int rank = 0; rank < p; ++rank) {
      if (in_place && rank == at.root) continue;
      const std::byte* const start = want.data() + parts.offset(rank) * with.size;
      expect(at, with, rank, of(mine, rank), {start, start + parts.count(rank) * with.size}, true);
    }
    if (row.how != algorithm::linear && row.how != algorithm::binomial_tree) unknown_cost(at);
    expect_cost(at, sent, p - 1, hops);
  }

  template <class Rows>
  static void prefix_sums(const Rows& rows, collective what) {
    sweep([&](ranks& all, const element_and_op& with, std::size_t n, pieces cut,
              std::size_t shift) {
      const int p = all.size();
      for (const auto& row : rows) {
        if (!legal(row, with)) continue;
        const situation at{what, row.how, p, with.name, n, cut, shift};
        auto data = inputs(with, p, n, shift);
        const traffic sent = all.run(what, cut, [&](channel net) {
          return row.run(net, erased(of(data, net.rank()), with), with.op);
        });
        for (int rank = 0; rank < p; ++rank) {
          const int last = what == collective::scan ? rank + 1 : std::max(rank, 1);
          expect(at, with, rank, of(data, rank), folded(with, 0, last, 0, n), in_order(row, with));
        }
        int messages = p - 1;
        if (row.how == algorithm::recursive_doubling) {
          const int summing = what == collective::scan ? p : p - 1;
          messages = what == collective::scan ? 0 : p - 1;
          for (int far = 1; far < summing; far *= 2) messages += summing - far;
        } else if (row.how != algorithm::linear) {
          unknown_cost(at);
        }
        expect_cost(at, sent, messages, count(messages) * n * with.size);
      }
    });
  }

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  template <class T>
  static T& of(std::vector<T>& all, int rank) {
    return all[count(rank)];
  }
  static any_buffer erased(memory& data, const element_and_op& with) {
    return {data.data(), data.size() / with.size, with.size};
  }
  static std::vector<int> roots(int p) {
    if (p == 1) return {0};
    if (p == 2) return {0, 1};
    return {0, p / 2, p - 1};
  }
  static std::vector<memory> buffers(int ranks_, std::size_t bytes, std::size_t shift) {
    std::vector<memory> all;
    for (int rank = 0; rank < ranks_; ++rank) all.emplace_back(bytes, (count(rank) + shift) % 8);
    return all;
  }
  static std::vector<memory> inputs(const element_and_op& with, int ranks_, std::size_t n,
                                    std::size_t shift) {
    std::vector<memory> all = buffers(ranks_, n * with.size, shift);
    for (int rank = 0; rank < ranks_; ++rank) fill(with, of(all, rank).data(), rank, 0, n);
    return all;
  }

  template <class Row>
  static bool legal(const Row& row, const element_and_op& with) {
    return row.what != colls::needs::commutative || with.op.commutative;
  }
  /// Whether the bits must be those of the sequential sum.
  template <class Row>
  static bool in_order(const Row& row, const element_and_op& with) {
    return with.exact || row.how == algorithm::linear;
  }
  static int segments(const partition& parts, const element_and_op& with, pieces cut) {
    const std::size_t bytes = parts.longest() * with.size;
    return cut.segment == 0 || bytes == 0
               ? 1
               : static_cast<int>((bytes + cut.segment - 1) / cut.segment);
  }

  static bool same_bytes(const memory& one, const memory& other) {
    return one.size() == 0 || std::memcmp(one.data(), other.data(), one.size()) == 0;
  }

  static void expect(const situation& at, const element_and_op& with, int rank, const memory& got,
                     const std::vector<std::byte>& want, bool bits) {
    REQUIRE_MESSAGE(got.size() == want.size(), at.text(rank));
    REQUIRE_MESSAGE(got.guards_are_intact(), at.text(rank));
    expect_part(at, with, rank, got.data(), want, bits);
  }
  /// Equal, or for float sums of another order close: they differ by rounding alone.
  static void expect_part(const situation& at, const element_and_op& with, int rank,
                          const std::byte* got, const std::vector<std::byte>& want, bool bits) {
    if (want.empty() || std::memcmp(got, want.data(), want.size()) == 0) return;
    for (std::size_t i = 0; i < want.size(); i += with.size) {
      if (std::memcmp(got + i, want.data() + i, with.size) == 0) continue;
      const bool close =
          !bits && std::abs(read<float>(got + i) / read<float>(want.data() + i) - 1) < 1e-6f;
      REQUIRE_MESSAGE(close, at.text(rank) << ": element " << i / with.size);
    }
  }
  static void expect_cost(const situation& at, const traffic& sent, int messages,
                          std::uint64_t bytes) {
    REQUIRE_MESSAGE(sent.messages == static_cast<std::uint64_t>(messages), at.text(-1));
    REQUIRE_MESSAGE(sent.bytes == bytes, at.text(-1));
  }
  static void unknown_cost(const situation& at) {
    FAIL("no closed form of the cost: " << at.text(-1));
  }
};

/// Runs everything in one world.
template <class World>
void conforms() {
  using all = suite<World>;
  SUBCASE("barrier") { all::barrier(); }
  SUBCASE("broadcast") { all::broadcast(); }
  SUBCASE("all_reduce") { all::all_reduce(); }
  SUBCASE("reduce") { all::reduce(); }
  SUBCASE("reduce_scatter") { all::reduce_scatter(); }
  SUBCASE("all_gather") { all::all_gather(); }
  SUBCASE("gather") { all::gather(); }
  SUBCASE("scatter") { all::scatter(); }
  SUBCASE("all_to_all") { all::all_to_all(); }
  SUBCASE("scan") { all::scan(); }
  SUBCASE("exscan") { all::exscan(); }
}

}  // namespace conformance
