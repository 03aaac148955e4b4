// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How the calls of communicator.hpp are checked, numbered and started: its second half.

#include <algorithm>

namespace colls {

// The sentence comes from here, so that it stands in the user's own call chain.
#define COLLS_PIN(rows, commutes)                                                             \
  if constexpr (Pinned != algorithm::automatic) {                                             \
    constexpr bool done = detail::offers(rows, Pinned, true);                                 \
    static_assert(done, "colls: this collective has no such algorithm");                      \
    static_assert(!done || detail::offers(rows, Pinned, commutes),                            \
                  "colls: this algorithm sums each chunk beginning at another rank, so the "  \
                  "operation has to commute: wrap it in colls::commutative, or pin another"); \
    how.algorithm = Pinned;                                                                   \
  }

template <transport Transport>
template <collective What, algorithm Pinned, class T, class Op>
operation<> communicator<Transport>::reduced_everywhere(any_buffer in, any_buffer out, const Op& op,
                                                        options how) {
  constexpr auto& rows = rows_of<What>();
  COLLS_PIN(rows, (commutative_for<Op, T>))
  auto* const made = core_->make(What);
  const reduction by = keep<T>(*made, op, how);
  detail::checks check(What);
  check.fits(in)
      .require(in.size() == out.size(), "in has %zu elements, out has %zu", in.size(), out.size())
      .require(!detail::partly_overlap(in, out), "in and out overlap in part");
  const question call = asks(What, in.size(), by, how);
  plan chosen;
  const detail::row<task<>(channel_type, any_buffer, any_op)>* found = nullptr;
  if (!plan_for(rows, call, how, check, chosen, &found)) return core_->refuse(made, check.why());
  fingerprint print = print_of<T>(What, chosen, in.size(), -1, how);
  add(print, by, how);
  return core_->begin(made, print, how, chosen, call.bytes, [&](channel_type net) {
    if constexpr (What == collective::exscan) return run::exscan(net, found->run, in, out, by);
    const int ranks = What == collective::scan ? net.rank() + 1 : net.size();
    return run::in_place(net, found->run, in, out, by, ranks);
  });
}

template <transport Transport>
template <algorithm Pinned, class... Ranges, class Op>
requires(!detail::is_options<Op>) operation<> communicator<Transport>::all_reduce(
    const colls::group<Ranges...>& buffers, Op op, options how) {
  using element = typename colls::group<Ranges...>::element_type;
  COLLS_PIN(all::all_reduce, (commutative_for<Op, element>))
  std::size_t total = 0;
  counts_list sizes;
  sizes.reserve(sizeof...(Ranges));
  auto* const made = core_->make(collective::all_reduce);
  const reduction by = keep<element>(*made, op, how);
  detail::checks check(collective::all_reduce);
  for (const any_buffer& part : buffers.parts) {
    total += part.size();
    sizes.push_back(part.size());
    check.fits(part);
    for (const any_buffer& other : buffers.parts) {
      check.require(&part == &other || part.size() == 0 || other.size() == 0 ||
                        (part.data() != other.data() && !detail::partly_overlap(part, other)),
                    "two buffers of the group overlap");
    }
  }
  const question call = asks(collective::all_reduce, total, by, how);
  const std::size_t size_in_bytes = call.bytes;
  plan chosen;
  const detail::row<task<>(channel_type, any_buffer, any_op)>* found = nullptr;
  if (!plan_for(all::all_reduce, call, how, check, chosen, &found)) {
    return core_->refuse(made, check.why());
  }
  fingerprint print = print_of<element>(collective::all_reduce, chosen, total, -1, how, sizes);
  add(print, by, how);
  constexpr std::size_t packed_up_to = 64 * 1024;
  return core_->begin(made, print, how, chosen, size_in_bytes, [&](channel_type net) {
    return run::grouped(net, found->run,
                        std::vector<any_buffer>(std::begin(buffers.parts), std::end(buffers.parts)),
                        by, size_in_bytes <= packed_up_to);
  });
}

template <transport Transport>
template <algorithm Pinned, class T, class Op>
operation<> communicator<Transport>::reduced_at_root(any_buffer in, any_buffer out, int root,
                                                     const Op& op, options how) {
  COLLS_PIN(all::reduce, (commutative_for<Op, T>))
  auto* const made = core_->make(collective::reduce);
  const reduction by = keep<T>(*made, op, how);
  detail::checks check(collective::reduce);
  check.fits(in).require(root >= 0 && root < size(), "root %d is not in 0..%d", root, size() - 1);
  if (rank() == root) {
    check
        .require(in.size() == out.size(), "in has %zu elements, out has %zu", in.size(), out.size())
        .require(!detail::partly_overlap(in, out), "in and out overlap in part");
  }
  const question call = asks(collective::reduce, in.size(), by, how);
  plan chosen;
  const detail::row<task<>(channel_type, any_buffer, any_buffer, int, any_op)>* found = nullptr;
  if (!plan_for(all::reduce, call, how, check, chosen, &found)) {
    return core_->refuse(made, check.why());
  }
  fingerprint print = print_of<T>(collective::reduce, chosen, in.size(), root, how);
  add(print, by, how);
  return core_->begin(made, print, how, chosen, call.bytes, [&](channel_type net) {
    return run::reduce(net, found->run, in, rank() == root ? out : any_buffer(), root, by);
  });
}

template <transport Transport>
template <algorithm Pinned, class T, class Op>
operation<> communicator<Transport>::reduced_in_parts(any_buffer in, any_buffer out,
                                                      counts_list offsets, const Op& op,
                                                      options how) {
  COLLS_PIN(all::reduce_scatter, (commutative_for<Op, T>))
  auto* const made = core_->make(collective::reduce_scatter);
  const reduction by = keep<T>(*made, op, how);
  detail::checks check(collective::reduce_scatter);
  check_counts(check, offsets, sizeof(T));
  check.fits(in).fits(out);
  if (!check.failed()) {
    const partition parts = offsets.empty() ? partition::blocks(out.size(), size())
                                            : partition::from_offsets(offsets.data(), size());
    const any_buffer own = in.size() >= parts.offset(rank()) + parts.count(rank())
                               ? chunks{in, parts}[rank()]
                               : any_buffer();
    check
        .require(in.size() == parts.offset(size()),
                 "in has %zu elements, the shares of %d ranks are %zu", in.size(), size(),
                 parts.offset(size()))
        .require(out.size() == parts.count(rank()),
                 "out has %zu elements, this rank's share is %zu", out.size(), parts.count(rank()))
        .require(out.data() == own.data() || !detail::partly_overlap(in, out),
                 "in and out overlap in part");
  }
  const question call = asks(collective::reduce_scatter, in.size(), by, how);
  plan chosen;
  const detail::row<task<>(channel_type, any_buffer, any_buffer, partition, any_op)>* found =
      nullptr;
  if (!plan_for(all::reduce_scatter, call, how, check, chosen, &found)) {
    return core_->refuse(made, check.why());
  }
  fingerprint print = print_of<T>(collective::reduce_scatter, chosen, in.size(), -1, how, offsets);
  add(print, by, how);
  return core_->begin(made, print, how, chosen, call.bytes, [&](channel_type net) {
    return run::reduce_scatter(net, found->run, in, out, std::move(offsets), by);
  });
}

template <transport Transport>
template <algorithm Pinned, class T>
operation<> communicator<Transport>::broadcast_bytes(any_buffer data, int root, options how) {
  COLLS_PIN(all::broadcast, true)
  auto* const made = core_->make(collective::broadcast);
  detail::checks check(collective::broadcast);
  check.fits(data).require(root >= 0 && root < size(), "root %d is not in 0..%d", root, size() - 1);
  const question call{collective::broadcast, data.size() * data.element_size(), size()};
  plan chosen;
  const detail::row<task<>(channel_type, any_buffer, int)>* found = nullptr;
  if (!plan_for(all::broadcast, call, how, check, chosen, &found)) {
    return core_->refuse(made, check.why());
  }
  const fingerprint print = print_of<T>(collective::broadcast, chosen, data.size(), root, how);
  return core_->begin(made, print, how, chosen, 0,
                      [&](channel_type net) { return found->run(net, data, root); });
}

template <transport Transport>
template <algorithm Pinned>
operation<> communicator<Transport>::barrier(options how) {
  COLLS_PIN(all::barrier, true)
  auto* const made = core_->make(collective::barrier);
  detail::checks check(collective::barrier);
  const question call{collective::barrier, 0, size()};
  plan chosen;
  const detail::row<task<>(channel_type)>* found = nullptr;
  if (!plan_for(all::barrier, call, how, check, chosen, &found)) {
    return core_->refuse(made, check.why());
  }
  fingerprint print;
  print.what = collective::barrier;
  print.how = chosen.how;
  print.radix = static_cast<std::uint32_t>(chosen.radix);
  return core_->begin(made, print, how, chosen, 0,
                      [&](channel_type net) { return found->run(net); });
}

template <transport Transport>
template <algorithm Pinned, class T>
operation<> communicator<Transport>::gathered_everywhere(any_buffer in, any_buffer out,
                                                         counts_list offsets, options how) {
  COLLS_PIN(all::all_gather, true)
  auto* const made = core_->make(collective::all_gather);
  detail::checks check(collective::all_gather);
  check_counts(check, offsets, sizeof(T));
  check.fits(in).fits(out);
  if (!check.failed()) {
    const partition parts = offsets.empty() ? partition::blocks(in.size(), size())
                                            : partition::from_offsets(offsets.data(), size());
    check
        .require(out.size() == parts.offset(size()),
                 "out has %zu elements, the blocks of %d ranks are %zu", out.size(), size(),
                 parts.offset(size()))
        .require(in.size() == parts.count(rank()), "in has %zu elements, this rank's block is %zu",
                 in.size(), parts.count(rank()));
    if (!check.failed()) {
      check.require(
          in.data() == chunks{out, parts}[rank()].data() || !detail::partly_overlap(in, out),
          "in and out overlap in part");
    }
  }
  const question call{collective::all_gather, out.size() * out.element_size(), size()};
  plan chosen;
  const detail::row<task<>(channel_type, any_buffer, partition)>* found = nullptr;
  if (!plan_for(all::all_gather, call, how, check, chosen, &found)) {
    return core_->refuse(made, check.why());
  }
  const fingerprint print =
      print_of<T>(collective::all_gather, chosen, out.size(), -1, how, offsets);
  return core_->begin(made, print, how, chosen, 0, [&](channel_type net) {
    return run::all_gather(net, found->run, in, out, std::move(offsets));
  });
}

template <transport Transport>
template <collective What, algorithm Pinned, class T>
operation<> communicator<Transport>::rooted(any_buffer mine, any_buffer whole, counts_list offsets,
                                            int root, options how) {
  constexpr auto& rows = rows_of<What>();
  COLLS_PIN(rows, true)
  auto* const made = core_->make(What);
  detail::checks check(What);
  check.require(root >= 0 && root < size(), "root %d is not in 0..%d", root, size() - 1);
  check_counts(check, offsets, sizeof(T));
  check.fits(mine).fits(whole);
  const std::size_t total =
      offsets.empty() ? mine.size() * static_cast<std::size_t>(size()) : offsets.back();
  if (!check.failed()) {
    const partition parts = offsets.empty() ? partition::blocks(mine.size(), size())
                                            : partition::from_offsets(offsets.data(), size());
    check.require(mine.size() == parts.count(rank()),
                  "the buffer has %zu elements, this rank's share is %zu", mine.size(),
                  parts.count(rank()));
    if (rank() == root) {
      check.require(whole.size() == total, "the root's buffer has %zu elements, all shares are %zu",
                    whole.size(), total);
      if (!check.failed()) {
        check.require(mine.data() == chunks{whole, parts}[rank()].data() ||
                          !detail::partly_overlap(mine, whole),
                      "in and out overlap in part");
      }
    }
  }
  const question call{What, total * mine.element_size(), size()};
  plan chosen;
  const detail::row<task<>(channel_type, any_buffer, any_buffer, partition, int)>* found = nullptr;
  if (!plan_for(rows, call, how, check, chosen, &found)) return core_->refuse(made, check.why());
  const fingerprint print = print_of<T>(What, chosen, total, root, how, offsets);
  const any_buffer everything =
      rank() == root ? whole : any_buffer(nullptr, 0, mine.element_size());
  return core_->begin(made, print, how, chosen, 0, [&](channel_type net) {
    constexpr bool gathers = What == collective::gather;
    return run::rooted(net, found->run, gathers ? mine : everything, gathers ? everything : mine,
                       mine.size(), std::move(offsets), root);
  });
}

template <transport Transport>
template <algorithm Pinned, class T>
operation<> communicator<Transport>::exchanged(any_buffer in, any_buffer out, counts_list sends,
                                               counts_list receives, options how) {
  COLLS_PIN(all::all_to_all, true)
  auto* const made = core_->make(collective::all_to_all);
  detail::checks check(collective::all_to_all);
  const auto ranks = static_cast<std::size_t>(size());
  const bool equal_blocks = sends.empty() && receives.empty();
  const auto own_block = [&](const counts_list& offsets) {
    const auto me = static_cast<std::size_t>(rank());
    return offsets[me + 1] - offsets[me];
  };
  check_counts(check, sends, sizeof(T));
  check_counts(check, receives, sizeof(T));
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
  check.require(!detail::partly_overlap(in, out), "in and out overlap in part");
  // With counts of its own each rank has another total: no choice may depend on it, and lengths are
  // compared message by message.
  const std::size_t count = equal_blocks ? in.size() : 0;
  const question call{collective::all_to_all, count * sizeof(T), size()};
  plan chosen;
  const detail::row<task<>(channel_type, any_buffer, partition, any_buffer, partition)>* found =
      nullptr;
  if (!plan_for(all::all_to_all, call, how, check, chosen, &found)) {
    return core_->refuse(made, check.why());
  }
  fingerprint print = print_of<T>(collective::all_to_all, chosen, count, -1, how);
  print.shape = equal_blocks ? 0 : 1;
  return core_->begin(made, print, how, chosen, 0, [&](channel_type net) {
    return run::all_to_all(net, found->run, in, out, std::move(sends), std::move(receives));
  });
}

#undef COLLS_PIN

template <transport Transport>
operation<> communicator<Transport>::measure(options how) {
  auto* const made = core_->make(collective::measure);
  fingerprint print;
  print.what = collective::measure;
  const auto found = [](channel_type net, detail::core<Transport>& of) -> task<> {
    network_cost costs = of.choices().costs();
    co_await detail::measure(net, costs);
    of.set_costs(costs);
  };
  return core_->begin(made, print, how, plan(), 0,
                      [&](channel_type net) { return found(net, *core_); });
}

template <transport Transport>
explanation communicator<Transport>::explain(collective what, std::uint64_t bytes,
                                             const options& how) const {
  const bool reduces = what == collective::all_reduce || what == collective::reduce ||
                       what == collective::reduce_scatter || what == collective::scan ||
                       what == collective::exscan;
  const question call{what, bytes, size(), true, how.order, reduces};
  algorithm_set legal;
  const auto add = [&](const auto& rows) { legal = detail::legal_of(rows, call); };
  switch (what) {
    case collective::barrier:
      add(all::barrier);
      break;
    case collective::broadcast:
      add(all::broadcast);
      break;
    case collective::all_reduce:
      add(all::all_reduce);
      break;
    case collective::reduce:
      add(all::reduce);
      break;
    case collective::reduce_scatter:
      add(all::reduce_scatter);
      break;
    case collective::all_gather:
      add(all::all_gather);
      break;
    case collective::gather:
      add(all::gather);
      break;
    case collective::scatter:
      add(all::scatter);
      break;
    case collective::all_to_all:
      add(all::all_to_all);
      break;
    case collective::scan:
      add(all::scan);
      break;
    case collective::exscan:
      add(all::exscan);
      break;
    default:
      break;
  }
  if (how.algorithm != algorithm::automatic) {
    const bool possible = legal.has(how.algorithm);
    legal = {};
    if (possible) legal.add(how.algorithm);
  }
  return core_->choices().explain(call, core_->wishes(how), legal);
}

// ---- point to point

namespace detail {

template <transport Transport>
struct direct {
  using send_operation = decltype(std::declval<Transport&>().send(
      std::declval<message_key>(), const_bytes{}, std::declval<operation_record&>()));
  using recv_operation = decltype(std::declval<Transport&>().recv(
      std::declval<message_key>(), mutable_bytes{}, std::declval<operation_record&>()));

