// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks of one thread whose connections go through simulated streams of bytes in virtual time. All
// code above the carriers is that of processes. A seed decides where reads and writes are split and
// how long bytes travel.

#include <colls/channel/channel.hpp>
#include <colls/channel/operations.hpp>
#include <colls/transport/interprocess/carrier/stream_pipe.hpp>
#include <colls/transport/interprocess/peer_protocol.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace simulated {

using namespace colls;
using namespace colls::interprocess;

/// What happens when, on all ranks of a world.
class timeline {
 public:
  using key = std::pair<time_point, std::uint64_t>;

  explicit timeline(std::uint64_t seed) : random_(static_cast<std::uint32_t>(seed)) {}

  /// If a limit is not 0, the next write or read moves so many bytes, if it can.
  std::size_t next_write = 0;
  std::size_t next_read = 0;

  time_point now() const { return now_; }
  /// Returns a number from 1 to `max`.
  std::size_t draw(std::size_t max) { return 1 + random_() % max; }
  /// Returns how many of `max` bytes the next write or read moves. `limit` is its limit.
  std::size_t split(std::size_t max, std::size_t& limit) {
    const std::size_t drawn = draw(2) == 1 ? max : draw(max);
    const std::size_t moved = limit != 0 ? std::min(limit, max) : drawn;
    limit = 0;
    note(moved);
    return moved;
  }
  /// A hash of all that has happened, which is equal in two runs of one scenario.
  std::uint64_t trace() const { return trace_; }
  void note(std::uint64_t what) { trace_ = mix(trace_, what); }

  key at(time_point time, std::function<void()> action) {
    const key made{time, ++count_};
    events_.emplace(made, std::move(action));
    return made;
  }
  key after(time_point delay, std::function<void()> action) {
    return at(now_ + delay, std::move(action));
  }
  void cancel(const key& event) { events_.erase(event); }
  /// Runs the next event. Returns false if there is none before `limit`.
  bool step(time_point limit) {
    if (events_.empty() || events_.begin()->first.first > limit) return false;
    auto next = events_.extract(events_.begin());
    now_ = next.key().first;
    note(static_cast<std::uint64_t>(now_));
    next.mapped()();
    return true;
  }

 private:
  std::mt19937 random_;
  std::uint64_t trace_ = 0;
  time_point now_ = seconds;
  std::uint64_t count_ = 0;
  std::map<key, std::function<void()>> events_;
};

/// The scheduler of one rank. While it is frozen no timer expires.
class rank_scheduler final : public scheduler {
 public:
  explicit rank_scheduler(timeline& time) : time_(time) {}
  time_point now() const override { return time_.now(); }
  bool dispatch_events() override { return false; }
  bool spins_now() const override { return false; }

  void freeze(time_point until) { frozen_until_ = std::max(frozen_until_, until); }
  bool is_frozen() const { return time_.now() < frozen_until_; }
  time_point frozen_until() const { return frozen_until_; }

 private:
  void add_timer(timer& waiting) override { add_timer(waiting, waiting.due()); }
  void add_timer(timer& waiting, time_point due) {
    timers_[&waiting] = time_.at(due, [this, &waiting] {
      if (is_frozen()) return add_timer(waiting, frozen_until_);
      timers_.erase(&waiting);
      waiting.expire();
    });
  }
  void remove_timer(timer& waiting) override {
    time_.cancel(timers_[&waiting]);
    timers_.erase(&waiting);
  }

  timeline& time_;
  time_point frozen_until_ = 0;
  std::map<timer*, timeline::key> timers_;
};

class byte_pipe;

/// Two streams of bytes in opposite directions, and what their ends have received.
struct byte_link {
  struct end {
    byte_pipe* pipe = nullptr;
    const rank_scheduler* rank = nullptr;
    byte_queue arrived;
    std::size_t in_flight = 0;  // bytes on their way to this end
    time_point last_arrival = 0;
    bool is_over = false;    // the peer writes no more, and all its bytes have arrived
    bool is_closed = false;  // this end reads no more
    bool is_cut = false;     // whatever this end sends is lost
    bool wakes_soon = false;
  };

  explicit byte_link(timeline& owner) : time(owner) {}
  /// Whether the bytes of one end, or the system's acknowledgements of them, are lost.
  bool loses_any() const { return ends[0].is_cut || ends[1].is_cut; }

