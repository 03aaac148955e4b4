// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// choose_algorithm: chooses the algorithm of a call, and explains the choice.

#include <colls/algorithm/table.hpp>
#include <colls/call/call_queue.hpp>
#include <colls/call/call_request.hpp>

namespace colls::detail {

/// Returns the algorithms of `entries` that can perform a call. If `pinned` is not `automatic`,
/// considers only `pinned`.
template <class AlgorithmTable, class Entries>
algorithm_candidates candidates_for(const Entries& entries, const selection_query& query,
                                    algorithm pinned) {
  algorithm_candidates result;
  for (const algorithm_info& info : entries) {
    const bool is_considered = pinned == algorithm::automatic || pinned == info.id;
    if (is_considered && AlgorithmTable::refusal(info, query) == nullptr) result.add(info);
  }
  return result;
}
/// Returns the reason why `candidates_for` found no algorithm for a call.
template <class AlgorithmTable, class Entries>
[[gnu::cold]] failure no_candidate(const Entries& entries, const selection_query& query,
                                   algorithm pinned) {
  failure reason(errc::not_applicable);
  if (pinned == algorithm::automatic) {
    return reason.set_detail(
        "%s: no algorithm of this communicator gives the bits of the sequential order",
        name(query.operation));
  }
  const char* objection = pinned == algorithm::custom
                              ? "an algorithm of your own is a template argument of the call"
                              : "no such algorithm for this collective";
  for (const algorithm_info& info : entries) {
    if (info.id == pinned) objection = AlgorithmTable::refusal(info, query);
  }
  return reason.set_detail("%s %s: %s", name(query.operation), name(pinned), objection);
}

// Satisfied by a transport whose algorithms work on the caller's buffers. The layered transports of
// `staged` and `cuda_ipc` inherit the algorithm table of the transport below them, which cannot
// access the caller's buffers. Their calls therefore always go through `call_body`.
template <class Transport>
concept works_on_caller_buffers =
    std::same_as<typename algorithm_table<basic_channel<Transport>>::transport, Transport>;
template <collective Coll, class Transport>
constexpr auto frameless_algorithms() {
  if constexpr (works_on_caller_buffers<Transport>) {
    return algorithm_table<basic_channel<Transport>>::template frameless_algorithms<Coll>();
  } else {
    return algorithm_list<>();
  }
}
/// Returns `run.operator()<Algorithm>()` for the algorithm of the list that has the number `id`.
template <class Run, auto First, auto... Others>
[[gnu::always_inline]] inline auto dispatch(algorithm_list<First, Others...>, algorithm id,
                                            const Run& run) {
  if constexpr (sizeof...(Others) > 0) {
    if (id != First.id) return dispatch(algorithm_list<Others...>(), id, run);
  }
  return run.template operator()<First>();
}

/// Satisfied by a transport with native collectives, that is, implementations of collectives that
/// are not in the algorithm table, such as the GPU kernels of `cuda_ipc`. A call tries to use the
/// native collective if the call pins no algorithm, or pins `native` or `direct`. The call also has
/// an algorithm of the table, which it uses if it cannot use the native collective.
template <class Transport>
concept has_native_collectives = requires { requires Transport::has_native_collectives; };
template <class Transport>
bool uses_native(const options& opts) {
  if constexpr (has_native_collectives<Transport>) {
    return opts.algorithm == algorithm::automatic || opts.algorithm == algorithm::native ||
           opts.algorithm == algorithm::direct;
  }
  return false;
}
/// Returns the options for choosing an algorithm from the algorithm table. These are equal to
/// `opts`, except that they pin no algorithm if the call tries to use a native collective.
template <class Transport>
options selectable_options(const options& opts) {
  options result = opts;
  if (uses_native<Transport>(opts)) result.algorithm = algorithm::automatic;
  return result;
}

/// Chooses the algorithm of a call of the collective `Coll`, and returns the cache entry for such
/// calls. `requested` is the fingerprint of the call. `custom` is the user's own algorithm that the
/// call pins, or null. If no algorithm can do the call, makes `check` fail and returns an empty
/// entry.
template <collective Coll, class Transport>
call_cache::entry choose_algorithm(const tuning& selection, const fingerprint& requested,
                                   const selection_query& query, const options& opts,
                                   const algorithm_info* custom, checks& check) {
  using all = algorithm_table<basic_channel<Transport>>;
  check.require(opts.radix == 0 || opts.radix >= 2, "radix %d is not 2 or more", opts.radix);
  if (check.failed()) return {};
  const options selectable = selectable_options<Transport>(opts);
  algorithm_candidates candidates;
  if (custom == nullptr) {
    const auto& entries = all::template algorithms<Coll>();
    candidates = candidates_for<all>(entries, query, selectable.algorithm);
    if (candidates.empty()) {
      check.fail(no_candidate<all>(entries, query, selectable.algorithm));
    }
  } else if (const char* const objection = detail::refusal(*custom, query)) {
    failure reason(errc::not_applicable);
    check.fail(reason.set_detail("%s %s: %s", name(Coll), custom->name, objection));
  } else {
    candidates.add(*custom);
  }
  if (check.failed()) return {};
  const prediction chosen = selection.choose(query, pinned_choice(selectable), candidates);
  fingerprint agreed = requested;
  set_choice(agreed, chosen.choice);
  if (uses_native<Transport>(opts)) agreed.algorithm = algorithm::native;
  if (custom != nullptr) remember_custom_algorithm(custom->name);
  bool is_frameless = false;
  frameless_algorithms<Coll, Transport>().for_each([&]<auto Algorithm>() {
    if (Algorithm.id == chosen.choice.id) is_frameless = Algorithm.is_frameless(query);
  });
  return {requested, cached_call(agreed, chosen.choice), chosen.algorithm, is_frameless};
}

/// Returns the choice for a call of the collective `coll` with `bytes` bytes on `ranks` ranks, and
/// the predictions for all algorithms that can do the call. `native_obstacle` is why the algorithm
/// `native` cannot, or null.
template <class Transport>
explanation explain_choice(const tuning& selection, collective coll, std::uint64_t bytes, int ranks,
                           const options& requested, const algorithm_info* custom,
                           const char* native_obstacle) {
  const options opts = selectable_options<Transport>(requested);
  using all = algorithm_table<basic_channel<Transport>>;
  const bool reduces = coll == collective::all_reduce || coll == collective::reduce ||
                       coll == collective::reduce_scatter || coll == collective::scan ||
                       coll == collective::exscan;
  const selection_query query{coll, bytes, ranks, true, opts.order, reduces, native_obstacle};
  algorithm_candidates candidates;
  if (custom == nullptr) {
    with_collective(coll, [&]<collective Coll>() {
      candidates = candidates_for<all>(all::template algorithms<Coll>(), query, opts.algorithm);
    });
  } else if (detail::refusal(*custom, query) == nullptr) {
    candidates.add(*custom);
  }
  return selection.explain(query, pinned_choice(opts), candidates);
}

}  // namespace colls::detail
