// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// communicator: the collectives as users call them.

#include <colls/algorithm/table.hpp>
#include <colls/base/shared_buffer.hpp>
#include <colls/call/communicator_core.hpp>

#include <memory>
#include <tuple>

namespace colls {

/// Many buffers of one element type, reduced by one operation: `all_reduce(group{a, b, c})`.
template <class... Ranges>
struct group {
  static_assert(sizeof...(Ranges) > 0 && (writable_range<Ranges> && ...),
                "colls: a group is of buffers that the operation may write");
  static constexpr bool on_device =
      (std::is_same_v<memory_space_t<std::remove_cvref_t<Ranges>>, device_memory> && ...);
  using memory = std::conditional_t<on_device, device_memory, host_memory>;
  explicit group(Ranges&&... all) : ranges(std::forward<Ranges>(all)...) {
    (detail::check_range<memory, Ranges&&>(), ...);
  }
  using element_type = std::common_type_t<range_element_t<Ranges>...>;
  static_assert((std::is_same_v<element_type, range_element_t<Ranges>> && ...),
                "colls: the buffers of a group have one element type");
  std::tuple<Ranges...> ranges;
};
template <class... Ranges>
group(Ranges&&...) -> group<Ranges...>;

namespace detail {

template <class T>
inline constexpr bool is_options = std::is_same_v<std::remove_cvref_t<T>, options>;

/// One sentence where an operation cannot take the element type.
template <class T, class Op>
constexpr void check_op() {
  static_assert(
      reduction_for<Op, T>,
      "colls: this operation cannot reduce this element type: it needs combine(T, T) -> T "
      "(bitwise operations take integers, minimum and maximum take ordered types, a user's "
      "struct needs an operator or an operation of its own)");
  static_assert(
      sizeof(Op) <= 64 && alignof(Op) <= alignof(std::max_align_t) &&
          std::is_trivially_copyable_v<Op>,
      "colls: an operation is copied into the call: at most 64 bytes, trivially copyable");
}

/// A transport whose library reduces that by itself, where others need a kernel.
template <class Transport, collective What, class T, class Op>
concept library_reduces = requires { requires Transport::template has_reduction<What, T, Op>; };

/// What a communicator stands on. A call on none, or on one that was moved away, throws.
template <class Core>
class core_owner : public std::unique_ptr<Core> {
 public:
  core_owner() = default;
  explicit core_owner(std::unique_ptr<Core> made) : std::unique_ptr<Core>(std::move(made)) {}

  Core* operator->() const {
    if (this->get() == nullptr) {
      throw error(errc::invalid_argument,
                  "this is no communicator: ranks outside of a group or a split get none, and a "
                  "communicator that was moved leaves none (ask `if (comm)`)");
    }
    return this->get();
  }
};

}  // namespace detail

/// An ordered group of ranks that make the same calls in the same order. Every call starts at once
/// and gives an `operation`: await it, or keep it and await it later, in any order. Counts, types,
/// operations, roots and all options but `timeout` must be equal on all ranks, else the call ends
/// with `errc::mismatch` on all of them. Buffers stay alive until the operation has ended. A wrong
/// argument is `errc::invalid_argument` here, before anything is sent, and the communicator stays
/// good. Used from one thread (its executor's): a call of another one is refused while that waits.
template <class Transport>
class communicator {
 public:
  using transport_type = Transport;

  /// No communicator: what ranks outside of a `group` or `split` get. Calls on it throw.
  communicator() = default;
  explicit communicator(std::unique_ptr<detail::core<Transport>> made);
  communicator(communicator&&) noexcept;
  communicator& operator=(communicator&&) noexcept;
  ~communicator();

  explicit operator bool() const { return core_ != nullptr; }

