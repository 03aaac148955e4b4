// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// link: one connection to one peer: what is to be written, what is being read. Its bytes go through
// a socket, or through memory that both processes share; then the socket only tells of death, and
// wakes.

#include <colls/match.hpp>
#include <colls/transport/shm/arena.hpp>
#include <colls/transport/shm/local_socket.hpp>
#include <colls/transport/shm/ring.hpp>
#include <colls/transport/socket.hpp>
#include <colls/transport/tcp/frame.hpp>

#include <algorithm>
#include <cstring>

namespace colls::tcp {

inline constexpr std::size_t eager_limit = 64 * 1024;
/// Bytes that a rank may send on a link without having been asked, and that its peer may have to
/// keep until somebody wants them.
inline constexpr std::size_t window = 256 * 1024;
/// What a message takes of the window.
constexpr std::size_t weight(std::size_t size) { return size + 64; }

class link;

/// A send; its header is made when it starts.
struct outgoing : keyed {
  header frame;
  const std::byte* data = nullptr;
  std::size_t size = 0;
  operation_record* record = nullptr;
  completion* done = nullptr;
  link* on = nullptr;
  std::error_code ec;
  std::size_t written = 0;  // of header and payload
  bool waits = false;       // for a grant
  bool queued = false;
  bool reminded = false;      // its header has gone ahead
  outgoing* after = nullptr;  // in the link's queue

  std::size_t whole() const { return sizeof frame + size; }
  void finish(std::error_code result = {}) {
    on = nullptr;
    ec = result;
    if (!result) record->bytes += size;
    done->post();
  }
};

/// A message that came before its receive, in memory of its own (at most `eager_limit`), or the
/// header of one that waits for a grant.
struct early final : arrival {
  link* from = nullptr;
  posted* wanted = nullptr;  // the receive that took it before all of it had come
  std::size_t filled = 0;
  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  void drop() override;

  static early* make(std::size_t size) {
    early* const made = new (detail::this_threads_frames().take(sizeof(early) + size)) early;
    made->room_ = size;
    return made;
  }
  static void free(early* message) {
    const std::size_t size = sizeof(early) + message->room_;
    message->~early();
    detail::this_threads_frames().give(message, size);
  }

 private:
  std::size_t room_ = 0;
};

/// What a link tells its transport.
class link_owner {
 public:
  virtual void received(link& from, const header& frame, const std::byte* payload) = 0;
  /// Takes the next frame of a ring off it, if it knows where that goes.
  virtual bool take_next(link& from) = 0;
  virtual void lost(link& which, const failure& why) = 0;
  /// The peer lets this rank see its arena.
  virtual void lent(link& from, detail::descriptor arena) = 0;
  virtual match& matching() = 0;

 protected:
  ~link_owner() = default;
};

class link final : public engine::watcher, public filler {
 public:
  link(engine& on, link_owner& owner, int peer) : engine_(on), owner_(owner), peer_(peer) {}
  link(const link&) = delete;
  link& operator=(const link&) = delete;
  ~link() {
    give_gathered();
    shut();
  }

