// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How calls are checked, numbered and started: the second half of communicator_core.hpp, once per transport.

#include <colls/algorithm/table.hpp>
#include <colls/base/shared_buffer.hpp>
#include <colls/call/call_body.hpp>
#include <colls/call/call_request.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/call/frameless_call.hpp>
#include <colls/call/point_to_point.hpp>
#include <colls/selection/calibrate.hpp>

namespace colls::detail {

template <class Transport>
core<Transport>::core(std::shared_ptr<Transport> net, std::uint32_t id, int rank, int size,
                      std::shared_ptr<const std::vector<int>> members, bool whole_world)
    : call_queue(net->matching(), net->queue(), id, rank, size, std::move(members), whole_world),
      net_(std::move(net)) {
  static_assert(transport<Transport>);
  try {
    if constexpr (priced_transport<Transport>) set_costs(net_->costs());
  } catch (const std::bad_alloc&) {
    leave();
    throw;
  }
}
template <class Transport>
core<Transport>::~core() {
  leave();
}

template <class Transport>
std::shared_ptr<std::byte> core<Transport>::allocate(std::size_t size) {
  if constexpr (std::is_same_v<transport_memory_t<Transport>, device_memory>) {
    return net_->allocate(size != 0 ? size : 1);  // what a device has is something
  } else if constexpr (lending_transport<Transport>) {
    return net_->allocate(size);
  } else {
    return own_memory(size);
  }
}

template <class Transport>
time_point core<Transport>::now() const {
  return net_->now();
}
template <class Transport>
int core<Transport>::host_of(int rank) const {
  return net_->node_of(rank);
}
/// A poll for whoever asks whether something has ended; it may destroy whatever has called it. Who
/// asks may turn to something else: peers hear now what was written to them.
template <class Transport>
void look(const std::shared_ptr<Transport> net) {
  if (net->driver().poll()) net->kick();
}
template <class Transport>
void core<Transport>::progress() {
  look(net_);
}
template <class Transport>
void core<Transport>::kick() {
  net_->kick();
}
template <class Transport>
void core<Transport>::ended(call_base& made) noexcept {
  call_queue::ended(made);
  // Who awaited it may compute now.
  if constexpr (waking_transport<Transport>) net_->hand_over();
}

/// The plan of a call, if `check` has found nothing wrong with it; `check` fails where it is pinned
/// to what cannot be.
template <class Catalogue, class Rows>
plan choose(const Rows& rows, const tuning& choices, const question& call, const options& how,
            checks& check) {
  check.require(how.radix == 0 || how.radix >= 2, "radix %d is not 2 or more", how.radix);
  if (check.failed()) return {};
  algorithm_set legal;
  if (how.algorithm == algorithm::automatic) {
    legal = Catalogue::legal(call);
    if (legal == algorithm_set()) {
      failure wrong(errc::not_applicable);
      wrong.say("%s: no algorithm of this communicator gives the bits of the sequential order",
                name(call.what));
      check.fail(wrong);
      return {};
    }
  } else {
    const offer* const found = find(rows, how.algorithm);
    const char* const reason =
        found == nullptr ? "no such algorithm for this collective" : refusal(*found, call);
    if (reason != nullptr) {
      failure wrong(errc::not_applicable);
      wrong.say("%s %s: %s", name(call.what), name(how.algorithm), reason);
      check.fail(wrong);
      return {};
    }
    legal.add(how.algorithm);
  }
  return choices.choose(call, wishes(how), legal);
}

// Transports that stand on another one take its catalogue over, but their memory is not its.
template <class Transport>
concept has_steps =
    std::same_as<typename catalogue<basic_channel<Transport>>::transport, Transport>;
template <collective What, algorithm How, class Transport>
constexpr auto step_of() {
  if constexpr (has_steps<Transport>) {
    return catalogue<basic_channel<Transport>>::template step<What, How>();
  }
}

/// Transports that have a way of their own, for calls that pin none or that one: the plan is for
/// where it cannot be gone.
template <class Transport>
concept has_own_way = requires { requires Transport::has_own_way; };
template <class Transport>
bool goes_own_way(const options& how) {
  if constexpr (has_own_way<Transport>) {
    return how.algorithm == algorithm::automatic || how.algorithm == algorithm::native ||
           how.algorithm == algorithm::direct;
  }
  return false;
}
/// What is left to choose.
template <class Transport>
options chosen_by(const options& how) {
  options made = how;
  if (goes_own_way<Transport>(how)) made.algorithm = algorithm::automatic;
  return made;
}

template <class Transport>
template <class Rows>
[[gnu::noinline]] const known_calls::entry* core<Transport>::choose(const Rows& rows,
                                                                    const fingerprint& wanted,
                                                                    const question& asked,
                                                                    const options& how,
                                                                    checks& check) {
  if (queue().is_visited_elsewhere()) {
    check.fail(second_thread());
    return nullptr;
  }
  if (const known_calls::entry* const found = known().find(wanted)) return found;
  const plan by = detail::choose<catalogue<basic_channel<Transport>>>(
      rows, choices(), asked, chosen_by<Transport>(how), check);
  if (check.failed()) return nullptr;
  fingerprint print = wanted;
  put(print, by);
  if (goes_own_way<Transport>(how)) print.how = algorithm::native;
  bool is_one_step = false;
  if constexpr (has_steps<Transport>) {
    is_one_step = catalogue<basic_channel<Transport>>::is_one_step(by, asked);
  }
  return &known().add({wanted, agreement(print, by), find(rows, by.how), is_one_step});
}

template <class Transport>
template <collective What, class Print, class Asked, class Body, class Prepare>
[[gnu::always_inline]] inline operation<> core<Transport>::launch(
    const Print& print, const Asked& asked, const options& how, checks& check,
    std::size_t working_bytes, const Body& body, bool is_plain, const Prepare& prepare) {
  using channel = basic_channel<Transport>;
  using all = catalogue<channel>;
  const auto& rows = all::template algorithms<What>();
  using row = typename std::remove_cvref_t<decltype(rows)>::value_type;
  if (check.failed()) return refuse(make(What), check.why());
  const known_calls::entry* known = this->known().again(print());
  if (known == nullptr) {
    known = choose(rows, print(), asked(), how, check);
    if (known == nullptr) return refuse(make(What), check.why());
  }
  if (is_plain && known->is_one_step) {
    const auto in_one_step =
        [&]<class Step>(std::type_identity<Step>) __attribute__((always_inline)) {
          return begin<step_call<channel, Step>>(known->agreed, how, working_bytes, prepare);
        };
    using in_rounds = decltype(step_of<What, algorithm::recursive_doubling, Transport>());
    if constexpr (!std::is_void_v<in_rounds>) {
      if (known->chosen->how == algorithm::recursive_doubling) return in_one_step(in_rounds());
    }
    using direct = decltype(step_of<What, algorithm::direct, Transport>());
    if constexpr (!std::is_void_v<direct>) return in_one_step(direct());
  }
  const row& chosen = static_cast<const row&>(*known->chosen);
  const auto run = [&](call<void>& made) __attribute__((always_inline)) {
    (void)(made.body = body(made, channel(*net_, made), chosen));
  };
  return begin<call<void>>(known->agreed, how, working_bytes, run);
}

template <class Transport>
template <collective What>
operation<> core<Transport>::everywhere(const reduction& by, const any_buffer& in,
                                        const any_buffer& out, const options& how) {
  using channel = basic_channel<Transport>;
  using all = catalogue<channel>;
  using run = bodies<channel>;
  checks check(What);
  check.fits(in);
  if (in.data() != out.data() || in.size() != out.size()) {
    check_pair(check, in, out);
  }
  const auto print = [&] { return print_of(What, by, in.size(), -1, how); };
  const auto asked = [&] { return asks(What, in.size(), state().size(), by, how); };
  const auto body = [&](call<void>& made, const channel& net,
                        const auto& chosen) __attribute__((always_inline)) {
    const reduction kept = keep(made, by);
    if constexpr (What == collective::exscan) {
      return run::exscan(net, chosen.run, out, kept);
    } else {
      if constexpr (What == collective::all_reduce) {
        const auto* const apart = find(all::all_reduce_apart, chosen.how);
        if (apart != nullptr && run::moves_nothing(in, out, kept)) {
          return apart->run(net, in, out, kept.op);
        }
      }
      const int ranks = What == collective::scan ? net.rank() + 1 : net.size();
      return run::in_place(net, chosen.run, in, out, kept, ranks);
    }
  };
  const auto prepare = [&](auto& made) __attribute__((always_inline)) {
    const any_op op = keep_operation(made, by);
    if constexpr (What == collective::exscan) {
      made.prepare(*net_, out, op);
    } else {
      made.prepare(*net_, in, out, op);
    }
  };
  return launch<What>(print, asked, how, check, in.size() * by.accumulate_size, body, by.is_plain(),
                      prepare);
}

template <class Transport>
operation<> core<Transport>::grouped(const reduction& by, std::vector<any_buffer> parts,
                                     const options& how) {
  using channel = basic_channel<Transport>;
  using run = bodies<channel>;
  std::size_t total = 0;
  offsets sizes;
  sizes.reserve(parts.size());
  checks check(collective::all_reduce);
  for (const any_buffer& part : parts) {
    total += part.size();
    sizes.push_back(part.size());
    check.fits(part);
    for (const any_buffer& other : parts) {
      check.require(&part == &other || part.size() == 0 || other.size() == 0 ||
                        (part.data() != other.data() && !partly_overlap(part, other)),
                    "two buffers of the group overlap");
    }
  }
  const auto print = [&] {
    return with(print_of(collective::all_reduce, by, total, -1, how), sizes);
  };
  const auto asked = [&] { return asks(collective::all_reduce, total, state().size(), by, how); };
  const std::size_t working_bytes = total * by.accumulate_size;
  constexpr std::size_t packed_up_to = 64 * 1024;
  const auto body = [&](call<void>& made, const channel& net, const auto& chosen) {
    return run::grouped(net, chosen.run, std::move(parts), keep(made, by),
                        working_bytes <= packed_up_to);
  };
  return launch<collective::all_reduce>(print, asked, how, check, working_bytes, body, false,
                                        [](auto&) {});
}

template <class Transport>
operation<> core<Transport>::at_root(const reduction& by, const any_buffer& in,
                                     const any_buffer& out, int root, const options& how) {
  using channel = basic_channel<Transport>;
  using run = bodies<channel>;
  checks check(collective::reduce);
  check.fits(in);
  check_root(check, root, state().size());
  if (state().rank() == root) {
    check_pair(check, in, out);
  }
  const auto print = [&] { return print_of(collective::reduce, by, in.size(), root, how); };
  const auto asked = [&] { return asks(collective::reduce, in.size(), state().size(), by, how); };
  const auto body = [&](call<void>& made, const channel& net, const auto& chosen) {
    return run::reduce(net, chosen.run, in, net.rank() == root ? out : any_buffer(), root,
                       keep(made, by));
  };
  const auto prepare = [&](auto& made) {
    made.prepare(*net_, in, out, root, keep_operation(made, by));
  };
  return launch<collective::reduce>(print, asked, how, check, in.size() * by.accumulate_size, body,
                                    by.is_plain(), prepare);
}

template <class Transport>
operation<> core<Transport>::in_parts(const reduction& by, const any_buffer& in,
                                      const any_buffer& out, offsets shares, const options& how) {
  using channel = basic_channel<Transport>;
  using run = bodies<channel>;
  const int rank = state().rank();
  const int size = state().size();
  checks check(collective::reduce_scatter);
  check_counts(check, shares, size, in.element_size());
  check.fits(in).fits(out);
  if (!check.failed()) {
    const partition parts = shares_of(shares, out.size(), size);
    const any_buffer own = in.size() >= parts.offset(rank) + parts.count(rank)
                               ? chunks{in, parts}[rank]
                               : any_buffer();
    check
        .require(in.size() == parts.offset(size),
                 "in has %zu elements, the shares of %d ranks are %zu", in.size(), size,
                 parts.offset(size))
        .require(out.size() == parts.count(rank), "out has %zu elements, this rank's share is %zu",
                 out.size(), parts.count(rank))
        .require(out.data() == own.data() || !partly_overlap(in, out),
                 "in and out overlap in part");
  }
  const auto print = [&] {
    return with(print_of(collective::reduce_scatter, by, in.size(), -1, how), shares);
  };
  const auto asked = [&] { return asks(collective::reduce_scatter, in.size(), size, by, how); };
  const auto body = [&](call<void>& made, const channel& net, const auto& chosen) {
    return run::reduce_scatter(net, chosen.run, in, out, std::move(shares), keep(made, by));
  };
  const auto prepare = [&](auto& made) {
    made.prepare(*net_, in, out, partition::blocks(out.size(), size), keep_operation(made, by));
  };
  return launch<collective::reduce_scatter>(print, asked, how, check,
                                            in.size() * by.accumulate_size, body,
                                            shares.empty() && by.is_plain(), prepare);
}

template <class Transport>
operation<> core<Transport>::broadcast(std::uint32_t type, any_buffer data, int root,
                                       const options& how) {
  using channel = basic_channel<Transport>;
  using run = bodies<channel>;
  checks check(collective::broadcast);
  check.fits(data);
  check_root(check, root, state().size());
  const auto print = [&] {
    return print_of(collective::broadcast, type, data.element_size(), data.size(), root, how);
  };
  const auto asked = [&] {
    return question{collective::broadcast, data.size() * data.element_size(), state().size()};
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return run::broadcast(net, chosen.run, data, root);
  };
  const auto prepare = [&](auto& made) { made.prepare(*net_, data, root); };
  return launch<collective::broadcast>(print, asked, how, check, 0, body, true, prepare);
}

template <class Transport>
operation<> core<Transport>::barrier(const options& how) {
  using channel = basic_channel<Transport>;
  checks check(collective::barrier);
  const auto print = [&] {
    fingerprint made;
    made.what = collective::barrier;
    put(made, wishes(how));
    return made;
  };
  const auto asked = [&] { return question{collective::barrier, 0, state().size()}; };
  const auto body = [](call<void>&, const channel& net, const auto& chosen) {
    return chosen.run(net);
  };
  const auto prepare = [&](auto& made) { made.prepare(*net_); };
  return launch<collective::barrier>(print, asked, how, check, 0, body, true, prepare);
}

template <class Transport>
operation<> core<Transport>::all_gather(std::uint32_t type, any_buffer in, any_buffer out,
                                        offsets shares, const options& how) {
  using channel = basic_channel<Transport>;
  using all = catalogue<channel>;
  using run = bodies<channel>;
  const int rank = state().rank();
  const int size = state().size();
  checks check(collective::all_gather);
  check_counts(check, shares, size, in.element_size());
  check.fits(in).fits(out);
  if (!check.failed()) {
    const partition parts = shares_of(shares, in.size(), size);
    check
        .require(out.size() == parts.offset(size),
                 "out has %zu elements, the blocks of %d ranks are %zu", out.size(), size,
                 parts.offset(size))
        .require(in.size() == parts.count(rank), "in has %zu elements, this rank's block is %zu",
                 in.size(), parts.count(rank));
    if (!check.failed()) {
      check.require(in.data() == chunks{out, parts}[rank].data() || !partly_overlap(in, out),
                    "in and out overlap in part");
    }
  }
  const auto print = [&] {
    return with(print_of(collective::all_gather, type, in.element_size(), out.size(), -1, how),
                shares);
  };
  const auto asked = [&] {
    return question{collective::all_gather, out.size() * out.element_size(), size};
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    const auto* const apart = find(all::all_gather_apart, chosen.how);
    if (apart != nullptr) {
      return run::all_gather_apart(net, apart->run, in, out, std::move(shares));
    }
    return run::all_gather(net, chosen.run, in, out, std::move(shares));
  };
  const auto prepare = [&](auto& made) {
    made.prepare(*net_, in, out, partition::blocks(in.size(), size));
  };
  return launch<collective::all_gather>(print, asked, how, check, 0, body, shares.empty(), prepare);
}

template <class Transport>
template <collective What>
operation<> core<Transport>::rooted(std::uint32_t type, any_buffer mine, any_buffer whole,
                                    offsets shares, int root, const options& how) {
  using channel = basic_channel<Transport>;
  using run = bodies<channel>;
  const int rank = state().rank();
  const int size = state().size();
  checks check(What);
  check_root(check, root, size);
  check_counts(check, shares, size, mine.element_size());
  check.fits(mine).fits(whole);
  const std::size_t total =
      shares.empty() ? mine.size() * static_cast<std::size_t>(size) : shares.back();
  if (!check.failed()) {
    const partition parts = shares_of(shares, mine.size(), size);
    if (mine.size() != parts.count(rank)) {
      check.require(false, "the buffer has %zu elements, this rank's share is %zu", mine.size(),
                    parts.count(rank));
    } else if (rank == root && whole.size() != total) {
      check.require(false, "the root's buffer has %zu elements, all shares are %zu", whole.size(),
                    total);
    } else if (rank == root && mine.data() != chunks{whole, parts}[rank].data() &&
               partly_overlap(mine, whole)) {
      check.require(false, "in and out overlap in part");
    }
  }
  const auto print = [&] {
    return with(print_of(What, type, mine.element_size(), total, root, how), shares);
  };
  const auto asked = [&] { return question{What, total * mine.element_size(), size}; };
  constexpr bool gathers = What == collective::gather;
  const any_buffer everything = rank == root ? whole : any_buffer(nullptr, 0, mine.element_size());
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return run::rooted(net, chosen.run, gathers ? mine : everything, gathers ? everything : mine,
                       mine.size(), std::move(shares), root);
  };
  const auto prepare = [&](auto& made) {
    made.prepare(*net_, gathers ? mine : everything, gathers ? everything : mine,
                 partition::blocks(mine.size(), size), root);
  };
  return launch<What>(print, asked, how, check, 0, body, shares.empty(), prepare);
}