  /// This rank's place among the ranks of the communicator, from 0, and how many they are.
  int rank() const { return core_->state().rank(); }
  int size() const { return core_->state().size(); }
  /// This rank's host among the hosts of the communicator, and its place on it.
  int node() const { return core_->nodes().of(rank()).node; }
  int nodes() const { return core_->nodes().nodes(); }
  int local_rank() const { return core_->local_rank(); }
  int local_size() const { return core_->nodes().ranks_of(node()); }
  /// Rank in the world of one of our ranks.
  int world_rank(int rank) const { return core_->state().world_rank(rank); }
  /// What moves the messages.
  Transport& net() const { return core_->net(); }
  /// What chooses the algorithms, and by which costs.
  const colls::tuning& tuning() const { return core_->choices(); }
  /// Chooses algorithms by these costs from now on. The same on all ranks, between calls.
  void set_costs(const network_cost& net) { core_->set_costs(net); }
  /// Finds out by messages what the network costs, and chooses by that from then on, here and on
  /// communicators that are made of this one. Some milliseconds. Awaited before the next call.
  operation<> measure(const options& how = {}) { return core_->measure(how); }
  /// How a call with `bytes` in the whole vector (all_to_all: in one rank's) would be done, and
  /// what each algorithm that could do it is predicted to take. Reductions: by an operation that
  /// commutes. Local: sends nothing.
  explanation explain(collective what, std::uint64_t bytes, const options& how = {}) const {
    return core_->explain(what, bytes, how);
  }

  /// `count` elements, all zero bytes, which the other ranks of this host may read and write while
  /// an operation on them lasts: then a large buffer is read once and written once, and nothing is
  /// copied between. This rank's alone, of any length. On a communicator for a device it is that
  /// device's memory. Throws `not_enough_memory`.
  template <supported_type T>
  shared_buffer<T, transport_memory_t<Transport>> allocate(std::size_t count) {
    std::shared_ptr<std::byte> memory;
    if (count <= PTRDIFF_MAX / sizeof(T)) memory = core_->allocate(count * sizeof(T));
    if (memory == nullptr) {
      failure why(errc::not_enough_memory);
      why.observer = core_->matching().rank();
      throw error(why.say("allocate: %zu elements of %zu bytes", count, sizeof(T)));
    }
    return {std::move(memory), count};
  }

  /// `count` elements of that memory, from `first` on (without both: all of it), for calls on this
  /// communicator alone. Throws `invalid_argument` if there are fewer.
  template <supported_type T>
  registered_buffer<T, transport_memory_t<Transport>> register_buffer(
      shared_buffer<T, transport_memory_t<Transport>>& memory, std::size_t first,
      std::size_t count) {
    if (first > memory.size() || count > memory.size() - first) {
      failure wrong(errc::invalid_argument);
      wrong.observer = core_->matching().rank();
      throw error(wrong.say("register_buffer: %zu elements from %zu on, of a buffer that has %zu",
                            count, first, memory.size()));
    }
    return {memory, first, count, core_.operator->()};
  }
  template <supported_type T>
  registered_buffer<T, transport_memory_t<Transport>> register_buffer(
      shared_buffer<T, transport_memory_t<Transport>>& memory) {
    return register_buffer(memory, 0, memory.size());
  }

  // ---- reductions

  /// Every rank holds the reduction of all ranks' data, in place.
  template <algorithm Pinned = algorithm::automatic, readable_range Data, class Op = plus>
    requires(!detail::is_options<Op> && !detail::is_buffer_as_value<Op>)
  operation<> all_reduce(Data&& data, Op op = {}, const options& how = {}) {
    const any_buffer whole = output(std::forward<Data>(data), how);
    return everywhere<collective::all_reduce, Pinned, range_element_t<Data>>(whole, whole, op, how);
  }
  template <algorithm Pinned = algorithm::automatic, readable_range Data>
  operation<> all_reduce(Data&& data, const options& how) {
    return all_reduce<Pinned>(std::forward<Data>(data), plus{}, how);
  }
  /// The same from `in` to `out`, of equal length.
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out,
            class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> all_reduce(In&& in, Out&& out, Op op = {}, const options& how = {}) {
    same_element<In, Out>();
    return everywhere<collective::all_reduce, Pinned, range_element_t<Out>>(
        erased(std::forward<In>(in), how), output(std::forward<Out>(out), how), op, how);
  }
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out>
  operation<> all_reduce(In&& in, Out&& out, const options& how) {
    return all_reduce<Pinned>(std::forward<In>(in), std::forward<Out>(out), plus{}, how);
  }
  /// Every buffer of the group is reduced over all ranks, in place, as one operation.
  template <algorithm Pinned = algorithm::automatic, class... Ranges, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> all_reduce(const colls::group<Ranges...>& buffers, Op op = {},
                         const options& how = {}) {
    using element = detail::combined_as<typename colls::group<Ranges...>::element_type, Op>;
    static_assert(std::is_same_v<typename colls::group<Ranges...>::memory, space>,
                  "colls: the group is in host memory and the communicator moves device memory, or "
                  "the other way round");
    const reduction& by = reducing<collective::all_reduce, element>(op, how);
    return core_->grouped(
        by,
        std::apply([&](auto&... each) { return std::vector{this->erased(each, how)...}; },
                   buffers.ranges),
        pinned<collective::all_reduce, Pinned, commutative_for<Op, element>>(how));
  }
  template <algorithm Pinned = algorithm::automatic, class... Ranges>
  operation<> all_reduce(const colls::group<Ranges...>& buffers, const options& how) {
    return all_reduce<Pinned>(buffers, plus{}, how);
  }

