// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A scenario: the calls of all ranks, the network and the faults. It is drawn from a seed or parsed
// from text.

#include <colls/simulated.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace sim {

using colls::algorithm;
using colls::collective;
using colls::simulated::fault;
using colls::simulated::fault_plan;

/// One row of the algorithm table.
struct row {
  collective operation;
  algorithm algo;
  bool needs_commutative;
  bool needs_even_ranks;
  bool sequential;  // its sums have the bits of a loop over the ranks
};

/// Every algorithm of every collective; a new algorithm appears here by itself.
inline const std::vector<row>& rows() {
  static const std::vector<row> all = [] {
    using algorithm_table =
        colls::detail::algorithm_table<colls::basic_channel<colls::simulated_transport>>;
    std::vector<row> result;
    for (int operation = 0; operation <= static_cast<int>(collective::exscan); ++operation) {
      colls::detail::with_collective(static_cast<collective>(operation), [&]<collective Coll>() {
        for (const auto& each : algorithm_table::algorithms<Coll>()) {
          result.push_back({Coll, each.id, each.needs.commutative, each.needs.even_ranks,
                            each.reduction_order == colls::order::rank});
        }
      });
    }
    return result;
  }();
  return all;
}

inline bool reduces(collective operation) {
  return operation == collective::all_reduce || operation == collective::reduce ||
         operation == collective::reduce_scatter || operation == collective::scan ||
         operation == collective::exscan;
}
inline bool has_root(collective operation) {
  return operation == collective::broadcast || operation == collective::reduce ||
         operation == collective::gather || operation == collective::scatter;
}

/// The elements, and with them the reduction operation.
enum class element : std::uint8_t { whole_numbers, floats, matrices };
inline constexpr const char* element_names[] = {"int", "float", "matrix"};

struct scenario {
  row call{};
  int ranks = 2;
  std::size_t n = 0;  // elements of the vector
  element elements = element::whole_numbers;
  int root = 0;
  bool in_place = false;
  std::size_t segment = 0;
  int radix = 0;
  int calls = 1;
  bool overlapped = false;  // all are started before the first is awaited
  std::string topology = "flat";
  double latency_us = 1;
  double overhead_us = 0;
  double bandwidth = 10;
  std::uint64_t seed = 0;
  fault_plan plan;

  /// One line, which `parse` reads.
  std::string text() const {
    std::ostringstream all;
    all << name(call.operation) << ' ' << name(call.algo) << ' ' << ranks << ' ' << n << ' '
        << element_names[static_cast<std::size_t>(elements)] << ' ' << root << ' ' << in_place
        << ' ' << segment << ' ' << radix << ' ' << calls << ' ' << overlapped << ' ' << topology
        << ' ' << latency_us << ' ' << overhead_us << ' ' << bandwidth << ' ' << seed << " | "
        << plan.text();
    return all.str();
  }
  static scenario parse(const std::string& text);

  colls::simulated_world::settings settings() const {
    colls::simulated_world::settings result;
    result.network.latency_us = latency_us;
    result.network.overhead_us = overhead_us;
    result.network.bandwidth = bandwidth;
    result.network.wiring = colls::simulated::topology::parse(topology);
    result.plan = plan;
    result.seed = seed;
    result.traced = true;
    return result;
  }
};

inline scenario scenario::parse(const std::string& text) {
  scenario made;
  std::istringstream in(text);
  std::string operation, algo, kind, bar;
  in >> operation >> algo >> made.ranks >> made.n >> kind >> made.root >> made.in_place >>
      made.segment >> made.radix >> made.calls >> made.overlapped >> made.topology >>
      made.latency_us >> made.overhead_us >> made.bandwidth >> made.seed >> bar;
  bool found = false;
  for (const row& each : rows()) {
    if (name(each.operation) != operation || name(each.algo) != algo) continue;
    made.call = each;
    found = true;
  }
  if (!in || bar != "|" || !found) throw std::invalid_argument("no scenario: " + text);
  for (const element each : {element::whole_numbers, element::floats, element::matrices}) {
    if (kind == element_names[static_cast<std::size_t>(each)]) made.elements = each;
  }
  std::string plan;
  std::getline(in, plan);
  made.plan = fault_plan::parse(plan);
  return made;
}

