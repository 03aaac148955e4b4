// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cost_model: formulas that predict the cost of a call for each algorithm. The predicted numbers of
// messages and bytes are sums over all ranks. The predicted time is that of the critical path (the
// longest chain of messages). docs/algorithms.md has a table of these formulas.
//
// All arithmetic uses integers, so that ranks built by different compilers select the same
// algorithm.

#include <colls/algorithm/direct_thresholds.hpp>
#include <colls/base/loggp_trees.hpp>

namespace colls {

/// A model that predicts the cost of one call of a collective on `ranks` ranks. `bytes` is the
/// length of the whole vector, or for all_to_all the length of one rank's vector. Each host runs
/// `per_host` consecutive ranks; the last host may run fewer. The model assumes that all chunks
/// (the parts of the vector that belong to one rank each) have the same length.
class cost_model : detail::loggp_trees {
 public:
  /// A collective, and the member function of `cost_model` that computes its costs.
  class pricing {
   public:
    template <collective Coll>
    static constexpr pricing of() {
      return {Coll, &cost_model::call_phase<Coll>};
    }
    /// Returns the pricing of `coll`, a collective that is known only at run time.
    static constexpr pricing of(collective coll) {
      pricing result = of<collective::none>();
      detail::with_collective(coll, [&]<collective Coll>() { result = of<Coll>(); });
      return result;
    }

   private:
    friend cost_model;
    using phase_function = phase (cost_model::*)(const algorithm_choice&) const;
    constexpr pricing(collective coll, phase_function compute)
        : operation(coll), compute_phase(compute) {}
    collective operation;
    phase_function compute_phase;
  };

  constexpr cost_model(const network_cost& net, const pricing& price, std::uint64_t bytes,
                       int ranks, int per_host)
      : loggp_trees(net, bytes, ranks, per_host), pricing_(price) {}

  /// Returns the predicted cost of the call with the algorithm and the parameters of `choice`.
  constexpr cost predict(const algorithm_choice& choice) const {
    const phase all = ranks_ > 1 ? call_phase(choice) : phase();
    const cost chain = finish(all);
    if (!shares_cores()) return chain;
    const cost_model waiting(waiting_network(), pricing_, n_, ranks_, per_host_);
    const picoseconds waited =
        waiting.finish(waiting.call_phase(choice)).time + all.time_slices * slice_wait();
    return {chain.messages, chain.bytes, max(chain.time, waited + busy_time(all))};
  }

  /// Returns 0 if `tuning` selects no segment size for `algo`. Otherwise `algo` cuts parts of the
  /// vector into segments, and the function returns the length in bytes of the longest part.
  constexpr std::uint64_t segmented_bytes(algorithm algo) const {
    switch (algo) {
      case algorithm::ring:
      case algorithm::scatter_all_gather:
        return chunk_;
      case algorithm::double_tree:
        return n_ / 2;
      case algorithm::chain:
        return n_;
      case algorithm::circulant:
        return pricing_.operation == collective::broadcast ? n_ : 0;
      default:
        return 0;
    }
  }
  static constexpr bool has_radix(algorithm algo) {
    return algo == algorithm::knomial_tree || algo == algorithm::bruck ||
           algo == algorithm::dissemination;
  }

 private:
  constexpr bool is_short_vector() const {
    return colls::is_short_vector(pricing_.operation, n_, ranks_);
  }

  // Computes the cost of the collective `Coll`. This function is a template, so that a program
  // compiles only the formulas of the collectives that it calls.
  template <collective Coll>
  constexpr phase call_phase(const algorithm_choice& choice) const {
    if constexpr (Coll == collective::barrier) return barrier(choice);
    if constexpr (Coll == collective::broadcast) return broadcast(choice);
    if constexpr (Coll == collective::all_reduce) return all_reduce(choice);
    if constexpr (Coll == collective::reduce) return reduce(choice);
    if constexpr (Coll == collective::reduce_scatter) return reduce_scatter(choice);
    if constexpr (Coll == collective::all_gather) return all_gather(choice);
    if constexpr (Coll == collective::gather) return gather(choice);
    if constexpr (Coll == collective::scatter) return scatter(choice);
    if constexpr (Coll == collective::all_to_all) return all_to_all(choice);
    if constexpr (Coll == collective::scan || Coll == collective::exscan) return scan(choice);
    return {};
  }
  constexpr phase call_phase(const algorithm_choice& choice) const {
    return (this->*pricing_.compute_phase)(choice);
  }

