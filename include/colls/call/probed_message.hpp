// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// probed_message: a message that a probe has matched, and that this rank receives once it knows the
// length.

#include <colls/call/communicator_core.hpp>
#include <colls/call/view_calls.hpp>

#include <vector>

namespace colls {

/// The largest message, in bytes, that a receive of unknown length takes if its caller gives no
/// limit.
inline constexpr std::size_t default_most = std::size_t{1} << 30;

namespace detail {

template <class T, class Memory>
constexpr void check_vector_element() {
  static_assert(std::is_same_v<Memory, host_memory>,
                "colls: this call makes a std::vector, and the communicator moves device memory");
  static_assert(!std::is_same_v<T, bool>,
                "colls: a std::vector<bool> has no elements that a call could write: receive "
                "unsigned char");
}

}  // namespace detail

/// A message that `communicator::probe` has matched. It waits for `recv` or `recv_vector`, which
/// receive it once. If this object is destroyed first, the message is discarded:
/// if its sender still waits, the send fails with `errc::cancelled`, and the communicator stays
/// good. If the sender cancels the message, or if the communicator fails or is closed, receiving
/// the message fails, with `errc::cancelled` or with the error of the communicator.
///
/// A process that holds messages of a peer may not see all of that peer's later ones: messages of
/// up to 128 KiB with the same tag wait behind a held one, and no more than 64 longer messages can
/// wait at the same time.
template <class Transport>
class probed_message {
 public:
  /// Makes an object without a message. Receiving from it fails with `errc::cancelled`.
  probed_message() = default;
  probed_message(detail::core<Transport>& owner, unexpected_message*& message)
      : core_(&owner),
        observer_(owner.matching().rank()),
        source_(owner.state().rank_of(message->key.peer)),
        tag_(static_cast<int>(message->key.sequence)),
        size_(message->size) {
    match_queues::move_ownership(message, message_);
  }
  probed_message(probed_message&& other) noexcept { *this = std::move(other); }
  probed_message& operator=(probed_message&& other) noexcept {
    if (this == &other) return *this;
    discard();
    core_ = other.core_;
    observer_ = other.observer_;
    source_ = other.source_;
    tag_ = other.tag_;
    size_ = other.size_;
    was_received_ = other.was_received_;
    match_queues::move_ownership(other.message_, message_);
    return *this;
  }
  ~probed_message() { discard(); }

  /// Returns the rank that has sent the message.
  int source() const { return source_; }
  int tag() const { return tag_; }
  /// Returns the length of the message in bytes.
  std::size_t bytes() const { return size_; }

  /// Receives the message into `data`, as `communicator::recv` does.
  template <readable_range Data>
  operation<received> recv(Data&& data, const options& opts = {}) {
    static_assert(writable_range<Data>, "colls: this buffer is const, and the call writes it");
    if (message_ == nullptr) return refuse<received>();
    return receive(detail::to_usable_buffer<host_memory>(core_, std::forward<Data>(data)), opts);
  }
  /// Receives the message into a strided view or a tensor.
  template <viewable Data>
  operation<received> recv(Data&& data, const options& opts = {}) {
    if (message_ == nullptr) return refuse<received>();
    detail::checks check(collective::recv);
    const erased_view target = detail::erase_argument<host_memory>(
        check, core_, detail::written(std::forward<Data>(data)));
    if (check.failed()) {
      return core_->refuse(core_->template make<detail::call<received>>(collective::recv),
                           check.reason());
    }
    return receive(target.view, opts);
  }
  /// Receives the message into a new vector, as `communicator::recv_vector` does. The message may
  /// have any length.
  template <supported_type T>
  operation<std::vector<T>> recv_vector(const options& opts = {}) {
    detail::check_vector_element<T, host_memory>();
    if (message_ == nullptr) return refuse<std::vector<T>>();
    operation<std::vector<T>> receiving =
        core_->template recv_vector<T>(source_, tag_, &message_, SIZE_MAX, opts);
    was_received_ = message_ == nullptr;
    return receiving;
  }

 private:
  operation<received> receive(const any_view& data, const options& opts) {
    operation<received> receiving = core_->recv_probed(message_, data, opts);
    was_received_ = message_ == nullptr;
    return receiving;
  }
  void discard() noexcept {
    // If the communicator has been closed, the message was dropped then, and `message_` is null.
    if (message_ != nullptr) core_->discard(message_);
  }
  // Returns an operation that has failed because the message cannot be received any more. The
  // operation uses no communicator, which may not exist any more.
  template <class T>
  operation<T> refuse() {
    failure reason(was_received_ ? errc::invalid_argument : errc::cancelled);
    reason.observer = observer_;
    reason.operation = collective::recv;
    reason.set_detail("%s", was_received_
                                ? "this message was received already"
                                : "the message is gone: it was moved to another object, its sender "
                                  "has cancelled it, or the communicator has ended");
    return operation<T>(detail::ended_call<T>(reason));
  }

  detail::core<Transport>* core_ = nullptr;
  int observer_ = -1;  // the world rank of this rank
  int source_ = -1;
  int tag_ = 0;
  std::size_t size_ = 0;
  bool was_received_ = false;
  unexpected_message* message_ = nullptr;
};

}  // namespace colls