  template <class Leaf>
  static void watch(call_base& made, Leaf& leaf) {
    made.leaf = &leaf;
    made.untouched = [](const call_base& self) {
      return static_cast<const Leaf*>(self.leaf)->untouched();
    };
  }

  static task<> send(Transport& net, call_base& made, message_key key, const_bytes from) {
    send_operation leaf = net.send(key, from, made);
    watch(made, leaf);
    co_await leaf;
  }

  /// What a receive that has ended found, or its error.
  static received found(const recv_operation& leaf, const call_base& made, mutable_bytes into,
                        std::size_t element) {
    const std::error_code ec = leaf.result();
    failure why;
    if (ec == errc::truncated) {
      why.code = errc::truncated;
      why.say("the message has %llu bytes, the buffer %zu",
              static_cast<unsigned long long>(made.bytes_expected), into.size);
    } else if (!ec && leaf.count() % element != 0) {
      why.code = errc::mismatch;
      why.culprit = leaf.source_rank();
      why.say("a message of %zu bytes came for elements of %zu bytes", leaf.count(), element);
    }
    if (why.code != errc{}) throw error(why);
    unwrap(ec);
    return {made.communicator->rank_of(leaf.source_rank()), leaf.count() / element};
  }
  static task<received> recv(Transport& net, call_base& made, message_key key, mutable_bytes into,
                             std::size_t element) {
    recv_operation leaf = net.recv(key, into, made);
    watch(made, leaf);
    co_await ended<recv_operation>{&leaf};
    co_return found(leaf, made, into, element);
  }