  timeline& time;
  end ends[2];
  bool is_reset = false;     // the stream has ended with an error
  bool flips_a_bit = false;  // the next bytes arrive changed

  static constexpr std::size_t capacity = 96 * 1024;
};

/// One end of a link.
class byte_pipe final : public stream_pipe<byte_pipe> {
 public:
  byte_pipe(std::shared_ptr<byte_link> link, int side, bool checks = false)
      : stream_pipe(checks), link_(std::move(link)), side_(side) {
    own().pipe = this;
  }
  ~byte_pipe() override {
    close(false);
    own().pipe = nullptr;
  }

  void close(bool) override {
    if (own().is_closed) return;
    own().is_closed = true;
    shut_writing();
  }
  void shut_writing() override {
    if (!std::exchange(is_shut_, true)) deliver({});
  }
  bool is_silent(time_point now) override {
    return lost_since_ != never && now - lost_since_ > 5 * seconds;
  }
  bool has_peer_exited() const override { return link_->ends[1 - side_].is_closed; }

  /// Called when bytes have arrived, or there is room for more.
  void wake() {
    if (!is_open() || own().rank->is_frozen()) return;
    if (is_waiting_) flush();
    poll();
  }

 private:
  friend stream_pipe<byte_pipe>;

  byte_link::end& own() { return link_->ends[side_]; }
  byte_link::end& other() { return link_->ends[1 - side_]; }

  bool is_open() { return is_started_ && !own().is_closed; }
  void start() override {
    stream_pipe::start();
    is_started_ = true;
    wake_later(side_);
  }
  void wait_writable(bool wanted) {
    is_waiting_ = wanted;
    if (wanted && room() > 0) wake_later(side_);
  }
  std::size_t room() {
    return byte_link::capacity -
           std::min(byte_link::capacity, other().arrived.size() + other().in_flight);
  }
  void wake_later(int side) {
    if (std::exchange(link_->ends[side].wakes_soon, true)) return;
    link_->time.after(0, [link = link_, side] {
      link->ends[side].wakes_soon = false;
      if (link->ends[side].pipe != nullptr) link->ends[side].pipe->wake();
    });
  }