  /// The root holds the reduction in place; elsewhere `data` is as before.
  template <algorithm Pinned = algorithm::automatic, readable_range Data, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> reduce(Data&& data, int root, Op op = {}, const options& how = {}) {
    const any_buffer whole = output(std::forward<Data>(data), how);
    return at_root<Pinned, range_element_t<Data>>(whole, whole, root, op, how);
  }
  template <algorithm Pinned = algorithm::automatic, readable_range Data>
  operation<> reduce(Data&& data, int root, const options& how) {
    return reduce<Pinned>(std::forward<Data>(data), root, plus{}, how);
  }
  /// The same from `in` to the root's `out`, which may be `none` elsewhere.
  template <algorithm Pinned = algorithm::automatic, readable_range In, class Out, class Op = plus>
    requires((readable_range<Out> || detail::is_none<Out>) && !detail::is_options<Op>)
  operation<> reduce(In&& in, Out&& out, int root, Op op = {}, const options& how = {}) {
    same_element<In, Out>();
    return at_root<Pinned, range_element_t<In>>(erased(std::forward<In>(in), how),
                                                output(std::forward<Out>(out), how), root, op, how);
  }
  template <algorithm Pinned = algorithm::automatic, readable_range In, class Out>
    requires(readable_range<Out> || detail::is_none<Out>)
  operation<> reduce(In&& in, Out&& out, int root, const options& how) {
    return reduce<Pinned>(std::forward<In>(in), std::forward<Out>(out), root, plus{}, how);
  }

  /// `in` is size() blocks of out.size(); rank r holds the reduction of all ranks' block r.
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out,
            class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> reduce_scatter(In&& in, Out&& out, Op op = {}, const options& how = {}) {
    same_element<In, Out>();
    return in_parts<Pinned, range_element_t<In>>(erased(std::forward<In>(in), how),
                                                 output(std::forward<Out>(out), how), {}, op, how);
  }
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out>
  operation<> reduce_scatter(In&& in, Out&& out, const options& how) {
    return reduce_scatter<Pinned>(std::forward<In>(in), std::forward<Out>(out), plus{}, how);
  }
  /// The same with counts[r] elements for rank r; the counts are equal on all ranks.
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out,
            readable_range Counts, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> reduce_scatter_v(In&& in, Out&& out, const Counts& counts, Op op = {},
                               const options& how = {}) {
    same_element<In, Out>();
    return in_parts<Pinned, range_element_t<In>>(erased(std::forward<In>(in), how),
                                                 output(std::forward<Out>(out), how),
                                                 detail::count_list(counts), op, how);
  }
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out,
            readable_range Counts>
  operation<> reduce_scatter_v(In&& in, Out&& out, const Counts& counts, const options& how) {
    return reduce_scatter_v<Pinned>(std::forward<In>(in), std::forward<Out>(out), counts, plus{},
                                    how);
  }

