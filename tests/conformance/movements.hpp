// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// movements: conformance of the collectives without a reduction.

#include "checks.hpp"

namespace conformance {

template <class World>
class movements {
 public:
  using ranks = team<World>;
  using channel = typename ranks::channel;
  using algorithm_table = typename ranks::algorithm_table;

  // Each function tests the algorithms `table`, by default those of colls. `form` is the closed
  // form of their cost if they are not algorithms of colls.

  static void barrier() { barrier(rows<collective::barrier>()); }
  template <class Table>
  static void barrier(const Table& table, closed_form form = nullptr) {
    for (const int p : sizes<World>) {
      ranks all(p);
      for (const auto& row : table) {
        for (const int radix : {2, 3, 4}) {
          const situation at{collective::barrier, row.id, p,  "nothing", 0,
                             {0, 1, radix},       0,      -1, "",        form};
          for (int late = 0; late < p; ++late) one_late(all, row, at, late);
        }
      }
    }
  }

  static void broadcast() { broadcast(rows<collective::broadcast>()); }
  template <class Table>
  static void broadcast(const Table& table, closed_form form = nullptr) {
    sweep<World>([&](ranks& all, const element_and_op& pair, std::size_t n, pieces cut,
                     std::size_t shift) {
      for (const auto& row : table) {
        for (const int root : roots(all.size())) {
          const situation at{
              collective::broadcast, row.id, all.size(), pair.name, n, cut, shift, root, "", form};
          auto data = buffers(all.size(), n * pair.size, shift);
          fill(pair, of_rank(data, root).data(), root, 0, n);
          const traffic sent = all.run(at.operation, cut, [&](channel net) {
            return row.run(net, erased(of_rank(data, net.rank()), pair), root);
          });
          const auto want = folded(pair, root, root + 1, 0, n);
          for (int rank = 0; rank < all.size(); ++rank) {
            expect(at, pair, rank, of_rank(data, rank), want, true);
          }
          expect_cost(at, sent, partition(n, all.size()), pair);
        }
      }
    });
  }

  static void all_gather() { all_gather(rows<collective::all_gather>()); }
  template <class Table>
  static void all_gather(const Table& table, closed_form form = nullptr) {
    sweep<World>(
        [&](ranks& all, const element_and_op& pair, std::size_t n, pieces cut, std::size_t shift) {
          const int p = all.size();
          for (const auto& row : table) {
            if (!legal(row, pair, p)) continue;
            for (const layout& chunks : layouts(p, n)) {
              for (const placement& where : placements(p, n, shift)) {
                const situation at{collective::all_gather, row.id, p, pair.name, n, cut, shift, -1,
                                   where.text(),           form};
                one_all_gather(all, row, at, pair, where, chunks.parts);
              }
            }
          }
        });
  }

  static void gather() { to_or_from_root(rows<collective::gather>(), collective::gather); }
  static void scatter() { to_or_from_root(rows<collective::scatter>(), collective::scatter); }
  /// Tests gathers or scatters.
  template <class Table>
  static void to_or_from_root(const Table& table, collective coll, closed_form form = nullptr) {
    sweep<World>(
        [&](ranks& all, const element_and_op& pair, std::size_t n, pieces cut, std::size_t shift) {
          const int p = all.size();
          for (const auto& row : table) {
            for (const int root : roots(p)) {
              for (const layout& chunks : layouts(p, n)) {
                for (const bool in_place : {false, true}) {
                  const situation at{
                      coll, row.id, p, pair.name, n, cut, shift, root, in_place ? "in place" : "",
                      form};
                  one_root(all, row, at, chunks.parts, pair, in_place);
                }
              }
            }
          }
        });
  }

  static void all_to_all() { all_to_all(rows<collective::all_to_all>()); }
  /// Blocks of different lengths are left out if `form` is given, because it has one length.
  template <class Table>
  static void all_to_all(const Table& table, closed_form form = nullptr) {
    sweep<World>([&](ranks& all, const element_and_op& pair, std::size_t n, pieces cut,
                     std::size_t shift) {
      const int p = all.size();
      for (const auto& row : table) {
        for (const bool equal : {true, false}) {
          if (!equal && form != nullptr) continue;
          const auto length = [&](int source, int dest) {
            return equal ? n : n * count((source + 2 * dest) % 3);
          };
          const situation at{
              collective::all_to_all,         row.id, p, pair.name, n, cut, shift, -1,
              equal ? "" : "of many lengths", form};
          std::vector<layout> sent_to(count(p));
          std::vector<layout> got_from(count(p));
          for (int rank = 0; rank < p; ++rank) {
            const auto describe = [&](layout& parts, const auto& length_of) {
              parts.offsets.push_back(0);
              for (int peer = 0; peer < p; ++peer) {
                parts.offsets.push_back(parts.offsets.back() + length_of(peer));
              }
              parts.parts = equal ? partition::blocks(n, p)
                                  : partition::from_offsets(parts.offsets.data(), p);
            };
            describe(of_rank(sent_to, rank), [&](int peer) { return length(rank, peer); });
            describe(of_rank(got_from, rank), [&](int peer) { return length(peer, rank); });
          }
          std::vector<memory> in;
          std::vector<memory> out;
          for (int rank = 0; rank < p; ++rank) {
            const std::size_t total = of_rank(sent_to, rank).parts.total();
            in.emplace_back(total * pair.size, (count(rank) + shift) % 8);
            fill(pair, in.back().data(), rank, 0, total);
            out.emplace_back(of_rank(got_from, rank).parts.total() * pair.size, shift);
          }
          const traffic sent = all.run(at.operation, cut, [&](channel net) {
            return row.run(
                net, erased(of_rank(in, net.rank()), pair), of_rank(sent_to, net.rank()).parts,
                erased(of_rank(out, net.rank()), pair), of_rank(got_from, net.rank()).parts);
          });
          for (int rank = 0; rank < p; ++rank) {
            std::vector<std::byte> want(of_rank(out, rank).size());
            for (int peer = 0; peer < p; ++peer) {
              fill(pair, want.data() + of_rank(got_from, rank).parts.offset(peer) * pair.size, peer,
                   of_rank(sent_to, peer).parts.offset(rank), length(peer, rank));
            }
            expect(at, pair, rank, of_rank(out, rank), want, true);
            expect(at, pair, rank, of_rank(in, rank),
                   folded(pair, rank, rank + 1, 0, of_rank(sent_to, rank).parts.total()), true);
          }
          if (equal) {
            expect_cost(at, sent, partition::blocks(n, p), pair);
          } else {
            expect_cost(at, sent,
                        closed_forms::all_to_all_v(row.id, p, cut.radix, [&](int source, int dest) {
                          return length(source, dest) * pair.size;
                        }));
          }
        }
      }
    });
  }

