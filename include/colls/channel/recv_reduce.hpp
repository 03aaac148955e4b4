// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recv_reduce: an operation that receives a message and reduces it with local data. The operation
// is fused if the message is reduced as it arrives, and staged if the message is first stored in
// scratch (temporary) memory.

#include <colls/channel/scratch.hpp>
#include <colls/channel/transport.hpp>
#include <colls/reduction/reduce_into.hpp>

#include <exception>
#include <optional>
#include <utility>

namespace colls {

/// The position of the incoming data in a reduction: the left or the right operand. The left
/// operand is the data of the lower rank.
enum class incoming : std::uint8_t { left, right };

namespace detail {

template <class Transport>
using receive_operation_of = decltype(std::declval<Transport&>().recv(
    std::declval<message_key>(), mutable_bytes{}, std::declval<operation_record&>()));

template <class Transport>
bool is_phantom(const Transport& net) {
  if constexpr (phantom_transport<Transport>) return net.is_phantom();
  return false;
}

/// Fails the operation on all ranks with `reason`. Called when the operation has failed on this
/// rank.
template <class Transport>
void revoke(Transport& net, const operation_record& record, failure reason) {
  reason.operation = record.operation;
  reason.sequence = record.sequence;
  reason.communicator = record.communicator->id();
  reason.culprit = net.rank();
  net.matching().revoke(*record.communicator, reason);
}

/// Revokes the communicator after a reduction has thrown an exception. Must be called in the
/// handler of this exception. The text of the exception becomes part of the reason for the
/// revocation.
template <class Transport>
[[gnu::cold, gnu::noinline]] void revoke_after_throw(Transport& net,
                                                     const operation_record& record) {
  failure reason(errc::user_op_failed);
  try {
    throw;
  } catch (const std::exception& thrown) {
    reason.set_detail("the reduction threw: %.200s", thrown.what());
  } catch (...) {
    reason.set_detail("the reduction threw");
  }
  // This function revokes the communicator before the current operation completes, so that
  // concurrent parts of the same collective fail too.
  revoke(net, record, reason);
}

/// Calls `reduce` and returns true. If `reduce` throws, fails the operation on all ranks and
/// returns false. In a simulation without payload (phantom), does nothing and returns true.
template <class Transport, class Reduce>
[[gnu::always_inline]] inline bool try_reduce(Transport& net, const operation_record& record,
                                              const Reduce& reduce) noexcept {
  if (is_phantom(net)) return true;
  try {
    reduce();
    return true;
  } catch (...) {
    revoke_after_throw(net, record);
    return false;
  }
}

}  // namespace detail

/// The local operand, the result buffer and the reduction of a recv_reduce.
template <class Data, class Op>
struct recv_reduce_args {
  Data local;
  Data out;
  const Op* op;
  incoming side;

  /// Reduces the piece of the message that begins at byte `offset`, and returns true. If the
  /// reduction throws, fails the operation on all ranks and returns false.
  template <class Transport>
  bool fold(Transport& net, const operation_record& record, std::size_t offset,
            const std::byte* piece, std::size_t size) const noexcept {
    if (size == 0) return true;
    return detail::try_reduce(net, record, [&] {
      const std::size_t element = element_size(local);
      const Data into = out.subspan(offset / element, size / element);
      const auto* const own = static_cast<const std::byte*>(bytes(local).data) + offset;
      if (side == incoming::left) {
        reduce_into(into, piece, own, *op);
      } else {
        reduce_into(into, own, piece, *op);
      }
    });
  }
};

template <class Transport, class Data, class Op>
class fused_recv_reduce;
template <class Transport, class Data, class Op>
class staged_recv_reduce;

/// The arguments of a recv_reduce operation. `co_await` converts a request to the operation. The
/// conversion constructs the operation in place, so the operation need not be moved.
template <class Transport, class Data, class Op>
struct recv_reduce_request {
  using operation =
      std::conditional_t<consuming_transport<Transport>, fused_recv_reduce<Transport, Data, Op>,
                         staged_recv_reduce<Transport, Data, Op>>;
  [[gnu::always_inline]] operator operation() const { return operation(*this); }

  Transport* net;
  operation_record* record;
  message_key key;
  recv_reduce_args<Data, Op> args;
};

/// A recv_reduce on a transport that can pass an arriving message to the reduction without storing
/// the message first.
template <class Transport, class Data, class Op>
class fused_recv_reduce {
 public:
  [[gnu::always_inline]] explicit fused_recv_reduce(
      const recv_reduce_request<Transport, Data, Op>& request)
      : net_(request.net),
        record_(request.record),
        args_(request.args),
        receive_(request.net->recv(request.key, {nullptr, bytes(request.args.local).size},
                                   *request.record)) {}
  fused_recv_reduce(fused_recv_reduce&& other) noexcept
      : net_(other.net_),
        record_(other.record_),
        args_(other.args_),
        receive_(std::move(other.receive_)) {}

  bool start(completion& done) {
    receive_.consume_with(
        [](void* context, std::size_t offset, const std::byte* piece, std::size_t size) {
          auto& self = *static_cast<fused_recv_reduce*>(context);
          if (!self.folded_) return;
          self.folded_ = self.args_.fold(*self.net_, *self.record_, offset, piece, size);
        },
        this, element_size(args_.local));
    return receive_.start(done);
  }
  std::error_code result() {
    return folded_ ? receive_.result() : make_error_code(errc::user_op_failed);
  }

 private:
  Transport* net_;
  operation_record* record_;
  recv_reduce_args<Data, Op> args_;
  bool folded_ = true;
  detail::receive_operation_of<Transport> receive_;
};

/// A recv_reduce that receives the whole message in scratch memory and then reduces it.
template <class Transport, class Data, class Op>
class staged_recv_reduce : completion {
 public:
  [[gnu::always_inline]] explicit staged_recv_reduce(
      const recv_reduce_request<Transport, Data, Op>& request)
      : request_(request) {}
  staged_recv_reduce(staged_recv_reduce&& other) noexcept : request_(other.request_) {}

  bool start(completion& done) {
    const std::size_t size = bytes(request_.args.local).size;
    try {
      scratch_.emplace(request_.net->matching(), size);
    } catch (const error&) {
      detail::revoke(*request_.net, *request_.record, failure(errc::not_enough_memory));
      ec_ = errc::not_enough_memory;
      return true;
    }
    receive_.emplace(request_.net->recv(request_.key, {scratch_->data(), size}, *request_.record));
    done_ = &done;
    bind(
        [](completion& receive_done) noexcept {
          auto& self = static_cast<staged_recv_reduce&>(receive_done);
          self.finish();
          self.done_->run();
        },
        done);
    if (!receive_->start(*this)) return false;
    finish();
    return true;
  }
  std::error_code result() { return ec_; }

 private:
  void finish() noexcept {
    ec_ = receive_->result();
    if (ec_) return;
    const mutable_bytes message = scratch_->all();
    if (!request_.args.fold(*request_.net, *request_.record, 0, message.data, message.size)) {
      ec_ = errc::user_op_failed;
    }
  }

  recv_reduce_request<Transport, Data, Op> request_;
  std::error_code ec_;
  completion* done_ = nullptr;
  std::optional<scratch> scratch_;
  std::optional<detail::receive_operation_of<Transport>> receive_;
};

}  // namespace colls