  constexpr phase barrier(const algorithm_choice& choice) const {
    switch (choice.id) {
      case algorithm::dissemination:
        return dissemination_rounds(choice.radix, [](int) { return std::uint64_t{0}; });
      case algorithm::binomial_tree:
        return tree(0, 2, direction::up) + tree(0, 2, direction::down);
      case algorithm::direct:
        return net_.one_thread ? last_arriver(0) : batch(mesh(0), 0);
      default:
        return star_in(0) + star_out(0);
    }
  }

  constexpr phase broadcast(const algorithm_choice& choice) const {
    switch (choice.id) {
      case algorithm::binomial_tree:
        return tree(n_, 2, direction::down);
      case algorithm::knomial_tree:
        return tree(n_, choice.radix, direction::down);
      case algorithm::scatter_all_gather:
        return chunk_tree(direction::down) + ring(choice, false);
      case algorithm::chain:
        return pipeline(n_, p_ - 1, 1, choice, false);
      case algorithm::double_tree:
        return double_tree(choice, false);
      case algorithm::circulant: {
        const std::uint64_t s = pieces(n_, choice.segment);
        const std::uint64_t rounds = s - 1 + number(pattern::doubling_rounds(ranks_));
        return {(p_ - 1) * s, (p_ - 1) * n_, rounds * shift_hop((n_ + s - 1) / s, per_host_)};
      }
      case algorithm::direct:
        if (is_short_vector()) return batch(star_out(n_), n_);
        return batch(star_out(descriptor_bytes)) +
               (has_windows() ? window_access(star_in(0), 2 * n_, p_ - 1) : star_out(n_));
      default:
        return star_out(n_);
    }
  }

  constexpr phase gather(const algorithm_choice& choice) const {
    if (choice.id == algorithm::direct) {
      return is_short_vector() ? batch(star_in(chunk_), chunk_) : rooted_exchange();
    }
    return choice.id == algorithm::linear ? star_in(chunk_) : chunk_tree(direction::up);
  }
  constexpr phase scatter(const algorithm_choice& choice) const {
    if (choice.id == algorithm::direct) {
      return is_short_vector() ? batch(star_out(chunk_), chunk_) : rooted_exchange();
    }
    return choice.id == algorithm::linear ? star_out(chunk_) : chunk_tree(direction::down);
  }
  // Returns the cost of `algorithm::direct` for a gather or a scatter of a long vector.
  constexpr phase rooted_exchange() const {
    const phase both =
        batch(star_in(descriptor_bytes) + phase{p_ - 1, (p_ - 1) * descriptor_bytes});
    return both + (has_windows() ? window_access(star_in(0), 2 * chunk_, p_ - 1) : star_in(chunk_));
  }

  /// Returns the cost `moved` plus the cost of reducing `bytes` bytes on the critical path.
  constexpr phase reduced(phase moved, std::uint64_t bytes) const {
    moved.path_bytes += bytes;
    return moved;
  }
  /// Returns the cost `moved` plus the cost of copying `bytes` bytes on every rank.
  constexpr phase copied(phase moved, std::uint64_t bytes) const {
    moved.path_bytes += bytes;
    moved.copied += p_ * bytes;
    return moved;
  }

  constexpr phase reduce(const algorithm_choice& choice) const {
    switch (choice.id) {
      case algorithm::binomial_tree:
        return tree(n_, 2, direction::up);
      case algorithm::knomial_tree:
        return tree(n_, choice.radix, direction::up);
      case algorithm::reduce_scatter_gather:
        return copied(reduced(circulant_rounds(), n_ - chunk_), n_) + chunk_tree(direction::up);
      case algorithm::chain:
        return pipeline(n_, p_ - 1, 1, choice, true);
      case algorithm::double_tree:
        return double_tree(choice, true);
      case algorithm::direct: {
        if (is_short_vector()) return batch(star_sum(n_), n_);
        if (is_reduced_at_root(n_, ranks_)) {
          return batch(star_in(descriptor_bytes)) +
                 (has_windows() ? window_access(star_out(0), (p_ + 1) * n_, 1) : star_sum(n_));
        }
        if (has_windows()) return descriptor_exchange() + window_access_by_all(n_ + chunk_);
        if (ranks_ == 2) return descriptor_exchange() + star_sum(n_);
        phase last = star_in(chunk_);
        last.messages *= pieces(chunk_, choice.segment);
        return descriptor_exchange() + reduced(chunk_mesh(choice), n_ - chunk_) + last;
      }
      default:
        return star_sum(n_);
    }
  }

