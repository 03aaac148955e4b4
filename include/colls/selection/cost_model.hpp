// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// costs: what a call costs by each algorithm, in closed form. Messages and bytes are those of all
// ranks; the time is that of the longest chain. docs/algorithms.md has the same as a table.
//
// All of it is integer arithmetic, so that ranks that other compilers have built choose the same.

#include <colls/algorithm/direct_thresholds.hpp>
#include <colls/base/loggp_trees.hpp>

namespace colls {

/// The costs of calls of one collective with `bytes` in the whole vector, of one rank for
/// all_to_all, between `ranks` ranks, `on_host` of them side by side on each host but perhaps the
/// last (all of them: one host). Chunks count as equally long.
class costs : detail::cost_trees {
 public:
  constexpr costs(const network_cost& net, collective what, std::uint64_t bytes, int ranks,
                  int on_host)
      : cost_trees(net, bytes, ranks, on_host), what_(what) {}

  constexpr cost of(const plan& by) const {
    const part all = ranks_ > 1 ? parts(by) : part();
    const cost chain = finish(all);
    if (!shares_cores()) return chain;
    const costs waiting(waits(), what_, n_, ranks_, on_host_);
    const picoseconds waited = waiting.finish(waiting.parts(by)).time + all.turns * turn();
    return {chain.messages, chain.bytes, larger(chain.time, waited + work(all))};
  }

  /// The bytes of the longest piece that a rank cuts into segments; 0: the algorithm cuts none.
  constexpr std::uint64_t cut(algorithm how) const {
    switch (how) {
      case algorithm::ring:
      case algorithm::scatter_all_gather:
        return chunk_;
      case algorithm::double_tree:
        return n_ / 2;
      case algorithm::chain:
        return n_;
      case algorithm::circulant:
        return what_ == collective::broadcast ? n_ : 0;
      default:
        return 0;
    }
  }
  static constexpr bool has_radix(algorithm how) {
    return how == algorithm::knomial_tree || how == algorithm::bruck ||
           how == algorithm::dissemination;
  }

 private:
  constexpr bool goes_whole() const { return colls::goes_whole(what_, n_, ranks_); }

  constexpr part parts(const plan& by) const {
    switch (what_) {
      case collective::barrier:
        return barrier(by);
      case collective::broadcast:
        return broadcast(by);
      case collective::all_reduce:
        return all_reduce(by);
      case collective::reduce:
        return reduce(by);
      case collective::reduce_scatter:
        return reduce_scatter(by);
      case collective::all_gather:
        return all_gather(by);
      case collective::gather:
      case collective::scatter:
        if (by.how == algorithm::direct) {
          if (goes_whole()) {
            return what_ == collective::gather ? at_once(star_in(chunk_), chunk_)
                                               : at_once(star_out(chunk_), chunk_);
          }
          const part both = at_once(star_in(card_bytes) + part{p_ - 1, (p_ - 1) * card_bytes});
          return both + (lends() ? worked(star_in(0), 2 * chunk_, p_ - 1) : star_in(chunk_));
        }
        if (by.how != algorithm::linear) {
          return chunk_tree(what_ == collective::gather ? way::up : way::down);
        }
        return what_ == collective::gather ? star_in(chunk_) : star_out(chunk_);
      case collective::all_to_all:
        return all_to_all(by);
      case collective::scan:
      case collective::exscan:
        return scan(by);
      default:
        return {};
    }
  }

  constexpr part barrier(const plan& by) const {
    switch (by.how) {
      case algorithm::dissemination:
        return digits(by.radix, [](int) { return std::uint64_t{0}; });
      case algorithm::binomial_tree:
        return tree(0, 2, way::up) + tree(0, 2, way::down);
      case algorithm::direct:
        return net_.one_thread ? met(0) : at_once(mesh(0), 0);
      default:
        return star_in(0) + star_out(0);
    }
  }

  constexpr part broadcast(const plan& by) const {
    switch (by.how) {
      case algorithm::binomial_tree:
        return tree(n_, 2, way::down);
      case algorithm::knomial_tree:
        return tree(n_, by.radix, way::down);
      case algorithm::scatter_all_gather:
        return chunk_tree(way::down) + ring(by, false);
      case algorithm::chain:
        return line(n_, p_ - 1, 1, by, false);
      case algorithm::double_tree:
        return two_trees(by, false);
      case algorithm::circulant: {
        const std::uint64_t s = pieces(n_, by.segment);
        const std::uint64_t rounds = s - 1 + number(pattern::doubling_rounds(ranks_));
        return {(p_ - 1) * s, (p_ - 1) * n_, rounds * around((n_ + s - 1) / s, on_host_)};
      }
      case algorithm::direct:
        if (goes_whole()) return at_once(star_out(n_), n_);
        return at_once(star_out(card_bytes)) +
               (lends() ? worked(star_in(0), 2 * n_, p_ - 1) : star_out(n_));
      default:
        return star_out(n_);
    }
  }