template <class Transport>
operation<> core<Transport>::all_to_all(std::uint32_t type, any_buffer in, any_buffer out,
                                        offsets sends, offsets receives, const options& how) {
  using channel = basic_channel<Transport>;
  using run = bodies<channel>;
  checks check(collective::all_to_all);
  const auto ranks = static_cast<std::size_t>(state().size());
  const bool equal_blocks = sends.empty() && receives.empty();
  const auto own_block = [&](const offsets& table) {
    const auto me = static_cast<std::size_t>(state().rank());
    return table[me + 1] - table[me];
  };
  check_counts(check, sends, state().size(), in.element_size());
  check_counts(check, receives, state().size(), in.element_size());
  check.fits(in).fits(out);
  if (equal_blocks) {
    check
        .require(in.size() % ranks == 0, "in has %zu elements, no multiple of %zu ranks", in.size(),
                 ranks)
        .require(in.size() == out.size(), "in has %zu elements, out has %zu", in.size(),
                 out.size());
  } else if (!check.failed()) {
    check
        .require(in.size() == sends.back(), "in has %zu elements, the send counts are %zu",
                 in.size(), sends.back())
        .require(out.size() == receives.back(), "out has %zu elements, the receive counts are %zu",
                 out.size(), receives.back())
        .require(own_block(sends) == own_block(receives),
                 "this rank sends %zu elements to itself and receives %zu", own_block(sends),
                 own_block(receives))
        .require(in.data() != out.data() || sends == receives,
                 "in place, both lists of counts are equal");
  }
  check.require(!partly_overlap(in, out), "in and out overlap in part");
  // With counts of its own each rank has another total: no choice may depend on it, blocks are
  // taken for long ones, and lengths are compared message by message.
  constexpr std::size_t long_block = 64 * 1024;
  const std::size_t count = equal_blocks ? in.size() : 0;
  const auto print = [&] {
    fingerprint made = print_of(collective::all_to_all, type, in.element_size(), count, -1, how);
    made.shape = equal_blocks ? 0 : 1;
    return made;
  };
  const auto asked = [&] {
    return question{collective::all_to_all,
                    equal_blocks ? count * in.element_size() : ranks * long_block, state().size()};
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return run::all_to_all(net, chosen.run, in, out, std::move(sends), std::move(receives));
  };
  const auto prepare = [&](auto& made) {
    const partition blocks = partition::blocks(in.size() / ranks, state().size());
    made.prepare(*net_, in, blocks, out, blocks);
  };
  return launch<collective::all_to_all>(print, asked, how, check, 0, body,
                                        equal_blocks && in.data() != out.data(), prepare);
}

