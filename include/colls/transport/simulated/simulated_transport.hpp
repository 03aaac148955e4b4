// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The simulated transport: all ranks run on one thread and communicate over a network model in
// virtual time. A run can be reproduced from its seed.

#include <colls/channel/operations.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/os/log_writer.hpp>
#include <colls/transport/simulated/connection_state.hpp>
#include <colls/transport/simulated/fault_plan.hpp>
#include <colls/transport/simulated/message.hpp>
#include <colls/transport/simulated/trace.hpp>

#include <cstring>

namespace colls {

class simulated_world;

/// One rank of a `simulated_world`. The rank sends a short message (up to the eager limit) at once,
/// and the message waits at the receiver until a receive is posted. The rank sends a long message
/// only after the receiver has posted the receive and has sent a CTS (clear to send). The CTS takes
/// no virtual time. Before a long point-to-point message, the rank sends an RTS (request to send).
/// Apart from the CTS, ranks interact only through messages and control messages, each of which
/// arrives at its own virtual time.
class simulated_transport final : failure_hooks, payload_writer, run_queue::remote_waker {
 public:
  static constexpr bool consumes = true;

  simulated_transport(simulated_world& ranks, int rank) : world_(ranks), matcher_(rank) {
    matcher_.add(static_cast<failure_hooks&>(*this));
    queue_.waker = this;
  }
  simulated_transport(const simulated_transport&) = delete;
  simulated_transport& operator=(const simulated_transport&) = delete;
  ~simulated_transport() { matcher_.remove(static_cast<failure_hooks&>(*this)); }

  int rank() const { return matcher_.rank(); }
  inline int size() const;
  tag_matcher& matching() { return matcher_; }
  run_queue& queue() { return queue_; }
  inline time_point now() const;
  /// Checks the deadlines of the operations in flight, and sets a timer for the next check. If
  /// completions are posted, schedules an event that runs them.
  inline void wake_driver();
  simulated_world& driver() { return world_; }
  inline int node_of(int rank) const;
  task<> close(time_point) { co_return; }
  /// Returns whether this is a phantom run, in which messages have lengths but no bytes and no
  /// buffer is accessed.
  inline bool is_phantom() const;

  using send_operation = queued_send<simulated_transport, simulated::outgoing>;
  friend send_operation;
  using recv_operation = receive_operation<simulated_transport>;
  friend recv_operation;

  send_operation send(const message_key& dest, const_bytes bytes, operation_record& record) {
    return {*this, dest, bytes, record};
  }
  recv_operation recv(const message_key& source, mutable_bytes bytes, operation_record& record) {
    return {*this, source, bytes, record};
  }

 private:
  friend simulated_world;
  friend simulated::message;
  using message = simulated::message;
  using outgoing = simulated::outgoing;
  using control_message = simulated::control_message;
  using ticks = simulated::ticks;

  inline bool start(outgoing& send);
  inline bool start(posted_receive& receive);
  inline message& make_message(outgoing& send);
  inline bool transmit(outgoing& send, bool may_end, bool is_cleared);
  inline void copy_payload(message& msg);
  inline void withdraw(outgoing& send);
  inline void handle_cts(outgoing& send);
  inline void handle_discard(outgoing& send);
  inline void repeat_rts(outgoing& send);
  inline void clear_waiting_send(posted_receive& receive);
  inline bool send_cts(posted_receive& receive, message& msg);

  // Event handlers of this rank.
  inline void handle_transmitted(message& msg);
  inline void drop_unsent(message& msg);
  inline void handle_accepted(message& msg);
  inline void start_piecewise(posted_receive& receive, message& msg);
  inline void handle_piece(message& msg);
  inline bool deliver(posted_receive& receive, message& msg);
  inline void handle_rts(message& msg);
  inline void handle_repeated_rts(message& msg);
  inline void handle_control(const control_message& msg);
  inline void record_collective(const message_key& key, std::uint64_t hash);
  inline void sweep();
  void abandon(posted_receive& receive) override {
    for (message* msg : piecewise_) {
      if (msg->receive == &receive) msg->receive = nullptr;
    }
  }

  inline void send_control(int peer, control_message&& msg);
  inline void send_connection_control(int peer, control_message::kind type);
  inline void send_revoke(int peer, std::uint32_t communicator, const failure& reason);
  // Only the thread of the world may post a completion in this way.
  inline void wake() noexcept override;
  inline void revoked(communicator_state& communicator, const failure& reason,
                      int reporter) override;
  inline void announce(int peer, const operation_record& waiting,
                       const state_report& state) override;
  inline void report(int peer, std::uint32_t communicator, const state_report& state) override;
  inline void add_awaited(const operation_record& waiting, std::vector<int>& ranks) override;
  inline void add_senders(const operation_record& waiting, std::vector<int>& ranks) override;
  inline bool is_connected(int peer) override;
  inline void open_connection(int peer) override;
  inline std::uint64_t newest_sequence_from(int peer, std::uint32_t communicator) override;
  inline void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                      const fingerprint& print) override;
  void refuse(int peer, const failure& reason) override {
    send_revoke(peer, reason.communicator, reason);
  }
  inline bool recover(int peer, std::uint32_t communicator,
                      std::span<const std::byte> bytes) override;
  bool can_recover() const override { return true; }
  inline bool proves_losses(const communicator_state& communicator) const override;

