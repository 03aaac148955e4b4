// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// peer_protocol: what the ranks of a world tell each other over their connections: messages,
// failures, and reports on late ranks.

#include <colls/matching/recovery_message.hpp>
#include <colls/transport/interprocess/connection_table.hpp>
#include <colls/transport/interprocess/connector.hpp>
#include <colls/transport/interprocess/eager_rendezvous.hpp>

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace colls::interprocess {

/// The connections of one rank and all that they carry. It runs on any carriers and any scheduler.
/// Connections pass their frames to this object directly.
class peer_protocol final : failure_hooks, connection_owner, connector::owner {
 public:
  /// The user of a protocol. By default its functions do nothing.
  class owner : public direct_receiver, public eager_rendezvous::owner {
   public:
    bool take_next(connection&) override { return false; }
    void post_receive_for(const message_key&) override {}
    /// Called when operations may have to fail. Operations that wait for messages and have posted
    /// no receives for them must post these receives now.
    virtual void post_all_receives() {}
    /// Called when a communicator has failed, before its sends and receives fail. `is_first` is
    /// true if this rank has found the failure, so that other ranks may not know of it.
    virtual void revoked(communicator_state&, const failure&, bool is_first) { (void)is_first; }
    /// See `failure_hooks::peer_excluded`.
    virtual void excluded(int peer, bool is_excluded) { (void)peer, (void)is_excluded; }
    /// Called when a connection has opened, before anything is read from it.
    virtual void opened(connection&) {}
    virtual void heap_received(connection&, detail::descriptor) {}
    /// See `connection_owner::has_unread_failures` and `connector::owner::has_left`.
    virtual bool has_unread_failures() const { return false; }
    virtual task<bool> has_left(int peer) {
      (void)peer;
      co_return false;
    }
    /// See `failure_hooks::proves_losses`.
    virtual bool proves_losses(const communicator_state&) const { return false; }

   protected:
    ~owner() = default;
  };

  /// `size` is the number of ranks of the world.
  peer_protocol(scheduler& runner, tag_matcher& matcher, int size,
                std::vector<std::unique_ptr<carrier>> carriers, owner& user);
  peer_protocol(const peer_protocol&) = delete;
  peer_protocol& operator=(const peer_protocol&) = delete;
  ~peer_protocol() { matcher_.remove(static_cast<failure_hooks&>(*this)); }

  /// Starts the carriers. Must be called once, when the owner can handle all calls.
  void start() { connector_.start(); }

  connection_table& connections() { return connections_; }
  connector& dialer() { return connector_; }
  eager_rendezvous& messages() { return messages_; }

  /// Checks the deadlines of operations, and whether silent peers still answer.
  void sweep(time_point time);

 private:
  // ---- called by connections and the connector

  COLLS_ONCE void received(connection& conn, const header& frame,
                           const std::byte* payload) override;
  COLLS_ONCE void lost(connection& conn, const failure& reason) override;
  void heap_received(connection& conn, detail::descriptor heap) override {
    owner_.heap_received(conn, std::move(heap));
  }
  tag_matcher& matching() override { return matcher_; }
  bool has_unread_failures() const override { return owner_.has_unread_failures(); }

  COLLS_ONCE void opened(connection& conn) override;
  COLLS_ONCE void unreachable(connection& conn, const failure& reason) override;
  bool is_excluded(int peer) override { return matcher_.is_excluded(peer); }
  COLLS_ONCE bool is_needed(connection& conn) override;
  task<bool> has_left(int peer) override { return owner_.has_left(peer); }
  COLLS_ONCE void loss_examined(connection& conn, bool proved) override;

  // ---- called by the matcher

  COLLS_ONCE void revoked(communicator_state& communicator, const failure& reason,
                          int reporter) override;
  COLLS_ONCE void announce(int peer, const operation_record& record,
                           const state_report& known) override;
  COLLS_ONCE void report(int peer, std::uint32_t communicator, const state_report& known) override;
  COLLS_ONCE void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                          const fingerprint& local_call) override;
  COLLS_ONCE void refuse(int peer, const failure& reason) override;
  COLLS_ONCE void add_awaited(const operation_record& record, std::vector<int>& ranks) override;
  COLLS_ONCE void add_senders(const operation_record& record, std::vector<int>& ranks) override;
  COLLS_ONCE bool recover(int peer, std::uint32_t communicator,
                          std::span<const std::byte> message) override;
  COLLS_ONCE void ask_lost_peer(int peer) override;
  COLLS_ONCE void peer_excluded(int peer, bool is_excluded) override;
  bool can_recover() const override { return true; }
  bool proves_losses(const communicator_state& communicator) const override {
    return owner_.proves_losses(communicator);
  }
  COLLS_ONCE bool is_connected(int peer) override;
  void open_connection(int peer) override { connector_.connect(peer); }
  COLLS_ONCE std::uint64_t newest_sequence_from(int peer, std::uint32_t communicator) override;
  COLLS_ONCE bool is_stopped(int peer) override;

  // Revokes each communicator on which an operation waits for `peer`. Called when `peer` has left
  // the world or cannot be reached.
  void fail_waiting_for(int peer, const failure& reason);
  // Called when `peer` has said goodbye, or has left without a connection to this rank.
  void peer_left(connection& conn);
  // Handles a frame that carries a part of a recovery message.
  void receive_recovery(connection& conn, const header& frame, const std::byte* payload);
  // Returns a communicator that has not failed and on which an operation waits for `peer`. Returns
  // null if there is none.
  communicator_state* communicator_waiting_for(int peer);
  static void send_revoke(connection& conn, std::uint32_t communicator, const failure& reason);
  void receive_revoke(connection& conn, const header& frame, const std::byte* payload);
  // Handles a `state_report`, in which the peer describes its own state and the states of late
  // ranks. Returns true if the report is valid. Otherwise fails the connection and returns false.
  bool receive_report(connection& conn, const header& frame, const std::byte* payload);

  scheduler& scheduler_;
  tag_matcher& matcher_;
  int size_;
  owner& owner_;
  time_point last_silence_check_ = 0;
  std::unordered_map<int, std::vector<std::byte>> partial_recoveries_;  // by peer
  connection_table connections_;
  connector connector_;
  eager_rendezvous messages_;
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/peer_protocol.ipp>
#endif