// ---- what it costs

template <class Transport>
operation<> core<Transport>::measure(const options& how) {
  fingerprint print;
  print.what = collective::measure;
  const auto found = [](basic_channel<Transport> net, core& of) -> task<> {
    network_cost costs = of.choices().costs();
    co_await detail::measure(net, costs);
    costs.cores = 0;  // what was found has the turns that ranks take
    of.set_costs(costs);
  };
  return begin<call<void>>(agreement(print), how, 0,
                           [&](auto& call) { (void)(call.body = found({*net_, call}, *this)); });
}

template <class Transport>
explanation core<Transport>::explain(collective what, std::uint64_t bytes,
                                     const options& given) const {
  const options how = chosen_by<Transport>(given);
  using all = catalogue<basic_channel<Transport>>;
  const bool reduces = what == collective::all_reduce || what == collective::reduce ||
                       what == collective::reduce_scatter || what == collective::scan ||
                       what == collective::exscan;
  const question call{what, bytes, state().size(), true, how.order, reduces};
  algorithm_set legal = all::legal(call);
  if (how.algorithm != algorithm::automatic) {
    const bool possible = legal.has(how.algorithm);
    legal = {};
    if (possible) legal.add(how.algorithm);
  }
  return choices().explain(call, wishes(how), legal);
}

