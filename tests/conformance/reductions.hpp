// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Conformance of the collectives that reduce.

#include "checks.hpp"

namespace conformance {

template <class World>
class reductions {
 public:
  using ranks = team<World>;
  using channel = typename ranks::channel;
  using catalogue = typename ranks::catalogue;

  static void all_reduce() {
    sweep<World>(
        [](ranks& all, const element_and_op& with, std::size_t n, pieces cut, std::size_t shift) {
          const int p = all.size();
          for (const auto& row : catalogue::all_reduce) {
            const situation at{collective::all_reduce, row.how, p, with.name, n, cut, shift};
            if (legal(row, with, p)) one_all_reduce(all, row, at, with, {});
          }
        });
  }

  /// Ranks on several hosts, as many on each as `nodes` says, whatever the world is.
  static void all_reduce_over_nodes() {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{
             {1, 1, 1}, {2, 2}, {3, 3, 3}, {4, 1}, {2, 3, 1}, {5, 7}, {2, 2, 2, 2, 2}}) {
      // Side by side, and dealt out one by one.
      std::vector<int> blocks;
      std::vector<int> dealt;
      for (std::size_t turn = 0; turn < 8; ++turn) {
        for (std::size_t node = 0; node < nodes.size(); ++node) {
          if (turn == 0) blocks.insert(blocks.end(), count(nodes[node]), static_cast<int>(node));
          if (turn < count(nodes[node])) dealt.push_back(static_cast<int>(node) + 7);
        }
      }
      for (const std::vector<int>& hosts : {blocks, dealt}) {
        ranks all(static_cast<int>(hosts.size()), hosts);
        for (const auto& row : catalogue::all_reduce) {
          if (row.how != algorithm::hierarchical) continue;
          for (const std::size_t n : {0U, 1U, 2U, 5U, 101U}) {
            const element_and_op& with = elements_and_ops()[0];
            const situation at{
                collective::all_reduce, row.how, all.size(), with.name, n, {}, 0, -1, "over nodes"};
            one_all_reduce(all, row, at, with, nodes);
          }
        }
      }
    }
  }

  static void reduce() {
    sweep<World>([](ranks& all, const element_and_op& with, std::size_t n, pieces cut,
                    std::size_t shift) {
      const int p = all.size();
      for (const auto& row : catalogue::reduce) {
        if (!legal(row, with, p)) continue;
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
            expect_cost(at, sent, partition(n, p), with);
          }
        }
      }
    });
  }

  static void reduce_scatter() {
    sweep<World>([](ranks& all, const element_and_op& with, std::size_t n, pieces cut,
                    std::size_t shift) {
      const int p = all.size();
      for (const auto& row : catalogue::reduce_scatter) {
        if (!legal(row, with, p)) continue;
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
            expect_cost(at, sent, parts, with);
          }
        }
      }
    });
  }

  static void scan() { prefix_sums(catalogue::scan, collective::scan); }
  static void exscan() { prefix_sums(catalogue::exscan, collective::exscan); }

 private:
  template <class Row>
  static void one_all_reduce(ranks& all, const Row& row, const situation& at,
                             const element_and_op& with, const std::vector<int>& nodes) {
    auto data = inputs(with, at.ranks, at.n, at.shift);
    const traffic sent = all.run(at.what, at.cut, [&](channel net) {
      return row.run(net, erased(of(data, net.rank()), with), with.op);
    });
    const auto want = folded(with, 0, at.ranks, 0, at.n);
    for (int rank = 0; rank < at.ranks; ++rank) {
      expect(at, with, rank, of(data, rank), want, in_order(row, with));
      REQUIRE_MESSAGE(same_bytes(of(data, rank), of(data, 0)), at.text(rank));
    }
    expect_cost(at, sent, partition(at.n, at.ranks), with, nodes);
  }

  template <class Rows>
  static void prefix_sums(const Rows& rows, collective what) {
    sweep<World>([&](ranks& all, const element_and_op& with, std::size_t n, pieces cut,
                     std::size_t shift) {
      const int p = all.size();
      for (const auto& row : rows) {
        if (!legal(row, with, p)) continue;
        const situation at{what, row.how, p, with.name, n, cut, shift};
        auto data = inputs(with, p, n, shift);
        const traffic sent = all.run(what, cut, [&](channel net) {
          return row.run(net, erased(of(data, net.rank()), with), with.op);
        });
        for (int rank = 0; rank < p; ++rank) {
          const int last = what == collective::scan ? rank + 1 : std::max(rank, 1);
          expect(at, with, rank, of(data, rank), folded(with, 0, last, 0, n), in_order(row, with));
        }
        expect_cost(at, sent, partition(n, p), with);
      }
    });
  }
};

}  // namespace conformance
