// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// simulated: ranks on a network that exists only in virtual time; the same run for the same seed.

#include <colls/channel/receive.hpp>
#include <colls/channel/send.hpp>
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

/// One rank of a `simulated_world`. A message of up to the eager limit leaves at once and waits for
/// its receive where it arrives; a longer one leaves when its receive is posted (what asks for it
/// takes no time); of a long point-to-point message the header goes ahead. Nothing but messages and
/// words passes between ranks, each in its own time.
class simulated_transport final : mover, filler {
 public:
  static constexpr bool consumes = true;

  simulated_transport(simulated_world& ranks, int rank) : world_(ranks), match_(rank) {
    match_.add(static_cast<mover&>(*this));
  }
  simulated_transport(const simulated_transport&) = delete;
  simulated_transport& operator=(const simulated_transport&) = delete;
  ~simulated_transport() { match_.remove(static_cast<mover&>(*this)); }

  int rank() const { return match_.rank(); }
  inline int size() const;
  match& matching() { return match_; }
  run_queue& queue() { return queue_; }
  inline time_point now() const;
  /// An operation has begun: from now on its deadlines are looked after.
  inline void kick();
  simulated_world& driver() { return world_; }
  inline int node_of(int rank) const;
  task<> close(time_point) { co_return; }
  /// Messages have lengths and no bytes; no buffer is looked at.
  inline bool is_phantom() const;

  using send_operation = queued_send<simulated_transport, simulated::outgoing>;
  friend send_operation;
  using recv_operation = receive_operation<simulated_transport>;
  friend recv_operation;

  send_operation send(const message_key& to, const_bytes from, operation_record& record) {
    return {*this, to, from, record};
  }
  recv_operation recv(const message_key& from, mutable_bytes into, operation_record& record) {
    return {*this, from, into, record};
  }

 private:
  friend simulated_world;
  friend simulated::flight;
  using flight = simulated::flight;
  using outgoing = simulated::outgoing;
  using word = simulated::word;
  using ticks = simulated::ticks;

  inline bool start(outgoing& send);
  inline bool start(posted& receive);
  inline flight& make(outgoing& send);
  inline bool launch(outgoing& send, bool may_end, bool asked);
  inline void load(flight& message);
  inline void unlink(outgoing& send);
  inline void withdraw(outgoing& send);
  inline void go_ahead(outgoing& send);
  inline void remind(outgoing& send);
  inline void ask(posted& receive);
  inline bool grant(posted& receive, flight& header);

  // What reaches this rank.
  inline void sent(flight& message);
  inline void never_sent(flight& message);
  inline void taken(flight& message);
  inline void begin_to_fill(posted& receive, flight& message);
  inline void filled(flight& message);
  inline bool settle(posted& receive, flight& message);
  inline void header(flight& message);
  inline void reminded(flight& message);
  inline void heard(const word& said);
  inline void note(const message_key& key, std::uint64_t hash);
  inline void sweep();
  void abandon(posted& receive) override {
    for (flight* message : filling_) {
      if (message->receive == &receive) message->receive = nullptr;
    }
  }

  inline void say(int peer, word&& said);
  inline void say_of_link(int peer, word::kind what);
  inline void tell_why(int peer, std::uint32_t communicator, const failure& why);
  inline void revoked(communicator_state& communicator, const failure& why, int told_by) override;
  inline void announce(int peer, const operation_record& waiting,
                       const state_report& known) override;
  inline void report(int peer, std::uint32_t communicator, const state_report& known) override;
  inline void add_awaited(const operation_record& waiting, std::vector<int>& to) override;
  inline void add_senders(const operation_record& waiting, std::vector<int>& to) override;
  inline bool is_linked(int peer) override;
  inline void open_link(int peer) override;
  inline std::uint64_t heard_in(int peer, std::uint32_t communicator) override;
  inline void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                      const fingerprint& ours) override;
  void refuse(int peer, const failure& why) override { tell_why(peer, why.communicator, why); }

  // The longest chain of messages that has come in on a lane of a call.
  struct chain {
    std::uint64_t sequence = 0;
    std::uint16_t lane = 0;
    std::uint32_t length = 0;
  };
  std::uint32_t& chain_of(const message_key& key) {
    if (newest_.lane == key.lane && newest_.sequence == key.sequence) return newest_.length;
    for (chain& other : chains_) {
      if (other.lane != key.lane || other.sequence != key.sequence) continue;
      std::swap(other, newest_);
      return newest_.length;
    }
    if (newest_.length != 0) chains_.push_back(newest_);
    newest_ = {key.sequence, key.lane, 0};
    return newest_.length;
  }

  simulated_world& world_;
  match match_;
  run_queue queue_;
  ticks sends_until_ = 0;  // its way out is taken
  ticks bytes_until_ = 0;  // its way in
  ticks takes_until_ = 0;  // it takes a message in
  chain newest_;
  std::vector<chain> chains_;
  key_table<outgoing> waiting_;   // for their receives
  keyed* leaving_ = nullptr;      // sends whose bytes are on the way out
  std::vector<flight*> filling_;  // receives that have a part of their message
  std::size_t unsolicited_ = 0;   // bytes of mine, point to point, that nobody has taken yet
  ticks timer_ = simulated::no_time;
  // Under a plan:
  std::uint64_t events_ = 0;
  std::uint64_t sent_ = 0;
  ticks frozen_until_ = 0;
};

/// `size` ranks on a network that is simulated on this thread, and the driver that turns them.
/// Virtual time jumps from one event to the next; nothing reads a clock, so the same seed, plan and
/// calls give the same run. Ranks keep no state that grows with their number.
class simulated_world {
 public:
  struct settings {
    simulated::network_settings network;
    simulated::plan plan;
    std::uint64_t seed = 0;
    bool phantom = false;
    bool traced = false;
  };

