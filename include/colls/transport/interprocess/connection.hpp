// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// link: one connection to one peer: its life, and what goes through it. Its bytes go through a
// socket, or through memory that both processes share; then the socket only tells of death, and
// wakes.

#include <colls/driver/local_socket.hpp>
#include <colls/driver/socket.hpp>
#include <colls/transport/interprocess/carrier/shared_memory_frames.hpp>
#include <colls/transport/interprocess/carrier/socket_frames.hpp>
#include <colls/transport/interprocess/flow_control.hpp>
#include <colls/transport/interprocess/window/shared_heap.hpp>

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace colls::tcp {

/// What a link tells its transport.
class link_owner {
 public:
  virtual void received(link& from, const header& frame, const std::byte* payload) = 0;
  /// Takes the next frame off the link, if it knows where that goes.
  virtual bool take_next(link& from) = 0;
  virtual void lost(link& which, const failure& why) = 0;
  /// The peer lets this rank see its arena.
  virtual void lent(link& from, detail::descriptor arena) = 0;
  virtual match& matching() = 0;
  /// Whether news of failures has come by another way and is to be read yet.
  virtual bool has_news() const { return false; }

 protected:
  ~link_owner() = default;
};

class link final : public engine::watcher {
 public:
  link(engine& on, link_owner& owner, int peer)
      : engine_(on), owner_(owner), peer_(peer), landing_(owner.matching()), broken_(*this) {}
  link(const link&) = delete;
  link& operator=(const link&) = delete;
  ~link() { shut(); }

  int peer() const { return peer_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  bool said_goodbye() const { return goodbye_received_; }
  void heard_goodbye() { goodbye_received_ = true; }
  bool ended() const { return ended_; }
  bool idle() const { return out_.empty(); }
  bool has_control() const { return out_.has_control(); }
  /// In the middle of a message, or asked for by one that waits here.
  bool is_busy() const { return landing_.left() > 0 || !idle() || credit.any_waiting(); }
  std::string address() const { return address_; }
  void address(std::string where) { address_ = std::move(where); }

  bool dialing = false;
  bool promised = false;   // the peer was let in, and the link opens in a moment
  bool half_open = false;  // the peer may have opened its end
  bool probed = false;     // its system is being asked whether it lives
  time_point next_probe = 0;
  int refused_beside = 0;            // at the peer's local socket
  time_point crowded_since = never;  // that socket takes no connection
  bool is_seen = false;              // the peer has mapped this rank's arena
  bool is_read = false;              // and reads what it lends of its own memory
  bool reads_peer = false;           // as this rank may do with what the peer lends
  std::unique_ptr<shm::arena_view> view;
  tcp::credit credit;

  /// Takes an authenticated connection over and writes what has gathered.
  /// `checks`: with checksums; a ring has them of its own.
  void open(detail::descriptor socket, std::unique_ptr<shm::ring> shared = nullptr,
            bool checks = false);

  /// True: written whole at once.
  bool enqueue(outgoing& send) {
    send.on = this;
    if (!out_.push(send) || !is_open()) return false;
    return out_.ends_at_once(send, [this] { flush(); });
  }

  /// It goes when the link is flushed; `header_alone`: that goes, not before the sends that are
  /// queued: one of them may be of its key.
  void queue(outgoing& send, bool header_alone) {
    send.on = this;
    out_.push(send, header_alone);
  }

  /// Whether messages may still come.
  bool reads() const { return is_open() && !ended_ && !goodbye_received_; }

  /// Whether a message of that length may come so that `take_whole` finds it.
  bool brings_whole(std::size_t size) const {
    return reads() && (ring_ != nullptr || size <= socket_frames::longest_whole);
  }
  /// Writes a message now, or not at all.
  bool write_whole(const header& frame, const_bytes message) {
    if (!reads() || !idle() || credit.any_waiting()) return false;
    if (!ring_) return send_whole(frame, message);
    if (!ring_->has_slot()) return false;
    const bool is_long = message.size > ring_->inline_bytes();
    if (is_long && ring_->room(message.size) < message.size) return false;
    if (!credit.spend(message.size)) return false;
    ring_->write(frame, message.data, message.size);
    return true;
  }
  /// Takes that message off the link if it is the next one and has come whole.
  bool take_whole(const header& wanted, std::byte* into) {
    if (!is_open() || landing_.left() > 0) return false;
    if (!ring_) {
      if (!in_.take_whole(wanted, into)) return false;
      note(wanted);
      consumed(static_cast<std::size_t>(wanted.length));
      if (out_.has_control()) flush();
      return true;
    }
    const shm::slot* const next = ring_->front();
    if (next == nullptr) {
      ring_->own_some();
      return false;
    }
    if (std::memcmp(&next->frame, &wanted, sizeof wanted) != 0) return false;
    if (!ring_->holds(*next)) return false;
    const std::size_t size = wanted.length;
    const std::size_t piece = shm::fetched(next->piece);
    note(wanted);
    if (size <= ring_->inline_bytes()) {
      if (piece != 0) return false;
      if (size != 0) std::memcpy(into, next->data, size);
      if (!ring_->pop(0)) return false;
    } else {
      if (piece != size || !ring_->pop(size)) return false;
      std::memcpy(into, ring_->data(), size);
      ring_->take(size);
    }
    ring_->settle();
    consumed(size);
    if (out_.has_control()) write_frames(*ring_, out_);
    return true;
  }

  /// The newest collective of a communicator that a frame of the peer was of, if it was the last
  /// frame of a collective, else 0.
  std::uint64_t heard_in(std::uint32_t communicator) const {
    return heard_communicator_ == communicator ? heard_sequence_ : 0;
  }

  void control(const header& frame, const void* payload = nullptr) {
    if (!out_.control(frame, payload)) break_off();
  }
  void withdraw(outgoing& send) {
    give_back(send);
    if (!out_.withdraw(send)) break_off();
  }

  /// An unsolicited message of `size` bytes was used up here: the window is given back to the peer,
  /// not too often.
  void consumed(std::size_t size) {
    if (const std::size_t bytes = credit.consumed(size)) {
      header back;
      back.kind = kind::grant;
      back.flags = flag::window;
      back.length = bytes;
      control(back);
    }
  }

  /// Every queued or waiting send.
  template <class Visit>
  void each_send(Visit visit) {
    credit.each(visit);
    out_.each(visit);
  }
  /// Ends every queued or waiting send that `which` picks.
  template <class Which>
  void fail_sends(std::error_code ec, Which which) {
    credit.fail(ec, which);
    out_.each([&](const outgoing& send) {
      if (which(send)) give_back(send);
    });
    if (!out_.fail(ec, which)) break_off();
  }
  /// Whether a message is coming in for that operation.
  bool fills(const operation_record& record) const { return landing_.is_for(record); }
  /// Ends the half-filled receive if `which` picks it.
  template <class Which>
  void fail_receive(std::error_code ec, Which which) {
    landing_.fail(ec, which);
  }

  /// Where the payload of the frame being read goes: a receive, an early message, or nowhere.
  void deliver_to(posted& receive) { landing_.deliver_to(receive, has_ring()); }
  void deliver_to(early& message) { landing_.deliver_to(message); }
  /// A receive took an early message that has not come whole: it is finished when it has.
  void complete_later(early& message, posted& receive) {
    landing_.complete_later(message, receive);
  }
  void forget(early& message) { landing_.forget(message); }

  /// Whether epoll tells of what comes; else `pump` is called all the time.
  void hear(bool on) {
    hears_ = on;
    settle_events();
  }

  /// Writes what it can.
  bool flush() {
    if (!is_open()) return false;
    if (ring_) return write_frames(*ring_, out_);
    const auto [moved, is_full] = socket_frames::write(socket_.get(), out_);
    want_write(is_full);
    return moved;
  }

  /// Reads what it can. False: nothing was there.
  bool pump() {
    if (ring_) return pump_ring();
    const auto is_taken = [this] { return owner_.take_next(*this); };
    const auto begin_frame = [this](const header& frame, const std::byte* payload) {
      return goes_on() && begin(frame, payload);
    };
    bool moved = false;
    for (int rounds = 0; goes_on() && rounds < 64; ++rounds) {
      const ssize_t got = in_.read(socket_.get(), landing_);
      if (got < 0) {
        if (detail::would_block()) break;
        const int why = errno;
        if (!is_explained_soon()) fail(why);
        return true;
      }
      if (got == 0) {
        end_of_file();
        return true;
      }
      moved = true;
      if (const char* const wrong = in_.take(landing_, is_taken, begin_frame)) {
        fail(0, wrong);
        return true;
      }
      if (!in_.may_have_more()) break;
    }
    return moved;
  }

  /// Whether its bytes go through shared memory: nobody tells when some have come.
  bool has_ring() const { return ring_ != nullptr; }
  /// Tells a sleeping peer what was written. Not at each write: the check waits for the write to
  /// reach memory, and there is other work meanwhile. To be called before the thread turns to
  /// something else.
  void wake_peer() {
    if (is_open() && ring_->must_wake()) {
      // A peer that is gone sleeps no more; a full socket wakes it by what is in it.
      (void)::send(socket_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
  /// The thread is about to sleep: the peer shall wake it. False: something can be done already.
  bool arm() {
    if (!is_open()) return true;
    const bool nothing_came = ring_->sleep();
    const bool nothing_went = idle() || !write_frames(*ring_, out_);
    wake_peer();
    return nothing_came && nothing_went;
  }
  void disarm() { ring_->wake(); }

  /// Lets the peer see this rank's arena, or says why not.
  std::error_code lend(const shm::arena& own) {
    if (shm::pass_descriptor(socket_.get(), own.memory().descriptor())) return {};
    return {errno, std::system_category()};
  }
  /// The peer's, by the kernel's word.
  pid_t process() const { return shm::process_behind(socket_.get()); }
  /// Whether the peer's process has ended: it touches nothing any more.
  bool peer_is_gone() const;

  /// Ends the link for want of memory, of which this rank is the cause, or because the peer has left
  /// too much unread: what was begun cannot come to its end. It tells so later: a message may be
  /// withdrawn in a destructor, or in the middle of a list.
  void break_off();
  /// Tells now what `break_off` has left for later: somebody asks for the link.
  void tell_if_broken();
  /// Whether something is under way and the peer's system has not answered it for 5 s: then nothing
  /// else asks for it, keep-alive least of all. To be asked at least once a second.
  bool is_silent(time_point now);

  void shut_writing() { (void)::shutdown(socket_.get(), SHUT_WR); }  // or the peer is gone

  void shut();

  /// The system's word, or a frame that cannot be, ends the link.
  void fail(int system_error, const char* sentence = nullptr);

 private:
  /// Tells later that the link has ended.
  struct broken : completion {
    explicit broken(link& which)
        : completion([](completion& self) noexcept { static_cast<broken&>(self).of.tell_broken(); },
                     &which.engine_.queue()),
          of(which) {}
    link& of;
  };

  // What was to go unasked and does not, leaves its place in the window.
  void give_back(const outgoing& send) {
    if (send.queued && send.written == 0 && !send.alone &&
        (send.frame.flags & flag::granted) == 0) {
      credit.refill(weight(send.size));
    }
  }
  void tell_lost(errc code, const char* sentence);
  void tell_broken();

  void want_write(bool wanted) {
    wants_write_ = wanted;
    settle_events();
  }
  void settle_events() {
    const std::uint32_t events = (hears_ ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                                 (wants_write_ ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
    if (is_open() && !ended_ && events != events_) {
      events_ = events;
      engine_.rewatch(socket_.get(), events_, *this);
    }
  }

  void ready(std::uint32_t events) override;

  // What the system does not take at once goes from a copy.
  bool send_whole(const header& frame, const_bytes message) {
    if (!credit.spend(message.size)) return false;
    const std::size_t sent = in_.write_whole(socket_.get(), frame, message);
    if (sent == 0) {
      credit.refill(weight(message.size));
      return false;
    }
    if (sent < in_.head() + message.size) {
      if (!out_.add_rest(frame, message, sent)) break_off();
      want_write(true);
    }
    return true;
  }

  void note(const header& frame) {
    heard_communicator_ = frame.communicator;
    heard_sequence_ = frame.sequence;
  }

  bool goes_on() const { return is_open() && !ended_; }
  bool begin(const header& frame, const std::byte* payload) {
    const bool has_payload = frame.kind == kind::data && (frame.flags & flag::header_alone) == 0;
    if (frame.hash != 0 && frame.kind <= kind::announce) note(frame);
    landing_.begin(has_payload ? frame.length : 0);
    try {
      owner_.received(*this, frame, payload);
    } catch (const std::bad_alloc&) {
      break_off();
    }
    if (has_payload && frame.length == 0) landing_.end();
    return goes_on();
  }
  bool pump_ring() {
    const auto begin_frame = [this](const header& frame, const std::byte* payload) {
      return begin(frame, payload);
    };
    bool moved = false;
    for (int rounds = 0; goes_on() && rounds < 256; ++rounds) {
      const shm::slot* const next = ring_->front();
      if (next == nullptr) {
        if (!ring_->is_numbered()) {
          fail(0, damaged);
          return true;
        }
        ring_->own_some();
        break;
      }
      moved = true;
      if (owner_.take_next(*this)) continue;
      if (const char* const wrong = take_slot(*ring_, *next, landing_, begin_frame)) {
        fail(0, wrong);
        return true;
      }
      ring_->settle();
    }
    if (is_open() && !idle()) moved |= write_frames(*ring_, out_);
    wake_peer();
    return moved;
  }

  // A frame that cannot be ends the link; the peer hears why.
  void refuse(const char* sentence);

  // The socket says that the peer woke us, or that it is gone; what it wrote before counts.
  void listen();

  // Without memory for it this rank sees none, as if it could not.
  void take_arena(detail::descriptor passed);

  void end_of_file();

  // A peer that leaves with an error may have told the store why, while its last words on the link
  // were lost with the connection: that is read first. The connection's end is met again.
  bool is_explained_soon();

  engine& engine_;
  link_owner& owner_;
  int peer_;
  std::string address_;
  detail::descriptor socket_;
  // What is left of the socket where this side has ended the link, for the peer to read what was
  // written before, or because it may still be in memory of this rank: the peer reads an end of
  // file, and its own end is seen here.
  detail::kept_socket half_closed_;
  std::uint32_t events_ = 0;
  bool hears_ = true;
  bool wants_write_ = false;
  bool goodbye_received_ = false;
  bool ended_ = false;
  bool hung_up_ = false;
  bool refused_ = false;                 // for a frame that cannot be
  time_point end_met_ = never;           // of the connection, and not told yet
  time_point unanswered_since_ = never;  // what was sent, though it was sent again

  std::uint32_t heard_communicator_ = 0;  // of the last frame of a collective
  std::uint64_t heard_sequence_ = 0;

  outbox out_;
  std::unique_ptr<shm::ring> ring_;
  landing landing_;
  socket_frames in_;
  broken broken_;
};

inline void early::free(early* message) {
  if (!message->buffered) --message->from->credit.headers;
  const std::size_t size = sizeof(early) + message->room_;
  message->~early();
  detail::this_threads_frames().give(message, size);
}

inline void early::drop() {
  from->forget(*this);
  if (buffered) {
    from->credit.let_go(size);
    from->consumed(size);
  }
  free(this);
}

}  // namespace colls::tcp

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connection.ipp>
#endif