  constexpr phase all_reduce(const algorithm_choice& choice) const {
    const std::uint64_t corners = std::uint64_t{1} << cube_rounds();
    const auto rounds = number(cube_rounds());
    switch (choice.id) {
      case algorithm::ring: {
        const phase reduce_scatter_part = ring(choice, true);
        const phase all_gather_part = ring(choice, false);
        return reduce_scatter_part + all_gather_part;
      }
      case algorithm::recursive_doubling: {
        const std::uint64_t messages = corners * rounds + 2 * folded_ranks();
        phase sum{messages, messages * n_, 0, rounds * n_};
        for (int bit = 0; bit < cube_rounds(); ++bit) sum.critical_path += cube_hop(n_, bit);
        if (folded_ranks() == 0) return sum;
        // `corners` ranks take part in the rounds. Each of the other ranks sends its vector to a
        // corner before the rounds, and receives the result from this corner after the rounds. A
        // chain of messages through all rounds can begin with a message to a corner and end with a
        // message from a corner only if there are more than `corners / 2` of these other ranks.
        const bool has_both = 2 * folded_ranks() > corners;
        sum.critical_path += fold(n_) + (has_both ? fold(n_) : gap(n_));
        return reduced(sum, n_);
      }
      case algorithm::recursive_halving: {
        phase sum{2 * corners * rounds + 2 * folded_ranks(),
                  2 * (corners - 1 + folded_ranks()) * n_, 0, n_ - n_ / corners};
        for (int bit = 0; bit < cube_rounds(); ++bit)
          sum.critical_path += 2 * cube_hop(n_ >> (bit + 1), bit);
        return folded_ranks() > 0 ? reduced(sum + phase{0, 0, 2 * fold(n_)}, n_) : sum;
      }
      case algorithm::double_tree:
        return double_tree_round_trip(choice);
      case algorithm::circulant:
        return copied(reduced(circulant_rounds() + circulant_rounds(), n_ - chunk_), 2 * n_);
      case algorithm::hierarchical:
        return hierarchical();
      case algorithm::direct:
        if (net_.one_thread) return last_arriver(2 * (p_ - 1) * n_);
        if (is_short_vector()) return reduced(batch(mesh(n_), n_), (p_ - 1) * n_);
        if (has_windows()) return descriptor_exchange() + window_access_by_all(2 * n_);
        return descriptor_exchange(choice) + reduced(chunk_mesh(choice), n_ - chunk_) +
               chunk_mesh(choice);
      default:
        return star_sum(n_) + star_out(n_);
    }
  }
  constexpr phase hierarchical() const {
    const int host_ranks = is_one_host() ? ranks_ : per_host_;
    const int host_count = static_cast<int>(hosts());
    // The number of ranks on the last host, which may have fewer ranks than the other hosts. Each
    // host divides the data among this number of its ranks.
    const int sharing = ranks_ - (host_count - 1) * host_ranks;
    const std::uint64_t share = (n_ + number(sharing) - 1) / number(sharing);
    const std::uint64_t piece = (share + number(host_count) - 1) / number(host_count);
    const auto near = [&](std::uint64_t bytes, int, int) { return hop(bytes, 0); };
    const auto far = [&](std::uint64_t bytes, int, int) { return hop(bytes, sharing); };
    const phase within = circulant_rounds(host_ranks, share, sharing, near);
    const phase smallest = circulant_rounds(sharing, share, sharing, near);
    const phase between = circulant_rounds(host_count, piece, host_count, far);
    phase sum;
    sum.messages = 2 * (number(host_count - 1) * within.messages + smallest.messages +
                        number(sharing) * between.messages);
    sum.bytes = 2 * (number(host_count - 1) * within.bytes + smallest.bytes +
                     number(sharing) * between.bytes);
    sum.critical_path = 2 * (within.critical_path + between.critical_path);
    return copied(reduced(sum, n_ + share), 2 * n_ + 2 * share);
  }

  constexpr phase reduce_scatter(const algorithm_choice& choice) const {
    switch (choice.id) {
      case algorithm::ring:
        return ring(choice, true);
      case algorithm::recursive_halving:
        return reduced(hypercube_chunks(duration(n_, net_.reduce_per_kib)), n_ - chunk_);
      case algorithm::circulant:
        return copied(reduced(circulant_rounds(), n_ - chunk_), n_);
      case algorithm::pairwise:
        return reduced(pairwise_rounds(chunk_), n_ - chunk_);
      case algorithm::direct:
        if (is_short_vector()) return reduced(batch(mesh(chunk_), chunk_), n_ - chunk_);
        return descriptor_exchange() + (has_windows() ? window_access_by_all(n_ + chunk_)
                                                      : reduced(chunk_mesh(choice), n_ - chunk_));
      default:
        return reduced(mesh(chunk_), n_ - chunk_);
    }
  }

