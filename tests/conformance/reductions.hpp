// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reductions: conformance of the collectives with a reduction.

#include "checks.hpp"

namespace conformance {

template <class World>
class reductions {
 public:
  using ranks = team<World>;
  using channel = typename ranks::channel;
  using algorithm_table = typename ranks::algorithm_table;

  // Each function tests the algorithms `table`, by default those of colls. `form` is the closed
  // form of their cost if they are not algorithms of colls.

  static void all_reduce() { all_reduce(rows<collective::all_reduce>()); }
  template <class Table>
  static void all_reduce(const Table& table, closed_form form = nullptr) {
    sweep<World>(
        [&](ranks& all, const element_and_op& pair, std::size_t n, pieces cut, std::size_t shift) {
          const int p = all.size();
          for (const auto& row : table) {
            if (!legal(row, pair, p)) continue;
            for (const placement& where : placements(p, n, shift)) {
              const situation at{collective::all_reduce, row.id, p, pair.name, n, cut, shift, -1,
                                 where.text(),           form};
              one_all_reduce(all, row, at, pair, where, {});
            }
          }
        });
  }

  /// Ranks on several hosts with `nodes[i]` ranks on host i, independent of the world.
  static void all_reduce_over_nodes() {
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{
             {1, 1, 1}, {2, 2}, {3, 3, 3}, {4, 1}, {2, 3, 1}, {5, 7}, {2, 2, 2, 2, 2}}) {
      // The ranks of a host side by side, and round-robin.
      std::vector<int> blocks;
      std::vector<int> round_robin;
      for (std::size_t local_rank = 0; local_rank < 8; ++local_rank) {
        for (std::size_t node = 0; node < nodes.size(); ++node) {
          if (local_rank == 0)
            blocks.insert(blocks.end(), count(nodes[node]), static_cast<int>(node));
          if (local_rank < count(nodes[node])) round_robin.push_back(static_cast<int>(node) + 7);
        }
      }
      for (const std::vector<int>& hosts : {blocks, round_robin}) {
        ranks all(static_cast<int>(hosts.size()), hosts);
        for (const auto& row : rows<collective::all_reduce>()) {
          if (row.id != algorithm::hierarchical) continue;
          for (const std::size_t n : {0U, 1U, 2U, 5U, 101U}) {
            const element_and_op& pair = elements_and_ops()[0];
            const situation at{
                collective::all_reduce, row.id, all.size(), pair.name, n, {}, 0, -1, "over nodes"};
            one_all_reduce(all, row, at, pair, placements(all.size(), n, 0)[0], nodes);
          }
        }
      }
    }
  }

  static void reduce() { reduce(rows<collective::reduce>()); }
  template <class Table>
  static void reduce(const Table& table, closed_form form = nullptr) {
    sweep<World>([&](ranks& all, const element_and_op& pair, std::size_t n, pieces cut,
                     std::size_t shift) {
      const int p = all.size();
      for (const auto& row : table) {
        if (!legal(row, pair, p)) continue;
        for (const int root : roots(p)) {
          for (const bool in_place : {false, true}) {
            const situation at{
                collective::reduce,         row.id, p, pair.name, n, cut, shift, root,
                in_place ? "in place" : "", form};
            auto in = inputs(pair, p, n, shift);
            memory out(n * pair.size, (shift + 3) % 8);
            memory& sum = in_place ? of_rank(in, root) : out;
            const traffic sent = all.run(at.operation, cut, [&](channel net) {
              return row.run(net, erased(of_rank(in, net.rank()), pair),
                             net.rank() == root ? erased(sum, pair) : any_buffer(), root, pair.op);
            });
            expect(at, pair, root, sum, folded(pair, 0, p, 0, n), in_order(row, pair));
            for (int rank = 0; rank < p; ++rank) {
              if (in_place && rank == root) continue;
              expect(at, pair, rank, of_rank(in, rank), folded(pair, rank, rank + 1, 0, n), true);
            }
            expect_cost(at, sent, partition(n, p), pair);
          }
        }
      }
    });
  }

