// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// view_calls: the calls of a communicator on strided views and tensors.

#include <colls/base/options.hpp>
#include <colls/call/buffer_list.hpp>
#include <colls/call/call.hpp>
#include <colls/call/make_reduction.hpp>
#include <colls/call/view_access.hpp>

#include <tuple>
#include <vector>

namespace colls {

namespace detail {

template <class Op>
concept view_operation =
    !std::is_same_v<std::remove_cvref_t<Op>, options> && !viewable<Op> && !is_buffer_as_value<Op>;

}  // namespace detail

/// The calls of a communicator on strided views and tensors, of which each has the contract of the
/// call on contiguous data in `communicator`. At least one of the buffers of a call is a view or a
/// tensor; others may be contiguous. The elements of a view count in row-major order.
///
/// A reduction packs its elements into one working buffer, and may be called with contiguous data
/// on other ranks. A call that only moves data packs pieces of 256 KiB, or of `options::segment`
/// bytes, of which at most four for each peer are in motion; all ranks pass views to such a call. A
/// message may be sent from or received into contiguous data on the other rank; a long one is
/// packed and unpacked in pieces of 256 KiB while it moves. The views and the memory must stay
/// alive until the operation has ended. A call that writes a view of which two elements may share
/// memory fails with `errc::invalid_argument`.
template <class Communicator, class Memory>
class view_calls {
 public:
  template <viewable Data, detail::view_operation Op = plus>
  operation<> all_reduce(Data&& data, Op op = {}, const options& opts = {}) {
    return reduce_to_all<collective::all_reduce>(data, std::forward<Data>(data), op, opts);
  }
  template <viewable Data>
  operation<> all_reduce(Data&& data, const options& opts) {
    return all_reduce(std::forward<Data>(data), plus{}, opts);
  }
  template <class In, class Out, detail::view_operation Op = plus>
    requires detail::view_arguments<In, Out>
  operation<> all_reduce(In&& in, Out&& out, Op op = {}, const options& opts = {}) {
    return reduce_to_all<collective::all_reduce>(std::forward<In>(in), std::forward<Out>(out), op,
                                                 opts);
  }
  template <class In, class Out>
    requires detail::view_arguments<In, Out>
  operation<> all_reduce(In&& in, Out&& out, const options& opts) {
    return all_reduce(std::forward<In>(in), std::forward<Out>(out), plus{}, opts);
  }

  /// Reduces each part of a group of which at least one is a view.
  template <class... Ranges, detail::view_operation Op = plus>
    requires(colls::group<Ranges...>::has_views)
  operation<> all_reduce(const colls::group<Ranges...>& parts, Op op = {},
                         const options& opts = {}) {
    return std::apply(
        [&](const auto&... part) {
          detail::checks check(collective::all_reduce);
          const std::vector<erased_view> erased{this->erase(check, part)...};
          return reduce_group(check, erased, detail::first_view(part...), op, opts);
        },
        parts.ranges);
  }
  template <class... Ranges>
    requires(colls::group<Ranges...>::has_views)
  operation<> all_reduce(const colls::group<Ranges...>& parts, const options& opts) {
    return all_reduce(parts, plus{}, opts);
  }
  /// Does the same for a list of views or tensors, such as a std::vector of them.
  template <detail::view_list List, detail::view_operation Op = plus>
  operation<> all_reduce(List&& list, Op op = {}, const options& opts = {}) {
    using listed = detail::listed_buffer<List>;
    static_assert(!detail::is_const_view<listed>(),
                  "colls: the call writes the buffers of a list, and they are const");
    detail::check_list<List>();
    static_assert(std::is_lvalue_reference_v<listed> || !std::is_void_v<detail::element_of<listed>>,
                  "colls: the list makes its tensors when it is read: pass a list that holds them");
    detail::checks check(collective::all_reduce);
    std::vector<erased_view> erased;
    const std::remove_cvref_t<listed>* first = nullptr;  // only used if the list holds it
    for (const auto& each : list) {
      if (erased.empty()) first = &each;
      erased.push_back(erase(check, each));
    }
    return reduce_group(check, erased, first, op, opts);
  }
  template <detail::view_list List>
  operation<> all_reduce(List&& list, const options& opts) {
    return all_reduce(std::forward<List>(list), plus{}, opts);
  }

