// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// prepared_calls: collectives whose arguments are given once and that are started many times, like
// the persistent collectives of MPI.

#include <colls/base/options.hpp>
#include <colls/call/arguments.hpp>
#include <colls/call/call.hpp>
#include <colls/call/view_calls.hpp>

#include <tuple>
#include <utility>

namespace colls {

namespace detail {

/// Makes a call of the collective `Coll`.
template <collective Coll, class Communicator, class... Args>
operation<> make_call(Communicator& comm, Args&... args) {
  if constexpr (Coll == collective::all_reduce) {
    return comm.all_reduce(args...);
  } else if constexpr (Coll == collective::reduce) {
    return comm.reduce(args...);
  } else if constexpr (Coll == collective::reduce_scatter) {
    return comm.reduce_scatter(args...);
  } else if constexpr (Coll == collective::scan) {
    return comm.scan(args...);
  } else if constexpr (Coll == collective::exscan) {
    return comm.exscan(args...);
  } else if constexpr (Coll == collective::broadcast) {
    return comm.broadcast(args...);
  } else if constexpr (Coll == collective::barrier) {
    return comm.barrier(args...);
  } else if constexpr (Coll == collective::all_gather) {
    return comm.all_gather(args...);
  } else if constexpr (Coll == collective::gather) {
    return comm.gather(args...);
  } else if constexpr (Coll == collective::scatter) {
    return comm.scatter(args...);
  } else {
    static_assert(Coll == collective::all_to_all);
    return comm.all_to_all(args...);
  }
}

/// An argument of a prepared call: a reference to a container, and a copy of anything else.
template <class Arg>
inline constexpr bool is_container =
    data_argument<Arg> && !std::ranges::enable_borrowed_range<std::remove_cvref_t<Arg>>;
template <class Arg>
using prepared_argument = std::conditional_t<is_container<Arg> && std::is_lvalue_reference_v<Arg>,
                                             Arg, std::remove_cvref_t<Arg>>;

}  // namespace detail

/// A collective that can be started any number of times, one time after another. The buffers that
/// were named when it was prepared, and the communicator, must stay alive and in their place.
template <class Communicator, collective Coll, class... Args>
class prepared_call {
 public:
  prepared_call(Communicator& comm, const options& opts, Args... args)
      : comm_(&comm), opts_(opts), args_(std::forward<Args>(args)...) {}
  prepared_call(prepared_call&& other) noexcept
      : comm_(other.comm_), opts_(other.opts_), args_(std::move(other.args_)) {
    was_moved_ = std::exchange(other.was_moved_, true);
    if (other.started_ != nullptr) observe(*other.started_);
    other.started_ = nullptr;
  }
  prepared_call& operator=(prepared_call&&) = delete;
  ~prepared_call() {
    if (started_ != nullptr) started_->observer = nullptr;
  }

  /// Makes the call, as the communicator's member function of that name does. It takes its sequence
  /// number here. A rank may start a prepared call where another makes a plain one. If the
  /// operation of the previous `start` was neither awaited nor destroyed, or if this object was
  /// moved, returns an operation that fails with `errc::invalid_argument`.
  operation<> start() {
    auto& core = comm_->underlying_core();
    core.check_thread();
    const bool is_started = started_ != nullptr && !started_->was_awaited;
    if (was_moved_ || is_started) {
      failure reason(errc::invalid_argument, was_moved_
                                                 ? "the prepared call was moved"
                                                 : "the prepared call was started before, and that "
                                                   "operation was not awaited");
      reason.operation = Coll;
      return core.refuse(core.make(Coll), reason);
    }
    operation<> started = std::apply(
        [&](auto&... args) { return detail::make_call<Coll>(*comm_, args..., opts_); }, args_);
    if (started_ != nullptr) started_->observer = nullptr;
    observe(started.underlying_call());
    return started;
  }

 private:
  void observe(detail::call_base& started) {
    started_ = &started;
    started.observer = &started_;
  }

  Communicator* comm_;
  options opts_;
  std::tuple<Args...> args_;
  bool was_moved_ = false;
  detail::call_base* started_ = nullptr;  // the last call that was started, until it is destroyed
};

/// The functions of a communicator that prepare its collectives. Each takes the arguments of the
/// collective and sends nothing.
template <class Communicator>
class prepared_calls {
 public:
  template <detail::data_argument Data>
  auto prepare_all_reduce(Data&& data, const options& opts = {}) {
    return prepare<collective::all_reduce>(opts, lasting<Data>(data));
  }
  template <detail::data_argument Data, class Second>
    requires(!std::is_same_v<std::remove_cvref_t<Second>, options>)
  auto prepare_all_reduce(Data&& data, Second&& out_or_op, const options& opts = {}) {
    return prepare<collective::all_reduce>(opts, lasting<Data>(data), lasting<Second>(out_or_op));
  }
  template <detail::data_argument In, detail::data_argument Out, detail::view_operation Op>
  auto prepare_all_reduce(In&& in, Out&& out, Op op, const options& opts = {}) {
    return prepare<collective::all_reduce>(opts, lasting<In>(in), lasting<Out>(out), std::move(op));
  }