// ---- point to point

inline void check_peer(checks& check, int peer, int ranks) {
  check.require(peer >= 0 && peer < ranks, "rank %d is not in 0..%d", peer, ranks - 1);
}

template <class Transport>
operation<> core<Transport>::send(any_buffer from, int to, int tag, const options& how) {
  auto* const made = make(collective::send);
  checks check(collective::send);
  check_peer(check, to, state().size());
  check.require(tag >= 0, "tag %d is negative", tag).fits(from);
  if (check.failed()) return refuse(made, check.why());
  const message_key key{state().world_rank(to), state().id(), static_cast<std::uint64_t>(tag),
                        message_key::point_to_point};
  return begin_direct(made, key.sequence, how, [&](call_base& call) {
    return messages<Transport>::send(net(), call, key, bytes(from));
  });
}

template <class Transport>
operation<received> core<Transport>::recv(any_buffer into, peer from, int tag, const options& how) {
  auto* const made = make<call<received>>(collective::recv);
  checks check(collective::recv);
  if (!from.is_any()) check_peer(check, from.rank(), state().size());
  check.require(tag >= 0, "tag %d is negative", tag).fits(into);
  if (check.failed()) return refuse(made, check.why());
  const message_key key{from.is_any() ? posted::any_source : state().world_rank(from.rank()),
                        state().id(), static_cast<std::uint64_t>(tag), message_key::point_to_point};
  return begin_direct(made, key.sequence, how, [&](call_base& call) {
    return messages<Transport>::recv(net(), call, key, bytes(into), into.element_size());
  });
}

template <class Transport>
operation<received> core<Transport>::send_recv(any_buffer outgoing, int to, any_buffer incoming,
                                               peer from, int tag, const options& how) {
  auto* const made = make<call<received>>(collective::send_recv);
  checks check(collective::send_recv);
  check_peer(check, to, state().size());
  if (!from.is_any()) check_peer(check, from.rank(), state().size());
  check.require(tag >= 0, "tag %d is negative", tag)
      .fits(outgoing)
      .fits(incoming)
      .require(outgoing.data() != incoming.data() || outgoing.size() == 0,
               "what is sent and what is received are one buffer")
      .require(!partly_overlap(outgoing, incoming), "the two buffers overlap in part");
  if (check.failed()) return refuse(made, check.why());
  const message_key to_key{state().world_rank(to), state().id(), static_cast<std::uint64_t>(tag),
                           message_key::point_to_point};
  message_key from_key = to_key;
  from_key.peer = from.is_any() ? posted::any_source : state().world_rank(from.rank());
  return begin_direct(made, to_key.sequence, how, [&](call_base& call) {
    return messages<Transport>::send_recv(net(), call, to_key, bytes(outgoing), from_key,
                                          bytes(incoming), incoming.element_size());
  });
}

}  // namespace colls::detail