  template <viewable Data, detail::view_operation Op = plus>
  operation<> scan(Data&& data, Op op = {}, const options& opts = {}) {
    return reduce_to_all<collective::scan>(data, std::forward<Data>(data), op, opts);
  }
  template <viewable Data>
  operation<> scan(Data&& data, const options& opts) {
    return scan(std::forward<Data>(data), plus{}, opts);
  }
  template <viewable Data, detail::view_operation Op = plus>
  operation<> exscan(Data&& data, Op op = {}, const options& opts = {}) {
    return reduce_to_all<collective::exscan>(data, std::forward<Data>(data), op, opts);
  }
  template <viewable Data>
  operation<> exscan(Data&& data, const options& opts) {
    return exscan(std::forward<Data>(data), plus{}, opts);
  }

  template <viewable Data, detail::view_operation Op = plus>
  operation<> reduce(Data&& data, int root, Op op = {}, const options& opts = {}) {
    return reduce_to_root(std::forward<Data>(data), std::forward<Data>(data), root, op, opts);
  }
  template <viewable Data>
  operation<> reduce(Data&& data, int root, const options& opts) {
    return reduce(std::forward<Data>(data), root, plus{}, opts);
  }
  template <class In, class Out, detail::view_operation Op = plus>
    requires detail::view_arguments<In, Out>
  operation<> reduce(In&& in, Out&& out, int root, Op op = {}, const options& opts = {}) {
    return reduce_to_root(std::forward<In>(in), std::forward<Out>(out), root, op, opts);
  }
  template <class In, class Out>
    requires detail::view_arguments<In, Out>
  operation<> reduce(In&& in, Out&& out, int root, const options& opts) {
    return reduce(std::forward<In>(in), std::forward<Out>(out), root, plus{}, opts);
  }

  template <class In, class Out, detail::view_operation Op = plus>
    requires detail::view_arguments<In, Out>
  operation<> reduce_scatter(In&& in, Out&& out, Op op = {}, const options& opts = {}) {
    return scatter_reduced(std::forward<In>(in), std::forward<Out>(out), {}, op, opts);
  }
  template <class In, class Out>
    requires detail::view_arguments<In, Out>
  operation<> reduce_scatter(In&& in, Out&& out, const options& opts) {
    return reduce_scatter(std::forward<In>(in), std::forward<Out>(out), plus{}, opts);
  }
  template <class In, class Out, readable_range Counts, detail::view_operation Op = plus>
    requires detail::view_arguments<In, Out>
  operation<> reduce_scatter_v(In&& in, Out&& out, const Counts& counts, Op op = {},
                               const options& opts = {}) {
    return scatter_reduced(std::forward<In>(in), std::forward<Out>(out), detail::offsets_of(counts),
                           op, opts);
  }
  template <class In, class Out, readable_range Counts>
    requires detail::view_arguments<In, Out>
  operation<> reduce_scatter_v(In&& in, Out&& out, const Counts& counts, const options& opts) {
    return reduce_scatter_v(std::forward<In>(in), std::forward<Out>(out), counts, plus{}, opts);
  }