  int peer() const { return peer_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  bool said_goodbye() const { return goodbye_received_; }
  void heard_goodbye() { goodbye_received_ = true; }
  bool ended() const { return ended_; }
  bool idle() const { return first_ == nullptr && control_.empty() && tail_.empty(); }
  std::string address() const { return address_; }
  void address(std::string where) { address_ = std::move(where); }

  bool dialing = false;
  bool promised = false;        // the peer was let in, and the link opens in a moment
  int refused_beside = 0;       // at the peer's local socket
  bool told_why = false;        // the log has why it does not go through shared memory
  bool is_seen = false;         // the peer has mapped this rank's arena
  std::unique_ptr<shm::arena_view> view;
  key_table<outgoing> waiting;  // sends that wait for a grant

  /// Takes an authenticated connection over and writes what has gathered.
  void open(detail::descriptor socket, std::unique_ptr<shm::ring> shared = nullptr) {
    socket_ = std::move(socket);
    ring_ = std::move(shared);
    events_ = EPOLLIN;
    engine_.watch(socket_.get(), events_, *this);
    flush();
  }

  /// True: written whole at once.
  bool enqueue(outgoing& send) {
    send.on = this;
    send.queued = true;
    send.written = 0;
    send.after = nullptr;
    (last_ != nullptr ? last_->after : first_) = &send;
    last_ = &send;
    if (first_ != &send || !is_open()) return false;
    inline_ = &send;
    flush();
    return std::exchange(inline_, nullptr) == nullptr;
  }

  /// Whether messages may still come.
  bool reads() const { return is_open() && !ended_ && !goodbye_received_; }

  /// Writes a message to the ring now, or not at all.
  bool write_whole(const header& frame, const_bytes message) {
    const bool may = reads() && idle() && waiting.empty() && message.size <= eager_limit &&
                     weight(message.size) <= allowance;
    if (!may || !ring_->has_slot()) return false;
    const bool is_long = message.size > shm::longest_inline;
    if (is_long && ring_->room(message.size) < message.size) return false;
    allowance -= weight(message.size);
    ring_->write(frame, message.data, message.size);
    return true;
  }
  /// Takes that message off the ring if it is the next one and has come whole.
  bool take_whole(const header& wanted, std::byte* into) {
    if (!is_open() || payload_left_ > 0) return false;
    const shm::slot* const next = ring_->front();
    if (next == nullptr || std::memcmp(&next->frame, &wanted, sizeof wanted) != 0) return false;
    const std::size_t size = wanted.length;
    if (size <= shm::longest_inline) {
      if (next->piece != 0) return false;
      if (size != 0) std::memcpy(into, next->data, size);
      if (!ring_->pop(*next)) return false;
    } else {
      if (next->piece != size || !ring_->pop(*next)) return false;
      std::memcpy(into, ring_->data(), size);
      ring_->take(size);
    }
    ring_->settle();
    consumed(weight(size));
    if (!control_.empty()) flush_ring();
    return true;
  }

  void control(const header& frame, const void* payload = nullptr) {
    const auto* const head = reinterpret_cast<const std::byte*>(&frame);
    control_.insert(control_.end(), head, head + sizeof frame);
    if (payload != nullptr) {
      const auto* const body = static_cast<const std::byte*>(payload);
      control_.insert(control_.end(), body, body + frame.length);
    }
  }

  /// Takes a queued send back. If it is half written the rest goes out from a copy, since the peer
  /// has been promised its length.
  void withdraw(outgoing& send) {
    if (!std::exchange(send.queued, false)) return;
    outgoing* before = nullptr;
    for (outgoing* at = first_; at != &send; at = at->after) before = at;
    (before != nullptr ? before->after : first_) = send.after;
    if (last_ == &send) last_ = before;
    if (send.written == 0) return;
    const auto* const head = reinterpret_cast<const std::byte*>(&send.frame);
    if (send.written < sizeof send.frame) {
      tail_.insert(tail_.end(), head + send.written, head + sizeof send.frame);
      send.written = sizeof send.frame;
    }
    const std::size_t done = send.written - sizeof send.frame;
    tail_.insert(tail_.end(), send.data + done, send.data + send.size);
  }

  /// Unsolicited bytes that may still be sent.
  std::size_t allowance = window;

  bool take_grant(const message_key& key) {
    for (banked& entry : grants_) {
      if (entry.count > 0 && entry.key == key) {
        --entry.count;
        return true;
      }
    }
    return false;
  }
  void bank_grant(const message_key& key) {
    for (banked& entry : grants_) {
      if (entry.count > 0 && entry.key == key) {
        ++entry.count;
        return;
      }
    }
    for (banked& entry : grants_) {
      if (entry.count == 0) {
        entry = {key, 1};
        return;
      }
    }
    grants_.push_back({key, 1});
  }
  void drop_grants(std::uint32_t communicator) {
    for (banked& entry : grants_) {
      if (entry.key.communicator == communicator) entry.count = 0;
    }
  }

  /// Unsolicited bytes were used up here: gives them back to the peer, not too often.
  void consumed(std::size_t bytes) {
    unreturned_ += bytes;
    if (unreturned_ >= window / 4) {
      header back;
      back.kind = kind::grant;
      back.flags = flag::window;
      back.length = std::exchange(unreturned_, 0);
      control(back);
    }
  }

  /// Every queued or waiting send.
  template <class Visit>
  void each_send(Visit visit) {
    waiting.each([&](outgoing& send) { visit(send); });
    for (outgoing* send = first_; send != nullptr; send = send->after) visit(*send);
  }
  /// Ends every queued or waiting send that `which` picks.
  template <class Which>
  void fail_sends(std::error_code ec, Which which) {
    waiting.each([&](outgoing& send) {
      if (!which(send)) return;
      waiting.remove(send);
      send.waits = false;
      send.finish(ec);
    });
    for (outgoing* send = first_; send != nullptr;) {
      outgoing* const following = send->after;
      if (which(*send)) {
        withdraw(*send);
        if (inline_ == send) inline_ = nullptr;
        send->finish(ec);
      }
      send = following;
    }
  }
  /// Ends the half-filled receive if `which` picks it.
  template <class Which>
  void fail_receive(std::error_code ec, Which which) {
    if (target_ != nullptr && which(*target_)) {
      posted& receive = *target_;
      abandon(receive);
      receive.finish(ec);
    }
  }

  void abandon(posted& receive) override {
    if (target_ == &receive) {
      target_ = nullptr;
      into_ = nullptr;  // the rest of the payload is thrown away
      give_gathered();
    }
    if (early_ != nullptr && early_->wanted == &receive) early_->wanted = nullptr;
  }

  /// A receive took an early message that has not come whole: it is finished when it has.
  void complete_later(early& message, posted& receive) {
    message.wanted = &receive;
    receive.held_by = this;
  }
  void forget(early& message) {
    if (early_ == &message) early_ = nullptr, into_ = nullptr;
  }

  /// Where the payload of the frame being read goes: a receive, an early message, or nowhere.
  void deliver_to(posted& receive) {
    into_ = receive.data;
    if (receive.fold != nullptr && (!ring_ || receive.grain > longest_grain)) {
      gathered_ = owner_.matching().take_scratch(receive.received);
      if (gathered_.memory == nullptr) return refuse_for_memory(receive);
      into_ = static_cast<std::byte*>(gathered_.memory);
    }
    target_ = &receive;
    receive.held_by = this;
  }
  void deliver_to(early& message) {
    early_ = &message;
    into_ = message.bytes();
  }

  /// Writes what it can. An error is judged by the reader, who may find a last word of the peer.
  bool flush() {
    if (ring_) return flush_ring();
    bool moved = false;
    while (is_open() && !idle()) {
      iovec parts[16];
      int count = 0;
      std::size_t wanted = 0;
      const auto add = [&](const std::byte* from, std::size_t size) {
        if (size == 0) return;
        parts[count++] = {const_cast<std::byte*>(from), size};
        wanted += size;
      };
      add(tail_.data(), tail_.size());
      outgoing* send = first_;
      if (send != nullptr && send->written > 0) {
        add_rest(*send, add);
        send = send->after;
      }
      add(control_.data(), control_.size());
      for (; send != nullptr && count + 2 <= 16; send = send->after) add_rest(*send, add);
      const ssize_t sent = write(parts, count, wanted);
      if (sent <= 0) {
        want_write(detail::would_block());
        return moved;
      }
      moved = true;
      advance(static_cast<std::size_t>(sent));
      if (static_cast<std::size_t>(sent) < wanted) {
        want_write(true);
        return true;
      }
    }
    want_write(false);
    return moved;
  }

  /// Reads what it can. False: nothing was there.
  bool pump() {
    if (ring_) return pump_ring();
    bool moved = false;
    for (int rounds = 0; is_open() && !ended_ && rounds < 64; ++rounds) {
      // Payload first into its place, what follows it into the read-ahead buffer, in one call.
      iovec parts[2];
      int count = 0;
      std::byte sink[4096];
      const std::size_t direct =
          into_ == nullptr ? std::min(payload_left_, sizeof sink) : payload_left_;
      std::size_t wanted = direct;
      if (payload_left_ > 0) parts[count++] = {into_ == nullptr ? sink : into_, direct};
      if (direct == payload_left_) {
        parts[count++] = {ahead_ + ahead_size_, sizeof ahead_ - ahead_size_};
        wanted += sizeof ahead_ - ahead_size_;
      }
      const ssize_t got = read(parts, count);
      if (got < 0) {
        if (detail::would_block()) break;
        fail(errno);
        return true;
      }
      if (got == 0) {
        end_of_file();
        return true;
      }
      moved = true;
      const auto size = static_cast<std::size_t>(got);
      const std::size_t body = std::min(size, payload_left_);
      if (into_ != nullptr) into_ += body;
      note_payload(body);
      ahead_size_ += size - body;
      parse();
      if (size < wanted) break;
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
      (void)::send(socket_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
  /// The thread is about to sleep: the peer shall wake it. False: something can be done already.
  bool arm() {
    if (!is_open()) return true;
    const bool nothing_came = ring_->sleep();
    const bool nothing_went = idle() || !flush_ring();
    wake_peer();
    return nothing_came && nothing_went;
  }
  void disarm() { ring_->wake(); }

  /// Lets the peer see this rank's arena.
  void lend(const shm::arena& own) {
    (void)shm::pass_descriptor(socket_.get(), own.memory().descriptor());
  }
  /// Whether the peer's process has ended: it touches nothing any more.
  bool peer_is_gone() const {
    if (!socket_) return hung_up_;
    pollfd now{socket_.get(), 0, 0};
    return ::poll(&now, 1, 0) == 1 && (now.revents & POLLHUP) != 0;
  }

  void shut_writing() { ::shutdown(socket_.get(), SHUT_WR); }

  void shut() {
    if (!socket_) return;
    engine_.unwatch(socket_.get(), *this);
    socket_ = {};
  }

  /// The system's word, or a frame that cannot be, ends the link.
  void fail(int system_error, const char* sentence = nullptr) {
    failure why(sentence == nullptr ? errc::peer_failed : errc::protocol_error);
    why.culprit = peer_;
    std::snprintf(why.address, sizeof why.address, "%s", address_.c_str());
    why.say("%s", sentence == nullptr ? std::strerror(system_error) : sentence);
    ended_ = true;
    hung_up_ = sentence == nullptr;
    shut();
    owner_.lost(*this, why);
  }

 private:
  struct banked {
    message_key key;
    int count = 0;
  };

  template <class Add>
  static void add_rest(const outgoing& send, const Add& add) {
    const auto* const head = reinterpret_cast<const std::byte*>(&send.frame);
    if (send.written < sizeof send.frame) {
      add(head + send.written, sizeof send.frame - send.written);
      add(send.data, send.size);
    } else {
      const std::size_t done = send.written - sizeof send.frame;
      add(send.data + done, send.size - done);
    }
  }

  // The kernel takes 0.3 us longer to look at a list of pieces than to copy one short one.
  ssize_t write(iovec* parts, int count, std::size_t size) {
    std::byte whole[1024];
    if (size > sizeof whole) {
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = static_cast<std::size_t>(count);
      return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    std::size_t at = 0;
    for (int i = 0; i < count; ++i) {
      std::memcpy(whole + at, parts[i].iov_base, parts[i].iov_len);
      at += parts[i].iov_len;
    }
    return ::send(socket_.get(), whole, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  ssize_t read(iovec* parts, int count) {
    if (count > 1) return ::readv(socket_.get(), parts, count);
    return ::recv(socket_.get(), parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  }

  void advance(std::size_t sent) {
    const auto take = [&](std::size_t size) {
      const std::size_t part = std::min(sent, size);
      sent -= part;
      return part;
    };
    const auto erase = [&](std::vector<std::byte>& from) {
      const std::size_t part = take(from.size());
      from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(part));
    };
    const auto pop = [&](outgoing& send) {
      send.written += take(send.whole() - send.written);
      if (send.written < send.whole()) return false;
      written(send);
      return true;
    };
    erase(tail_);
    if (first_ != nullptr && first_->written > 0 && !pop(*first_)) return;
    erase(control_);
    while (sent > 0 && first_ != nullptr) pop(*first_);
  }

  // The first send is written whole.
  void written(outgoing& send) {
    first_ = send.after;
    if (first_ == nullptr) last_ = nullptr;
    send.queued = false;
    if (inline_ == &send) {
      inline_ = nullptr;
      send.on = nullptr;
      send.record->bytes += send.size;
    } else {
      send.finish();
    }
  }

  void want_write(bool wanted) {
    const std::uint32_t events =
        static_cast<std::uint32_t>(EPOLLIN) | (wanted ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
    if (is_open() && !ended_ && events != events_) {
      events_ = events;
      engine_.rewatch(socket_.get(), events_, *this);
    }
  }

  void ready(std::uint32_t events) override {
    if (ring_) return listen();
    if ((events & static_cast<std::uint32_t>(EPOLLOUT)) != 0) flush();
    if (is_open()) pump();
    if (is_open()) flush();
  }

  // Takes frames out of the read-ahead buffer; payload that lies there is copied to its place.
  void parse() {
    std::size_t at = 0;
    while (is_open() && !ended_) {
      if (payload_left_ > 0) {
        const std::size_t part = std::min(payload_left_, ahead_size_ - at);
        if (part == 0) break;
        if (into_ != nullptr) {
          std::memcpy(into_, ahead_ + at, part);
          into_ += part;
        }
        at += part;
        note_payload(part);
        continue;
      }
      if (ahead_size_ - at < sizeof(header)) break;
      header frame;
      std::memcpy(&frame, ahead_ + at, sizeof frame);
      if (!plausible(frame)) {
        fail(0, "a frame that no rank of colls would send");
        return;
      }
      const std::size_t body = control_size(frame);
      if (ahead_size_ - at < sizeof frame + body) break;
      const std::byte* const payload = ahead_ + at + sizeof frame;
      at += sizeof frame + body;
      begin_frame(frame, payload);
    }
    ahead_size_ -= at;
    if (at > 0 && ahead_size_ > 0) std::memmove(ahead_, ahead_ + at, ahead_size_);
  }

  // Payload of a frame that is not data.
  static std::size_t control_size(const header& frame) {
    const bool has_none =
        frame.kind == kind::data || frame.kind == kind::grant || frame.kind == kind::announce;
    return has_none ? 0 : frame.length;
  }

  void begin_frame(const header& frame, const std::byte* payload) {
    const bool has_payload = frame.kind == kind::data && (frame.flags & flag::header_alone) == 0;
    if (has_payload) payload_left_ = frame.length;
    taken_ = 0;
    into_ = nullptr;
    target_ = nullptr;
    early_ = nullptr;
    owner_.received(*this, frame, payload);
    if (has_payload && payload_left_ == 0) end_of_payload();
  }

  void note_payload(std::size_t size) {
    if (size == 0) return;
    if (early_ != nullptr) early_->filled += size;
    if (target_ != nullptr) target_->record->bytes += size;
    taken_ += size;
    payload_left_ -= size;
    if (payload_left_ == 0) end_of_payload();
  }

  void end_of_payload() {
    if (posted* const receive = std::exchange(target_, nullptr)) {
      receive->held_by = nullptr;
      if (gathered_.memory != nullptr) {
        receive->fold(receive->folds, 0, static_cast<std::byte*>(gathered_.memory),
                      receive->received);
        give_gathered();
      }
      receive->done->post();
    }
    if (early* const message = std::exchange(early_, nullptr)) {
      if (posted* const receive = message->wanted) {
        receive->accept(message->bytes(), message->size, message->key.peer);
        message->drop();
        receive->finish();
      }
    }
    into_ = nullptr;
  }

  void give_gathered() {
    if (gathered_.memory != nullptr) {
      owner_.matching().give_scratch(std::exchange(gathered_, {}));
    }
  }
  void refuse_for_memory(posted& receive) {
    owner_.matching().revoke(*receive.record->communicator, failure(errc::not_enough_memory));
    into_ = nullptr;
    receive.received = 0;
    receive.finish(make_error_code(errc::not_enough_memory));
  }

  // ---- through shared memory

  bool flush_ring() {
    bool moved = false;
    while (is_open() && !idle() && ring_->has_slot()) {
      if (!tail_.empty()) {
        const std::size_t piece = write_piece({}, tail_.data(), tail_.size());
        if (piece == 0) break;
        tail_.erase(tail_.begin(), tail_.begin() + static_cast<std::ptrdiff_t>(piece));
      } else if (first_ != nullptr && (first_->written > 0 || control_.empty())) {
        if (!write_some(*first_)) break;
      } else {
        header frame;
        std::memcpy(&frame, control_.data(), sizeof frame);
        const std::size_t size = control_size(frame);
        if (size > shm::longest_inline && ring_->room(size) < size) break;
        ring_->write(frame, control_.data() + sizeof frame, size);
        control_.erase(control_.begin(),
                       control_.begin() + static_cast<std::ptrdiff_t>(sizeof frame + size));
      }
      moved = true;
    }
    return moved;
  }

  // How much was written; 0: there is no room now.
  std::size_t write_piece(const header& frame, const std::byte* from, std::size_t size) {
    const std::size_t piece = std::min(size, shm::longest_piece);
    if (ring_->room(piece) < piece) return 0;
    ring_->write(frame, from, piece);
    return piece;
  }
  bool write_some(outgoing& send) {
    if (send.written == 0) {
      if (send.size <= shm::longest_inline) {
        ring_->write(send.frame, send.data, send.size);
        send.written = send.whole();
      } else {
        const std::size_t piece = write_piece(send.frame, send.data, send.size);
        if (piece == 0) return false;
        send.written = sizeof send.frame + piece;
      }
    } else {
      const std::size_t done = send.written - sizeof send.frame;
      const std::size_t piece = write_piece({}, send.data + done, send.size - done);
      if (piece == 0) return false;
      send.written += piece;
    }
    if (send.written == send.whole()) written(send);
    return true;
  }

  bool pump_ring() {
    bool moved = false;
    for (int rounds = 0; is_open() && !ended_ && rounds < 256; ++rounds) {
      const shm::slot* const next = ring_->front();
      if (next == nullptr) break;
      moved = true;
      if (owner_.take_next(*this)) continue;
      if (!take_slot(*next)) {
        fail(0, "a frame that no rank of colls would send");
        return true;
      }
      ring_->settle();
    }
    if (!idle()) moved |= flush_ring();
    wake_peer();
    return moved;
  }

  // False: it cannot be.
  bool take_slot(const shm::slot& next) {
    const header frame = next.frame;
    if (frame.kind == kind{}) {
      if (payload_left_ == 0 || !ring_->pop(next)) return false;
      take_payload();
      return ring_->readable() <= payload_left_;
    }
    if (payload_left_ > 0 || !plausible(frame)) return false;
    std::byte short_payload[shm::longest_inline];
    std::memcpy(short_payload, next.data, sizeof short_payload);
    const std::size_t piece = next.piece;
    const std::size_t control = control_size(frame);
    const bool is_short = piece == 0 && frame.length <= shm::longest_inline;
    if (piece > frame.length || (control > 0 && !is_short && piece != control)) return false;
    if (!ring_->pop(next)) return false;
    const std::byte* const payload = is_short ? short_payload : ring_->data();
    begin_frame(frame, payload);
    if (control > 0 && !is_short) ring_->take(control);
    if (payload_left_ == 0 || !is_open()) return true;
    if (is_short) {
      take_in(payload, payload_left_);
    } else {
      take_payload();
    }
    return ring_->readable() <= payload_left_;
  }

  // A reduction takes whole elements; the rest stays until more has come.
  void take_payload() {
    std::size_t size = std::min(ring_->readable(), payload_left_);
    if (into_ == nullptr && target_ != nullptr && size < payload_left_) {
      size -= (taken_ + size) % target_->grain;
    }
    if (size == 0) return;
    take_in(ring_->data(), size);
    ring_->take(size);
  }
  void take_in(const std::byte* from, std::size_t size) {
    if (into_ != nullptr) {
      std::memcpy(into_, from, size);
      into_ += size;
    } else if (target_ != nullptr) {
      target_->fold(target_->folds, taken_, from, size);
    }
    note_payload(size);
  }

  // The socket says that the peer woke us, or that it is gone; what it wrote before counts.
  void listen() {
    char bells[256];
    ssize_t got = 0;
    int why = 0;
    do {
      detail::descriptor passed;
      got = detail::take_with_descriptor(socket_.get(), bells, sizeof bells, passed);
      why = got < 0 ? errno : 0;
      if (passed) owner_.lent(*this, std::move(passed));
    } while (got > 0);
    errno = why;
    const bool over = got == 0 || !detail::would_block();
    bool moved = true;
    while (moved && is_open()) moved = pump_ring() && over;
    if (!is_open() || !over) return;
    if (got == 0) {
      end_of_file();
    } else {
      fail(why);
    }
  }

  void end_of_file() {
    if (!goodbye_received_) {
      fail(ECONNRESET);
      return;
    }
    ended_ = true;
    hung_up_ = true;
    shut();
    owner_.lost(*this, failure(errc::closed));
  }

  engine& engine_;
  link_owner& owner_;
  int peer_;
  std::string address_;
  detail::descriptor socket_;
  std::uint32_t events_ = 0;
  bool goodbye_received_ = false;
  bool ended_ = false;
  bool hung_up_ = false;

  // Written in this order: the rest of a withdrawn frame, the rest of the first send if it has
  // begun, control frames, the other sends.
  std::vector<std::byte> tail_;
  std::vector<std::byte> control_;
  outgoing* first_ = nullptr;
  outgoing* last_ = nullptr;
  outgoing* inline_ = nullptr;  // the send whose start() is on the stack
  std::vector<banked> grants_;
  std::size_t unreturned_ = 0;

  // Elements longer than this are put together before they are reduced.
  static constexpr std::size_t longest_grain = 4096;

  std::unique_ptr<shm::ring> ring_;
  std::size_t payload_left_ = 0;
  std::size_t taken_ = 0;      // of the payload being read
  std::byte* into_ = nullptr;  // null: to the target's reduction, or thrown away
  match::block gathered_;      // where a payload lies that is reduced when it is whole
  posted* target_ = nullptr;
  early* early_ = nullptr;
  std::size_t ahead_size_ = 0;
  std::byte ahead_[4096];
};

inline void early::drop() {
  from->forget(*this);
  from->consumed(weight(size));
  free(this);
}

}  // namespace colls::tcp