/// Pseudo-random numbers of one seed in independent streams: drawing more numbers from one stream
/// does not change the others.
class dice {
 public:
  explicit dice(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t operator()() { return colls::mix(seed_, ++drawn_); }
  /// 0 .. n-1.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>((*this)() % n); }
  int rank(int ranks) { return static_cast<int>(below(static_cast<std::size_t>(ranks))); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class T>
  T any(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  dice stream(std::uint64_t number) const { return dice(colls::mix(seed_, number << 32)); }

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

/// The arguments of a call that can be wrong on one rank.
inline std::vector<fault::argument> arguments(const scenario& setup) {
  std::vector<fault::argument> all;
  std::size_t algorithms = 0;
  for (const row& each : rows()) algorithms += each.operation == setup.call.operation ? 1 : 0;
  if (algorithms > 1) all.push_back(fault::argument::algorithm);
  if (setup.call.operation == collective::barrier) return all;
  all.insert(all.end(), {fault::argument::count, fault::argument::type});
  if (has_root(setup.call.operation)) all.push_back(fault::argument::root);
  if (reduces(setup.call.operation)) all.push_back(fault::argument::order);
  if (reduces(setup.call.operation) && setup.elements == element::whole_numbers)
    all.push_back(fault::argument::op);
  return all;
}

inline void draw_delays(scenario& made, dice random) {
  constexpr colls::simulated::ticks us = 1000 * colls::simulated::per_nanosecond;
  const auto add = [&](fault::kind type, colls::simulated::ticks length) {
    fault one;
    one.type = type;
    one.rank = random.rank(made.ranks);
    one.event = 1 + random.below(30);
    one.duration = length;
    if (type == fault::kind::clog)
      one.peer = (one.rank + 1 + random.rank(made.ranks - 1)) % made.ranks;
    made.plan.faults.push_back(one);
  };
  // A run without failures stays under the 100 ms after which ranks begin to announce themselves.
  const auto longest = made.segment == 0 ? 1000 * us : 2 * us;
  if (!random.one_in(3)) made.plan.delay = random.any({us, 5 * us, longest});
  made.plan.pieces = random.one_in(3);
  made.plan.eager_limit = random.any<std::size_t>({colls::eager_limit, colls::eager_limit, 64, 0});
  if (random.one_in(5)) add(fault::kind::freeze, random.any({3 * us, 3'000'000 * us}));
  if (random.one_in(5) && made.ranks > 1)
    add(fault::kind::clog, random.any({9 * us, 2'000'000 * us}));
}

inline void draw_failure(scenario& made, dice random) {
  using kind = fault::kind;
  fault one;
  one.type =
      random.any({kind::kill, kind::kill, kind::half_open, kind::isolate, kind::cut, kind::cut_both,
                  kind::flip, kind::cancel, kind::destroy, kind::wrong_argument});
  one.rank = random.rank(made.ranks);
  one.event = 1 + random.below(random.any<std::size_t>({6, 40}));
  if (one.type == kind::cut || one.type == kind::cut_both) {
    one.peer = (one.rank + 1 + random.rank(made.ranks - 1)) % made.ranks;
  }
  if (one.type == kind::wrong_argument) {
    const auto possible = arguments(made);
    one.event = 0;
    one.wrong_argument = possible[random.below(possible.size())];
  }
  made.plan.faults.push_back(one);
  made.plan.store = !random.one_in(3);
}

inline scenario draw(std::uint64_t seed) {
  const dice all(seed);
  dice random = all.stream(1);
  scenario made;
  made.seed = seed;
  made.call = rows()[random.below(rows().size())];
  made.ranks = random.one_in(4) ? 9 + random.rank(12) : 2 + random.rank(7);
  const auto p = static_cast<std::size_t>(made.ranks);
  made.n = random.any<std::size_t>({0, 1, p - 1, p, p + 1, 2 * p + 3, 100, 1000, 5000, 20'000});
  if (made.call.operation == collective::barrier) made.n = 0;
  made.elements = random.any({element::whole_numbers, element::floats, element::matrices});
  if (!reduces(made.call.operation)) made.elements = element::whole_numbers;
  if (made.call.needs_commutative && made.elements == element::matrices)
    made.elements = element::floats;
  made.root = has_root(made.call.operation) ? random.rank(made.ranks) : 0;
  made.in_place = random.one_in(2);
  made.segment = std::max(random.any<std::size_t>({0, 0, 0, 64, 1000, 10'000}), made.n / p / 4);
  if (made.segment < 64) made.segment = 0;
  made.radix = random.any({0, 2, 3, 5});
  made.calls = 1 + random.rank(3);
  made.overlapped = random.one_in(2);
  dice net = all.stream(2);
  made.topology = net.any<const char*>(
      {"flat", "flat", "nodes:2", "nodes:3", "nodes:4", "fat_tree:2:1", "torus:P"});
  if (made.topology == "torus:P") made.topology = "torus:" + std::to_string(made.ranks);
  made.latency_us = net.any({0.0, 1.0, 50.0});
  made.overhead_us = net.any({0.0, 0.25});
  made.bandwidth = net.any({1.0, 12.5, 1e9});
  draw_delays(made, all.stream(3));
  if (all.stream(4).one_in(2)) draw_failure(made, all.stream(5));
  return made;
}

}  // namespace sim
