// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// communicator: the collectives and point-to-point calls of the public API.

#include <colls/algorithm/table.hpp>
#include <colls/base/shared_buffer.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/call/make_reduction.hpp>
#include <colls/call/pin_algorithm.hpp>
#include <colls/call/prepared_calls.hpp>
#include <colls/call/probed_message.hpp>
#include <colls/call/start_typed_call.hpp>
#include <colls/call/transfer.hpp>
#include <colls/call/view_calls.hpp>

#include <memory>
#include <tuple>

namespace colls {

namespace detail {

template <class T>
inline constexpr bool is_options = std::is_same_v<std::remove_cvref_t<T>, options>;

/// Satisfied if the transport uses a library, such as NCCL, that implements this reduction. In this
/// case colls needs no kernel of its own for the reduction.
template <class Transport, collective Coll, class T, class Op>
concept native_reduction = requires { requires Transport::template has_reduction<Coll, T, Op>; };

/// A pointer that owns the core of a communicator. The pointer is null in a default-constructed or
/// moved-from communicator. `operator->` throws if the pointer is null.
template <class Core>
class core_owner : public std::unique_ptr<Core> {
 public:
  core_owner() = default;
  explicit core_owner(std::unique_ptr<Core> owned) : std::unique_ptr<Core>(std::move(owned)) {}

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

/// An ordered group of ranks, and the calls on this group.
///
/// All ranks must make the same collective calls in the same order. Element counts and types,
/// reduction operations, roots, and all options except `timeout` and `stream` must be equal on all
/// ranks. Otherwise the call fails with `errc::mismatch` on all ranks.
///
/// Every call returns an `operation` and does not wait until the operation has ended. Await the
/// operation at once, or keep it and await it later. Operations can be awaited in any order.
/// Buffers must stay alive until their operation has ended. Awaiting an operation that has failed
/// throws `colls::error`. If a rank passes an invalid argument, the operation fails with
/// `errc::invalid_argument` on that rank and sends nothing. The rank can still use the
/// communicator.
///
/// Every call takes `options` as its last argument. A template argument pins an algorithm at
/// compile time: `all_reduce<algorithm::ring>(data)`. The argument may also be an algorithm of the
/// user's own (see docs/adding_an_algorithm.md).
///
/// Only the thread that runs the executor of a communicator may use the communicator. If another
/// thread makes a call while this thread is in a blocking wait, the operation of that call fails
/// with `errc::invalid_argument`. With COLLS_CHECK_THREADS=1 in the environment, a call of another
/// thread throws `errc::invalid_argument` at any time. The communicator then belongs to the thread
/// that makes the first call or is the first in a blocking wait.
///
/// The collectives, `send` and `recv` also take strided views and tensors (see `strided_view`).
template <class Transport>
class communicator : public view_calls<communicator<Transport>, transport_memory_t<Transport>>,
                     public prepared_calls<communicator<Transport>> {
  using views = view_calls<communicator, transport_memory_t<Transport>>;

 public:
  using transport_type = Transport;

  using views::all_gather;
  using views::all_gather_v;
  using views::all_reduce;
  using views::all_to_all;
  using views::all_to_all_v;
  using views::broadcast;
  using views::exscan;
  using views::gather;
  using views::gather_v;
  using views::recv;
  using views::reduce;
  using views::reduce_scatter;
  using views::reduce_scatter_v;
  using views::scan;
  using views::scatter;
  using views::scatter_v;
  using views::send;
  using views::send_recv;

  /// Makes an empty communicator. Every call on an empty communicator throws, except `close`.
  /// `group` and `split` return an empty communicator to the ranks that they leave out.
  communicator() = default;
  explicit communicator(std::unique_ptr<detail::core<Transport>> impl);
  communicator(communicator&&) noexcept;
  communicator& operator=(communicator&&) noexcept;
  ~communicator();

  /// Returns false if the communicator is empty, and true otherwise.
  explicit operator bool() const { return core_ != nullptr; }

  /// Returns this rank's number in the communicator, counted from 0.
  int rank() const { return core_->state().rank(); }
  /// Returns the number of ranks in the communicator.
  int size() const { return core_->state().size(); }
  /// Returns the index of this rank's host among the hosts on which the communicator has
  /// ranks. Indices begin with 0.
  int node() const { return core_->nodes().position_of(rank()).node; }
  /// Returns the number of hosts on which the communicator has ranks.
  int nodes() const { return core_->nodes().nodes(); }
  /// Returns this rank's index among the communicator's ranks on the same host. Indices begin
  /// with 0.
  int local_rank() const { return core_->local_rank(); }
  /// Returns the number of the communicator's ranks on this rank's host.
  int local_size() const { return core_->nodes().node_size(node()); }
  /// Returns the number that rank `rank` of this communicator has in the world communicator.
  int world_rank(int rank) const { return core_->state().world_rank(rank); }
  /// Returns the transport that moves the messages.
  Transport& net() const { return core_->net(); }
  /// Returns the object that contains the network costs and selects algorithms based on them.
  const colls::tuning& tuning() const { return core_->tuning(); }
  /// Sets the network costs. From these costs, the communicator predicts how long each algorithm
  /// takes, and chooses the fastest algorithm. All ranks must pass equal costs. Must not be called
  /// while an operation is in flight.
  void set_costs(const network_cost& net) {
    core_->check_thread();
    core_->set_costs(net);
  }
  /// Measures the network costs by sending messages between the ranks, which takes a few
  /// milliseconds. When the operation has ended, this communicator chooses algorithms based on the
  /// measured costs. Communicators that are made from this one later inherit the costs. `measure`
  /// is a collective call. Await it before making another call on this communicator.
  operation<> measure(const options& opts = {}) { return core_->measure(opts); }
  /// Returns the algorithm that a call of the collective `coll` would use, and the predicted time
  /// of each algorithm that can do the call. For all_to_all, `bytes` is the size of one rank's
  /// data. For other collectives, it is the size of the whole vector. The function assumes that the
  /// operation of a reduction is commutative. It sends no messages, so any rank can call it alone.
  explanation explain(collective coll, std::uint64_t bytes, const options& opts = {}) const {
    return core_->explain(coll, bytes, opts, nullptr);
  }
  /// Returns the predicted time of the algorithm `Custom`, which is one of the user's own.
  template <auto Custom>
  explanation explain(std::uint64_t bytes, const options& opts = {}) const {
    static_assert(detail::is_custom<Custom>,
                  "colls: of an algorithm of colls, pass its name in the options: explain("
                  "collective, bytes, {.algorithm = ...})");
    if constexpr (detail::is_custom<Custom>) {
      constexpr collective coll = Custom.operation;
      return core_->explain(coll, bytes, opts, detail::custom_algorithm<Transport, coll, Custom>());
    }
  }

  /// Allocates a buffer of `count` elements and sets all its bytes to zero. If the transport
  /// supports shared memory, the other ranks on this host can read and write the buffer during
  /// an operation on it. Operations on large buffers then need no intermediate copy. The ranks need
  /// not all call this function, and may allocate different lengths. A communicator for device
  /// memory allocates the buffer on its device. Throws `errc::not_enough_memory` if there is not
  /// enough memory.
  template <supported_type T>
  shared_buffer<T, transport_memory_t<Transport>> allocate(std::size_t count) {
    std::shared_ptr<std::byte> memory;
    if (count <= PTRDIFF_MAX / sizeof(T)) memory = core_->allocate(count * sizeof(T));
    if (memory == nullptr) {
      failure reason(errc::not_enough_memory);
      reason.observer = core_->matching().rank();
      throw error(reason.set_detail("allocate: %zu elements of %zu bytes", count, sizeof(T)));
    }
    return {std::move(memory), count};
  }

  /// Returns a view of `count` elements of `memory`, beginning with element `first`. Only calls on
  /// this communicator accept the view. The overload without `first` and `count` returns a view of
  /// all elements. Throws `errc::invalid_argument` if `memory` has too few elements.
  template <supported_type T>
  registered_buffer<T, transport_memory_t<Transport>> register_buffer(
      shared_buffer<T, transport_memory_t<Transport>>& memory, std::size_t first,
      std::size_t count) {
    if (first > memory.size() || count > memory.size() - first) {
      failure reason(errc::invalid_argument);
      reason.observer = core_->matching().rank();
      throw error(
          reason.set_detail("register_buffer: %zu elements from %zu on, of a buffer that has %zu",
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

  /// Reduces the `data` of all ranks elementwise and stores the result in `data` on every rank. The
  /// results of all ranks are bitwise equal.
  template <auto Pinned = algorithm::automatic, readable_range Data, class Op = plus>
    requires(!detail::is_options<Op> && !detail::is_buffer_as_value<Op> &&
             !detail::reducible_list<Data> && !detail::view_list<Data>)
  operation<> all_reduce(Data&& data, Op op = {}, const options& opts = {}) {
    const any_buffer buffer = output(std::forward<Data>(data), opts);
    return start_reduce_to_all<collective::all_reduce, Pinned, range_element_t<Data>>(
        buffer, buffer, op, opts);
  }
  template <auto Pinned = algorithm::automatic, readable_range Data>
    requires(!detail::reducible_list<Data> && !detail::view_list<Data>)
  operation<> all_reduce(Data&& data, const options& opts) {
    return all_reduce<Pinned>(std::forward<Data>(data), plus{}, opts);
  }
  /// Reduces the `in` of all ranks elementwise and stores the result in `out` on every rank. `in`
  /// and `out` must have equal length. They may be the same buffer, but must not overlap partially.
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out,
            class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> all_reduce(In&& in, Out&& out, Op op = {}, const options& opts = {}) {
    check_same_element<In, Out>();
    return start_reduce_to_all<collective::all_reduce, Pinned, range_element_t<Out>>(
        input(std::forward<In>(in), opts), output(std::forward<Out>(out), opts), op, opts);
  }
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out>
  operation<> all_reduce(In&& in, Out&& out, const options& opts) {
    return all_reduce<Pinned>(std::forward<In>(in), std::forward<Out>(out), plus{}, opts);
  }
  /// Does an in-place all_reduce of each buffer of the group. One operation reduces all buffers.
  /// The groups of all ranks must have the same number of buffers, with the same lengths.
  template <auto Pinned = algorithm::automatic, class... Ranges, class Op = plus>
    requires(!detail::is_options<Op> && !colls::group<Ranges...>::has_views)
  operation<> all_reduce(const colls::group<Ranges...>& buffers, Op op = {},
                         const options& opts = {}) {
    using element = detail::combined_as<typename colls::group<Ranges...>::element_type, Op>;
    static_assert(std::is_same_v<typename colls::group<Ranges...>::memory, memory_space>,
                  "colls: the group is in host memory and the communicator moves device memory, or "
                  "the other way round");
    const reduction& erased_op = make_reduction<collective::all_reduce, element>(op, opts);
    return core_->all_reduce_group(
        erased_op,
        std::apply([&](auto&... range) { return std::vector{this->input(range, opts)...}; },
                   buffers.ranges),
        pin_algorithm<collective::all_reduce, Pinned, commutative_for<Op, element>>(opts));
  }
  template <auto Pinned = algorithm::automatic, class... Ranges>
    requires(!colls::group<Ranges...>::has_views)
  operation<> all_reduce(const colls::group<Ranges...>& buffers, const options& opts) {
    return all_reduce<Pinned>(buffers, plus{}, opts);
  }

  /// Does the same for a list of buffers whose number is known only at run time, such as a
  /// std::vector of std::spans.
  template <auto Pinned = algorithm::automatic, detail::reducible_list List, class Op = plus>
    requires(!detail::is_options<Op> && !detail::is_buffer_as_value<Op>)
  operation<> all_reduce(List&& buffers, Op op = {}, const options& opts = {}) {
    using element = detail::combined_as<detail::list_element_t<List>, Op>;
    static_assert(writable_range<detail::listed_buffer<List>>,
                  "colls: the call writes the buffers of a list, and they are const");
    const reduction& erased_op = make_reduction<collective::all_reduce, element>(op, opts);
    return core_->all_reduce_group(
        erased_op, inputs(std::forward<List>(buffers), opts),
        pin_algorithm<collective::all_reduce, Pinned, commutative_for<Op, element>>(opts));
  }
  template <auto Pinned = algorithm::automatic, detail::reducible_list List>
  operation<> all_reduce(List&& buffers, const options& opts) {
    return all_reduce<Pinned>(std::forward<List>(buffers), plus{}, opts);
  }

  /// Reduces the `data` of all ranks elementwise and stores the result in the root's `data`. The
  /// `data` of the other ranks does not change.
  template <auto Pinned = algorithm::automatic, readable_range Data, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> reduce(Data&& data, int root, Op op = {}, const options& opts = {}) {
    const any_buffer buffer = output(std::forward<Data>(data), opts);
    return start_reduce<Pinned, range_element_t<Data>>(buffer, buffer, root, op, opts);
  }
  template <auto Pinned = algorithm::automatic, readable_range Data>
  operation<> reduce(Data&& data, int root, const options& opts) {
    return reduce<Pinned>(std::forward<Data>(data), root, plus{}, opts);
  }
  /// Reduces the `in` of all ranks elementwise and stores the result in the root's `out`. On the
  /// root, `in` and `out` must have equal length. The other ranks may pass `none` as `out`.
  template <auto Pinned = algorithm::automatic, readable_range In, class Out, class Op = plus>
    requires((readable_range<Out> || detail::is_none<Out>) && !detail::is_options<Op>)
  operation<> reduce(In&& in, Out&& out, int root, Op op = {}, const options& opts = {}) {
    check_same_element<In, Out>();
    return start_reduce<Pinned, range_element_t<In>>(
        input(std::forward<In>(in), opts), output(std::forward<Out>(out), opts), root, op, opts);
  }
  template <auto Pinned = algorithm::automatic, readable_range In, class Out>
    requires(readable_range<Out> || detail::is_none<Out>)
  operation<> reduce(In&& in, Out&& out, int root, const options& opts) {
    return reduce<Pinned>(std::forward<In>(in), std::forward<Out>(out), root, plus{}, opts);
  }

  /// Reduces the `in` of all ranks elementwise and stores block r of the result in `out` on rank r.
  /// `in` consists of `size()` blocks of `out.size()` elements each.
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out,
            class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> reduce_scatter(In&& in, Out&& out, Op op = {}, const options& opts = {}) {
    check_same_element<In, Out>();
    return start_reduce_scatter<Pinned, range_element_t<In>>(
        input(std::forward<In>(in), opts), output(std::forward<Out>(out), opts), {}, op, opts);
  }
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out>
  operation<> reduce_scatter(In&& in, Out&& out, const options& opts) {
    return reduce_scatter<Pinned>(std::forward<In>(in), std::forward<Out>(out), plus{}, opts);
  }
  /// Does a reduce_scatter with blocks that may differ in length. Block r has `counts[r]` elements.
  /// `counts` must be equal on all ranks.
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out,
            readable_range Counts, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> reduce_scatter_v(In&& in, Out&& out, const Counts& counts, Op op = {},
                               const options& opts = {}) {
    check_same_element<In, Out>();
    return start_reduce_scatter<Pinned, range_element_t<In>>(input(std::forward<In>(in), opts),
                                                             output(std::forward<Out>(out), opts),
                                                             detail::offsets_of(counts), op, opts);
  }
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out,
            readable_range Counts>
  operation<> reduce_scatter_v(In&& in, Out&& out, const Counts& counts, const options& opts) {
    return reduce_scatter_v<Pinned>(std::forward<In>(in), std::forward<Out>(out), counts, plus{},
                                    opts);
  }

  /// For each rank r, reduces the `data` of ranks 0 to r elementwise and stores the result in rank
  /// r's `data`.
  template <auto Pinned = algorithm::automatic, readable_range Data, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> scan(Data&& data, Op op = {}, const options& opts = {}) {
    const any_buffer buffer = output(std::forward<Data>(data), opts);
    return start_reduce_to_all<collective::scan, Pinned, range_element_t<Data>>(buffer, buffer, op,
                                                                                opts);
  }
  template <auto Pinned = algorithm::automatic, readable_range Data>
  operation<> scan(Data&& data, const options& opts) {
    return scan<Pinned>(std::forward<Data>(data), plus{}, opts);
  }
  /// For each rank r > 0, reduces the `data` of ranks 0 to r-1 elementwise and stores the result in
  /// rank r's `data`. The `data` of rank 0 does not change.
  template <auto Pinned = algorithm::automatic, readable_range Data, class Op = plus>
    requires(!detail::is_options<Op>)
  operation<> exscan(Data&& data, Op op = {}, const options& opts = {}) {
    const any_buffer buffer = output(std::forward<Data>(data), opts);
    return start_reduce_to_all<collective::exscan, Pinned, range_element_t<Data>>(buffer, buffer,
                                                                                  op, opts);
  }
  template <auto Pinned = algorithm::automatic, readable_range Data>
  operation<> exscan(Data&& data, const options& opts) {
    return exscan<Pinned>(std::forward<Data>(data), plus{}, opts);
  }

  // ---- moving data

  /// Copies the root's `data` into the `data` of every other rank.
  template <auto Pinned = algorithm::automatic, readable_range Data>
  operation<> broadcast(Data&& data, int root, const options& opts = {}) {
    return core_->broadcast(type_of<Data>(), output(std::forward<Data>(data), opts), root,
                            pin_algorithm<collective::broadcast, Pinned>(opts));
  }
  /// Starts a barrier. The operation completes only after all ranks have called `barrier`.
  template <auto Pinned = algorithm::automatic>
  operation<> barrier(const options& opts = {}) {
    return core_->barrier(pin_algorithm<collective::barrier, Pinned>(opts));
  }

  /// For each rank r, copies rank r's `in` into block r of `out` on every rank. `out` consists of
  /// `size()` blocks of `in.size()` elements each. `in` may be this rank's block of `out`.
  /// Otherwise `in` and `out` must not overlap.
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out>
  operation<> all_gather(In&& in, Out&& out, const options& opts = {}) {
    check_same_element<In, Out>();
    return core_->all_gather(type_of<In>(), input(std::forward<In>(in), opts),
                             output(std::forward<Out>(out), opts), {},
                             pin_algorithm<collective::all_gather, Pinned>(opts));
  }
  /// Does an all_gather with blocks that may differ in length. Rank r's `in` has `counts[r]`
  /// elements. `counts` must be equal on all ranks.
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out,
            readable_range Counts>
  operation<> all_gather_v(In&& in, Out&& out, const Counts& counts, const options& opts = {}) {
    check_same_element<In, Out>();
    return core_->all_gather(type_of<In>(), input(std::forward<In>(in), opts),
                             output(std::forward<Out>(out), opts), detail::offsets_of(counts),
                             pin_algorithm<collective::all_gather, Pinned>(opts));
  }

  /// Gives every rank the `in` of all ranks, in rank order. The lengths may differ, and no rank
  /// needs to know those of the others: the ranks first exchange them, which costs a short
  /// all_gather. In host memory only. `in` may be a strided view, on some ranks or on all.
  template <auto Pinned = algorithm::automatic, detail::block In>
  auto all_gather_v(In&& in, const options& opts = {}) {
    return start_gathering<collective::all_gather, Pinned>(std::forward<In>(in), -1, opts);
  }

  /// For each rank r, copies rank r's `in` into block r of the root's `out`. All blocks have equal
  /// length. Ranks other than the root may pass `none` as `out`.
  template <auto Pinned = algorithm::automatic, readable_range In, class Out>
    requires(readable_range<Out> || detail::is_none<Out>)
  operation<> gather(In&& in, Out&& out, int root, const options& opts = {}) {
    check_same_element<In, Out>();
    return core_->template gather_or_scatter<collective::gather>(
        type_of<In>(), input(std::forward<In>(in), opts), output(std::forward<Out>(out), opts), {},
        root, pin_algorithm<collective::gather, Pinned>(opts));
  }
  /// Does a gather with blocks that may differ in length. Rank r's `in` has `counts[r]` elements.
  /// `counts` must be equal on all ranks.
  template <auto Pinned = algorithm::automatic, readable_range In, class Out, readable_range Counts>
    requires(readable_range<Out> || detail::is_none<Out>)
  operation<> gather_v(In&& in, Out&& out, const Counts& counts, int root,
                       const options& opts = {}) {
    check_same_element<In, Out>();
    return core_->template gather_or_scatter<collective::gather>(
        type_of<In>(), input(std::forward<In>(in), opts), output(std::forward<Out>(out), opts),
        detail::offsets_of(counts), root, pin_algorithm<collective::gather, Pinned>(opts));
  }
  /// Gives the root the `in` of all ranks, in rank order, after an exchange of the lengths. The
  /// other ranks get no values, and offsets that are 0.
  template <auto Pinned = algorithm::automatic, detail::block In>
  auto gather_v(In&& in, int root, const options& opts = {}) {
    return start_gathering<collective::gather, Pinned>(std::forward<In>(in), root, opts);
  }
  /// For each rank r, copies block r of the root's `in` into rank r's `out`. All blocks have equal
  /// length. Ranks other than the root may pass `none` as `in`.
  template <auto Pinned = algorithm::automatic, class In, readable_range Out>
    requires(readable_range<In> || detail::is_none<In>)
  operation<> scatter(In&& in, Out&& out, int root, const options& opts = {}) {
    check_same_element<Out, In>();
    return core_->template gather_or_scatter<collective::scatter>(
        type_of<Out>(), output(std::forward<Out>(out), opts), input(std::forward<In>(in), opts), {},
        root, pin_algorithm<collective::scatter, Pinned>(opts));
  }
  /// Does a scatter with blocks that may differ in length. Rank r's `out` has `counts[r]` elements.
  /// `counts` must be equal on all ranks.
  template <auto Pinned = algorithm::automatic, class In, readable_range Counts, readable_range Out>
    requires(readable_range<In> || detail::is_none<In>)
  operation<> scatter_v(In&& in, const Counts& counts, Out&& out, int root,
                        const options& opts = {}) {
    check_same_element<Out, In>();
    return core_->template gather_or_scatter<collective::scatter>(
        type_of<Out>(), output(std::forward<Out>(out), opts), input(std::forward<In>(in), opts),
        detail::offsets_of(counts), root, pin_algorithm<collective::scatter, Pinned>(opts));
  }

  /// Gives rank r a vector of the elements of `list[r]` of the root, which passes a range of
  /// contiguous ranges or strided views, one for each rank. The other ranks may pass `none`. The
  /// root first tells the lengths to all ranks.
  template <class T, class List>
    requires(detail::block_list<List> || detail::is_none<List>)
  operation<std::vector<T>> scatter_v(List&& list, int root, const options& opts = {}) {
    detail::check_result_element<memory_space, T>();
    std::vector<any_view> blocks;
    if constexpr (!detail::is_none<List>) {
      static_assert(std::is_same_v<detail::list_element_t<List>, T>,
                    "colls: the buffers of the list have another element type");
      if (rank() == root) blocks = blocks_of(std::forward<List>(list), opts);
    }
    return start_unknown<detail::block_call<T>>(
        {collective::scatter, element_id<T>(), sizeof(T), root, std::move(blocks)}, opts);
  }
  template <detail::block_list List>
  auto scatter_v(List&& list, int root, const options& opts = {}) {
    return scatter_v<detail::list_element_t<List>>(std::forward<List>(list), root, opts);
  }

  /// For all ranks i and j, copies block j of rank i's `in` into block i of rank j's `out`. `in`
  /// and `out` each consist of `size()` blocks of equal length.
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range Out>
  operation<> all_to_all(In&& in, Out&& out, const options& opts = {}) {
    check_same_element<In, Out>();
    return core_->all_to_all(type_of<In>(), input(std::forward<In>(in), opts),
                             output(std::forward<Out>(out), opts), {}, {},
                             pin_algorithm<collective::all_to_all, Pinned>(opts));
  }
  /// Does an all_to_all with blocks that may differ in length. This rank sends `send_counts[j]`
  /// elements to rank j and receives `recv_counts[i]` elements from rank i. `send_counts[j]` on
  /// rank i must equal `recv_counts[i]` on rank j.
  template <auto Pinned = algorithm::automatic, readable_range In, readable_range SendCounts,
            readable_range Out, readable_range RecvCounts>
  operation<> all_to_all_v(In&& in, const SendCounts& send_counts, Out&& out,
                           const RecvCounts& recv_counts, const options& opts = {}) {
    check_same_element<In, Out>();
    return core_->all_to_all(type_of<In>(), input(std::forward<In>(in), opts),
                             output(std::forward<Out>(out), opts), detail::offsets_of(send_counts),
                             detail::offsets_of(recv_counts),
                             pin_algorithm<collective::all_to_all, Pinned>(opts));
  }

  /// Gives each rank what the others have for it: block i of rank j's result is `list[j]` of rank
  /// i. `list` is a range of contiguous ranges or strided views, one for each rank. Each pair of
  /// ranks first exchanges the lengths.
  template <auto Pinned = algorithm::automatic, detail::block_list List>
  auto all_to_all_v(List&& list, const options& opts = {}) {
    using element = detail::list_element_t<List>;
    detail::check_result_element<memory_space, element>();
    decltype(auto) pinned = pin_algorithm<collective::all_to_all, Pinned>(opts);
    return start_unknown<detail::gathering_call<element>>(
        {collective::all_to_all, element_id<element>(), sizeof(element), -1,
         blocks_of(std::forward<List>(list), opts)},
        pinned);
  }

  // ---- point to point

  /// Sends `data` to rank `dest`. The operation completes when the caller can reuse `data`. The
  /// receiver may not have received the message by then. `tag` must not be negative. Messages from
  /// one rank to another arrive in order if they have the same tag.
  template <readable_range Data>
  operation<> send(Data&& data, int dest, int tag = 0, const options& opts = {}) {
    return core_->send(input(std::forward<Data>(data), opts), dest, tag, opts);
  }
  /// Receives the next message from rank `source` with tag `tag` into `data`. If `source` is
  /// `any_source`, the message may come from any rank, and if `tag` is `any_tag`, it may have any
  /// tag. The message may be shorter than `data`. The result contains the source of the message,
  /// the number of its elements and its tag. If the message is longer than `data`, the operation
  /// fails with `errc::truncated`.
  template <readable_range Data>
  operation<received> recv(Data&& data, peer source, recv_tag tag = 0, const options& opts = {}) {
    return core_->recv(output(std::forward<Data>(data), opts), source, tag, opts);
  }
  /// Starts all sends and receives of the list `transfers`, in this order, as one operation, which
  /// ends when all of them have ended. If any of them has an invalid argument, starts none. The
  /// result has an entry for each transfer: for a receive what `recv` gives, for a send nothing of
  /// use. If transfers fail, throws one of their errors.
  operation<std::vector<received>> batch(std::span<const transfer> transfers,
                                         const options& opts = {}) {
    static_assert(std::is_same_v<memory_space, host_memory>,
                  "colls: a batch moves host memory, and this communicator moves device memory");
    return core_->batch(transfers, opts);
  }
  /// Receives the next message from rank `source` with tag `tag`, whose length this rank does not
  /// know, into a new vector. If the message is longer than `most` bytes, allocates nothing and
  /// fails with `errc::truncated`.
  template <supported_type T>
  operation<std::vector<T>> recv_vector(peer source, recv_tag tag = 0,
                                        std::size_t most = default_most, const options& opts = {}) {
    detail::check_vector_element<T, memory_space>();
    return core_->template recv_vector<T>(source, tag, nullptr, most, opts);
  }
  /// Waits for the next message from rank `source` with tag `tag` and matches it, so that no
  /// receive can. The result describes the message and receives it (see `probed_message`).
  operation<probed_message<Transport>> probe(peer source, recv_tag tag = 0,
                                             const options& opts = {}) {
    return core_->probe(source, tag, opts);
  }
  /// Sends `out` to rank `dest` and, at the same time, receives a message from rank `source` into
  /// `in`. Both messages have the tag `tag`. The result describes the received message. `in` and
  /// `out` must not overlap.
  template <readable_range Out, readable_range In>
  operation<received> send_recv(Out&& out, int dest, In&& in, peer source, int tag = 0,
                                const options& opts = {}) {
    return core_->send_recv(input(std::forward<Out>(out), opts), dest,
                            output(std::forward<In>(in), opts), source, tag, opts);
  }

  // ---- communicators

  /// Makes a new communicator for each color. The new communicator contains the ranks that have
  /// passed this color, ordered by key. Ranks with equal keys keep their order. A rank that passes
  /// a negative color gets an empty communicator.
  operation<communicator> split(int color, int key = 0, const options& opts = {}) {
    return core_->split(collective::split, color, key, 0, opts);
  }
  /// Makes a new communicator of the ranks in the list `ranks`, in the order of the list. The other
  /// ranks get an empty communicator. All ranks of this communicator must call this function with
  /// the same list.
  template <readable_range Ranks>
  operation<communicator> group(const Ranks& ranks, const options& opts = {}) {
    int position = 0;
    int own_position = -1;
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
      if (static_cast<int>(member) == rank()) own_position = position;
      ++position;
    }
    if (check.failed()) {
      using call = detail::call<communicator>;
      return core_->refuse(core_->template make<call>(collective::group), check.reason());
    }
    return core_->split(collective::group, own_position < 0 ? -1 : 0, own_position, list, opts);
  }
  /// Makes another communicator of the same ranks. Calls on the new communicator do not match calls
  /// on this one.
  operation<communicator> dup(const options& opts = {}) {
    return core_->split(collective::dup, 0, rank(), 0, opts);
  }
  /// Makes another communicator of the same ranks for use by a second thread. The new communicator
  /// has its own connections and runs on `executor`. No thread may run `executor` until this
  /// operation has ended. After that, only one thread may run `executor`, and the same thread must
  /// use and close the new communicator.
  template <class Executor>
    requires(!detail::is_options<Executor>)
  operation<communicator> dup(const Executor& executor, const options& opts = {}) {
    static_assert(
        requires { sizeof(Transport); },
        "colls: where COLLS_SEPARATE_COMPILATION is defined, a file that calls dup(executor) "
        "includes the transport's header: <colls/interprocess.hpp> for colls::world");
    static_assert(world_transport<Transport>,
                  "colls: this transport cannot be made again for another executor: dup(executor) "
                  "needs a transport between processes, with `make` and `info()`");
    return core_->dup(executor, opts);
  }

  /// Makes another communicator of the same ranks for a different kind of memory. The new
  /// communicator has a new transport, which moves its messages through the transport of this
  /// communicator. To make the new transport, this function calls `make` with a `shared_ptr` to the
  /// transport of this communicator. `shape` is a number that identifies the kind and the settings
  /// of the new transport. It must be equal on all ranks.
  template <class Make>
  auto attach(std::uint64_t shape, const Make& make, const options& opts = {}) {
    return core_->attach(make(core_->shared_net()), shape, opts);
  }

  /// Agrees on a value with the ranks that are left. Afterwards every rank has the same result: the
  /// AND of the values of all ranks except those in `agreement::lost`, which have failed, have
  /// closed the communicator, or cannot be reached. The call works on a communicator that has
  /// failed, too. If the result lists a rank, the communicator has failed on all ranks.
  ///
  /// A rank that is left and does not call `agree` is waited for. Errors end only this call, and
  /// the rank may call it again: `timeout` names the rank that has not called, and `no_quorum` says
  /// that too few ranks can be reached. The value of the first call then stands. `mismatch` says
  /// that the ranks have passed different options. `excluded` says that the other ranks go on
  /// without this one. docs/recovery.md says what is promised. The algorithm is described in
  /// matching/consensus.hpp.
  operation<agreement> agree(std::uint64_t value, const recovery_options& opts = {}) {
    return core_->agree(value, opts);
  }
  /// Makes a new communicator of the ranks that are left, in their order. The ranks agree on these
  /// ranks as `agree` does, with the same errors, and both calls count together: a rank that calls
  /// the other one gets `mismatch`. This communicator fails with `revoked`, if it has not failed
  /// yet, and its operations have ended when the result comes.
  ///
  /// The new communicator has the costs, the executor and the memory of `allocate` of this one. It
  /// takes no buffers that are registered with this one. The last one that is closed, of the world
  /// and of what shrink has made of it, closes the connections. A rank that lives and is left out
  /// gets `excluded` for its calls. Fails with `not_applicable` on a result of `attach` or
  /// `dup(executor)`.
  operation<communicator> shrink(const recovery_options& opts = {}) { return core_->shrink(opts); }
  /// Makes a new world of the ranks that are left and of the launcher's replacements of the others.
  /// It begins as `shrink` does, with the same errors. If a replacement has come for each lost
  /// rank, every rank keeps its number, and the replacements have the numbers of the lost ranks.
  /// Otherwise the call waits for `wait`, and then goes on with at least `at_least` ranks, numbered
  /// without gaps in the same order. A good world takes in the replacements that wait.
  ///
  /// If there are too few ranks, the call fails on all of them with `no_replacement`. It may be
  /// repeated then, as after `timeout` and the errors of joining. A replacement gets the new world
  /// from `join` or `run`. The new world has the costs and the executor of this communicator, and
  /// connections of its own: nothing else that was made of the old world works on it.
  /// Fails with `not_applicable` unless this communicator is the world, or a result of `shrink` or
  /// `repair` on it, and with `no_replacement` if the launcher is not colls-run with
  /// `--on-failure replace`.
  operation<communicator> repair(const recovery_options& opts = {}) { return core_->repair(opts); }
  /// Returns how often the world of this communicator has taken in replacements by `repair`.
  std::uint32_t generation() const { return core_->generation(); }
  /// Returns the number of replacements that wait for a place, as far as this rank knows. The ranks
  /// may know it at different times, so they have to agree on it before they call `repair`, for
  /// example by an element of the next all_reduce.
  int waiting() const { return core_->waiting(); }

  /// Returns the rank that `rank` had in the communicator on which `shrink` or `repair` was called.
  /// Returns `rank` itself if none of them has made this communicator. Returns -1 for a
  /// replacement, and if it is no rank. The result is equal on all ranks.
  int previous_rank(int rank) const { return core_->previous_rank(rank); }

  /// Revokes the communicator on all ranks. All unfinished operations and all further calls on the
  /// communicator then fail with `errc::revoked`. The text of the error contains `reason`.
  void revoke(const char* reason) {
    if (!core_->is_open()) return;
    failure revocation(errc::revoked, reason);
    revocation.culprit = core_->matching().rank();
    core_->revoke(revocation);
  }
  /// Returns the reason why the communicator has failed, or null if it has not failed.
  const failure* failed() const {
    return core_->state().failed() ? &core_->state().reason() : nullptr;
  }
  /// Closes this rank's side of the communicator, which then accepts no more calls. This rank's
  /// unfinished operations fail with `errc::closed`. If one of them is a collective, this function
  /// also revokes the communicator. If none of them is a collective, the operations of the peers
  /// continue.
  ///
  /// The world communicator and a result of `dup(executor)` have connections of their own. For such
  /// a communicator, the returned operation writes all outgoing data and then closes the
  /// connections. It waits for the peers for at most the time `deadline`. If `deadline` is
  /// not given, the limit is the timeout of the world, or one second if the communicator has
  /// failed.
  operation<> close(time_span deadline = {});

  /// Returns the implementation of the communicator. Meant for headers that add calls.
  detail::core<Transport>& underlying_core() const { return *core_.operator->(); }

  // ---- for `sync_wait(comm, task)`

  run_queue& queue() { return core_->queue(); }
  bool poll();
  void idle(unsigned polls);
  void enter();
  void leave();

 private:
  template <class First, class Second>
  static constexpr void check_same_element() {
    if constexpr (!detail::is_none<First> && !detail::is_none<Second>) {
      static_assert(std::is_same_v<range_element_t<First>, range_element_t<Second>>,
                    "colls: both buffers must have the same element type");
    }
  }

  using memory_space = transport_memory_t<Transport>;

  /// Returns `data` as an `any_buffer`, which has no element type. If a call cannot use `data` or
  /// `opts.stream`, returns the result of `unusable_buffer` instead. The class `checks` turns this
  /// result into an error.
  template <class Range>
  any_buffer input(Range&& data, const options& opts) const {
    const any_buffer erased_data =
        detail::to_usable_buffer<memory_space>(core_.get(), std::forward<Range>(data));
    if constexpr (std::is_same_v<memory_space, device_memory>) {
      if constexpr (!detail::is_none<Range>) {
        constexpr std::size_t alignment = alignof(range_element_t<Range>);
        if (reinterpret_cast<std::uintptr_t>(erased_data.data()) % alignment != 0) {
          return detail::unusable_buffer(detail::unaligned_memory);
        }
      }
      if (const char* const problem = core_->net().usage_error(erased_data))
        return detail::unusable_buffer(problem);
      const char* const problem = core_->net().usage_error(opts.stream);
      if (problem != nullptr) return detail::unusable_buffer(problem);
    }
    return erased_data;
  }
  /// Returns the buffers of a list, as `input` returns a buffer.
  template <class List>
  std::vector<any_buffer> inputs(List&& list, const options& opts) const {
    detail::check_list<List>();
    std::vector<any_buffer> buffers;
    for (auto&& each : list) buffers.push_back(input(each, opts));
    return buffers;
  }
  /// Returns what a call of unknown lengths reads from this rank.
  template <class Data>
  any_view block_of(Data&& data, const options& opts) const {
    if constexpr (viewable<Data>) {
      detail::check_lasting_view<Data>();
      const erased_view erased = view_access<std::remove_cvref_t<Data>>::erase(data);
      return erased.problem != nullptr ? any_view::unusable(erased.problem) : erased.view;
    } else {
      return input(std::forward<Data>(data), opts);
    }
  }
  template <class List>
  std::vector<any_view> blocks_of(List&& list, const options& opts) const {
    detail::check_list<List>();
    std::vector<any_view> blocks;
    for (auto&& each : list) blocks.push_back(block_of(each, opts));
    return blocks;
  }
  template <class Range>
  any_buffer output(Range&& data, const options& opts) const {
    static_assert(detail::is_none<Range> || writable_range<Range>,
                  "colls: this buffer is const, and the call writes it");
    return input(std::forward<Range>(data), opts);
  }

  /// Returns the id of the element type `T`, or 0 if colls does not support `T`. This function does
  /// not reject an unsupported type, because `check_range` rejects it with a readable message.
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

  /// Options that pin an algorithm of the user's own, for the call to which they are passed.
  struct custom_options : options {
    typename detail::core<Transport>::custom_pin pin;
  };

  /// Returns options that pin the algorithm `Pinned` and otherwise are equal to `opts`. If `Pinned`
  /// is `automatic`, returns `opts` itself.
  template <collective Coll, auto Pinned, bool Commutes = true>
  decltype(auto) pin_algorithm(const options& opts) const {
    if constexpr (detail::is_custom<Pinned>) {
      options pinned_opts = opts;
      pinned_opts.algorithm = algorithm::custom;
      return custom_options{
          pinned_opts,
          {*core_.operator->(), detail::custom_algorithm<Transport, Coll, Pinned, Commutes>()}};
    } else if constexpr (Pinned == algorithm::automatic) {
      return opts;
    } else {
      constexpr bool is_native = Pinned == algorithm::native;  // checked at run time
      constexpr bool is_supported = is_native || detail::has_algorithm(Coll, Pinned, true);
      static_assert(is_supported, "colls: this collective has no such algorithm");
      detail::check_commutes<!is_supported || is_native ||
                             detail::has_algorithm(Coll, Pinned, Commutes)>();
      options pinned_opts = opts;
      pinned_opts.algorithm = Pinned;
      return pinned_opts;
    }
  }
  template <collective Coll, class T, class Op>
  static decltype(auto) make_reduction(const Op& op, const options& opts) {
    if constexpr (requires { requires Transport::reduces_on_device; }) {
      return make_device_reduction<Coll, T>(op, opts);
    } else {
      return detail::make_host_reduction<T>(op, opts);
    }
  }
  template <collective Coll, class T, class Op>
  static reduction make_device_reduction(const Op& op, const options& opts) {
    reduction erased_op = detail::make_host_reduction<T>(op, opts);
    if constexpr (!detail::native_reduction<Transport, Coll, T, Op>) {
      constexpr bool has_kernel = requires { sizeof(detail::device_kernel<T, Op>); };
      static_assert(has_kernel,
                    "colls: this communicator reduces on the device: a reduction of device memory "
                    "needs <colls/cuda/reduce.cuh> and nvcc");
      if constexpr (has_kernel) erased_op.run_on_device = &detail::device_kernel<T, Op>::launch;
      if constexpr (Coll == collective::all_reduce && has_kernel &&
                    requires { requires Transport::has_one_shot_kernels; }) {
        erased_op.run_one_shot_on_device = &detail::one_shot_kernel<T, Op>::launch;
      }
      if constexpr (requires { requires Transport::folds_in_order; }) {
        erased_op.op.commutative = erased_op.op.associative = false;
      }
    }
    return erased_op;
  }

  template <collective Coll, auto Pinned, class T, class Op>
  operation<> start_reduce_to_all(const any_buffer& in, const any_buffer& out, const Op& op,
                                  const options& opts) {
    using element = detail::combined_as<T, Op>;
    const reduction& erased_op = make_reduction<Coll, element>(op, opts);
    return core_->template reduce_to_all<Coll>(
        erased_op, in, out, pin_algorithm<Coll, Pinned, commutative_for<Op, element>>(opts));
  }
  template <auto Pinned, class T, class Op>
  operation<> start_reduce(const any_buffer& in, const any_buffer& out, int root, const Op& op,
                           const options& opts) {
    constexpr collective coll = collective::reduce;
    using element = detail::combined_as<T, Op>;
    const reduction& erased_op = make_reduction<coll, element>(op, opts);
    return core_->reduce(erased_op, in, out, root,
                         pin_algorithm<coll, Pinned, commutative_for<Op, element>>(opts));
  }
  template <auto Pinned, class T, class Op>
  operation<> start_reduce_scatter(const any_buffer& in, const any_buffer& out,
                                   std::vector<std::size_t> offsets, const Op& op,
                                   const options& opts) {
    constexpr collective coll = collective::reduce_scatter;
    using element = detail::combined_as<T, Op>;
    const reduction& erased_op = make_reduction<coll, element>(op, opts);
    return core_->reduce_scatter(erased_op, in, out, std::move(offsets),
                                 pin_algorithm<coll, Pinned, commutative_for<Op, element>>(opts));
  }

  template <collective Coll, auto Pinned, class In>
  auto start_gathering(In&& in, int root, const options& opts) {
    using element = typename detail::gathered_element<In>::type;
    detail::check_result_element<memory_space, element>();
    // After a failed check, char avoids further messages of the compiler.
    constexpr bool is_refused = std::is_same_v<element, bool> || std::is_void_v<element>;
    using stored = std::conditional_t<is_refused, char, element>;
    std::vector<any_view> blocks;
    if constexpr (!detail::is_bit_vector<In>) {
      blocks.push_back(block_of(std::forward<In>(in), opts));
    }
    decltype(auto) pinned = pin_algorithm<Coll, Pinned>(opts);
    return start_unknown<detail::gathering_call<stored>>(
        {Coll, element_id<stored>(), sizeof(stored), root, std::move(blocks)}, pinned);
  }
  template <class Call>
  operation<typename Call::value_type> start_unknown(detail::unknown_lengths_request request,
                                                     const options& opts) {
    return detail::start_unknown_lengths<Call>(*core_.operator->(), std::move(request), opts,
                                               [](Call&) {});
  }

  detail::core_owner<detail::core<Transport>> core_;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/call/communicator.ipp>
#endif

// COLLS_COMMUNICATOR(extern, T) declares that the templates of communicators over the transport T
// are instantiated in another file. COLLS_COMMUNICATOR(, T) instantiates them in the current file.
#define COLLS_COMMUNICATOR(where, transport)           \
  where template class colls::communicator<transport>; \
  where template class colls::detail::core<transport>; \
  COLLS_ALL_REDUCE_GROUP(where, transport, any_buffer) \
  COLLS_ALL_REDUCE_GROUP(where, transport, any_view)   \
  COLLS_REDUCE_TO_ALL(where, transport, all_reduce)    \
  COLLS_REDUCE_TO_ALL(where, transport, scan)          \
  COLLS_REDUCE_TO_ALL(where, transport, exscan)        \
  COLLS_GATHER_OR_SCATTER(where, transport, gather)    \
  COLLS_GATHER_OR_SCATTER(where, transport, scatter)   \
  COLLS_MOVE_VIEW(where, transport, broadcast)         \
  COLLS_MOVE_VIEW(where, transport, all_gather)        \
  COLLS_MOVE_VIEW(where, transport, gather)            \
  COLLS_MOVE_VIEW(where, transport, scatter)
#define COLLS_ALL_REDUCE_GROUP(where, transport, part)                                \
  where template colls::operation<> colls::detail::core<transport>::all_reduce_group( \
      const colls::reduction&, std::vector<colls::part>, const colls::options&);
#define COLLS_REDUCE_TO_ALL(where, transport, coll)                                \
  where template colls::operation<>                                                \
  colls::detail::core<transport>::reduce_to_all<colls::collective::coll>(          \
      const colls::reduction&, const colls::any_buffer&, const colls::any_buffer&, \
      const colls::options&);                                                      \
  where template colls::operation<>                                                \
  colls::detail::core<transport>::reduce_view_to_all<colls::collective::coll>(     \
      const colls::reduction&, const colls::any_view&, const colls::any_view&,     \
      const colls::options&);
#define COLLS_GATHER_OR_SCATTER(where, transport, coll)                                   \
  where template colls::operation<>                                                       \
  colls::detail::core<transport>::gather_or_scatter<colls::collective::coll>(             \
      std::uint32_t, colls::any_buffer, colls::any_buffer, std::vector<std::size_t>, int, \
      const colls::options&);
#define COLLS_MOVE_VIEW(where, transport, coll)                                                \
  where template colls::operation<>                                                            \
  colls::detail::core<transport>::move_view<colls::collective::coll>(                          \
      std::uint32_t, const colls::any_view&, const colls::any_view&, std::vector<std::size_t>, \
      int, const colls::options&);