  // The length of the longest chain of messages that has arrived in one lane of a call. A lane is
  // one of the concurrent parts of the call. In a chain, each message was sent after its sender had
  // received the previous message.
  struct chain {
    std::uint64_t sequence = 0;
    std::uint16_t lane = 0;
    std::uint32_t length = 0;
  };
  std::uint32_t& chain_of(const message_key& key) {
    if (current_chain_.lane == key.lane && current_chain_.sequence == key.sequence)
      return current_chain_.length;
    for (chain& other : chains_) {
      if (other.lane != key.lane || other.sequence != key.sequence) continue;
      std::swap(other, current_chain_);
      return current_chain_.length;
    }
    if (current_chain_.length != 0) chains_.push_back(current_chain_);
    current_chain_ = {key.sequence, key.lane, 0};
    return current_chain_.length;
  }

  simulated_world& world_;
  tag_matcher matcher_;
  run_queue queue_;
  ticks egress_busy_until_ = 0;    // when the outgoing port is free again
  ticks ingress_busy_until_ = 0;   // when the incoming port is free again
  ticks receiver_busy_until_ = 0;  // when the receiver can accept the next message
  chain current_chain_;
  std::vector<chain> chains_;
  key_table<outgoing> waiting_sends_;  // sends that wait for their receives
  intrusive_list<outgoing, &outgoing::transmission> transmitting_;  // their bytes are leaving
  std::vector<message*> piecewise_;  // messages of which a part was delivered
  std::size_t eager_bytes_ =
      0;  // bytes of eager point-to-point messages that were not received yet
  ticks timer_ = simulated::no_time;
  std::uint32_t recovery_round_ = 0;  // the longest chain of recovery messages that has come
  // The next three members are used only in a run with a fault plan.
  std::uint64_t events_ = 0;
  std::uint64_t sent_ = 0;
  ticks frozen_until_ = 0;
};

/// The ranks of a simulated world, and their driver (event loop). The driver is a discrete-event
/// simulation on one thread. It advances virtual time from event to event and reads no clock. Two
/// runs with the same seed, fault plan and calls are therefore identical. The state that the world
/// keeps for one rank does not grow with the number of ranks.
class simulated_world {
 public:
  struct settings {
    simulated::network_settings network;
    simulated::fault_plan plan;
    std::uint64_t seed = 0;
    bool phantom = false;
    bool traced = false;
  };

  /// An interface that the owner of the ranks' programs implements. The world calls `handle` for
  /// each injected fault that affects the program of a rank.
  class fault_handler {
   public:
    /// Called when the world has injected `fault`, which is of the kind `kill`, `half_open`,
    /// `cancel` or `destroy`. During the call, the world handles no event of the rank. After `kill`
    /// or `half_open`, the rank makes no more progress, so the handler may destroy the program of
    /// the rank. For `cancel`, the handler must cancel the rank's operation in flight. For
    /// `destroy`, the handler must destroy the rank's communicator.
    virtual void handle(const simulated::fault& fault) = 0;

   protected:
    ~fault_handler() = default;
  };

  explicit simulated_world(int size) : simulated_world(size, settings()) {}
  simulated_world(int size, const settings& config);
  simulated_world(const simulated_world&) = delete;
  simulated_world& operator=(const simulated_world&) = delete;
  ~simulated_world();

  int size() const { return size_; }
  simulated_transport& operator[](int rank) { return ranks_[rank]; }
  void set_fault_handler(fault_handler& handler) { fault_handler_ = &handler; }
  const simulated::network& network() const { return network_; }

  // ---- observations

  simulated::ticks time() const { return now_; }
  /// Returns the number of messages sent.
  std::uint64_t messages() const { return messages_; }
  /// Returns the total size of the messages sent.
  std::uint64_t bytes() const { return bytes_; }
  /// Returns the number of messages in the longest chain of dependent messages. The messages of a
  /// chain belong to the same call and to the same lane (one of the concurrent parts of a call).
  /// Each sender had received the previous message of the chain before it sent its own message.
  std::uint32_t rounds() const { return rounds_; }
  void reset_counters();
  const std::vector<simulated::message_trace>& trace() const { return trace_; }
  /// Returns the number of timers that have expired. The timer of a rank expires when an operation
  /// has waited so long that the rank must send an announcement or check a deadline. In a run
  /// without delays, no operation waits that long, so the number is 0.
  std::uint64_t overdue() const { return overdue_; }
  /// Returns the number of messages and control messages that are in transit or wait at their
  /// receivers.
  std::size_t in_flight() const { return message_pool_.used() + control_pool_.used(); }
  /// Returns true if no event is scheduled. Only the expiry of a timer can then cause progress.
  bool is_quiescent() const { return events_.empty(); }
  /// A fault of the fault plan, and the virtual time at which the world injected it.
  struct injected_fault {
    simulated::fault fault;
    simulated::ticks time;
  };
  const std::vector<injected_fault>& injected_faults() const { return injected_faults_; }
  bool is_dead(int rank) { return connections_ && connections_->is_dead(rank); }
  /// Returns a text that describes up to eight waiting receives and sends, one per line. A line
  /// names the rank that waits, its operation and the peer for which it waits.
  std::string waiting_report();