  /// Rank r holds the reduction of the data of ranks 0 to r, in place.
  template <algorithm Pinned = algorithm::automatic, readable_range Data, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> scan(Data&& data, Op op = {}, const options& how = {}) {
    const any_buffer whole = output(std::forward<Data>(data), how);
    return everywhere<collective::scan, Pinned, range_element_t<Data>>(whole, whole, op, how);
  }
  template <algorithm Pinned = algorithm::automatic, readable_range Data>
  operation<> scan(Data&& data, const options& how) {
    return scan<Pinned>(std::forward<Data>(data), plus{}, how);
  }
  /// Rank r holds the reduction of the data of ranks 0 to r-1, in place; rank 0's stays as it was.
  template <algorithm Pinned = algorithm::automatic, readable_range Data, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> exscan(Data&& data, Op op = {}, const options& how = {}) {
    const any_buffer whole = output(std::forward<Data>(data), how);
    return everywhere<collective::exscan, Pinned, range_element_t<Data>>(whole, whole, op, how);
  }
  template <algorithm Pinned = algorithm::automatic, readable_range Data>
  operation<> exscan(Data&& data, const options& how) {
    return exscan<Pinned>(std::forward<Data>(data), plus{}, how);
  }

  // ---- moving data

  /// Every rank holds the root's data.
  template <algorithm Pinned = algorithm::automatic, readable_range Data>
  operation<> broadcast(Data&& data, int root, const options& how = {}) {
    return core_->broadcast(type_of<Data>(), output(std::forward<Data>(data), how), root,
                            pinned<collective::broadcast, Pinned>(how));
  }
  /// Ends when every rank has called it.
  template <algorithm Pinned = algorithm::automatic>
  operation<> barrier(const options& how = {}) {
    return core_->barrier(pinned<collective::barrier, Pinned>(how));
  }

  /// `out` is size() blocks of in.size(); every rank holds all ranks' `in`, in rank order. `in` may
  /// be this rank's block of `out`.
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out>
  operation<> all_gather(In&& in, Out&& out, const options& how = {}) {
    same_element<In, Out>();
    return core_->all_gather(type_of<In>(), erased(std::forward<In>(in), how),
                             output(std::forward<Out>(out), how), {},
                             pinned<collective::all_gather, Pinned>(how));
  }
  /// The same with counts[r] elements of rank r; the counts are equal on all ranks.
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out,
            readable_range Counts>
  operation<> all_gather_v(In&& in, Out&& out, const Counts& counts, const options& how = {}) {
    same_element<In, Out>();
    return core_->all_gather(type_of<In>(), erased(std::forward<In>(in), how),
                             output(std::forward<Out>(out), how), detail::count_list(counts),
                             pinned<collective::all_gather, Pinned>(how));
  }

  /// The root's `out` holds all ranks' `in`, in rank order; `out` may be `none` elsewhere.
  template <algorithm Pinned = algorithm::automatic, readable_range In, class Out>
    requires(readable_range<Out> || detail::is_none<Out>)
  operation<> gather(In&& in, Out&& out, int root, const options& how = {}) {
    same_element<In, Out>();
    return core_->template rooted<collective::gather>(
        type_of<In>(), erased(std::forward<In>(in), how), output(std::forward<Out>(out), how), {},
        root, pinned<collective::gather, Pinned>(how));
  }
  /// The same with counts[r] elements of rank r; the counts are equal on all ranks.
  template <algorithm Pinned = algorithm::automatic, readable_range In, class Out,
            readable_range Counts>
    requires(readable_range<Out> || detail::is_none<Out>)
  operation<> gather_v(In&& in, Out&& out, const Counts& counts, int root,
                       const options& how = {}) {
    same_element<In, Out>();
    return core_->template rooted<collective::gather>(
        type_of<In>(), erased(std::forward<In>(in), how), output(std::forward<Out>(out), how),
        detail::count_list(counts), root, pinned<collective::gather, Pinned>(how));
  }
  /// Rank r holds block r of the root's `in`, which may be `none` elsewhere.
  template <algorithm Pinned = algorithm::automatic, class In, readable_range Out>
    requires(readable_range<In> || detail::is_none<In>)
  operation<> scatter(In&& in, Out&& out, int root, const options& how = {}) {
    same_element<Out, In>();
    return core_->template rooted<collective::scatter>(
        type_of<Out>(), output(std::forward<Out>(out), how), erased(std::forward<In>(in), how), {},
        root, pinned<collective::scatter, Pinned>(how));
  }
  /// The same with counts[r] elements for rank r; the counts are equal on all ranks.
  template <algorithm Pinned = algorithm::automatic, class In, readable_range Counts,
            readable_range Out>
    requires(readable_range<In> || detail::is_none<In>)
  operation<> scatter_v(In&& in, const Counts& counts, Out&& out, int root,
                        const options& how = {}) {
    same_element<Out, In>();
    return core_->template rooted<collective::scatter>(
        type_of<Out>(), output(std::forward<Out>(out), how), erased(std::forward<In>(in), how),
        detail::count_list(counts), root, pinned<collective::scatter, Pinned>(how));
  }

