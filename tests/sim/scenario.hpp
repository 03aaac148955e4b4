// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A scenario: who calls what on which network, and what goes wrong. Drawn from a seed, or from
// text.

#include <colls/simulated.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace sim {

using colls::algorithm;
using colls::collective;
using colls::simulated::fault;
using colls::simulated::plan;

/// One row of the catalogue.
struct row {
  collective what;
  algorithm how;
  bool has_to_commute;
  bool needs_even_ranks;
  bool sequential;  // its sums have the bits of a loop over the ranks
};

/// Every algorithm of every collective that is there, so that a new one joins by itself.
inline const std::vector<row>& rows() {
  static const std::vector<row> all = [] {
    using catalogue = colls::detail::catalogue<colls::basic_channel<colls::simulated_transport>>;
    std::vector<row> found;
    const auto add = [&](collective what, const auto& table) {
      for (const auto& each : table) {
        found.push_back({what, each.how, each.what == colls::needs::commutative,
                         each.what == colls::needs::even_ranks, each.sums == colls::order::rank});
      }
    };
    add(collective::barrier, catalogue::barrier);
    add(collective::broadcast, catalogue::broadcast);
    add(collective::all_reduce, catalogue::all_reduce);
    add(collective::reduce, catalogue::reduce);
    add(collective::reduce_scatter, catalogue::reduce_scatter);
    add(collective::all_gather, catalogue::all_gather);
    add(collective::gather, catalogue::gather);
    add(collective::scatter, catalogue::scatter);
    add(collective::all_to_all, catalogue::all_to_all);
    add(collective::scan, catalogue::scan);
    add(collective::exscan, catalogue::exscan);
    return found;
  }();
  return all;
}

inline bool reduces(collective what) {
  return what == collective::all_reduce || what == collective::reduce ||
         what == collective::reduce_scatter || what == collective::scan ||
         what == collective::exscan;
}
inline bool has_root(collective what) {
  return what == collective::broadcast || what == collective::reduce ||
         what == collective::gather || what == collective::scatter;
}

/// What elements are, and what is done to them.
enum class element : std::uint8_t { whole_numbers, floats, matrices };
inline constexpr const char* element_names[] = {"int", "float", "matrix"};

struct scenario {
  row call{};
  int ranks = 2;
  std::size_t n = 0;  // elements of the whole vector
  element of = element::whole_numbers;
  int root = 0;
  bool in_place = false;
  std::size_t segment = 0;
  int radix = 0;
  int calls = 1;
  bool overlapped = false;  // all are started before the first is awaited
  std::string wires = "flat";
  double latency_us = 1;
  double overhead_us = 0;
  double bandwidth = 10;
  std::uint64_t seed = 0;
  plan suffers;

  /// One line from which `parse` makes it again.
  std::string text() const {
    std::ostringstream all;
    all << name(call.what) << ' ' << name(call.how) << ' ' << ranks << ' ' << n << ' '
        << element_names[static_cast<std::size_t>(of)] << ' ' << root << ' ' << in_place << ' '
        << segment << ' ' << radix << ' ' << calls << ' ' << overlapped << ' ' << wires << ' '
        << latency_us << ' ' << overhead_us << ' ' << bandwidth << ' ' << seed << " | "
        << suffers.text();
    return all.str();
  }
  static scenario parse(const std::string& text);

  colls::simulated_world::settings settings() const {
    colls::simulated_world::settings made;
    made.network.latency_us = latency_us;
    made.network.overhead_us = overhead_us;
    made.network.bandwidth = bandwidth;
    made.network.wiring = colls::simulated::topology::parse(wires);
    made.plan = suffers;
    made.seed = seed;
    made.traced = true;
    return made;
  }
};

inline scenario scenario::parse(const std::string& text) {
  scenario made;
  std::istringstream from(text);
  std::string what, how, kind, bar;
  from >> what >> how >> made.ranks >> made.n >> kind >> made.root >> made.in_place >>
      made.segment >> made.radix >> made.calls >> made.overlapped >> made.wires >>
      made.latency_us >> made.overhead_us >> made.bandwidth >> made.seed >> bar;
  bool found = false;
  for (const row& each : rows()) {
    if (name(each.what) != what || name(each.how) != how) continue;
    made.call = each;
    found = true;
  }
  if (!from || bar != "|" || !found) throw std::invalid_argument("no scenario: " + text);
  for (const element each : {element::whole_numbers, element::floats, element::matrices}) {
    if (kind == element_names[static_cast<std::size_t>(each)]) made.of = each;
  }
  std::string suffers;
  std::getline(from, suffers);
  made.suffers = plan::parse(suffers);
  return made;
}