  // ---- the driver

  run_queue& queue() { return queue_; }
  time_point now() const { return simulated::to_nanoseconds(now_); }
  /// Runs posted completions. If none are posted, handles the next event. Returns false if there is
  /// neither a posted completion nor an event.
  bool poll() { return (!queue_.empty() && queue_.run()) || step(); }
  /// Advances virtual time to the expiry of the next timer and handles that timer. Throws
  /// std::logic_error if there is no timer, because the ranks are then deadlocked.
  void idle(unsigned);
  void enter() {}
  void leave() {}

  /// Handles events until `is_done()` returns true, and then returns true. If the fault plan
  /// contains fatal faults, also handles timers whenever no event is left. Returns false if nothing
  /// is left to handle although `is_done()` still returns false.
  template <class Predicate>
  bool run_until(const Predicate& is_done) {
    while (!is_done()) {
      if (!poll() && (!waits_for_deadlines_ || !next_timer(simulated::no_time))) return false;
    }
    return true;
  }

 private:
  friend simulated_transport;
  friend simulated::message;
  using ticks = simulated::ticks;
  using message = simulated::message;
  using control_message = simulated::control_message;
  using fault = simulated::fault;

  struct event {
    enum class kind : std::uint8_t {
      transmitted,
      hop,
      arrived,
      accepted,
      piece,
      control_arrived,
      control_accepted,
      run
    };
    kind type;
    std::int32_t rank;
    void* subject;
  };

  bool step();
  void prefetch() const;
  bool next_timer(ticks max_time);
  void handle(const event& due);
  void run_rank(simulated_transport& rank) {
    do {
      rank.queue_.run(SIZE_MAX);
    } while (!rank.queue_.empty());
    if (!pending_faults_.empty()) apply_pending_faults();
  }
  void push(ticks time, event::kind type, int rank, void* subject) {
    events_.push(time, {type, rank, subject});
  }
  void set_timer(simulated_transport& rank);
  void set_timer(simulated_transport& rank, ticks time);

  std::uint32_t add_trace(int source, const message_key& key, std::uint32_t round, std::size_t size,
                          const std::byte* data);

  // These functions route messages through the network.
  void finish_transmission(message& msg);
  void schedule_arrival(message& msg);
  void handle_hop(message& msg);
  bool handle_arrival(message& msg);
  void release(message& msg);

  // These functions inject faults. `count_event` counts an event of `rank` and injects the faults
  // that are planned for this event. It returns false if the rank is dead.
  bool count_event(simulated_transport& rank);
  bool intercept(const event& due, simulated_transport& rank);
  void discard(const event& due);
  void inject(const fault& injected);
  void apply_pending_faults();
  void end_rank(int rank, simulated::rank_state state);
  void report_loss(int rank, int peer, ticks time, const char* detail, bool proved);
  void detect_loss(int rank, int peer);
  void broadcast_failure(int source, const failure& reason, std::uint32_t communicator);
  bool try_pass(int source, int dest);
  bool corrupts(simulated_transport& sender);
  ticks enforce_order(int source, int dest, ticks time);

  static constexpr ticks store_latency = simulated::to_ticks(milliseconds);
  static constexpr ticks idle_timeout = simulated::to_ticks(15 * seconds);
  static constexpr ticks dial_timeout = simulated::to_ticks(10 * seconds);

  struct timer {
    ticks time;
    std::uint64_t order;
    int rank;
    bool operator<(const timer& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  int size_;
  simulated::network network_;
  simulated::fault_plan plan_;
  std::uint64_t seed_;
  bool phantom_;
  bool traced_;
  bool has_plan_;                       // there is a plan, so connections and events are tracked
  bool waits_for_deadlines_;            // the plan has fatal faults
  std::vector<ticks> link_busy_until_;  // indexed by the link inside the network
  ticks now_ = 0;
  simulated::event_queue<event> events_;
  std::vector<timer> timers_;  // a heap with the earliest timer at its front
  std::uint64_t timers_set_ = 0;
  run_queue queue_;
  simulated::node_pool<message> message_pool_;
  simulated::node_pool<control_message> control_pool_;
  simulated_transport* ranks_ = nullptr;
  fault_handler* fault_handler_ = nullptr;
  std::unique_ptr<simulated::connection_states> connections_;
  std::vector<fault> pending_faults_;
  std::vector<injected_fault> injected_faults_;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint32_t rounds_ = 0;
  std::uint64_t overdue_ = 0;
  std::vector<simulated::message_trace> trace_;
};

}  // namespace colls

#include <colls/transport/simulated/fault_injection.hpp>
#include <colls/transport/simulated/rank.hpp>
#include <colls/transport/simulated/world.hpp>