  /// Block j of rank i's `in` becomes block i of rank j's `out`.
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range Out>
  operation<> all_to_all(In&& in, Out&& out, const options& how = {}) {
    same_element<In, Out>();
    return core_->all_to_all(type_of<In>(), erased(std::forward<In>(in), how),
                             output(std::forward<Out>(out), how), {}, {},
                             pinned<collective::all_to_all, Pinned>(how));
  }
  /// The same with send_counts[j] elements to rank j and recv_counts[i] from rank i: send_counts[j]
  /// on i equals recv_counts[i] on j.
  template <algorithm Pinned = algorithm::automatic, readable_range In, readable_range SendCounts,
            readable_range Out, readable_range RecvCounts>
  operation<> all_to_all_v(In&& in, const SendCounts& send_counts, Out&& out,
                           const RecvCounts& recv_counts, const options& how = {}) {
    same_element<In, Out>();
    return core_->all_to_all(type_of<In>(), erased(std::forward<In>(in), how),
                             output(std::forward<Out>(out), how), detail::count_list(send_counts),
                             detail::count_list(recv_counts),
                             pinned<collective::all_to_all, Pinned>(how));
  }

  // ---- point to point

  /// Ends when `data` may be used again. Messages between two ranks with one tag (0 or more) arrive
  /// in order.
  template <readable_range Data>
  operation<> send(Data&& data, int to, int tag = 0, const options& how = {}) {
    return core_->send(erased(std::forward<Data>(data), how), to, tag, how);
  }
  /// Takes the next message of that source and tag; it may be shorter than `data`, and says so.
  template <readable_range Data>
  operation<received> recv(Data&& data, peer from, int tag = 0, const options& how = {}) {
    return core_->recv(output(std::forward<Data>(data), how), from, tag, how);
  }
  /// Both at once; neither waits for the other.
  template <readable_range Out, readable_range In>
  operation<received> send_recv(Out&& out, int to, In&& in, peer from, int tag = 0,
                                const options& how = {}) {
    return core_->send_recv(erased(std::forward<Out>(out), how), to,
                            output(std::forward<In>(in), how), from, tag, how);
  }

  // ---- communicators

  /// Ranks of one color form a communicator, ordered by (key, rank here); a negative color: none.
  operation<communicator> split(int color, int key = 0, const options& how = {}) {
    return core_->split(collective::split, color, key, 0, how);
  }
  /// The listed ranks, in that order, form one; the others get none. Every rank calls it.
  template <readable_range Ranks>
  operation<communicator> group(const Ranks& ranks, const options& how = {}) {
    int position = 0;
    int mine = -1;
    std::uint64_t list = 0;
    detail::checks check(collective::group);
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
      using call = detail::call<communicator>;
      return core_->refuse(core_->template make<call>(collective::group), check.why());
    }
    return core_->split(collective::group, mine < 0 ? -1 : 0, mine, list, how);
  }
  /// The same ranks again: calls on it do not meet calls on this one.
  operation<communicator> dup(const options& how = {}) {
    return core_->split(collective::dup, 0, rank(), 0, how);
  }
  /// The same ranks on another executor, as a world with links of its own: the way to use a second
  /// thread. Nobody turns that executor before this has ended; afterwards one thread does, and
  /// closes it there.
  template <class Executor>
    requires(!detail::is_options<Executor>)
  operation<communicator> dup(const Executor& on, const options& how = {}) {
    return core_->dup(on, how);
  }