  struct both {
    send_operation out;
    recv_operation in;
    bool untouched() const { return out.untouched() && in.untouched(); }
  };
  static task<received> send_recv(Transport& net, call_base& made, message_key to, const_bytes from,
                                  message_key source, mutable_bytes into, std::size_t element) {
    both leaves{net.send(to, from, made), net.recv(source, into, made)};
    watch(made, leaves);
    co_await when_all(reference<send_operation>{&leaves.out}, ended<recv_operation>{&leaves.in});
    co_return found(leaves.in, made, into, element);
  }

  template <class Leaf>
  struct reference {
    Leaf* leaf;
    bool start(completion& done) { return leaf->start(done); }
    std::error_code result() { return leaf->result(); }
  };
  /// Its end, good or bad: who waited looks at the result.
  template <class Leaf>
  struct ended {
    Leaf* leaf;
    bool start(completion& done) { return leaf->start(done); }
    void result() {}
  };
};

}  // namespace detail

template <transport Transport>
operation<> communicator<Transport>::sent(any_buffer from, int to, int tag, const options& how) {
  auto* const made = core_->make(collective::send);
  detail::checks check(collective::send);
  check.require(to >= 0 && to < size(), "rank %d is not in 0..%d", to, size() - 1)
      .require(tag >= 0, "tag %d is negative", tag)
      .fits(from);
  if (check.failed()) return core_->refuse(made, check.why());
  const message_key key{world_rank(to), core_->state().id(), static_cast<std::uint64_t>(tag),
                        message_key::point_to_point};
  return core_->begin_direct(made, key.sequence, how, [&](detail::call_base& call) {
    return detail::direct<Transport>::send(net(), call, key, bytes(from));
  });
}

template <transport Transport>
operation<received> communicator<Transport>::taken(any_buffer into, peer from, int tag,
                                                   const options& how) {
  auto* const made = core_->template make<received>(collective::recv);
  detail::checks check(collective::recv);
  check
      .require(from.is_any() || (from.rank() >= 0 && from.rank() < size()),
               "rank %d is not in 0..%d", from.rank(), size() - 1)
      .require(tag >= 0, "tag %d is negative", tag)
      .fits(into);
  if (check.failed()) return core_->refuse(made, check.why());
  const message_key key{from.is_any() ? posted::any_source : world_rank(from.rank()),
                        core_->state().id(), static_cast<std::uint64_t>(tag),
                        message_key::point_to_point};
  return core_->begin_direct(made, key.sequence, how, [&](detail::call_base& call) {
    return detail::direct<Transport>::recv(net(), call, key, bytes(into), into.element_size());
  });
}

template <transport Transport>
template <readable_range Out, readable_range In>
operation<received> communicator<Transport>::send_recv(Out&& out, int to, In&& in, peer from,
                                                       int tag, options how) {
  const any_buffer outgoing = detail::erased(std::forward<Out>(out));
  const any_buffer incoming = detail::output(std::forward<In>(in));
  auto* const made = core_->template make<received>(collective::recv);
  detail::checks check(collective::recv);
  check.require(to >= 0 && to < size(), "rank %d is not in 0..%d", to, size() - 1)
      .require(from.is_any() || (from.rank() >= 0 && from.rank() < size()),
               "rank %d is not in 0..%d", from.rank(), size() - 1)
      .require(tag >= 0, "tag %d is negative", tag)
      .fits(outgoing)
      .fits(incoming)
      .require(outgoing.data() != incoming.data() || outgoing.size() == 0,
               "what is sent and what is received are one buffer")
      .require(!detail::partly_overlap(outgoing, incoming), "the two buffers overlap in part");
  if (check.failed()) return core_->refuse(made, check.why());
  const message_key to_key{world_rank(to), core_->state().id(), static_cast<std::uint64_t>(tag),
                           message_key::point_to_point};
  message_key from_key = to_key;
  from_key.peer = from.is_any() ? posted::any_source : world_rank(from.rank());
  return core_->begin_direct(made, to_key.sequence, how, [&](detail::call_base& call) {
    return detail::direct<Transport>::send_recv(net(), call, to_key, bytes(outgoing), from_key,
                                                bytes(incoming), incoming.element_size());
  });
}

// ---- communicators

namespace detail {

/// The ids that a split may give: a few, made of the parent's id and the number of the call, so
/// that splits of different communicators try different ones. Held here until the split has ended;
/// those that are free on all ranks can be given, so no two communicators that share a rank, now or
/// ever, have the same.
class id_candidates {
 public:
  static constexpr int count = 8;

