// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// share: a short message of each rank to all others at once, written to the rings and taken from
// them without the lists of match.

#include <colls/transport/tcp/link.hpp>

#include <bit>
#include <utility>
#include <vector>

namespace colls::tcp {

/// Sends `mine` to all other ranks of a communicator, and ends when `parts` holds what they sent,
/// each in the place of its rank. The frames are those of other messages. What a ring cannot take at
/// once, or has not brought after a while, goes their way: then match tells who is waited for, who
/// has left, and who has called something else.
template <class Transport>
class share_operation {
 public:
  share_operation(Transport& net, std::uint16_t lane, const_bytes mine, std::byte* parts,
                  operation_record& of)
      : net_(net), record_(of), parts_(parts), mine_(mine) {
    const message_key key{0, of.communicator->id(), of.sequence, lane};
    frame_ = header_for(kind::data, key, mine.size, of.hash);
  }
  share_operation(share_operation&& other) noexcept
      : share_operation(other.net_, other.frame_.lane, other.mine_, other.parts_, other.record_) {}
  ~share_operation() {
    if (listed_) net_.unlist(*this);
  }

  bool start(completion& done) {
    const communicator_state& of = *record_.communicator;
    if (of.failed()) {
      ec_ = of.why().code;
      return true;
    }
    done_ = &done;
    ranks unsent = 0;
    for (int rank = 0; rank < of.size(); ++rank) {
      if (rank == of.rank()) continue;
      if (of.size() > most) return settle_all();
      links_[rank] = net_.ring_to(of.world_rank(rank));
      missing_ |= bit(rank);
      if (links_[rank] != nullptr && links_[rank]->write_whole(frame_, mine_)) {
        record_.bytes += mine_.size;
      } else {
        unsent |= bit(rank);
      }
    }
    // What came before this began lies in match.
    if (unsent != 0 || net_.matching().has_arrivals()) return settle(unsent);
    // Where each rank has a core, the others' lines are often under way already.
    for (int looks = net_.looks_at_once(); looks > 0; --looks) {
      if (take()) return true;
    }
    net_.list(*this);
    return false;
  }
  std::error_code result() {
    for (sending& each : sends_) note(each.result());
    for (receiving& each : receives_) note(each.result());
    return ec_;
  }

  // ---- for its transport

  bool is_of(const communicator_state& of) const { return record_.communicator == &of; }
  bool takes(const message_key& key) const {
    return key.communicator == frame_.communicator && key.sequence == frame_.sequence &&
           key.lane == frame_.lane;
  }
  /// Takes what has come. True: that was all.
  bool take() {
    for (ranks left = missing_; left != 0; left &= left - 1) {
      const int rank = std::countr_zero(left);
      if (!links_[rank]->take_whole(frame_, place(rank).data)) continue;
      missing_ ^= bit(rank);
      record_.bytes += mine_.size;
    }
    return missing_ == 0;
  }
  void end() { done_->post(); }
  void fail(std::error_code why) {
    ec_ = why;
    end();
  }
  /// Goes on the way of other messages.
  void settle_later() {
    if (settle(0)) end();
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
  template <class T>
  using list = std::vector<T, detail::recycling_allocator<T>>;

  struct wait : completion {
    share_operation* whole = nullptr;
  };

  static constexpr ranks bit(int rank) { return ranks{1} << rank; }
  message_key key(int rank) const { return frame_.key(record_.communicator->world_rank(rank)); }
  mutable_bytes place(int rank) const {
    return {parts_ + static_cast<std::size_t>(rank) * mine_.size, mine_.size};
  }
  void note(std::error_code ec) {
    if (!ec_) ec_ = ec;
  }

  bool settle(ranks unsent) {
    const ranks missing = std::exchange(missing_, 0);
    return settle([=](int rank) { return (unsent & bit(rank)) != 0; },
                  [=](int rank) { return (missing & bit(rank)) != 0; });
  }
  bool settle_all() {
    const auto others = [mine = record_.communicator->rank()](int rank) { return rank != mine; };
    return settle(others, others);
  }
  // True: all has ended.
  template <class Unsent, class Missing>
  bool settle(Unsent unsent, Missing missing) {
    const int size = record_.communicator->size();
    const auto all = static_cast<std::size_t>(size);
    sends_.reserve(all);
    receives_.reserve(all);
    for (int rank = 0; rank < size; ++rank) {
      if (unsent(rank)) sends_.emplace_back(net_, key(rank), mine_, record_);
      if (missing(rank)) receives_.emplace_back(net_, key(rank), place(rank), record_);
    }
    waits_ = list<wait>(sends_.size() + receives_.size());
    std::size_t next = 0;
    const auto begin = [&](auto& operation) {
      wait& each = waits_[next++];
      each.whole = this;
      each.become(
          [](completion& self) noexcept {
            share_operation& whole = *static_cast<wait&>(self).whole;
            if (--whole.pending_ == 0) whole.done_->run();
          },
          *done_);
      if (!operation.start(each)) ++pending_;
    };
    pending_ = 1;  // the start itself
    for (sending& each : sends_) begin(each);
    for (receiving& each : receives_) begin(each);
    return --pending_ == 0;
  }

  Transport& net_;
  operation_record& record_;
  std::byte* parts_;
  const_bytes mine_;
  header frame_;
  completion* done_ = nullptr;
  ranks missing_ = 0;
  int pending_ = 0;
  bool listed_ = false;
  time_point since_ = 0;
  std::error_code ec_;
  link* links_[most];
  list<sending> sends_;
  list<receiving> receives_;
  list<wait> waits_;
};

}  // namespace colls::tcp