  /// The same ranks again, on a transport that `make` makes of this one's, for memory of another
  /// kind: calls on it do not meet calls on this one. `shape` is equal on all ranks.
  template <class Make>
  auto over(std::uint64_t shape, const Make& make, const options& how = {}) {
    return core_->over(make(core_->shared_net()), shape, how);
  }

  /// Gives the communicator up on all ranks, for a reason that all of them will see.
  void revoke(const char* reason) {
    if (!core_->is_open()) return;
    failure why(errc::revoked, reason);
    why.culprit = core_->matching().rank();
    core_->give_up(why);
  }
  /// Why it was revoked, or null while it is good.
  const failure* failed() const {
    return core_->state().failed() ? &core_->state().why() : nullptr;
  }
  /// No more calls here; ends no peer's operation. The world's also closes the links, once all is
  /// written; the wait for the peers ends at the deadline.
  operation<> close(time_span deadline = {});

  // ---- `sync_wait(comm, task)`

  run_queue& queue() { return core_->queue(); }
  bool poll();
  void idle(unsigned polls);
  void enter();
  void leave();

 private:
  template <class One, class Other>
  static constexpr void same_element() {
    if constexpr (!detail::is_none<One> && !detail::is_none<Other>) {
      static_assert(std::is_same_v<range_element_t<One>, range_element_t<Other>>,
                    "colls: both buffers have one element type");
    }
  }

  using space = transport_memory_t<Transport>;

  /// The range as algorithms know it; one that may not be used here, or after that stream, as what
  /// says so.
  template <class Range>
  any_buffer erased(Range&& data, const options& how) const {
    if constexpr (detail::is_registered<std::remove_cvref_t<Range>>) {
      if (const char* const wrong = data.wrong_with(core_.get())) return detail::unusable(wrong);
    }
    const any_buffer found = detail::erased<space>(std::forward<Range>(data));
    if constexpr (std::is_same_v<space, device_memory>) {
      if constexpr (!detail::is_none<Range>) {
        constexpr std::size_t alignment = alignof(range_element_t<Range>);
        if (reinterpret_cast<std::uintptr_t>(found.data()) % alignment != 0) {
          return detail::unusable(detail::unaligned_memory);
        }
      }
      if (const char* const wrong = core_->net().wrong_with(found)) return detail::unusable(wrong);
      const char* const wrong = core_->net().wrong_with(how.stream);
      if (wrong != nullptr) return detail::unusable(wrong);
    }
    return found;
  }
  template <class Range>
  any_buffer output(Range&& data, const options& how) const {
    static_assert(detail::is_none<Range> || writable_range<Range>,
                  "colls: this buffer is const, and the call writes it");
    return erased(std::forward<Range>(data), how);
  }

  /// Where it is not supported, the check of the data says so, in one sentence.
  template <class T>
  static constexpr std::uint32_t element_id() {
    if constexpr (supported_type<T>) {
      return type_id<T>();
    } else {
      return 0;
    }
  }
  template <class Range>
  static constexpr std::uint32_t type_of() {
    return element_id<range_element_t<Range>>();
  }

  /// The options with the algorithm that is a template's argument; without one, they themselves.
  template <collective What, algorithm Pinned, bool Commutes = true>
  static decltype(auto) pinned(const options& how) {
    if constexpr (Pinned == algorithm::automatic) {
      return how;
    } else {
      constexpr bool is_own = Pinned == algorithm::native;  // of a transport, which says so
      constexpr bool done = is_own || detail::offers(What, Pinned, true);
      static_assert(done, "colls: this collective has no such algorithm");
      static_assert(!done || is_own || detail::offers(What, Pinned, Commutes),
                    "colls: this algorithm sums each chunk beginning at another rank, so the "
                    "operation has to commute: wrap it in colls::commutative, or pin another");
      options made = how;
      made.algorithm = Pinned;
      return made;
    }
  }

