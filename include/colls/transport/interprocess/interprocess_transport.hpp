// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tcp: ranks in processes, over links that open on first use: TCP between hosts, inside a host
// memory that both processes share.

#include <colls/bootstrap/subworld.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/channel/receive.hpp>
#include <colls/channel/send.hpp>
#include <colls/channel/transport.hpp>
#include <colls/transport/interprocess/eager_rendezvous.hpp>
#include <colls/transport/interprocess/multi_send_recv.hpp>
#include <colls/transport/interprocess/window/window_manager.hpp>

namespace colls {

/// One rank of a world whose ranks reach each other over TCP. All of its communicators share its
/// links, its match and its executor; nothing in it may be used from another thread.
class tcp_transport final : mover,
                            engine::source,
                            tcp::link_owner,
                            tcp::opener::host,
                            tcp::delivery::host,
                            failure_listener {
 public:
  static constexpr bool consumes = true;

  tcp_transport(std::shared_ptr<engine> on, std::shared_ptr<membership> who);
  tcp_transport(const tcp_transport&) = delete;
  tcp_transport& operator=(const tcp_transport&) = delete;
  ~tcp_transport();

  int rank() const { return who_->rank; }
  int size() const { return who_->size; }
  match& matching() override { return match_; }
  run_queue& queue() { return engine_->queue(); }
  void kick() {
    hand_over();
    engine_->kick();
  }
  void hand_over() override { links_.wake_peers(); }
  time_point now() const { return engine_->now(); }
  network_cost costs() const;
  engine& driver() { return *engine_; }
  int node_of(int rank) const { return who_->node_of[static_cast<std::size_t>(rank)]; }
  const std::shared_ptr<engine>& shared_engine() const { return engine_; }
  const membership& members() const { return *who_; }
  const std::shared_ptr<membership>& shared_members() const { return who_; }

  /// What the ranks of a communicator tell each other to form a world of its own on another
  /// executor.
  using card = offshoot::card;
  /// Opens this rank's listeners for such a world and says where they are.
  std::shared_ptr<membership> prepare_world(int rank, int size, card& mine) const;
  /// The transport of that world, once every rank's card is known. Nobody else may turn the
  /// executor meanwhile.
  std::shared_ptr<tcp_transport> open_world(const boost::asio::any_io_executor& executor,
                                            std::shared_ptr<membership> who,
                                            const std::vector<card>& cards) const;

  using send_operation = queued_send<tcp_transport, tcp::outgoing>;
  friend send_operation;
  using recv_operation = receive_operation<tcp_transport>;
  friend recv_operation;

  using round_operation = tcp::round_operation<tcp_transport>;
  friend round_operation;

  /// See `tcp::lender`.
  std::shared_ptr<std::byte> allocate(std::size_t size) { return lender_.allocate(size); }
  bool lends(const_bytes data) const { return lender_.has(data); }
  struct desk : tcp::lender::desk {
    explicit desk(tcp_transport& net) : tcp::lender::desk(net.lender_) {}
  };
  struct loan : tcp::lender::loan {
    loan(tcp_transport& net, communicator_state& on) : tcp::lender::loan(net.lender_, on) {}
  };
  using view = shm::arena_view;
  view* view_of(int peer) { return lender_.view_of(peer); }

  send_operation send(const message_key& to, const_bytes from, operation_record& record) {
    return {*this, to, from, record};
  }
  recv_operation recv(const message_key& from, mutable_bytes into, operation_record& record) {
    return {*this, from, into, record};
  }

  bool poll() override;

  /// Ends no peer's operation: writes what is queued, says goodbye on every link, and reads each to
  /// its end before it is closed, or until the deadline.
  task<> close(time_point deadline);

 private:
  void sweep(time_point time) override;
  bool pending() const override { return match_.any_under_way(); }
  bool arm() override { return links_.arm(); }
  void disarm() override { links_.disarm(); }

  bool unwritten() { return links_.unwritten() || reports_ > 0; }
  bool start(tcp::outgoing& send) { return delivery_.start(send); }
  bool start(posted& receive) { return delivery_.start(receive); }
  void withdraw(tcp::outgoing& send) { delivery_.withdraw(send); }
  void comes(const message_key& key) override;

  // ---- rounds

  tcp::link* link_to(int peer) { return links_.known(peer); }
  tcp::early* early_of(const message_key& key) {
    return static_cast<tcp::early*>(match_.arrived(key));
  }
  void drop(tcp::early& message) {
    match_.forget(message);
    delivery_.drop(message);
  }
  // Who never waits would never look at other links.
  int looks_at_once() {
    if (++rounds_in_all_ % 64 == 0) return 0;
    return engine_->spins() ? 100 : 1;
  }
  void list(round_operation& waiting) {
    waiting.listed_ = true;
    rounds_.push_back(&waiting);
  }
  void unlist(round_operation& waiting) {
    waiting.listed_ = false;
    std::erase(rounds_, &waiting);
  }
  bool take_rounds();
  bool take_next(tcp::link& from) override;
  // Those that `which` picks become other messages, which may end more of them.
  template <class Which>
  void settle_rounds(Which which) {
    for (std::size_t i = 0; i < rounds_.size();) {
      round_operation& each = *rounds_[i];
      if (!which(each)) {
        ++i;
        continue;
      }
      unlist(each);
      each.settle_later();
      i = 0;
    }
  }

  // ---- what links say

  void received(tcp::link& from, const tcp::header& frame, const std::byte* payload) override;

  // ---- links

  void opened(tcp::link& which) override;
  void unreachable(tcp::link& which, const failure& why) override;
  bool is_needed(tcp::link& link) override;
  void lent(tcp::link& from, detail::descriptor arena) override;
  bool has_news() const override {
    return who_->rendezvous != nullptr && who_->rendezvous->has_unread();
  }

  // ---- ends

  // The launcher or the store says that a rank has died.
  void rank_failed(int peer, const reported_failure& why) override;

  // Who has no link to us learns it by the failure channel.
  task<> report(failure why);

  void lost(tcp::link& which, const failure& why) override;

  // `peer` has left, or cannot be reached: what waits for a message from it, or for it to take one,
  // ends.
  void end_what_waits_for(int peer, const failure& why);
  // A good communicator that waits for it, or null.
  communicator_state* waiting_for(int peer);

  void revoked(communicator_state& communicator, const failure& why, int told_by) override;
  static void tell_revoked(tcp::link& link, std::uint32_t communicator, const failure& why);

  void announce(int peer, const operation_record& waiting, const state_report& known) override;
  void report(int peer, std::uint32_t communicator, const state_report& known) override;

  void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
               const fingerprint& ours) override;

  void refuse(int peer, const failure& why) override;

  void add_awaited(const operation_record& sending, std::vector<int>& to) override;
  void add_senders(const operation_record& receiving, std::vector<int>& to) override;
  bool is_linked(int peer) override;
  void open_link(int peer) override { opener_.to(peer); }
  std::uint64_t heard_in(int peer, std::uint32_t communicator) override;
  bool is_stopped(int peer) override;

  // False: no rank would say so, and the link has ended.
  bool hear(tcp::link& from, const tcp::header& frame, const std::byte* payload);

  std::shared_ptr<engine> engine_;
  std::shared_ptr<membership> who_;
  match match_;
  tcp::links links_;
  tcp::lender lender_;
  std::vector<round_operation*> rounds_;  // that wait, in the order of their calls
  unsigned rounds_in_all_ = 0;
  unsigned rounds_taken_ = 0;
  int reports_ = 0;
  time_point looked_for_hosts_ = 0;
  tcp::opener opener_;
  tcp::delivery delivery_;
  task_group tasks_;  // last: its tasks use all of the above
};
static_assert(consuming_transport<tcp_transport> && lending_transport<tcp_transport> &&
              round_transport<tcp_transport>);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/interprocess_transport.ipp>
#endif