  template <viewable Data>
  operation<> broadcast(Data&& data, int root, const options& opts = {}) {
    return move<collective::broadcast>(detail::written(std::forward<Data>(data)), none, {}, root,
                                       opts);
  }
  template <class In, class Out>
    requires detail::view_arguments<In, Out>
  operation<> all_gather(In&& in, Out&& out, const options& opts = {}) {
    return move<collective::all_gather>(std::forward<In>(in),
                                        detail::written(std::forward<Out>(out)), {}, -1, opts);
  }
  template <class In, class Out, readable_range Counts>
    requires detail::view_arguments<In, Out>
  operation<> all_gather_v(In&& in, Out&& out, const Counts& counts, const options& opts = {}) {
    return move<collective::all_gather>(std::forward<In>(in),
                                        detail::written(std::forward<Out>(out)),
                                        detail::offsets_of(counts), -1, opts);
  }
  template <class In, class Out>
    requires detail::view_arguments<In, Out>
  operation<> gather(In&& in, Out&& out, int root, const options& opts = {}) {
    return move<collective::gather>(std::forward<In>(in), detail::written(std::forward<Out>(out)),
                                    {}, root, opts);
  }
  template <class In, class Out, readable_range Counts>
    requires detail::view_arguments<In, Out>
  operation<> gather_v(In&& in, Out&& out, const Counts& counts, int root,
                       const options& opts = {}) {
    return move<collective::gather>(std::forward<In>(in), detail::written(std::forward<Out>(out)),
                                    detail::offsets_of(counts), root, opts);
  }
  template <class In, class Out>
    requires detail::view_arguments<In, Out>
  operation<> scatter(In&& in, Out&& out, int root, const options& opts = {}) {
    return move<collective::scatter>(detail::written(std::forward<Out>(out)), std::forward<In>(in),
                                     {}, root, opts);
  }
  template <class In, readable_range Counts, class Out>
    requires detail::view_arguments<In, Out>
  operation<> scatter_v(In&& in, const Counts& counts, Out&& out, int root,
                        const options& opts = {}) {
    return move<collective::scatter>(detail::written(std::forward<Out>(out)), std::forward<In>(in),
                                     detail::offsets_of(counts), root, opts);
  }
  template <class In, class Out>
    requires detail::view_arguments<In, Out>
  operation<> all_to_all(In&& in, Out&& out, const options& opts = {}) {
    return exchange(std::forward<In>(in), detail::written(std::forward<Out>(out)), {}, {}, opts);
  }
  template <class In, readable_range SendCounts, class Out, readable_range RecvCounts>
    requires detail::view_arguments<In, Out>
  operation<> all_to_all_v(In&& in, const SendCounts& send_counts, Out&& out,
                           const RecvCounts& recv_counts, const options& opts = {}) {
    return exchange(std::forward<In>(in), detail::written(std::forward<Out>(out)),
                    detail::offsets_of(send_counts), detail::offsets_of(recv_counts), opts);
  }

  template <viewable Data>
  operation<> send(Data&& data, int dest, int tag = 0, const options& opts = {}) {
    detail::checks check(collective::send);
    const erased_view source = erase(check, std::forward<Data>(data));
    if (check.failed()) return refuse(check, collective::send);
    return core().send_view(source.view, dest, tag, opts);
  }
  template <viewable Data>
  operation<received> recv(Data&& data, peer source, recv_tag tag = 0, const options& opts = {}) {
    detail::checks check(collective::recv);
    const erased_view target = erase(check, detail::written(std::forward<Data>(data)));
    if (check.failed()) return refuse_message(check, collective::recv);
    return core().recv_view(target.view, source, tag, opts);
  }
  /// `in` and `out` may be the same elements.
  template <class Out, class In>
    requires detail::view_arguments<Out, In>
  operation<received> send_recv(Out&& out, int dest, In&& in, peer source, int tag = 0,
                                const options& opts = {}) {
    detail::checks check(collective::send_recv);
    const erased_view outgoing = erase(check, std::forward<Out>(out));
    const erased_view incoming = erase(check, detail::written(std::forward<In>(in)));
    if (check.failed()) return refuse_message(check, collective::send_recv);
    return core().send_recv_view(outgoing.view, dest, incoming.view, source, tag, opts);
  }

 private:
  using block_offsets = std::vector<std::size_t>;

  auto& core() { return static_cast<Communicator&>(*this).underlying_core(); }
  operation<> refuse(const detail::checks& check, collective coll) {
    return core().refuse(core().make(coll), check.reason());
  }
  operation<received> refuse_message(const detail::checks& check, collective coll) {
    return core().refuse(core().template make<detail::call<received>>(coll), check.reason());
  }

  template <class Data>
  erased_view erase(detail::checks& check, Data&& data) {
    return detail::erase_argument<Memory>(check, &core(), std::forward<Data>(data));
  }
  template <class In, class Out>
  std::pair<erased_view, erased_view> erase(detail::checks& check, In&& in, Out&& out) {
    detail::check_same_element<In, Out>();
    std::pair<erased_view, erased_view> result{erase(check, std::forward<In>(in)),
                                               erase(check, std::forward<Out>(out))};
    if (!detail::is_none<In> && !detail::is_none<Out>) {
      check.require(result.first.type == result.second.type,
                    "both buffers must have the same element type");
    }
    return result;
  }

