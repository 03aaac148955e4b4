// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Conformance of the collectives that move data without looking at it.

#include "checks.hpp"

namespace conformance {

template <class World>
class movements {
 public:
  using ranks = team<World>;
  using channel = typename ranks::channel;
  using catalogue = typename ranks::catalogue;

  static void barrier() {
    for (const int p : sizes<World>) {
      ranks all(p);
      for (const auto& row : catalogue::barrier) {
        for (const int radix : {2, 3, 4}) {
          const situation at{collective::barrier, row.how, p, "nothing", 0, {0, 1, radix}, 0};
          for (int late = 0; late < p; ++late) one_late(all, row, at, late);
        }
      }
    }
  }

  static void broadcast() {
    sweep<World>(
        [](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
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
              expect_cost(at, sent, partition(n, all.size()), with);
            }
          }
        });
  }

  static void all_gather() {
    sweep<World>([](ranks& all, const element_and_op& with, std::size_t n, pieces cut,
                    std::size_t shift) {
      const int p = all.size();
      for (const auto& row : catalogue::all_gather) {
        if (!legal(row, with, p)) continue;
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
          expect_cost(at, sent, parts, with);
        }
      }
    });
  }

  static void gather() { to_or_from_root(catalogue::gather, collective::gather); }
  static void scatter() { to_or_from_root(catalogue::scatter, collective::scatter); }

  static void all_to_all() {
    sweep<World>([](ranks& all, const element_and_op& with, std::size_t n, pieces cut,
                    std::size_t shift) {
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
          for (int rank = 0; rank < p; ++rank) {
            const auto describe = [&](layout& parts, const auto& length_of) {
              parts.offsets.push_back(0);
              for (int peer = 0; peer < p; ++peer) {
                parts.offsets.push_back(parts.offsets.back() + length_of(peer));
              }
              parts.parts = equal ? partition::blocks(n, p)
                                  : partition::from_offsets(parts.offsets.data(), p);
            };
            describe(of(sent_to, rank), [&](int peer) { return length(rank, peer); });
            describe(of(got_from, rank), [&](int peer) { return length(peer, rank); });
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
          if (equal) {
            expect_cost(at, sent, partition::blocks(n, p), with);
          } else {
            expect_cost(at, sent,
                        closed_forms::all_to_all_v(row.how, p, cut.radix, [&](int from, int to) {
                          return length(from, to) * with.size;
                        }));
          }
        }
      }
    });
  }

 private:
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
    const traffic sent = all.run(at.what, at.cut, body);
    REQUIRE_MESSAGE(!early, at.text(late));
    expect_cost(at, sent, partition(0, at.ranks), elements_and_ops()[0]);
  }

  /// Lets everybody else go on.
  struct pause {
    bool start(colls::completion& done) {
      done.post();
      return false;
    }
    void result() {}
  };

  template <class Rows>
  static void to_or_from_root(const Rows& rows, collective what) {
    sweep<World>(
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
    for (int rank = 0; rank < p; ++rank) {
      const std::size_t start = parts.offset(rank);
      mine.emplace_back(parts.count(rank) * with.size, (count(rank) + at.shift) % 8);
      fill(with, want.data() + start * with.size, rank, start, parts.count(rank));
      std::byte* const here =
          in_place && rank == at.root ? whole.data() + start * with.size : mine.back().data();
      if (gathers) fill(with, here, rank, start, parts.count(rank));
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
    expect_cost(at, sent, parts, with);
  }
};

}  // namespace conformance