  /// Who runs the ranks' programs: told when the plan strikes one of them, outside of its turn.
  class director {
   public:
    /// `kill`, `half_open`: the rank does nothing more, and its program may be destroyed. `cancel`,
    /// `destroy`: the program drops its operation or its communicator.
    virtual void strike(const simulated::fault& what) = 0;

   protected:
    ~director() = default;
  };

  explicit simulated_world(int size) : simulated_world(size, settings()) {}
  simulated_world(int size, const settings& how);
  simulated_world(const simulated_world&) = delete;
  simulated_world& operator=(const simulated_world&) = delete;
  ~simulated_world();

  int size() const { return size_; }
  simulated_transport& operator[](int rank) { return ranks_[rank]; }
  void direct_by(director& who) { director_ = &who; }
  const simulated::network& wires() const { return network_; }

  // ---- what has been seen

  simulated::ticks time() const { return now_; }
  /// Messages that were sent, their bytes, and the longest chain of them in which each was sent
  /// after the one before had been received, in the same lane by the same rank.
  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint32_t rounds() const { return rounds_; }
  void forget_counts();
  const std::vector<simulated::message_trace>& trace() const { return trace_; }
  /// Announcements, lateness and deadlines that came due: none in a run that nothing holds up.
  std::uint64_t overdue() const { return overdue_; }
  /// Messages and words that have not been taken or given back.
  std::size_t in_flight() const { return flights_.used() + words_.used(); }
  /// Nothing will happen any more but what waits for a time to pass.
  bool is_silent() const { return events_.empty(); }
  /// The faults of the plan that have struck.
  struct occurrence {
    simulated::fault what;
    simulated::ticks when;
  };
  const std::vector<occurrence>& happened() const { return happened_; }
  bool is_dead(int rank) { return links_ && links_->is_dead(rank); }
  /// A line for each of the first few operations under way: for whom it waits.
  std::string waiting();

  // ---- the driver

  run_queue& queue() { return queue_; }
  time_point now() const { return simulated::to_nanoseconds(now_); }
  /// What happens next; false if that is nothing, or only a deadline.
  bool poll() { return (!queue_.empty() && queue_.run()) || step(); }
  /// No message is under way: only a deadline can help, and in a run without faults nothing.
  void idle(unsigned);
  void enter() {}
  void leave() {}

  /// Lets things happen until `ended()`; false: nothing will happen any more, or only what waits
  /// for a time to pass, in a run without fatal faults.
  template <class Ended>
  bool run_until(const Ended& ended) {
    while (!ended()) {
      if (!poll() && (!patient_ || !next_timer(simulated::no_time))) return false;
    }
    return true;
  }

 private:
  friend simulated_transport;
  friend simulated::flight;
  using ticks = simulated::ticks;
  using flight = simulated::flight;
  using word = simulated::word;
  using fault = simulated::fault;

  struct event {
    enum class kind : std::uint8_t { left, hop, arrived, taken, filled, said, heard, turn };
    kind what;
    std::int32_t rank;
    void* subject;
  };

  bool step();
  void look_ahead() const;
  bool next_timer(ticks at_latest);
  void handle(const event& due);
  void turn(simulated_transport& rank) {
    while (!rank.queue_.empty()) rank.queue_.run(SIZE_MAX);
    if (!strikes_.empty()) strike();
  }
  void push(ticks when, event::kind what, int rank, void* subject) {
    events_.push(when, {what, rank, subject});
  }
  void set_timer(simulated_transport& rank);
  void set_timer(simulated_transport& rank, ticks when);

  std::uint32_t note(int from, const message_key& key, std::uint32_t round, std::size_t size,
                     const std::byte* data);

  // A message travels.
  void left(flight& message);
  void travel(flight& message);
  void hop(flight& message);
  bool arrive(flight& message);
  void release(flight& message);

  // The plan. `counts`: one more event of that rank; false: it is dead and does nothing.
  bool counts(simulated_transport& rank);
  bool holds_up(const event& due, simulated_transport& rank);
  void discard(const event& due);
  void happen(const fault& what);
  void strike();
  void end_of(int rank, simulated::presence how);
  void lose(int rank, int peer, ticks when, const char* how);
  void notice(int rank, int peer);
  void spread(int from, const failure& why, std::uint32_t communicator);
  bool passes(int from, int to);
  bool damages(simulated_transport& sender);
  ticks in_order(int from, int to, ticks when);

  static constexpr ticks news_time = simulated::to_ticks(milliseconds);
  static constexpr ticks give_up_idle = simulated::to_ticks(15 * seconds);
  static constexpr ticks give_up_dialling = simulated::to_ticks(10 * seconds);

  struct timer {
    ticks when;
    std::uint64_t order;
    int rank;
    bool operator<(const timer& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  int size_;
  simulated::network network_;
  simulated::plan plan_;
  std::uint64_t seed_;
  bool phantom_;
  bool traced_;
  bool planned_;                    // something can go wrong: links are remembered, events counted
  bool patient_;                    // waits for deadlines
  std::vector<ticks> taken_until_;  // links inside of the network
  ticks now_ = 0;
  simulated::clock_queue<event> events_;
  std::vector<timer> timers_;  // a heap
  std::uint64_t timers_set_ = 0;
  run_queue queue_;
  simulated::stock<flight> flights_;
  simulated::stock<word> words_;
  simulated_transport* ranks_ = nullptr;
  director* director_ = nullptr;
  std::unique_ptr<simulated::links> links_;
  std::vector<fault> strikes_;
  std::vector<occurrence> happened_;
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