  constexpr phase all_gather(const algorithm_choice& choice) const {
    switch (choice.id) {
      case algorithm::ring:
        return ring(choice, false);
      case algorithm::recursive_doubling:
        return hypercube_chunks(0);
      case algorithm::circulant:
        return copied(circulant_rounds(), n_);
      case algorithm::bruck: {
        const auto known = [&](int step) {
          return number(step < ranks_ - step ? step : ranks_ - step);
        };
        phase sum = copied(dissemination_rounds(choice.radix, known), n_);
        sum.bytes = (p_ - 1) * n_;
        return sum;
      }
      case algorithm::neighbour_exchange:
        return neighbours();
      case algorithm::direct:
        if (is_short_vector()) return batch(mesh(chunk_), chunk_);
        return descriptor_exchange() +
               (has_windows() ? window_access_by_all(2 * (n_ - chunk_)) : mesh(chunk_));
      default:
        return mesh(chunk_);
    }
  }

  constexpr phase all_to_all(const algorithm_choice& choice) const {
    switch (choice.id) {
      case algorithm::pairwise:
        return pairwise_rounds(chunk_);
      case algorithm::bruck: {
        // The distance of a block is the number of ranks from its source to its destination. Each
        // round handles one digit of the distances, which are written in base `radix`. `step` is
        // the value of this digit's place. A message contains all blocks that have the same digit
        // at this place. The message for the digit 1 is the longest.
        std::uint64_t packed = 0;
        const auto longest_message = [&](int step) {
          const std::uint64_t unit = number(step);
          const std::uint64_t period = unit * number(choice.radix);
          const std::uint64_t rest = p_ % period;
          const std::uint64_t below = rest < unit ? rest : unit;
          packed += p_ - (p_ / period * unit + below);
          return p_ / period * unit + (rest - below < unit ? rest - below : unit);
        };
        phase sum = dissemination_rounds(choice.radix, longest_message);
        sum.bytes = p_ * packed * chunk_;
        return copied(sum, 2 * packed * chunk_);
      }
      case algorithm::direct:
        if (is_short_vector()) return batch(mesh(chunk_), chunk_);
        return descriptor_exchange() +
               (has_windows() ? window_access_by_all(2 * (n_ - chunk_)) : mesh(chunk_));
      default:
        return mesh(chunk_);
    }
  }

  constexpr phase scan(const algorithm_choice& choice) const {
    switch (choice.id) {
      case algorithm::recursive_doubling: {
        phase sum;
        for (int far = 1; far < ranks_; far *= 2) {
          sum.messages += number(ranks_ - far);
          // A chain with a message in every round up to this one ends `2 * far - 1` ranks after the
          // rank at which it begins. If `2 * far > ranks_`, there is no such chain. This round is
          // then the last one, and it adds only a gap (the time before a rank can send again) to
          // the critical path.
          sum.critical_path +=
              2 * far <= ranks_ ? shift_hop(n_, far, 2 * far >= per_host_) : gap(n_);
          sum.path_bytes += n_;
        }
        sum.bytes = sum.messages * n_;
        return sum;
      }
      case algorithm::chain:
        return pipeline(n_, p_ - 1, 1, choice, true);
      case algorithm::direct:
        if (is_short_vector()) {
          phase sum = reduced(batch(mesh(n_), n_), (p_ - 1) * n_);
          sum.messages /= 2;
          sum.batched /= 2;
          sum.bytes /= 2;
          return sum;
        }
        if (has_windows()) {
          phase sum = descriptor_exchange() + window_access_by_all(2 * n_);
          // All ranks write to every buffer, so a rank that reads a buffer gets many cache lines
          // from the caches of other cores. The factor `p_ / 2` models the cost of these transfers.
          sum.window_bytes = sum.window_bytes * p_ / 2;
          ++sum.time_slices;
          return sum;
        }
        return descriptor_exchange() +
               pipeline(n_, p_ - 1, 1, {choice.id, scan_chain_piece, 2}, true);
      default:
        return pipeline(n_, p_ - 1, 1, {}, true);
    }
  }

  pricing pricing_;
};

}  // namespace colls
