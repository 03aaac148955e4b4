// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recv_reduce: a receive whose message is reduced with what is here, and what becomes of an
// operation whose reduction throws.

#include <colls/channel/scratch.hpp>
#include <colls/channel/transport.hpp>
#include <colls/reduction/reduce_into.hpp>

#include <exception>
#include <optional>
#include <utility>

namespace colls {

/// On which side of the operation the incoming part stands: the lower rank's part is the left one.
enum class incoming : std::uint8_t { left, right };

namespace detail {

template <class Transport>
using receive_of = decltype(std::declval<Transport&>().recv(
    std::declval<message_key>(), mutable_bytes{}, std::declval<operation_record&>()));

template <class Transport>
bool is_phantom(const Transport& net) {
  if constexpr (phantom_transport<Transport>) return net.is_phantom();
  return false;
}

/// The operation has failed on this rank: ends it on all.
template <class Transport>
void revoke(Transport& net, const operation_record& record, failure why) {
  why.operation = record.what;
  why.sequence = record.sequence;
  why.communicator = record.communicator->id();
  why.culprit = net.rank();
  net.matching().revoke(*record.communicator, why);
}

/// A reduction has thrown what is being handled.
template <class Transport>
[[gnu::cold, gnu::noinline]] void reduction_threw(Transport& net, const operation_record& record) {
  failure why(errc::user_op_failed);
  try {
    throw;
  } catch (const std::exception& thrown) {
    why.say("the reduction threw: %.200s", thrown.what());
  } catch (...) {
    why.say("the reduction threw");
  }
  // First, so that what runs beside this operation ends too.
  revoke(net, record, why);
}

/// False: the reduction threw, and the operation has been ended on all ranks.
template <class Transport, class Reduce>
[[gnu::always_inline]] inline bool guarded(Transport& net, const operation_record& record,
                                           const Reduce& reduce) noexcept {
  if (is_phantom(net)) return true;
  try {
    reduce();
    return true;
  } catch (...) {
    reduction_threw(net, record);
    return false;
  }
}

}  // namespace detail

/// What a message is reduced with, and where the result goes.
template <class Data, class Op>
struct reduced_with {
  Data mine;
  Data out;
  const Op* op;
  incoming side;

  /// Folds the piece of the message that begins at `offset`. False: the reduction threw, and the
  /// operation has been ended on all ranks.
  template <class Transport>
  bool fold(Transport& net, const operation_record& record, std::size_t offset,
            const std::byte* piece, std::size_t size) const noexcept {
    if (size == 0) return true;
    return detail::guarded(net, record, [&] {
      const std::size_t element = element_size(mine);
      const Data into = out.subspan(offset / element, size / element);
      const auto* const ours = static_cast<const std::byte*>(bytes(mine).data) + offset;
      if (side == incoming::left) {
        reduce_into(into, piece, ours, *op);
      } else {
        reduce_into(into, ours, piece, *op);
      }
    });
  }
};

template <class Transport, class Data, class Op>
class fused_reduce;
template <class Transport, class Data, class Op>
class staged_reduce;

/// The receive, to be made where it is awaited.
template <class Transport, class Data, class Op>
struct reduce_request {
  using operation =
      std::conditional_t<consuming_transport<Transport>, fused_reduce<Transport, Data, Op>,
                         staged_reduce<Transport, Data, Op>>;
  [[gnu::always_inline]] operator operation() const { return operation(*this); }

  Transport* net;
  operation_record* record;
  message_key key;
  reduced_with<Data, Op> what;
};

/// The transport hands the message over where it lies.
template <class Transport, class Data, class Op>
class fused_reduce {
 public:
  [[gnu::always_inline]] explicit fused_reduce(const reduce_request<Transport, Data, Op>& wanted)
      : net_(wanted.net),
        record_(wanted.record),
        what_(wanted.what),
        receive_(wanted.net->recv(wanted.key, {nullptr, bytes(wanted.what.mine).size},
                                  *wanted.record)) {}
  fused_reduce(fused_reduce&& other) noexcept
      : net_(other.net_),
        record_(other.record_),
        what_(other.what_),
        receive_(std::move(other.receive_)) {}

  bool start(completion& done) {
    receive_.consume_with(
        [](void* self, std::size_t offset, const std::byte* piece, std::size_t size) {
          auto& me = *static_cast<fused_reduce*>(self);
          if (!me.folded_) return;
          me.folded_ = me.what_.fold(*me.net_, *me.record_, offset, piece, size);
        },
        this, element_size(what_.mine));
    return receive_.start(done);
  }
  std::error_code result() {
    return folded_ ? receive_.result() : make_error_code(errc::user_op_failed);
  }

 private:
  Transport* net_;
  operation_record* record_;
  reduced_with<Data, Op> what_;
  bool folded_ = true;
  detail::receive_of<Transport> receive_;
};

/// The message goes to scratch and is reduced from there.
template <class Transport, class Data, class Op>
class staged_reduce : completion {
 public:
  [[gnu::always_inline]] explicit staged_reduce(const reduce_request<Transport, Data, Op>& wanted)
      : wanted_(wanted) {}
  staged_reduce(staged_reduce&& other) noexcept : wanted_(other.wanted_) {}

  bool start(completion& done) {
    const std::size_t size = bytes(wanted_.what.mine).size;
    try {
      scratch_.emplace(wanted_.net->matching(), size);
    } catch (const error&) {
      detail::revoke(*wanted_.net, *wanted_.record, failure(errc::not_enough_memory));
      ec_ = errc::not_enough_memory;
      return true;
    }
    receive_.emplace(wanted_.net->recv(wanted_.key, {scratch_->data(), size}, *wanted_.record));
    done_ = &done;
    become(
        [](completion& self) noexcept {
          auto& me = static_cast<staged_reduce&>(self);
          me.arrived();
          me.done_->run();
        },
        done);
    if (!receive_->start(*this)) return false;
    arrived();
    return true;
  }
  std::error_code result() { return ec_; }

 private:
  void arrived() noexcept {
    ec_ = receive_->result();
    if (ec_) return;
    const mutable_bytes message = scratch_->all();
    if (!wanted_.what.fold(*wanted_.net, *wanted_.record, 0, message.data, message.size)) {
      ec_ = errc::user_op_failed;
    }
  }

  reduce_request<Transport, Data, Op> wanted_;
  std::error_code ec_;
  completion* done_ = nullptr;
  std::optional<scratch> scratch_;
  std::optional<detail::receive_of<Transport>> receive_;
};

}  // namespace colls