  id_candidates(match& with, const operation_record& split)
      : with_(with), ids_(static_cast<std::uint32_t>(split.communicator->size())) {
    for (int i = 0; i < count; ++i) {
      first_[i] = static_cast<std::uint32_t>(
          mix(mix(split.communicator->id(), split.sequence), static_cast<std::uint64_t>(i)));
      if (first_[i] <= UINT32_MAX - ids_ && with.hold_ids(first_[i], ids_)) free_ |= 1u << i;
    }
  }
  id_candidates(const id_candidates&) = delete;
  ~id_candidates() {
    for (int i = 0; i < count; ++i) {
      if ((free_ >> i & 1u) != 0) with_.free_ids(first_[i]);
    }
  }

  std::uint32_t free() const { return free_; }
  /// The first of the ids that are free everywhere.
  std::uint32_t choose(std::uint32_t free_on_all) const {
    for (int i = 0; i < count; ++i) {
      if ((free_on_all >> i & 1u) != 0) return first_[i];
    }
    throw error(errc::not_enough_memory, "no id for a communicator is free on all ranks");
  }

 private:
  match& with_;
  std::uint32_t ids_;
  std::uint32_t first_[count] = {};
  std::uint32_t free_ = 0;
};

/// What each rank says in a split.
struct split_word {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::uint32_t free_ids = 0;
};

template <transport Transport>
task<communicator<Transport>> split(basic_channel<Transport> net, core<Transport>& parent,
                                    split_word mine) {
  const id_candidates ids(parent.matching(), net.record());
  mine.free_ids = ids.free();
  std::vector<split_word> words(static_cast<std::size_t>(net.size()));
  words[static_cast<std::size_t>(net.rank())] = mine;
  const any_buffer all(words.data(), words.size(), sizeof(split_word));
  co_await recursive_doubling::all_gather(net, all, partition::blocks(1, net.size()));

  std::uint32_t free_on_all = ids.free();
  std::vector<std::int32_t> colors;
  for (const split_word& word : words) {
    free_on_all &= word.free_ids;
    if (word.color >= 0) colors.push_back(word.color);
  }
  if (mine.color < 0) co_return communicator<Transport>();
  std::sort(colors.begin(), colors.end());
  colors.erase(std::unique(colors.begin(), colors.end()), colors.end());
  const auto color = std::lower_bound(colors.begin(), colors.end(), mine.color) - colors.begin();
  const std::uint32_t id = ids.choose(free_on_all) + static_cast<std::uint32_t>(color);

  std::vector<int> ranks;
  for (int rank = 0; rank < net.size(); ++rank) {
    if (words[static_cast<std::size_t>(rank)].color == mine.color) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end(), [&](int one, int other) {
    const std::int32_t first = words[static_cast<std::size_t>(one)].key;
    const std::int32_t second = words[static_cast<std::size_t>(other)].key;
    return first != second ? first < second : one < other;
  });
  int rank = 0;
  while (ranks[static_cast<std::size_t>(rank)] != net.rank()) ++rank;
  for (int& member : ranks) member = parent.state().world_rank(member);
  const int size = static_cast<int>(ranks.size());
  auto made = std::make_unique<core<Transport>>(
      parent.shared_net(), id, rank, size,
      std::make_shared<const std::vector<int>>(std::move(ranks)), false);
  made->state().inactivity = parent.state().inactivity;
  made->set_costs(parent.choices().costs());
  co_return communicator<Transport>(std::move(made));
}

}  // namespace detail

template <transport Transport>
operation<communicator<Transport>> communicator<Transport>::divided(int color, int key,
                                                                    std::uint64_t shape,
                                                                    const options& how) {
  auto* const made = core_->template make<communicator>(collective::split);
  fingerprint print;
  print.what = collective::split;
  print.shape = shape;
  return core_->begin(made, print, how, plan(), 0, [&](channel_type net) {
    return detail::split<Transport>(net, *core_, {color, key, 0});
  });
}

namespace detail {

template <transport Transport, class Executor>
task<communicator<Transport>> dup_on(basic_channel<Transport> net, core<Transport>& parent,
                                     Executor on) {
  using card = typename Transport::card;
  std::vector<card> cards(static_cast<std::size_t>(net.size()));
  auto who = parent.net().prepare_world(net.rank(), net.size(),
                                        cards[static_cast<std::size_t>(net.rank())]);
  const any_buffer all(cards.data(), cards.size(), sizeof(card));
  co_await recursive_doubling::all_gather(net, all, partition::blocks(1, net.size()));
  auto made = std::make_unique<core<Transport>>(Transport::open_world(on, std::move(who), cards), 0,
                                                net.rank(), net.size(), nullptr, true);
  made->state().inactivity = parent.state().inactivity;
  made->set_costs(parent.choices().costs());
  co_return communicator<Transport>(std::move(made));
}

}  // namespace detail

template <transport Transport>
template <class Executor>
requires(!detail::is_options<Executor> &&
         requires {
           typename Transport::card;
         }) operation<communicator<Transport>> communicator<Transport>::dup(const Executor& on,
                                                                            options how) {
  auto* const made = core_->template make<communicator>(collective::split);
  fingerprint print;
  print.what = collective::split;
  print.shape = 2;  // neither a split nor a group
  return core_->begin(made, print, how, plan(), 0, [&](channel_type net) {
    return detail::dup_on<Transport, Executor>(net, *core_, on);
  });
}

template <transport Transport>
template <readable_range Ranks>
operation<communicator<Transport>> communicator<Transport>::group(const Ranks& ranks, options how) {
  int position = 0;
  int mine = -1;
  std::uint64_t list = 1;  // a split has 0
  detail::checks check(collective::split);
  std::vector<bool> seen(static_cast<std::size_t>(size()));
  for (const auto listed : ranks) {
    const bool known = listed >= 0 && listed < static_cast<decltype(listed)>(size());
    check.require(known, "rank %lld is not in 0..%d", static_cast<long long>(listed), size() - 1);
    if (!known) break;
    const auto member = static_cast<std::size_t>(listed);
    check.require(!seen[member], "rank %zu is listed twice", member);
    seen[member] = true;
    list = mix(list, member);
    if (static_cast<int>(member) == rank()) mine = position;
    ++position;
  }
  if (check.failed()) {
    return core_->refuse(core_->template make<communicator>(collective::split), check.why());
  }
  return divided(mine < 0 ? -1 : 0, mine, list, how);
}

namespace detail {

/// A close under way: it belongs to no communicator, and keeps its transport.
template <class Transport>
class close_call final : public call<void>, call_owner {
 public:
  explicit close_call(std::shared_ptr<Transport> net)
      : call<void>(static_cast<call_owner*>(this), nullptr, net->queue()), net_(std::move(net)) {}

 private:
  void ended(call_base&) noexcept override {}
  void progress() override {
    net_->poll();
    net_->queue().run();
  }
  void kick() override { net_->kick(); }

  std::shared_ptr<Transport> net_;
};

inline task<> nothing_to_close() { co_return; }

}  // namespace detail

template <transport Transport>
operation<> communicator<Transport>::close(time_span deadline) {
  if (core_ == nullptr) {
    static run_queue unused;
    auto* const nothing = new detail::call<void>(nullptr, nullptr, unused);
    nothing->refuse(failure());
    return operation<>(nothing);
  }
  auto* const made = new detail::close_call<Transport>(core_->shared_net());
  const bool whole = core_->is_open() && core_->whole_world();
  core_->leave();
  if (whole) {
    // After an error the last words have a second; peers that hang are not waited for.
    const time_point patience = core_->state().failed() ? seconds : core_->state().inactivity;
    const time_point limit = deadline ? deadline.count() : patience;
    (void)(made->body = net().close(net().now() + limit));
  } else {
    (void)(made->body = detail::nothing_to_close());
  }
  made->run();
  net().kick();
  return operation<>(made);
}

}  // namespace colls