/// Numbers of one seed, one stream after another, so that one more here shifts none there.
class dice {
 public:
  explicit dice(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t operator()() { return colls::mix(seed_, ++drawn_); }
  /// 0 .. n-1.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>((*this)() % n); }
  int rank(int ranks) { return static_cast<int>(below(static_cast<std::size_t>(ranks))); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class T>
  T any(std::initializer_list<T> of) {
    return of.begin()[below(of.size())];
  }
  dice stream(std::uint64_t number) const { return dice(colls::mix(seed_, number << 32)); }

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

/// Which arguments of a call could be wrong on one rank.
inline std::vector<fault::argument> arguments(const scenario& of) {
  std::vector<fault::argument> all;
  std::size_t rivals = 0;
  for (const row& each : rows()) rivals += each.what == of.call.what ? 1 : 0;
  if (rivals > 1) all.push_back(fault::argument::algorithm);
  if (of.call.what == collective::barrier) return all;
  all.insert(all.end(), {fault::argument::count, fault::argument::type});
  if (has_root(of.call.what)) all.push_back(fault::argument::root);
  if (reduces(of.call.what)) all.push_back(fault::argument::order);
  if (reduces(of.call.what) && of.of == element::whole_numbers) all.push_back(fault::argument::op);
  return all;
}

inline void draw_delays(scenario& made, dice random) {
  constexpr colls::simulated::ticks us = 1000 * colls::simulated::per_nanosecond;
  const auto strike = [&](fault::kind what, colls::simulated::ticks length) {
    fault one;
    one.what = what;
    one.rank = random.rank(made.ranks);
    one.event = 1 + random.below(30);
    one.duration = length;
    if (what == fault::kind::clog)
      one.peer = (one.rank + 1 + random.rank(made.ranks - 1)) % made.ranks;
    made.suffers.faults.push_back(one);
  };
  // A run without failures stays under the 100 ms after which ranks begin to announce themselves.
  const auto longest = made.segment == 0 ? 1000 * us : 2 * us;
  if (!random.one_in(3)) made.suffers.delay = random.any({us, 5 * us, longest});
  made.suffers.pieces = random.one_in(3);
  made.suffers.eager_limit =
      random.any<std::size_t>({colls::eager_limit, colls::eager_limit, 64, 0});
  if (random.one_in(5)) strike(fault::kind::freeze, random.any({3 * us, 3'000'000 * us}));
  if (random.one_in(5) && made.ranks > 1)
    strike(fault::kind::clog, random.any({9 * us, 2'000'000 * us}));
}

inline void draw_failure(scenario& made, dice random) {
  using kind = fault::kind;
  fault one;
  one.what =
      random.any({kind::kill, kind::kill, kind::half_open, kind::isolate, kind::cut, kind::cut_both,
                  kind::flip, kind::cancel, kind::destroy, kind::wrong_argument});
  one.rank = random.rank(made.ranks);
  one.event = 1 + random.below(random.any<std::size_t>({6, 40}));
  if (one.what == kind::cut || one.what == kind::cut_both) {
    one.peer = (one.rank + 1 + random.rank(made.ranks - 1)) % made.ranks;
  }
  if (one.what == kind::wrong_argument) {
    const auto possible = arguments(made);
    one.event = 0;
    one.wrong = possible[random.below(possible.size())];
  }
  made.suffers.faults.push_back(one);
  made.suffers.store = !random.one_in(3);
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
  if (made.call.what == collective::barrier) made.n = 0;
  made.of = random.any({element::whole_numbers, element::floats, element::matrices});
  if (!reduces(made.call.what)) made.of = element::whole_numbers;
  if (made.call.has_to_commute && made.of == element::matrices) made.of = element::floats;
  made.root = has_root(made.call.what) ? random.rank(made.ranks) : 0;
  made.in_place = random.one_in(2);
  made.segment = std::max(random.any<std::size_t>({0, 0, 0, 64, 1000, 10'000}), made.n / p / 4);
  if (made.segment < 64) made.segment = 0;
  made.radix = random.any({0, 2, 3, 5});
  made.calls = 1 + random.rank(3);
  made.overlapped = random.one_in(2);
  dice net = all.stream(2);
  made.wires = net.any<const char*>(
      {"flat", "flat", "nodes:2", "nodes:3", "nodes:4", "fat_tree:2:1", "torus:P"});
  if (made.wires == "torus:P") made.wires = "torus:" + std::to_string(made.ranks);
  made.latency_us = net.any({0.0, 1.0, 50.0});
  made.overhead_us = net.any({0.0, 0.25});
  made.bandwidth = net.any({1.0, 12.5, 1e9});
  draw_delays(made, all.stream(3));
  if (all.stream(4).one_in(2)) draw_failure(made, all.stream(5));
  return made;
}

}  // namespace sim