  static void reduce_scatter() { reduce_scatter(rows<collective::reduce_scatter>()); }
  template <class Table>
  static void reduce_scatter(const Table& table, closed_form form = nullptr) {
    sweep<World>([&](ranks& all, const element_and_op& pair, std::size_t n, pieces cut,
                     std::size_t shift) {
      const int p = all.size();
      for (const auto& row : table) {
        if (!legal(row, pair, p)) continue;
        for (const layout& chunks : layouts(p, n)) {
          const partition parts = chunks.parts;
          for (const bool in_place : {false, true}) {
            const situation at{collective::reduce_scatter, row.id, p, pair.name, n, cut, shift, -1,
                               in_place ? "in place" : "", form};
            auto in = inputs(pair, p, parts.total(), shift);
            std::vector<memory> out;
            for (int rank = 0; rank < p; ++rank)
              out.emplace_back(parts.count(rank) * pair.size, shift);
            const traffic sent = all.run(at.operation, cut, [&](channel net) {
              const any_buffer data = erased(of_rank(in, net.rank()), pair);
              const any_buffer own = in_place ? colls::chunks{data, parts}[net.rank()]
                                              : erased(of_rank(out, net.rank()), pair);
              return row.run(net, data, own, parts, pair.op);
            });
            for (int rank = 0; rank < p; ++rank) {
              const std::size_t start = parts.offset(rank);
              const std::size_t length = parts.count(rank);
              const auto want = folded(pair, 0, p, start, length);
              auto unchanged = folded(pair, rank, rank + 1, 0, parts.total());
              if (in_place) {
                expect_part(at, pair, rank, of_rank(in, rank).data() + start * pair.size, want,
                            in_order(row, pair));
                std::copy_n(of_rank(in, rank).data() + start * pair.size, length * pair.size,
                            unchanged.data() + start * pair.size);
              } else {
                expect(at, pair, rank, of_rank(out, rank), want, in_order(row, pair));
              }
              expect(at, pair, rank, of_rank(in, rank), unchanged, true);
            }
            expect_cost(at, sent, parts, pair);
          }
        }
      }
    });
  }

  static void scan() { prefix_sums<collective::scan>(rows<collective::scan>()); }
  static void exscan() { prefix_sums<collective::exscan>(rows<collective::exscan>()); }
  /// Tests scans or exscans.
  template <collective Coll, class Table>
  static void prefix_sums(const Table& table, closed_form form = nullptr) {
    sweep<World>(
        [&](ranks& all, const element_and_op& pair, std::size_t n, pieces cut, std::size_t shift) {
          for (const auto& row : table) {
            if (!legal(row, pair, all.size())) continue;
            for (const placement& where : placements(all.size(), n, shift)) {
              const situation at{Coll, row.id, all.size(), pair.name,    n,
                                 cut,  shift,  -1,         where.text(), form};
              one_prefix_sum<Coll>(all, row, at, pair, where);
            }
          }
        });
  }

 private:
  template <collective Coll>
  static constexpr const auto& rows() {
    return algorithm_table::template algorithms<Coll>();
  }

  /// The buffers of all ranks. A rank that is in place has no output of its own.
  struct buffers_of_ranks {
    std::vector<memory> in;
    std::vector<memory> out;
    placement where;

    buffers_of_ranks(const element_and_op& pair, const situation& at, const placement& place)
        : in(inputs(pair, at.ranks, at.n, at.shift)),
          out(inputs(pair, at.ranks, at.n, at.shift + 3)),
          where(place) {}
    memory& output(int rank) {
      const bool in_place = where.is_in_place(rank);
      return of_rank(in_place ? in : out, rank);
    }
    /// Requires that no rank has written to an input that is not its output.
    void expect_inputs(const situation& at, const element_and_op& pair) {
      for (int rank = 0; rank < at.ranks; ++rank) {
        if (where.is_in_place(rank)) continue;
        expect(at, pair, rank, of_rank(in, rank), folded(pair, rank, rank + 1, 0, at.n), true);
      }
    }
  };

  template <class Row>
  static void one_all_reduce(ranks& all, const Row& row, const situation& at,
                             const element_and_op& pair, const placement& where,
                             const std::vector<int>& nodes) {
    buffers_of_ranks data(pair, at, where);
    const traffic sent = all.run(at.operation, at.cut, [&](channel net) {
      return row.run(net, erased(of_rank(data.in, net.rank()), pair),
                     erased(data.output(net.rank()), pair), pair.op);
    });
    const auto want = folded(pair, 0, at.ranks, 0, at.n);
    for (int rank = 0; rank < at.ranks; ++rank) {
      expect(at, pair, rank, data.output(rank), want, in_order(row, pair));
      REQUIRE_MESSAGE(same_bytes(data.output(rank), data.output(0)), at.text(rank));
    }
    data.expect_inputs(at, pair);
    expect_cost(at, sent, partition(at.n, at.ranks), pair, nodes);
  }

  template <collective Coll, class Row>
  static void one_prefix_sum(ranks& all, const Row& row, const situation& at,
                             const element_and_op& pair, const placement& where) {
    buffers_of_ranks data(pair, at, where);
    const traffic sent = all.run(Coll, at.cut, [&](channel net) {
      return row.run(net, erased(of_rank(data.in, net.rank()), pair),
                     erased(data.output(net.rank()), pair), pair.op);
    });
    for (int rank = 0; rank < at.ranks; ++rank) {
      // The output of rank 0 of an exscan is what it was before: in both buffers its input.
      const int last = Coll == collective::scan ? rank + 1 : std::max(rank, 1);
      expect(at, pair, rank, data.output(rank), folded(pair, 0, last, 0, at.n),
             in_order(row, pair));
    }
    data.expect_inputs(at, pair);
    expect_cost(at, sent, partition(at.n, at.ranks), pair);
  }
};

}  // namespace conformance
