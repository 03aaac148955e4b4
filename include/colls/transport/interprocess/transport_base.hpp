// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// transport_base: the part of a transport between processes that does not depend on how bytes move.
// Carriers (see carrier/carrier.hpp) move the bytes. docs/adding_a_transport.md explains how to
// build a transport on this class.

#include <colls/bootstrap/repair.hpp>
#include <colls/bootstrap/subworld.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/channel/operations.hpp>
#include <colls/channel/transport.hpp>
#include <colls/transport/interprocess/multi_send_recv.hpp>
#include <colls/transport/interprocess/peer_protocol.hpp>

namespace colls {

/// The transport of one rank in a world of processes, without its carriers. It sends and receives
/// messages, detects failures and late ranks, and tells the peers why a communicator has failed or
/// that this rank leaves. It opens the connection to a peer when an operation or a control message
/// first needs it. All communicators of the rank share the transport's connections, matcher and
/// executor. The class is not thread-safe and must be used only on that executor.
///
/// A derived class passes its carriers to the constructor, and calls `start_carriers` at the end of
/// its own constructor. It has a `name` and a function `static task<std::shared_ptr<Derived>>
/// make(std::shared_ptr<engine>, std::shared_ptr<world_info>)`, which `join`, `run` and
/// `dup(executor)` call.
class transport_base : engine::source,
                       protected interprocess::peer_protocol::owner,
                       failure_listener {
 public:
  static constexpr bool consumes = true;

  transport_base(const transport_base&) = delete;
  transport_base& operator=(const transport_base&) = delete;

  int rank() const { return info_->rank; }
  int size() const { return info_->size; }
  tag_matcher& matching() { return matcher_; }
  run_queue& queue() { return engine_->queue(); }
  void wake_driver() {
    wake_peers();
    engine_->wake_driver();
  }
  void wake_peers() final { protocol_.connections().wake_peers(); }
  time_point now() const { return engine_->now(); }
  engine& driver() { return *engine_; }
  int node_of(int rank) const { return info_->node_of[static_cast<std::size_t>(rank)]; }
  const world_info& info() const { return *info_; }

  using send_operation = queued_send<transport_base, interprocess::posted_send>;
  friend send_operation;
  using recv_operation = receive_operation<transport_base>;
  friend recv_operation;

  using multi_send_recv_operation = interprocess::multi_send_recv_operation<transport_base>;
  friend multi_send_recv_operation;

  send_operation send(const message_key& key, const_bytes message, operation_record& record) {
    return {*this, key, message, record};
  }
  recv_operation recv(const message_key& key, mutable_bytes message, operation_record& record) {
    return {*this, key, message, record};
  }

  bool poll() final;

  /// Leaves the world in an orderly way, so that no peer assumes that this rank has died. Writes
  /// the queued frames, and sends a goodbye (the last frame of a rank) on every connection. Then
  /// continues to read until the peers have closed the connections. At `deadline`, closes the
  /// connections that are still open.
  task<> close(time_point deadline);
  /// Returns whether this rank has left the world in an orderly way, by `close`, together with all
  /// peers. The value outlives this object.
  std::shared_ptr<const bool> has_left_orderly() const { return has_left_orderly_; }
  /// Runs `work` until it ends or this transport is destroyed.
  void run_beside(task<> work) { tasks_.start(std::move(work)); }
  /// Returns the number of replacements that wait for a place in a world, as the store has told.
  int waiting() const { return waiting_; }
  /// Leaves the store of the world, whose ranks go on with another world. The connections stay
  /// open.
  task<> leave_store(time_point deadline);

 protected:
  /// `carriers` dial a peer in their order until one of them reaches it.
  transport_base(std::shared_ptr<engine> driver, std::shared_ptr<world_info> info,
                 std::vector<std::unique_ptr<interprocess::carrier>> carriers);
  ~transport_base();

  /// Starts the carriers. They may open connections at once, and then call the virtual functions of
  /// the derived class.
  void start_carriers() { protocol_.start(); }

  interprocess::connection_table& connections() { return protocol_.connections(); }

 private:
  void sweep(time_point time) final;
  bool arm() final { return protocol_.connections().arm(); }
  void disarm() final { protocol_.connections().disarm(); }

  bool flush_all() { return protocol_.connections().flush_all() || reports_ > 0; }
  bool start(interprocess::posted_send& send) { return protocol_.messages().start(send); }
  bool start(posted_receive& receive) { return protocol_.messages().start(receive); }
  void withdraw(interprocess::posted_send& send) { protocol_.messages().withdraw(send); }

  // ---- multi_send_recv

  interprocess::connection* find_connection(int peer) { return protocol_.connections().find(peer); }
  interprocess::unexpected_frame* find_unexpected(const message_key& key) {
    return static_cast<interprocess::unexpected_frame*>(matcher_.find_unexpected(key));
  }
  void drop(interprocess::unexpected_frame& message) {
    matcher_.remove_unexpected(message);
    protocol_.messages().drop(message);
  }
  // Returns how many times a new operation polls its own connections before it suspends. Returns 0
  // for every 64th operation, so that this operation suspends without polling. This rank can poll
  // its other connections only while the operation is suspended.
  int initial_polls() {
    if (++multi_operation_count_ % 64 == 0) return 0;
    return engine_->spins() ? 100 : 1;
  }
  void enqueue(multi_send_recv_operation& operation) {
    operation.queued_ = true;
    multi_operations_.push_back(&operation);
  }
  void dequeue(multi_send_recv_operation& operation) {
    operation.queued_ = false;
    std::erase(multi_operations_, &operation);
  }
  bool poll_multi_operations();
  // Converts each queued multi_send_recv operation for which `matches(operation)` returns true into
  // ordinary sends and receives. A conversion may remove other operations from the queue, so the
  // loop starts again at the first operation after each conversion.
  template <class Predicate>
  void convert_multi_operations(Predicate matches) {
    for (std::size_t i = 0; i < multi_operations_.size();) {
      multi_send_recv_operation& operation = *multi_operations_[i];
      if (!matches(operation)) {
        ++i;
        continue;
      }
      dequeue(operation);
      operation.convert();
      i = 0;
    }
  }

  // ---- called by the protocol

  COLLS_ONCE bool take_next(interprocess::connection& conn) override;
  COLLS_ONCE void post_receive_for(const message_key& key) override;
  COLLS_ONCE void post_all_receives() override;
  COLLS_ONCE void excluded(int peer, bool is_excluded) override;
  COLLS_ONCE void revoked(communicator_state& communicator, const failure& reason,
                          bool is_first) override;
  bool has_unread_failures() const override {
    // If this rank serves the store, it may have to pass on the failure to itself first.
    const bool may_pass_on = info_->server != nullptr && info_->server->has_work();
    return info_->kv_store != nullptr && (may_pass_on || info_->kv_store->has_unread());
  }
  COLLS_ONCE task<bool> has_left(int peer) override;
  COLLS_ONCE bool proves_losses(const communicator_state& communicator) const override;

  // ---- failures

  // Handles a failure that was reported by the launcher, or by another rank through the store (the
  // key-value service of the job). `peer` is the rank that caused the failure, or negative if it is
  // unknown.
  COLLS_ONCE void rank_failed(int peer, const reported_failure& reason) override;

  // Reports a failure to the store. The ranks that have no connection to this rank learn of the
  // failure from the store.
  task<> report_to_store(failure reason);
  // Reads from the store how many replacements wait, whenever the launcher sets it.
  task<> watch_waiting();

  std::shared_ptr<engine> engine_;
  std::shared_ptr<world_info> info_;
  std::shared_ptr<store> left_store_;  // the store that `leave_store` has left, or null
  tag_matcher matcher_;
  interprocess::peer_protocol protocol_;
  std::shared_ptr<bool> has_left_orderly_ = std::make_shared<bool>(false);
  std::vector<multi_send_recv_operation*> multi_operations_;  // waiting operations, oldest first
  unsigned multi_operation_count_ = 0;
  unsigned multi_only_polls_ = 0;
  int reports_ = 0;
  int waiting_ = 0;
  task_group tasks_;  // declared last, because its tasks use all members above
};
static_assert(sourcing_transport<transport_base> && multi_send_recv_transport<transport_base>);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/transport_base.ipp>
#endif