  template <detail::data_argument Data, detail::view_operation Op = plus>
  auto prepare_reduce(Data&& data, int root, Op op = {}, const options& opts = {}) {
    return prepare<collective::reduce>(opts, lasting<Data>(data), std::move(root), std::move(op));
  }
  template <detail::data_argument Data>
  auto prepare_reduce(Data&& data, int root, const options& opts) {
    return prepare_reduce(lasting<Data>(data), root, plus{}, opts);
  }
  template <detail::data_argument In, detail::optional_argument Out,
            detail::view_operation Op = plus>
  auto prepare_reduce(In&& in, Out&& out, int root, Op op = {}, const options& opts = {}) {
    return prepare<collective::reduce>(opts, lasting<In>(in), lasting<Out>(out), std::move(root),
                                       std::move(op));
  }
  template <detail::data_argument In, detail::optional_argument Out>
  auto prepare_reduce(In&& in, Out&& out, int root, const options& opts) {
    return prepare_reduce(lasting<In>(in), lasting<Out>(out), root, plus{}, opts);
  }

  template <detail::data_argument In, detail::data_argument Out, detail::view_operation Op = plus>
  auto prepare_reduce_scatter(In&& in, Out&& out, Op op = {}, const options& opts = {}) {
    return prepare<collective::reduce_scatter>(opts, lasting<In>(in), lasting<Out>(out),
                                               std::move(op));
  }
  template <detail::data_argument In, detail::data_argument Out>
  auto prepare_reduce_scatter(In&& in, Out&& out, const options& opts) {
    return prepare_reduce_scatter(lasting<In>(in), lasting<Out>(out), plus{}, opts);
  }

  template <detail::data_argument Data, detail::view_operation Op = plus>
  auto prepare_scan(Data&& data, Op op = {}, const options& opts = {}) {
    return prepare<collective::scan>(opts, lasting<Data>(data), std::move(op));
  }
  template <detail::data_argument Data>
  auto prepare_scan(Data&& data, const options& opts) {
    return prepare_scan(lasting<Data>(data), plus{}, opts);
  }
  template <detail::data_argument Data, detail::view_operation Op = plus>
  auto prepare_exscan(Data&& data, Op op = {}, const options& opts = {}) {
    return prepare<collective::exscan>(opts, lasting<Data>(data), std::move(op));
  }
  template <detail::data_argument Data>
  auto prepare_exscan(Data&& data, const options& opts) {
    return prepare_exscan(lasting<Data>(data), plus{}, opts);
  }

  template <detail::data_argument Data>
  auto prepare_broadcast(Data&& data, int root, const options& opts = {}) {
    return prepare<collective::broadcast>(opts, lasting<Data>(data), std::move(root));
  }
  auto prepare_barrier(const options& opts = {}) { return prepare<collective::barrier>(opts); }
  template <detail::data_argument In, detail::data_argument Out>
  auto prepare_all_gather(In&& in, Out&& out, const options& opts = {}) {
    return prepare<collective::all_gather>(opts, lasting<In>(in), lasting<Out>(out));
  }
  template <detail::data_argument In, detail::optional_argument Out>
  auto prepare_gather(In&& in, Out&& out, int root, const options& opts = {}) {
    return prepare<collective::gather>(opts, lasting<In>(in), lasting<Out>(out), std::move(root));
  }
  template <detail::optional_argument In, detail::data_argument Out>
  auto prepare_scatter(In&& in, Out&& out, int root, const options& opts = {}) {
    return prepare<collective::scatter>(opts, lasting<In>(in), lasting<Out>(out), std::move(root));
  }
  template <detail::data_argument In, detail::data_argument Out>
  auto prepare_all_to_all(In&& in, Out&& out, const options& opts = {}) {
    return prepare<collective::all_to_all>(opts, lasting<In>(in), lasting<Out>(out));
  }

 private:
  /// Returns the argument `data`, which must outlive the prepared call if it is a container.
  template <class Data>
  static Data&& lasting(std::remove_reference_t<Data>& data) {
    static_assert(!detail::is_container<Data> || std::is_lvalue_reference_v<Data>,
                  "colls: the data is a temporary that would be destroyed before the call is "
                  "started: give it a name, or pass a std::span");
    return static_cast<Data&&>(data);
  }
  template <collective Coll, class... Args>
  auto prepare(const options& opts, Args&&... args) {
    return prepared_call<Communicator, Coll, detail::prepared_argument<Args>...>(
        static_cast<Communicator&>(*this), opts, std::forward<Args>(args)...);
  }
};

}  // namespace colls