  constexpr part reduced(part moved, std::uint64_t bytes) const {
    moved.touched += bytes;
    return moved;
  }
  constexpr part copied(part moved, std::uint64_t bytes) const {
    moved.touched += bytes;
    moved.copied += p_ * bytes;
    return moved;
  }

  constexpr part reduce(const plan& by) const {
    switch (by.how) {
      case algorithm::binomial_tree:
        return tree(n_, 2, way::up);
      case algorithm::knomial_tree:
        return tree(n_, by.radix, way::up);
      case algorithm::reduce_scatter_gather:
        return copied(reduced(circle(), n_ - chunk_), n_) + chunk_tree(way::up);
      case algorithm::chain:
        return line(n_, p_ - 1, 1, by, true);
      case algorithm::double_tree:
        return two_trees(by, true);
      case algorithm::direct: {
        if (goes_whole()) return at_once(star_sum(n_), n_);
        if (goes_to_root(n_, ranks_)) {
          return at_once(star_in(card_bytes)) +
                 (lends() ? worked(star_out(0), (p_ + 1) * n_, 1) : star_sum(n_));
        }
        if (lends()) return cards() + all_worked(n_ + chunk_);
        if (ranks_ == 2) return cards() + star_sum(n_);
        part last = star_in(chunk_);
        last.messages *= pieces(chunk_, by.segment);
        return cards() + reduced(chunks_apart(by), n_ - chunk_) + last;
      }
      default:
        return star_sum(n_);
    }
  }

  constexpr part all_reduce(const plan& by) const {
    const std::uint64_t corners = std::uint64_t{1} << cube_rounds();
    const auto rounds = number(cube_rounds());
    switch (by.how) {
      case algorithm::ring: {
        const part there = ring(by, true);
        const part back = ring(by, false);
        return there + back;
      }
      case algorithm::recursive_doubling: {
        const std::uint64_t messages = corners * rounds + 2 * left_over();
        part sum{messages, messages * n_, 0, rounds * n_};
        for (int bit = 0; bit < cube_rounds(); ++bit) sum.wire += across(n_, bit);
        if (left_over() == 0) return sum;
        // Nobody waits for both who gave first and who gets last, if few did.
        const bool many = 2 * left_over() > corners;
        sum.wire += fold(n_) + (many ? fold(n_) : gap(n_));
        return reduced(sum, n_);
      }
      case algorithm::recursive_halving: {
        part sum{2 * corners * rounds + 2 * left_over(), 2 * (corners - 1 + left_over()) * n_, 0,
                 n_ - n_ / corners};
        for (int bit = 0; bit < cube_rounds(); ++bit) sum.wire += 2 * across(n_ >> (bit + 1), bit);
        return left_over() > 0 ? reduced(sum + part{0, 0, 2 * fold(n_)}, n_) : sum;
      }
      case algorithm::double_tree:
        return two_trees_and_back(by);
      case algorithm::circulant:
        return copied(reduced(circle() + circle(), n_ - chunk_), 2 * n_);
      case algorithm::hierarchical:
        return hierarchical();
      case algorithm::direct:
        if (net_.one_thread) return met(2 * (p_ - 1) * n_);
        if (goes_whole()) return reduced(at_once(mesh(n_), n_), (p_ - 1) * n_);
        if (lends()) return cards() + all_worked(2 * n_);
        return cards(by) + reduced(chunks_apart(by), n_ - chunk_) + chunks_apart(by);
      default:
        return star_sum(n_) + star_out(n_);
    }
  }
  constexpr part hierarchical() const {
    const int inside = one_host() ? ranks_ : on_host_;
    const int across = static_cast<int>(hosts());
    // The last host may have fewer ranks; so many share the data on each.
    const int sharing = ranks_ - (across - 1) * inside;
    const std::uint64_t share = (n_ + number(sharing) - 1) / number(sharing);
    const std::uint64_t piece = (share + number(across) - 1) / number(across);
    const auto near = [&](std::uint64_t bytes, int, int) { return hop(bytes, 0); };
    const auto far = [&](std::uint64_t bytes, int, int) { return hop(bytes, sharing); };
    const part within = circle(inside, share, sharing, near);
    const part smallest = circle(sharing, share, sharing, near);
    const part between = circle(across, piece, across, far);
    part sum;
    sum.messages = 2 * (number(across - 1) * within.messages + smallest.messages +
                        number(sharing) * between.messages);
    sum.bytes =
        2 * (number(across - 1) * within.bytes + smallest.bytes + number(sharing) * between.bytes);
    sum.wire = 2 * (within.wire + between.wire);
    return copied(reduced(sum, n_ + share), 2 * n_ + 2 * share);
  }