  // Erases the user's operation, which lives until the call has copied it.
  template <class T, class Op>
  static decltype(auto) host_reduction(const Op& op, const options& how) {
    if constexpr (std::is_empty_v<Op>) {
      return detail::erased_once<T>(op, how.wire);
    } else {
      return erase<T>(op, how.wire);
    }
  }
  template <collective What, class T, class Op>
  static decltype(auto) reducing(const Op& op, const options& how) {
    detail::check_op<T, Op>();
    if constexpr (requires { requires Transport::reduces_on_device; }) {
      return reducing_on_device<What, T>(op, how);
    } else {
      return host_reduction<T>(op, how);
    }
  }
  template <collective What, class T, class Op>
  static reduction reducing_on_device(const Op& op, const options& how) {
    reduction by = host_reduction<T>(op, how);
    if constexpr (!detail::library_reduces<Transport, What, T, Op>) {
      constexpr bool has_kernel = requires { sizeof(detail::device_kernel<T, Op>); };
      static_assert(has_kernel,
                    "colls: this communicator reduces on the device: a reduction of device memory "
                    "needs <colls/cuda/reduce.cuh> and nvcc");
      if constexpr (has_kernel) by.on_device = &detail::device_kernel<T, Op>::launch;
      if constexpr (What == collective::all_reduce && has_kernel &&
                    requires { requires Transport::shoots_on_device; }) {
        by.shot_on_device = &detail::device_shots<T, Op>::launch;
      }
      if constexpr (requires { requires Transport::folds_in_order; }) {
        by.op.commutative = by.op.associative = false;
      }
    }
    return by;
  }

  template <collective What, algorithm Pinned, class T, class Op>
  operation<> everywhere(const any_buffer& in, const any_buffer& out, const Op& op,
                         const options& how) {
    using element = detail::combined_as<T, Op>;
    const reduction& by = reducing<What, element>(op, how);
    return core_->template everywhere<What>(
        by, in, out, pinned<What, Pinned, commutative_for<Op, element>>(how));
  }
  template <algorithm Pinned, class T, class Op>
  operation<> at_root(const any_buffer& in, const any_buffer& out, int root, const Op& op,
                      const options& how) {
    constexpr collective what = collective::reduce;
    using element = detail::combined_as<T, Op>;
    const reduction& by = reducing<what, element>(op, how);
    return core_->at_root(by, in, out, root,
                          pinned<what, Pinned, commutative_for<Op, element>>(how));
  }
  template <algorithm Pinned, class T, class Op>
  operation<> in_parts(const any_buffer& in, const any_buffer& out,
                       std::vector<std::size_t> offsets, const Op& op, const options& how) {
    constexpr collective what = collective::reduce_scatter;
    using element = detail::combined_as<T, Op>;
    const reduction& by = reducing<what, element>(op, how);
    return core_->in_parts(by, in, out, std::move(offsets),
                           pinned<what, Pinned, commutative_for<Op, element>>(how));
  }

  detail::core_owner<detail::core<Transport>> core_;
};

}  // namespace colls

#include <colls/call/split.hpp>

// COLLS_COMMUNICATOR(extern, T) says that what communicators over T do is compiled elsewhere;
// COLLS_COMMUNICATOR(, T) compiles it.
#define COLLS_COMMUNICATOR(where, transport)           \
  where template class colls::communicator<transport>; \
  where template class colls::detail::core<transport>; \
  COLLS_EVERYWHERE(where, transport, all_reduce)       \
  COLLS_EVERYWHERE(where, transport, scan)             \
  COLLS_EVERYWHERE(where, transport, exscan)           \
  COLLS_ROOTED(where, transport, gather)               \
  COLLS_ROOTED(where, transport, scatter)
#define COLLS_EVERYWHERE(where, transport, what)                                   \
  where template colls::operation<>                                                \
  colls::detail::core<transport>::everywhere<colls::collective::what>(             \
      const colls::reduction&, const colls::any_buffer&, const colls::any_buffer&, \
      const colls::options&);
#define COLLS_ROOTED(where, transport, what)                                              \
  where template colls::operation<>                                                       \
  colls::detail::core<transport>::rooted<colls::collective::what>(                        \
      std::uint32_t, colls::any_buffer, colls::any_buffer, std::vector<std::size_t>, int, \
      const colls::options&);
