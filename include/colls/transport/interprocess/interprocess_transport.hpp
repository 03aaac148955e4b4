// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// interprocess_transport: the transport between ranks that are separate processes. It opens the
// connection to a peer when an operation or a control message first needs it. Carriers (see
// carrier/carrier.hpp) move the bytes.

#include <colls/bootstrap/subworld.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/channel/receive.hpp>
#include <colls/channel/send.hpp>
#include <colls/channel/transport.hpp>
#include <colls/transport/interprocess/multi_send_recv.hpp>
#include <colls/transport/interprocess/peer_protocol.hpp>
#include <colls/transport/interprocess/window/window_manager.hpp>

namespace colls {

/// The transport of one rank in a world of processes. All communicators of the rank share the
/// transport's connections, matcher and executor. The class is not thread-safe and must be used
/// only on that executor.
class interprocess_transport final : engine::source,
                                     interprocess::peer_protocol::owner,
                                     failure_listener {
 public:
  static constexpr bool consumes = true;

  interprocess_transport(std::shared_ptr<engine> driver, std::shared_ptr<world_info> info);
  interprocess_transport(const interprocess_transport&) = delete;
  interprocess_transport& operator=(const interprocess_transport&) = delete;
  ~interprocess_transport();

  int rank() const { return info_->rank; }
  int size() const { return info_->size; }
  tag_matcher& matching() { return matcher_; }
  run_queue& queue() { return engine_->queue(); }
  void wake_driver() {
    wake_peers();
    engine_->wake_driver();
  }
  void wake_peers() override { protocol_.connections().wake_peers(); }
  time_point now() const { return engine_->now(); }
  network_cost costs() const;
  engine& driver() { return *engine_; }
  int node_of(int rank) const { return info_->node_of[static_cast<std::size_t>(rank)]; }
  const world_info& info() const { return *info_; }

  /// The information that the ranks of a communicator exchange in order to form a subworld. A
  /// subworld is a new world of the same ranks. Each rank passes the executor that it uses in the
  /// subworld to `open_world`.
  using rank_entry = subworld::rank_entry;
  /// Prepares a subworld of `size` ranks, in which this process is rank `rank`. Opens the listeners
  /// of this process in the subworld, and writes the entry of this process to `local`. The caller
  /// must exchange the entries with the other ranks, and then pass the returned `world_info` and
  /// the entries to `open_world`.
  std::shared_ptr<world_info> prepare_world(int rank, int size, rank_entry& local) const;
  /// Opens the subworld that `prepare_world` has prepared. `info` is the result of `prepare_world`,
  /// and `entries` contains the entries of all ranks. Returns the transport of this rank in the
  /// subworld. No other thread may run handlers of `executor` during the call.
  std::shared_ptr<interprocess_transport> open_world(const boost::asio::any_io_executor& executor,
                                                     std::shared_ptr<world_info> info,
                                                     const std::vector<rank_entry>& entries) const;

  using send_operation = queued_send<interprocess_transport, interprocess::posted_send>;
  friend send_operation;
  using recv_operation = receive_operation<interprocess_transport>;
  friend recv_operation;

  using multi_send_recv_operation = interprocess::multi_send_recv_operation<interprocess_transport>;
  friend multi_send_recv_operation;

  /// Allocates `size` bytes of memory that operations can share with the other ranks of this
  /// host. See `interprocess::window_manager::allocate`.
  std::shared_ptr<std::byte> allocate(std::size_t size) { return windows_.allocate(size); }
  bool can_expose(const_bytes data) const { return windows_.contains(data); }
  struct bounce_buffer : interprocess::window_manager::bounce_buffer {
    explicit bounce_buffer(interprocess_transport& net)
        : interprocess::window_manager::bounce_buffer(net.windows_) {}
  };
  struct exposure : interprocess::window_manager::exposure {
    exposure(interprocess_transport& net, communicator_state& comm)
        : interprocess::window_manager::exposure(net.windows_, comm) {}
  };
  using view = shm::shared_heap_view;
  view* view_of(int peer) { return windows_.view_of(peer); }

  send_operation send(const message_key& key, const_bytes message, operation_record& record) {
    return {*this, key, message, record};
  }
  recv_operation recv(const message_key& key, mutable_bytes message, operation_record& record) {
    return {*this, key, message, record};
  }

  bool poll() override;

  /// Leaves the world in an orderly way, so that no peer assumes that this rank has died. Writes
  /// the queued frames, and sends a goodbye (the last frame of a rank) on every connection. Then
  /// continues to read until the peers have closed the connections. At `deadline`, closes the
  /// connections that are still open.
  task<> close(time_point deadline);

 private:
  void sweep(time_point time) override;
  bool arm() override { return protocol_.connections().arm(); }
  void disarm() override { protocol_.connections().disarm(); }

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

  bool take_next(interprocess::connection& conn) override;
  void post_receive_for(const message_key& key) override;
  void post_all_receives() override;
  void revoked(communicator_state& communicator, const failure& reason, bool is_first) override;
  void opened(interprocess::connection& conn) override {
    if (conn.shares_memory()) windows_.opened(conn);
  }
  void heap_received(interprocess::connection& conn, detail::descriptor heap) override {
    windows_.map_peer_heap(conn, std::move(heap));
  }
  bool has_unread_failures() const override {
    return info_->kv_store != nullptr && info_->kv_store->has_unread();
  }
  task<bool> has_left(int peer) override;

  // ---- failures

  // Handles a failure that was reported by the launcher, or by another rank through the store (the
  // key-value service of the job). `peer` is the rank that caused the failure, or negative if it is
  // unknown.
  void rank_failed(int peer, const reported_failure& reason) override;

  // Reports a failure to the store. The ranks that have no connection to this rank learn of the
  // failure from the store.
  task<> report_to_store(failure reason);

  std::shared_ptr<engine> engine_;
  std::shared_ptr<world_info> info_;
  tag_matcher matcher_;
  interprocess::peer_protocol protocol_;
  interprocess::window_manager windows_;
  std::vector<multi_send_recv_operation*> multi_operations_;  // waiting operations, oldest first
  unsigned multi_operation_count_ = 0;
  unsigned multi_only_polls_ = 0;
  int reports_ = 0;
  task_group tasks_;  // declared last, because its tasks use all members above
};
static_assert(consuming_transport<interprocess_transport> &&
              shared_window_transport<interprocess_transport> &&
              multi_send_recv_transport<interprocess_transport>);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/interprocess_transport.ipp>
#endif
