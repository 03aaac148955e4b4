// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// round: short messages of a rank to many others and from many others at once, written to the links
// and taken from them without the lists of match.

#include <colls/channel/multi_send_recv.hpp>
#include <colls/transport/interprocess/connection.hpp>

#include <bit>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace colls::tcp {

/// Sends what `give` has, and ends when `take` is filled. The frames are those of other messages.
/// What a link cannot take at once, or has not brought after a while, goes their way: then match
/// tells who is waited for, who has left, and who has called something else.
template <class Transport>
class round_operation {
 public:
  [[gnu::always_inline]] round_operation(Transport& net, std::uint16_t lane,
                                         const round_gives& give, const round_takes& take,
                                         operation_record& of)
      : net_(net), record_(of), give_(give), take_(take) {
    const message_key key{0, of.communicator->id(), of.sequence, lane};
    frame_ = header_for(kind::data, key, 0, of.hash);
  }
  round_operation(round_operation&& other) noexcept
      : round_operation(other.net_, other.frame_.lane, other.give_, other.take_, other.record_) {}
  ~round_operation() {
    if (listed_) net_.unlist(*this);
  }

  bool start(completion& done) {
    const communicator_state& of = *record_.communicator;
    if (of.failed()) {
      ec_ = of.why().code;
      return true;
    }
    done_ = &done;
    if (of.size() > most) return settle([](int) { return true; }, [](int) { return true; });
    ranks unsent = 0;
    give_.each(of.rank(), [&](int rank) {
      const const_bytes message = give_.of(rank);
      link* const to = net_.link_to(of.world_rank(rank));
      frame_.length = message.size;
      if (to != nullptr && to->write_whole(frame_, message)) {
        record_.bytes += message.size;
      } else {
        unsent |= bit(rank);
      }
    });
    bool come_whole = unsent == 0;
    bool any_by_ring = false;
    take_.each(of.rank(), [&](int rank) {
      link* const from = links_[rank] = net_.link_to(of.world_rank(rank));
      missing_ |= bit(rank);
      come_whole &= from != nullptr && from->brings_whole(take_.of(rank).size);
      any_by_ring |= from != nullptr && from->has_ring();
    });
    if ((unsent | missing_) == 0) return true;
    if (net_.matching().has_arrivals()) come_whole &= take_early();
    if (!come_whole) return settle(unsent);
    if (missing_ == 0) return true;
    if (!any_by_ring) {
      net_.list(*this);
      return false;
    }
    // Before this looks: who sleeps goes on meanwhile, and so does the fence that asks.
    net_.hand_over();
    // Where each rank has a core, the others' lines are often under way already.
    for (int looks = net_.looks_at_once(); looks > 0; --looks) {
      if (take()) return true;
    }
    net_.list(*this);
    return false;
  }
  std::error_code result() {
    if (apart_ != nullptr) {
      for (sending& each : apart_->sends) note(each.result());
      for (receiving& each : apart_->receives) note(each.result());
    }
    return ec_;
  }

  // ---- for its transport

  bool is_of(const communicator_state& of) const { return record_.communicator == &of; }
  /// Whether that message is of this round, and has not been taken.
  bool waits_for(const message_key& key) const {
    const bool is_of_it = key.communicator == frame_.communicator &&
                          key.sequence == frame_.sequence && key.lane == frame_.lane;
    if (!is_of_it) return false;
    const int rank = record_.communicator->rank_of(key.peer);
    return rank >= 0 && (missing_ & bit(rank)) != 0;
  }
  /// Takes what has come. True: that was all.
  bool take() {
    for (ranks left = missing_; left != 0; left &= left - 1) take(std::countr_zero(left));
    return missing_ == 0;
  }
  /// Whether the next frame of that link was wanted, and has been taken.
  bool take_from(const link& from) {
    for (ranks left = missing_; left != 0; left &= left - 1) {
      const int rank = std::countr_zero(left);
      if (links_[rank] == &from) return take(rank);
    }
    return false;
  }
  bool has_all() const { return missing_ == 0; }
  /// The links by which something is still to come.
  template <class Visit>
  void each_awaited(const Visit& visit) const {
    for (ranks left = missing_; left != 0; left &= left - 1) {
      visit(*links_[std::countr_zero(left)]);
    }
  }
  void end() { done_->post(); }
  void fail(std::error_code why) {
    ec_ = why;
    end();
  }
  /// Goes on the way of other messages.
  void settle_later() {
    try {
      if (settle(0)) end();
    } catch (const std::bad_alloc&) {
      apart_.reset();
      fail(make_error_code(errc::not_enough_memory));
    }
  }
  bool is_old(time_point now) {
    if (since_ == 0) since_ = now;
    return now - since_ >= milliseconds || now >= record_.deadline;
  }