  /// Starts an all_reduce of several parts, of which `first` is the first view, or null if there is
  /// no part.
  template <class View, class Op>
  operation<> reduce_group(detail::checks& check, const std::vector<erased_view>& erased,
                           const View* first, const Op& op, const options& opts) {
    constexpr collective coll = collective::all_reduce;
    std::vector<any_view> parts;
    for (const erased_view& each : erased) {
      check.require(each.type == erased.front().type,
                    "the buffers of a group must have the same element type");
      parts.push_back(each.view);
    }
    const auto start = [&](const reduction& erased_op) {
      return core().all_reduce_group(erased_op, std::move(parts), opts);
    };
    if constexpr (!std::is_void_v<detail::element_of<View>>) {
      if (check.failed()) return refuse(check, coll);
      using element = detail::combined_as<detail::element_of<View>, Op>;
      return start(detail::make_host_reduction<element>(op, opts));
    } else {
      check.require(first != nullptr, "a list without tensors has no element type");
      if (check.failed()) return refuse(check, coll);
      return with_reduction(coll, *first, op, opts, start);
    }
  }

  /// Returns `start(op)`, where `op` is the reduction of the elements of `data` by `op`. If the
  /// operation cannot reduce these elements, which is known at run time alone for tensors, refuses
  /// the call.
  template <class Data, class Op, class Start>
  operation<> with_reduction(collective coll, const Data& data, const Op& op, const options& opts,
                             const Start& start) {
    return view_access<std::remove_cvref_t<Data>>::with_element(
        data, [&]<class T>(std::type_identity<T>) -> operation<> {
          if constexpr (reduction_for<Op, detail::combined_as<T, Op>> ||
                        requires { typename Data::element_type; }) {
            using element = detail::combined_as<T, Op>;
            return start(detail::make_host_reduction<element>(op, opts));
          } else {
            detail::checks check(coll);
            check.require(false, "the operation cannot reduce elements of this type");
            return refuse(check, coll);
          }
        });
  }
  template <class In, class Out>
  static decltype(auto) viewable_of(const In& in, const Out& out) {
    if constexpr (viewable<In>) {
      return (in);
    } else {
      return (out);
    }
  }

  template <collective Coll, class In, class Out, class Op>
  operation<> reduce_to_all(In&& in, Out&& out, const Op& op, const options& opts) {
    detail::checks check(Coll);
    const auto [first, second] =
        erase(check, std::forward<In>(in), detail::written(std::forward<Out>(out)));
    if (check.failed()) return refuse(check, Coll);
    return with_reduction(Coll, viewable_of(in, out), op, opts, [&](const reduction& erased_op) {
      return core().template reduce_view_to_all<Coll>(erased_op, first.view, second.view, opts);
    });
  }
  template <class In, class Out, class Op>
  operation<> reduce_to_root(In&& in, Out&& out, int root, const Op& op, const options& opts) {
    constexpr collective coll = collective::reduce;
    detail::checks check(coll);
    const auto [first, second] =
        erase(check, std::forward<In>(in), detail::written(std::forward<Out>(out)));
    if (check.failed()) return refuse(check, coll);
    return with_reduction(coll, viewable_of(in, out), op, opts, [&](const reduction& erased_op) {
      return core().reduce_view(erased_op, first.view, second.view, root, opts);
    });
  }
  template <class In, class Out, class Op>
  operation<> scatter_reduced(In&& in, Out&& out, block_offsets shares, const Op& op,
                              const options& opts) {
    constexpr collective coll = collective::reduce_scatter;
    detail::checks check(coll);
    const auto [first, second] =
        erase(check, std::forward<In>(in), detail::written(std::forward<Out>(out)));
    if (check.failed()) return refuse(check, coll);
    return with_reduction(coll, viewable_of(in, out), op, opts, [&](const reduction& erased_op) {
      return core().reduce_scatter_view(erased_op, first.view, second.view, std::move(shares),
                                        opts);
    });
  }
  template <collective Coll, class Own, class All>
  operation<> move(Own&& own, All&& all, block_offsets shares, int root, const options& opts) {
    detail::checks check(Coll);
    const auto [first, second] = erase(check, std::forward<Own>(own), std::forward<All>(all));
    if (check.failed()) return refuse(check, Coll);
    return core().template move_view<Coll>(first.type, first.view, second.view, std::move(shares),
                                           root, opts);
  }
  template <class In, class Out>
  operation<> exchange(In&& in, Out&& out, block_offsets sends, block_offsets receives,
                       const options& opts) {
    constexpr collective coll = collective::all_to_all;
    detail::checks check(coll);
    const auto [first, second] = erase(check, std::forward<In>(in), std::forward<Out>(out));
    if (check.failed()) return refuse(check, coll);
    return core().all_to_all_view(first.type, first.view, second.view, std::move(sends),
                                  std::move(receives), opts);
  }
};

}  // namespace colls