  constexpr part reduce_scatter(const plan& by) const {
    switch (by.how) {
      case algorithm::ring:
        return ring(by, true);
      case algorithm::recursive_halving:
        return reduced(chunk_cube(over(n_, net_.reduce_per_kib)), n_ - chunk_);
      case algorithm::circulant:
        return copied(reduced(circle(), n_ - chunk_), n_);
      case algorithm::pairwise:
        return reduced(rounds_of_one(chunk_), n_ - chunk_);
      case algorithm::direct:
        if (goes_whole()) return reduced(at_once(mesh(chunk_), chunk_), n_ - chunk_);
        return cards() +
               (lends() ? all_worked(n_ + chunk_) : reduced(chunks_apart(by), n_ - chunk_));
      default:
        return reduced(mesh(chunk_), n_ - chunk_);
    }
  }

  constexpr part all_gather(const plan& by) const {
    switch (by.how) {
      case algorithm::ring:
        return ring(by, false);
      case algorithm::recursive_doubling:
        return chunk_cube(0);
      case algorithm::circulant:
        return copied(circle(), n_);
      case algorithm::bruck: {
        const auto known = [&](int step) {
          return number(step < ranks_ - step ? step : ranks_ - step);
        };
        part sum = copied(digits(by.radix, known), n_);
        sum.bytes = (p_ - 1) * n_;
        return sum;
      }
      case algorithm::neighbour_exchange:
        return neighbours();
      case algorithm::direct:
        if (goes_whole()) return at_once(mesh(chunk_), chunk_);
        return cards() + (lends() ? all_worked(2 * (n_ - chunk_)) : mesh(chunk_));
      default:
        return mesh(chunk_);
    }
  }

  constexpr part all_to_all(const plan& by) const {
    switch (by.how) {
      case algorithm::pairwise:
        return rounds_of_one(chunk_);
      case algorithm::bruck: {
        // Blocks whose distances have the digit 1 there are the longest message.
        std::uint64_t packed = 0;
        const auto travelling = [&](int step) {
          const std::uint64_t at = number(step);
          const std::uint64_t turn = at * number(by.radix);
          const std::uint64_t rest = p_ % turn;
          const std::uint64_t below = rest < at ? rest : at;
          packed += p_ - (p_ / turn * at + below);
          return p_ / turn * at + (rest - below < at ? rest - below : at);
        };
        part sum = digits(by.radix, travelling);
        sum.bytes = p_ * packed * chunk_;
        return copied(sum, 2 * packed * chunk_);
      }
      case algorithm::direct:
        if (goes_whole()) return at_once(mesh(chunk_), chunk_);
        return cards() + (lends() ? all_worked(2 * (n_ - chunk_)) : mesh(chunk_));
      default:
        return mesh(chunk_);
    }
  }

  constexpr part scan(const plan& by) const {
    switch (by.how) {
      case algorithm::recursive_doubling: {
        part sum;
        for (int far = 1; far < ranks_; far *= 2) {
          sum.messages += number(ranks_ - far);
          // The last round's first message is the second of a rank that takes in none.
          sum.wire += 2 * far <= ranks_ ? around(n_, far, 2 * far >= on_host_) : gap(n_);
          sum.touched += n_;
        }
        sum.bytes = sum.messages * n_;
        return sum;
      }
      case algorithm::chain:
        return line(n_, p_ - 1, 1, by, true);
      case algorithm::direct:
        if (goes_whole()) {
          part sum = reduced(at_once(mesh(n_), n_), (p_ - 1) * n_);
          sum.messages /= 2;
          sum.lines /= 2;
          sum.bytes /= 2;
          return sum;
        }
        if (lends()) {
          part sum = cards() + all_worked(2 * n_);
          sum.lent = sum.lent * p_ / 2;  // lines that all of them write come from others' caches
          ++sum.turns;
          return sum;
        }
        return cards() + line(n_, p_ - 1, 1, {by.how, unlent_piece, 2}, true);
      default:
        return line(n_, p_ - 1, 1, {}, true);
    }
  }

  collective what_;
};

}  // namespace colls