 private:
  friend Transport;
  using sending = typename Transport::send_operation;
  using receiving = typename Transport::recv_operation;
  using ranks = std::uint32_t;
  static constexpr int most = 16;

  struct wait : completion {
    round_operation* whole = nullptr;
  };
  /// What goes the way of other messages.
  struct apart : detail::recycled {
    detail::recycled_vector<sending> sends;
    detail::recycled_vector<receiving> receives;
    detail::recycled_vector<wait> waits;
  };

  static constexpr ranks bit(int rank) { return ranks{1} << rank; }
  bool take(int rank) {
    const mutable_bytes into = take_.of(rank);
    frame_.length = into.size;
    if (!links_[rank]->take_whole(frame_, into.data)) return false;
    missing_ ^= bit(rank);
    record_.bytes += into.size;
    return true;
  }
  message_key key(int rank) const { return frame_.key(record_.communicator->world_rank(rank)); }
  void note(std::error_code ec) {
    if (!ec_) ec_ = ec;
  }

  // What came before this began lies in match. False: one is not whole, or not what is wanted.
  bool take_early() {
    for (ranks left = missing_; left != 0; left &= left - 1) {
      const int rank = std::countr_zero(left);
      early* const message = net_.early_of(key(rank));
      if (message == nullptr) continue;
      const mutable_bytes into = take_.of(rank);
      const bool whole = message->buffered && message->filled == message->size;
      if (!whole || message->size != into.size || message->hash != record_.hash) return false;
      if (into.size != 0) std::memcpy(into.data, message->bytes(), into.size);
      net_.drop(*message);
      missing_ ^= bit(rank);
      record_.bytes += into.size;
    }
    return true;
  }
  bool settle(ranks unsent) {
    const ranks missing = std::exchange(missing_, 0);
    return settle([=](int rank) { return (unsent & bit(rank)) != 0; },
                  [=](int rank) { return (missing & bit(rank)) != 0; });
  }
  // True: all has ended.
  template <class Unsent, class Missing>
  bool settle(Unsent unsent, Missing missing) {
    const int mine = record_.communicator->rank();
    apart_.reset(new apart);
    apart_->sends.reserve(static_cast<std::size_t>(give_.most()));
    apart_->receives.reserve(static_cast<std::size_t>(take_.most()));
    give_.each(mine, [&](int rank) {
      if (unsent(rank)) apart_->sends.emplace_back(net_, key(rank), give_.of(rank), record_);
    });
    take_.each(mine, [&](int rank) {
      if (missing(rank)) apart_->receives.emplace_back(net_, key(rank), take_.of(rank), record_);
    });
    apart_->waits = detail::recycled_vector<wait>(apart_->sends.size() + apart_->receives.size());
    std::size_t next = 0;
    const auto begin = [&](auto& operation) {
      wait& each = apart_->waits[next++];
      each.whole = this;
      each.become(
          [](completion& self) noexcept {
            round_operation& whole = *static_cast<wait&>(self).whole;
            if (--whole.pending_ == 0) whole.done_->run();
          },
          *done_);
      if (!operation.start(each)) ++pending_;
    };
    pending_ = 1;  // the start itself
    for (sending& each : apart_->sends) begin(each);
    for (receiving& each : apart_->receives) begin(each);
    return --pending_ == 0;
  }

  Transport& net_;
  operation_record& record_;
  round_gives give_;
  round_takes take_;
  header frame_;  // but for its length, that of all messages
  completion* done_ = nullptr;
  ranks missing_ = 0;
  int pending_ = 0;
  bool listed_ = false;
  time_point since_ = 0;
  std::error_code ec_;
  std::unique_ptr<apart> apart_;
  link* links_[most];
};

}  // namespace colls::tcp