  ssize_t write_bytes(iovec* parts, int count, std::size_t size) {
    const bool is_known_closed = other().is_closed && !link_->loses_any();
    if (link_->is_reset || is_known_closed) return fail(EPIPE);
    if (link_->loses_any() && lost_since_ == never) lost_since_ = link_->time.now();
    if (room() == 0) return fail(EAGAIN);
    const std::size_t sent = link_->time.split(std::min(size, room()), link_->time.next_write);
    std::vector<std::byte> bytes;
    bytes.reserve(sent);
    for (int i = 0; i < count && bytes.size() < sent; ++i) {
      const auto* const part = static_cast<const std::byte*>(parts[i].iov_base);
      bytes.insert(bytes.end(), part, part + std::min(parts[i].iov_len, sent - bytes.size()));
    }
    if (std::exchange(link_->flips_a_bit, false)) bytes[bytes.size() / 2] ^= std::byte{16};
    deliver(std::move(bytes));
    return static_cast<ssize_t>(sent);
  }
  ssize_t read_bytes(iovec* parts, int count) {
    byte_queue& arrived = own().arrived;
    if (link_->is_reset) return fail(ECONNRESET);
    if (arrived.empty() && own().is_over) return 0;
    if (arrived.empty()) return fail(EAGAIN);
    std::size_t left = link_->time.split(arrived.size(), link_->time.next_read);
    std::size_t taken = 0;
    for (int i = 0; i < count && left > 0; ++i) {
      const std::size_t part = std::min(parts[i].iov_len, left);
      if (part == 0) continue;
      std::memcpy(parts[i].iov_base, arrived.data(), part);
      arrived.remove(part);
      taken += part;
      left -= part;
    }
    if (!arrived.empty() || own().is_over) wake_later(side_);  // as epoll reports what is left
    if (other().pipe != nullptr && other().pipe->is_waiting_) wake_later(1 - side_);
    return static_cast<ssize_t>(taken);
  }
  // Bytes arrive at the other end after a while, and none at its end.
  void deliver(std::vector<std::byte> bytes) {
    byte_link::end& to = other();
    to.in_flight += bytes.size();
    to.last_arrival = std::max(
        to.last_arrival, link_->time.now() + static_cast<time_point>(link_->time.draw(50'000)));
    link_->time.at(to.last_arrival, [link = link_, side = 1 - side_, bytes = std::move(bytes)] {
      byte_link::end& target = link->ends[side];
      if (link->ends[1 - side].is_cut) return;
      target.in_flight -= bytes.size();
      if (!bytes.empty()) target.arrived.append(bytes.data(), bytes.size());
      target.is_over |= bytes.empty();
      if (target.pipe != nullptr) target.pipe->wake();
    });
  }
  static ssize_t fail(int error) {
    errno = error;
    return -1;
  }

  std::shared_ptr<byte_link> link_;
  int side_;
  bool is_started_ = false;
  bool is_shut_ = false;
  bool is_waiting_ = false;
  time_point lost_since_ = never;  // when it wrote the first bytes that were lost
};

class world;

class byte_carrier final : public carrier {
 public:
  byte_carrier(world& all, int rank) : world_(all), rank_(rank) {}

  void start(owner& user) override;
  void stop_listening() override {}
  task<bool> dial(dial_attempt& attempt) override;
  task<bool> answers(int peer) override;

 private:
  time_point later() const;

  world& world_;
  int rank_;
  owner* owner_ = nullptr;
};

/// One rank: a transport for `basic_channel`, of the parts that processes use.
class virtual_rank final : peer_protocol::owner {
 public:
  static constexpr bool consumes = true;
  using send_operation = queued_send<virtual_rank, posted_send>;
  using recv_operation = receive_operation<virtual_rank>;

  virtual_rank(world& all, int number, int size);
  virtual_rank(const virtual_rank&) = delete;
  ~virtual_rank() {
    work_.reset();
    matcher_.remove(state_);
  }

  /// An operation of a rank. It lasts as long as this object.
  class call {
   public:
    /// A collective.
    call(virtual_rank& net, const fingerprint& arguments, time_point timeout = 20 * seconds)
        : call(net, timeout) {
      record.operation = arguments.operation;
      record.sequence = net.state_.take_sequence(arguments);
      record.hash = hash_of(arguments);
      net.matcher_.begin(record);
    }
    /// A send to `destination`, or a receive if that is -1.
    call(virtual_rank& net, int destination, std::uint64_t tag, time_point timeout)
        : call(net, timeout) {
      record.operation = destination < 0 ? collective::recv : collective::send;
      record.destination = destination;
      record.sequence = tag;
      net.matcher_.begin(record);
    }
    call(const call&) = delete;
    ~call() { net_.matcher_.end(record); }

    operation_record record;

   private:
    call(virtual_rank& net, time_point timeout) : net_(net) {
      record.communicator = &net.state_;
      record.started = net.now();
      record.deadline = net.now() + timeout;
    }
    virtual_rank& net_;
  };

  bool is_dead = false;
  bool is_done() const { return is_done_; }
  const communicator_state& state() const { return state_; }

  /// Starts the program of this rank, `work(*this)`.
  template <class Work>
  void begin(const Work& work) {
    work_->start(run(work));
  }
  void freeze(time_point until) { scheduler_.freeze(until); }
  const rank_scheduler& frozen() const { return scheduler_; }
  /// Returns the connection to a peer, or null if there is none.
  connection* connection_to(int peer) { return protocol_.connections().find(peer); }
  void say_goodbye() { protocol_.connections().say_goodbye(); }
  /// Runs what is ready, as a poll of the engine does.
  void poll() {
    if (is_dead || scheduler_.is_frozen()) return;
    const auto none = [](const auto&) {};
    while (scheduler_.queue().run() || protocol_.connections().poll(matcher_, none)) {
    }
  }
  void sweep() {
    if (!is_dead && !scheduler_.is_frozen()) protocol_.sweep(now());
  }

  // ---- the transport

  int rank() const { return state_.rank(); }
  int size() const { return state_.size(); }
  time_point now() const { return scheduler_.now(); }
  tag_matcher& matching() { return matcher_; }
  run_queue& queue() { return scheduler_.queue(); }
  scheduler& driver() { return scheduler_; }
  void wake_driver() {}
  int node_of(int) const { return 0; }
  task<> close(time_point) { co_return; }
  send_operation send(const message_key& key, const_bytes message, operation_record& record) {
    return {*this, key, message, record};
  }
  recv_operation recv(const message_key& key, mutable_bytes message, operation_record& record) {
    return {*this, key, message, record};
  }
  bool start(posted_send& send) { return protocol_.messages().start(send); }
  bool start(posted_receive& receive) { return protocol_.messages().start(receive); }
  void withdraw(posted_send& send) { protocol_.messages().withdraw(send); }

 private:
  template <class Work>
  task<> run(Work work) {
    try {
      co_await work(*this);
    } catch (const error&) {
      // The state of the communicator says why.
    }
    is_done_ = true;
  }
  static std::vector<std::unique_ptr<carrier>> carriers(world& all, int number) {
    std::vector<std::unique_ptr<carrier>> one;
    one.push_back(std::make_unique<byte_carrier>(all, number));
    return one;
  }

  rank_scheduler scheduler_;
  tag_matcher matcher_;
  communicator_state state_;
  bool is_done_ = false;
  peer_protocol protocol_;
  std::optional<task_group> work_;
};

/// All ranks, which are connected by links.
class world {
 public:
  world(int size, std::uint64_t seed, bool checks = false)
      : time(seed), checks_(checks), acceptors_(static_cast<std::size_t>(size)) {
    for (int i = 0; i < size; ++i) ranks.push_back(std::make_unique<virtual_rank>(*this, i, size));
    sweep();
  }
  /// Lets time pass until `is_over()`, or for `duration`, or for `max_events` events. Returns the
  /// number of events.
  template <class IsOver>
  int run(const IsOver& is_over, time_point duration, int max_events = INT_MAX) {
    const time_point limit = time.now() + duration;
    int events = 0;
    for (const auto& each : ranks) each->poll();
    while (!is_over() && events < max_events && time.step(limit)) {
      ++events;
      for (const auto& each : ranks) each->poll();
    }
    return events;
  }
  /// Ends a rank as the kernel ends a process: its connections close, and it does nothing more. A
  /// connection with bytes that the rank has not read is reset.
  void kill(int number) {
    rank(number).is_dead = true;
    for_each_end(number, [](byte_link& link, int side) {
      byte_link::end& own = link.ends[side];
      if (own.pipe == nullptr || own.is_closed) return;
      const bool has_unread = !own.arrived.empty();
      own.pipe->close(false);
      if (has_unread) reset(link);
    });
  }
  /// Stops a rank for a while, as SIGSTOP does. Its system still receives bytes.
  void freeze(int number, time_point duration) {
    rank(number).freeze(time.now() + duration);
    time.after(duration, [this, number] {
      for_each_end(number, [](byte_link& link, int side) {
        if (link.ends[side].pipe != nullptr) link.ends[side].pipe->wake();
      });
    });
  }
  /// Loses all that the rank `from` sends to the rank `to` from now on.
  void cut(int from, int to) {
    cuts_.insert({from, to});
    for (const opened_link& each : links)
      each.link->ends[0].is_cut |= is_cut(each.ranks[0], each.ranks[1]);
    for (const opened_link& each : links)
      each.link->ends[1].is_cut |= is_cut(each.ranks[1], each.ranks[0]);
  }
  bool is_cut(int from, int to) const { return cuts_.count({from, to}) != 0; }
  bool is_cut_either_way(int one, int other) const {
    return is_cut(one, other) || is_cut(other, one);
  }
  /// Makes a link that `dialler` has dialled and `acceptor` has accepted.
  std::shared_ptr<byte_link> add_link(int dialler, int acceptor) {
    auto link = std::make_shared<byte_link>(time);
    link->ends[0].rank = &rank(dialler).frozen();
    link->ends[1].rank = &rank(acceptor).frozen();
    links.push_back({{dialler, acceptor}, link});
    return link;
  }
  /// Ends a link with an error on both sides.
  static void reset(byte_link& link) {
    link.is_reset = true;
    for (const byte_link::end& each : link.ends) {
      if (each.pipe != nullptr) each.pipe->wake();
    }
  }
  /// Calls `visit(link, side)` for each end that the rank has, or had.
  template <class Visit>
  void for_each_end(int number, const Visit& visit) {
    for (std::size_t i = 0; i < links.size(); ++i) {
      for (const int side : {0, 1}) {
        if (links[i].ranks[side] == number) visit(*std::shared_ptr(links[i].link), side);
      }
    }
  }
  virtual_rank& rank(int number) { return *ranks[static_cast<std::size_t>(number)]; }
  bool is_dead(int number) const { return ranks[static_cast<std::size_t>(number)]->is_dead; }
  bool checks() const { return checks_; }
  carrier::owner*& acceptor(int number) { return acceptors_[static_cast<std::size_t>(number)]; }

  timeline time;

 private:
  void sweep() {
    for (const auto& each : ranks) each->sweep();
    time.after(50 * milliseconds, [this] { sweep(); });
  }

  bool checks_;
  std::set<std::pair<int, int>> cuts_;
  std::vector<carrier::owner*> acceptors_;

 public:
  /// The links that were ever open, with the ranks that dialled and accepted them.
  struct opened_link {
    int ranks[2];
    std::shared_ptr<byte_link> link;
  };
  std::vector<opened_link> links;
  std::vector<std::unique_ptr<virtual_rank>> ranks;
};

inline virtual_rank::virtual_rank(world& all, int number, int size)
    : scheduler_(all.time),
      matcher_(number),
      state_(1, number, size, nullptr),
      protocol_(scheduler_, matcher_, size, carriers(all, number),
                static_cast<peer_protocol::owner&>(*this)) {
  matcher_.add(state_);
  protocol_.start();
  work_.emplace(scheduler_);
}

inline void byte_carrier::start(owner& user) {
  owner_ = &user;
  world_.acceptor(rank_) = &user;
}

inline time_point byte_carrier::later() const {
  return world_.time.now() + static_cast<time_point>(world_.time.draw(100'000));
}

// The verdict of the peer travels to this rank while the peer's end is open already.
inline task<bool> byte_carrier::dial(dial_attempt& attempt) {
  const int peer = attempt.peer;
  scheduler& here = world_.rank(rank_).driver();
  const rank_scheduler& there = world_.rank(peer).frozen();
  attempt.has_address = true;
  owner_->set_address(peer, "rank " + std::to_string(peer));
  co_await here.sleep_until(later());
  if (world_.is_cut_either_way(rank_, peer)) {
    co_await here.sleep_until(here.now() + seconds);
    attempt.error = std::make_error_code(std::errc::timed_out);
    co_return true;
  }
  // The system of a frozen peer accepts connections, and nothing answers them.
  const time_point patience = here.now() + 5 * seconds;
  while (there.is_frozen() && !world_.is_dead(peer) && here.now() < patience) {
    const time_point next = std::min(patience, here.now() + seconds);
    co_await here.sleep_until(std::min(next, there.frozen_until()));
  }
  if (world_.is_dead(peer)) {
    attempt.error = std::make_error_code(std::errc::connection_refused);
    co_return true;
  }
  attempt.is_peer_alive = true;
  if (there.is_frozen()) throw error(errc::timeout, "it does not answer");
  owner_->set_half_open(peer, true);
  const verdict answer = world_.acceptor(peer)->judge(rank_);
  std::unique_ptr<byte_pipe> mine;
  if (answer == verdict::accepted) {
    const std::shared_ptr<byte_link> link = world_.add_link(rank_, peer);
    mine = std::make_unique<byte_pipe>(link, 0, world_.checks());
    world_.acceptor(peer)->opened(rank_, std::make_unique<byte_pipe>(link, 1, world_.checks()));
    world_.acceptor(peer)->accept_ended(rank_);
  }
  co_await here.sleep_until(later());
  if (world_.is_cut_either_way(rank_, peer)) {
    attempt.error = std::make_error_code(std::errc::timed_out);
    co_return true;
  }
  if (answer == verdict::connection_failed) throw error(errc::peer_failed, "it has ended");
  if (answer == verdict::unavailable) throw error(errc::unreachable, "it leaves");
  if (mine != nullptr && owner_->is_wanted(peer)) owner_->opened(peer, std::move(mine));
  co_return true;
}

inline task<bool> byte_carrier::answers(int peer) {
  co_return !world_.is_dead(peer) && !world_.is_cut_either_way(rank_, peer);
}

}  // namespace simulated