 private:
  template <collective Coll>
  static constexpr const auto& rows() {
    return algorithm_table::template algorithms<Coll>();
  }

  template <class Row>
  static void one_all_gather(ranks& all, const Row& row, const situation& at,
                             const element_and_op& pair, const placement& where,
                             const partition& parts) {
    auto data = buffers(at.ranks, parts.total() * pair.size, at.shift);
    std::vector<memory> in;
    std::vector<std::byte> want(parts.total() * pair.size);
    for (int rank = 0; rank < at.ranks; ++rank) {
      const std::size_t start = parts.offset(rank);
      const std::size_t length = parts.count(rank);
      in.emplace_back(length * pair.size, at.shift);
      std::byte* const own = where.is_in_place(rank)
                                 ? of_rank(data, rank).data() + start * pair.size
                                 : in.back().data();
      fill(pair, own, rank, start, length);
      fill(pair, want.data() + start * pair.size, rank, start, length);
    }
    const traffic sent = all.run(at.operation, at.cut, [&](channel net) {
      const any_buffer result = erased(of_rank(data, net.rank()), pair);
      const any_buffer own = where.is_in_place(net.rank())
                                 ? colls::chunks{result, parts}[net.rank()]
                                 : erased(of_rank(in, net.rank()), pair);
      return row.run(net, own, result, parts);
    });
    for (int rank = 0; rank < at.ranks; ++rank) {
      expect(at, pair, rank, of_rank(data, rank), want, true);
      if (where.is_in_place(rank)) continue;
      expect(at, pair, rank, of_rank(in, rank),
             folded(pair, rank, rank + 1, parts.offset(rank), parts.count(rank)), true);
    }
    expect_cost(at, sent, parts, pair);
  }

  template <class Row>
  static void one_late(ranks& all, const Row& row, const situation& at, int late) {
    int entered = 0;
    bool early = false;
    const auto body = [&](channel net) -> colls::task<> {
      for (int i = 0; net.rank() == late && i < 3000; ++i) co_await pause{};
      ++entered;
      co_await row.run(net);
      early = early || entered != at.ranks;
    };
    const traffic sent = all.run(at.operation, at.cut, body);
    REQUIRE_MESSAGE(!early, at.text(late));
    expect_cost(at, sent, partition(0, at.ranks), elements_and_ops()[0]);
  }

  /// Lets all other ranks run.
  struct pause {
    bool start(colls::completion& done) {
      done.post();
      return false;
    }
    void result() {}
  };

  // Chunk r has the values of rank r from the chunk's offset on, in every buffer.
  template <class Row>
  static void one_root(ranks& all, const Row& row, const situation& at, const partition& parts,
                       const element_and_op& pair, bool in_place) {
    const bool gathers = at.operation == collective::gather;
    const int p = at.ranks;
    memory full(parts.total() * pair.size, (at.shift + 5) % 8);
    std::vector<memory> own_data;
    std::vector<std::byte> want(parts.total() * pair.size);
    for (int rank = 0; rank < p; ++rank) {
      const std::size_t start = parts.offset(rank);
      own_data.emplace_back(parts.count(rank) * pair.size, (count(rank) + at.shift) % 8);
      fill(pair, want.data() + start * pair.size, rank, start, parts.count(rank));
      std::byte* const here =
          in_place && rank == at.root ? full.data() + start * pair.size : own_data.back().data();
      if (gathers) fill(pair, here, rank, start, parts.count(rank));
    }
    if (!gathers) std::copy(want.begin(), want.end(), full.data());
    const traffic sent = all.run(at.operation, at.cut, [&](channel net) {
      const bool at_root = net.rank() == at.root;
      const any_buffer everything = at_root ? erased(full, pair) : any_buffer();
      const any_buffer own = at_root && in_place ? colls::chunks{everything, parts}[at.root]
                                                 : erased(of_rank(own_data, net.rank()), pair);
      return gathers ? row.run(net, own, everything, parts, at.root)
                     : row.run(net, everything, own, parts, at.root);
    });
    expect(at, pair, at.root, full, want, true);
    for (int rank = 0; rank < p; ++rank) {
      if (in_place && rank == at.root) continue;
      const std::byte* const start = want.data() + parts.offset(rank) * pair.size;
      expect(at, pair, rank, of_rank(own_data, rank),
             {start, start + parts.count(rank) * pair.size}, true);
    }
    expect_cost(at, sent, parts, pair);
  }
};

}  // namespace conformance
