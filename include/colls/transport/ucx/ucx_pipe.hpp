// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ucx_pipe: a pipe through active messages of UCX. A TCP socket belongs to it, too, on which
// nothing is sent: the kernel of the peer's host closes it when the peer's process ends.
//
// Short frames are copied and sent eagerly. The payload of a longer message, which has a CTS, goes
// from the memory of the send to that of the receive, in pieces that UCX sends by rendezvous.

#include <colls/base/intrusive_list.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/transport/interprocess/carrier/pipe.hpp>
#include <colls/transport/interprocess/carrier/pipe_socket.hpp>
#include <colls/transport/ucx/worker.hpp>

#include <algorithm>
#include <list>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace colls::ucx::detail {

class ucx_pipe;

/// A copied frame that UCX reads until its call ends. The payload follows this object.
struct copied_frame {
  message_header head;
  std::size_t size = 0;
  ucx_pipe* owner = nullptr;  // null once its pipe is closed
  list_links<copied_frame> links;

  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  static copied_frame* make(std::size_t size) {
    void* const memory = ::operator new(sizeof(copied_frame) + size);
    auto* const made = new (memory) copied_frame;
    made->size = size;
    return made;
  }
  static void free(copied_frame* frame) { ::operator delete(frame); }
};

/// A message whose payload is on its way to the peer.
struct long_send {
  interprocess::posted_send* send = nullptr;  // null if it was withdrawn
  std::vector<std::byte> rest;                // then: what had not been started
  std::size_t size = 0;
  std::size_t started = 0;  // the bytes whose pieces have been started
  transfer_state state;
};

inline constexpr const char* undrained = "a transfer that was cancelled did not end within 200 ms";

/// A message whose payload UCX writes to the memory of its receive.
struct long_receive final : payload_writer {
  long_receive(interprocess::pipe_handler& user, worker& progress) : handler(user), net(progress) {}

  posted_receive* receive = nullptr;  // null if it was withdrawn: the payload is discarded
  std::size_t size = 0;
  std::size_t started = 0;
  transfer_state state;
  std::uint32_t sum = 0;  // the checksum that the payload must have
  interprocess::pipe_handler& handler;
  worker& net;

  void abandon(posted_receive&) override { stop(); }
  /// Waits until UCX does not write to the receive, or ends the pipe.
  void stop() {
    if (!net.drain([this] { return state.in_motion == 0; })) handler.abort(undrained);
    receive = nullptr;
  }
};

/// A call of UCX that reads or writes memory of a message.
struct piece {
  message_header head;
  transfer_state* state = nullptr;
  ucx_pipe* owner = nullptr;  // null once its pipe has given it up
  bool is_sent = false;
  std::vector<std::byte> copy;  // of scattered data
  list_links<piece> links;
};

/// A pipe between two ranks through UCX.
class ucx_pipe final : public interprocess::pipe, engine::watcher {
 public:
  /// `box` is the inbox of this pipe, and `token` its token; `remote_token` is that of the peer's.
  ucx_pipe(engine& driver, std::shared_ptr<worker> shared, std::uint64_t token, inbox* box,
           std::uint64_t remote_token, bool checks)
      : pipe({.is_polled = true, .reads_in_place = true, .max_try_receive = eager_limit}),
        engine_(driver),
        worker_(std::move(shared)),
        token_(token),
        box_(*box),
        remote_token_(remote_token),
        has_checksums_(checks),
        socket_(driver, *this) {}
  ~ucx_pipe() override {
    close(false);
    worker_->remove_inbox(token_);
  }

  /// Makes the endpoint to the worker with the address `remote`. Returns the status of a failure.
  ucs_status_t connect(const std::vector<std::byte>& remote) {
    return worker_->make_endpoint(remote, failure_, endpoint_);
  }
  /// Tells the peer that the endpoint of this rank reaches it, unless UCX cannot send at once,
  /// because it is still connecting. Returns whether it has told.
  bool try_greet() {
    if (has_greeted_ || worker_->is_forked()) return has_greeted_;
    const message_header greeting = greeting_to_peer();
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    const ucs_status_t status = UCS_PTR_STATUS(
        ucp_am_send_nbx(endpoint_, 0, &greeting, sizeof greeting, nullptr, 0, &param));
    if (status == UCS_ERR_NO_RESOURCE) return false;
    note(status);
    return has_greeted_ = true;
  }
  /// Leaves the greeting to UCX, which sends it when it can. `try_greet` must have returned false.
  void queue_greeting() {
    if (worker_->is_forked()) return;
    copied_frame* const copy = copied_frame::make(0);
    copy->head = greeting_to_peer();
    has_greeted_ = true;
    post(*copy);
  }
  /// Returns whether both ranks can use their endpoints.
  bool is_connected() const { return has_greeted_ && copied_ == 0 && box_.has_greeting; }
  /// Returns why UCX has ended the endpoint, or UCS_OK.
  ucs_status_t failure() const { return failure_; }
  void adopt(colls::detail::descriptor socket) { socket_.adopt(std::move(socket)); }

  void close(bool observes_peer) override {
    if (endpoint_ == nullptr) return socket_.close(observes_peer);
    if (observes_peer) (void)worker_->drain([this] { return copied_ == 0; });
    const bool is_in_motion = copied_ != 0 || !pieces_.empty();
    worker_->remove(this);
    worker_->close_endpoint(std::exchange(endpoint_, nullptr), is_in_motion);
    if (is_in_motion && !worker_->drain([this] { return copied_ == 0 && pieces_.empty(); })) {
      log_warn("UCX does not end its transfers");
    }
    pieces_.for_each([this](piece& each) {
      pieces_.remove(each);
      each.owner = nullptr;
    });
    frames_.for_each([this](copied_frame& frame) {
      frames_.remove(frame);
      frame.owner = nullptr;
    });
    copied_ = 0;
    for (const arrival& each : box_.arrivals) worker_->discard(each);
    box_.arrivals.clear();
    box_.fault = "the connection is closed";
    starting_ = nullptr;
    socket_.close(observes_peer);
  }
  void shut_writing() override { socket_.shut_writing(); }

  bool flush() override {
    bool moved = false;
    if (worker_->is_forked()) return false;
    try {
      while (is_open() && copied_ < max_copied) {
        if (starting_ != nullptr) {
          if (sent_pieces_ >= max_pieces) break;
          start_piece();
        } else if (queue().empty()) {
          break;
        } else if (queue().is_next_longer_than(eager_limit)) {
          starting_ = &sends_.emplace_back();
          starting_->send = &queue().take_first();
          starting_->size = starting_->send->size;
        } else {
          copy_next_frame();
        }
        moved = true;
      }
    } catch (const std::bad_alloc&) {
      handler().abort();
    }
    return moved;
  }
  bool try_send(const interprocess::header& frame, const_bytes message) override {
    if (!is_open() || worker_->is_forked()) return false;
    if (starting_ != nullptr || copied_ >= max_copied) return false;
    copied_frame* copy = nullptr;
    try {
      copy = copied_frame::make(message.size);
    } catch (const std::bad_alloc&) {
      return false;
    }
    if (message.size != 0) std::memcpy(copy->bytes(), message.data, message.size);
    send(*copy, frame);
    return true;
  }
  bool try_receive(const interprocess::header& expected, std::byte* out) override {
    if (!box_.has_next() || is_staging_ || worker_->is_forked()) return false;
    const arrival& next = box_.arrivals.front();
    if (std::memcmp(&next.head.frame, &expected, sizeof expected) != 0) return false;
    if (next.is_rendezvous || next.size != expected.length) return false;
    if (has_checksums_ && !is_intact(next)) return false;
    if (next.size != 0) std::memcpy(out, next.data, next.size);
    worker_->release(next.data);
    pop();
    return true;
  }
  bool poll() override {
    if (worker_->is_forked()) {  // its socket is a dead one: see `fork_guard`
      if (is_open() && end_seen_ != never) handler().ended(socket_error_);
      return false;
    }
    bool moved = worker_->progress_for(this);
    try {
      // A transfer that has ended must not fail because of a frame that came after it.
      moved |= finish_transfers();
      moved |= take_arrivals();
      moved |= finish_transfers();
    } catch (const std::bad_alloc&) {
      handler().abort();
    }
    if (is_open() && (starting_ != nullptr || !queue().empty())) moved |= flush();
    if (is_open() && box_.fault != nullptr && !box_.has_next()) report_fault();
    if (is_open() && (failure_ != UCS_OK || end_seen_ != never)) moved |= report_end();
    return moved;
  }
  bool arm() override {
    if (!is_open()) return true;
    const bool has_work = box_.has_next() && !is_staging_;
    return worker_->arm_for(this) && !has_work;
  }

  void for_each_send(function_ref<void(interprocess::posted_send&)> visit) override {
    for (const long_send& each : sends_) {
      if (each.send != nullptr) visit(*each.send);
    }
  }
  bool is_sending() const override { return copied_ != 0 || !sends_.empty(); }
  void withdraw(interprocess::posted_send& send) override {
    const auto it = std::find_if(sends_.begin(), sends_.end(),
                                 [&](const long_send& each) { return each.send == &send; });
    if (it == sends_.end()) return;
    if (!worker_->drain([&] { return it->state.in_motion == 0; })) handler().abort(undrained);
    send.is_moved_by_pipe = false;
    it->send = nullptr;
    // The peer expects the whole message.
    if (is_open() && it->started > 0 && it->started < it->size) {
      try {
        it->rest.reserve(it->size - it->started);
        while (it->started + it->rest.size() < it->size) {
          const const_bytes part = send.payload(it->started + it->rest.size());
          it->rest.insert(it->rest.end(), part.data, part.data + part.size);
        }
        return;
      } catch (const std::bad_alloc&) {
        handler().abort();
      }
    }
    if (starting_ == &*it) starting_ = nullptr;
    sends_.erase(it);
  }
  bool is_receiving(const operation_record& record) const override {
    return std::any_of(receives_.begin(), receives_.end(), [&](const long_receive& each) {
      return each.receive != nullptr && each.receive->record == &record;
    });
  }
  void fail_receives(std::error_code ec,
                     function_ref<bool(const posted_receive&)> matches) override {
    for (long_receive& each : receives_) {
      posted_receive* const receive = each.receive;
      if (receive == nullptr || !matches(*receive)) continue;
      each.stop();
      receive->writer = nullptr;
      receive->finish(ec);
    }
  }
  bool has_peer_exited() const override { return socket_.has_peer_exited(); }

 private:
  static constexpr std::size_t piece_bytes = std::size_t{1} << 20;
  static constexpr int max_pieces = 4;
  static constexpr std::size_t max_copied = std::size_t{1} << 20;
  static constexpr time_point last_frames_limit = 100 * milliseconds;

  /// Memory for a piece whose receive takes it in parts.
  struct stage {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size = 0;
    transfer_state state;
  };

  void start() override {
    socket_.start();
    worker_->add(this);
  }
  // Called when the socket shows that the peer has closed its end. The last frames of the peer may
  // still be on their way.
  void ready(std::uint32_t) override {
    char byte = 0;
    const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    if (got > 0) return handler().refuse(interprocess::malformed);
    if (got < 0 && colls::detail::would_block()) return;
    socket_error_ = got < 0 ? errno : 0;
    if (end_seen_ == never) end_seen_ = engine_.now();
    poll();
  }
  bool report_end() {
    if (worker_->is_held()) return false;  // UCX may have messages that have not been taken
    if ((box_.has_next() && !is_staging_) || worker_->has_moved()) return false;
    const bool may_have_more = failure_ == UCS_OK && socket_error_ == 0 && !has_goodbye_;
    if (may_have_more && engine_.now() - end_seen_ < last_frames_limit) return false;
    const int error = failure_ != UCS_OK ? system_error_of(failure_) : socket_error_;
    handler().ended(has_goodbye_ ? 0 : error);
    return true;
  }

  void report_fault() {
    if (box_.fault == no_memory_for_messages) return handler().abort();
    handler().refuse(box_.fault);
  }

  bool is_open() const { return endpoint_ != nullptr; }
  // Keeps the first error of a call of UCX, which ends the pipe.
  void note(ucs_status_t status) {
    if (failure_ == UCS_OK) failure_ = status;
  }

  // ---- sending

  message_header greeting_to_peer() const {
    message_header head;
    head.token = remote_token_;
    return head;
  }
  message_header next_head() {
    message_header head;
    head.token = remote_token_;
    head.number = ++sent_number_;
    return head;
  }
  static ucp_request_param_t param_of(void* user_data, std::uint32_t flags) {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = flags;
    param.user_data = user_data;
    return param;
  }
  // Sends a copied frame, which frees itself. `frame` is its header.
  void send(copied_frame& copy, const interprocess::header& frame) {
    copy.head = next_head();
    copy.head.frame = frame;
    if (has_checksums_) copy.head.frame.set_checksums(copy.bytes(), copy.size);
    post(copy);
  }
  void post(copied_frame& copy) {
    copy.owner = this;
    ucp_request_param_t param = param_of(&copy, UCP_AM_SEND_FLAG_EAGER);
    param.cb.send = [](void* request, ucs_status_t status, void* user) noexcept {
      auto* const ended = static_cast<copied_frame*>(user);
      if (ended->owner != nullptr) ended->owner->copy_ended(*ended, status);
      copied_frame::free(ended);
      ucp_request_free(request);
    };
    count_sent(copy.size);
    const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint_, 0, &copy.head, sizeof copy.head,
                                                     copy.bytes(), copy.size, &param);
    if (UCS_PTR_IS_PTR(request)) {
      copied_ += cost_of(copy);
      frames_.push_back(copy);
      return;
    }
    note(UCS_PTR_STATUS(request));
    copied_frame::free(&copy);
  }
  void copy_ended(copied_frame& copy, ucs_status_t status) {
    copied_ -= cost_of(copy);
    frames_.remove(copy);
    note(status);
  }
  static std::size_t cost_of(const copied_frame& frame) { return sizeof frame + frame.size; }
  static void count_sent(std::size_t size) {
    messages_sent.fetch_add(1, std::memory_order_relaxed);
    bytes_sent.fetch_add(size, std::memory_order_relaxed);
  }

  // Copies the next frame of the queue, which may complete its send, and sends the copy.
  void copy_next_frame() {
    const interprocess::header frame = queue().front().frame;
    const bool has_message =
        frame.kind == interprocess::kind::data && (frame.flags & interprocess::flag::rts) == 0;
    const std::size_t size = has_message ? frame.length : interprocess::control_size(frame);
    copied_frame* const copy = copied_frame::make(size);
    for (std::size_t done = 0;;) {
      const interprocess::send_queue::piece part = queue().front();
      if (part.size != 0) std::memcpy(copy->bytes() + done, part.data, part.size);
      done += part.size;
      queue().advance_front(part.size);
      if (done == size) break;
    }
    send(*copy, frame);
  }

  // Starts the next piece of `starting_`.
  void start_piece() {
    long_send& message = *starting_;
    piece& made = add_piece(message.state, true);
    const_bytes part;
    try {
      part = next_part(message, made);
    } catch (const std::bad_alloc&) {
      piece_ended(made, UCS_ERR_NO_MEMORY);
      throw;
    }
    made.head = next_head();
    if (message.started == 0) {
      if (has_checksums_) message.send->set_checksums();
      made.head.frame = message.send->frame;
    }
    message.started += part.size;
    if (message.send != nullptr) message.send->record->bytes += part.size;
    if (message.started == message.size) starting_ = nullptr;
    count_sent(part.size);
    ucp_request_param_t param = param_of(&made, UCP_AM_SEND_FLAG_RNDV);
    param.cb.send = [](void* request, ucs_status_t status, void* user) noexcept {
      piece_ended(*static_cast<piece*>(user), status);
      ucp_request_free(request);
    };
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(endpoint_, 0, &made.head, sizeof made.head, part.data, part.size, &param);
    if (!UCS_PTR_IS_PTR(request)) piece_ended(made, UCS_PTR_STATUS(request));
  }
  // Returns the next bytes of a message. Those of scattered data are copied to the piece.
  static const_bytes next_part(const long_send& message, piece& made) {
    const std::size_t size = std::min(message.size - message.started, piece_bytes);
    if (message.send == nullptr) {
      const std::size_t rest = message.size - message.started;
      return {message.rest.data() + message.rest.size() - rest, size};
    }
    if (message.send->source == nullptr) {
      return {message.send->payload(message.started).data, size};
    }
    made.copy.resize(size);
    for (std::size_t done = 0; done < size;) {
      const const_bytes from = message.send->payload(message.started + done);
      const std::size_t part = std::min(from.size, size - done);
      std::memcpy(made.copy.data() + done, from.data, part);
      done += part;
    }
    return {made.copy.data(), size};
  }

  // A piece frees itself when it ends.
  piece& add_piece(transfer_state& state, bool is_sent) {
    auto* const made = new piece;
    made->state = &state;
    made->owner = this;
    made->is_sent = is_sent;
    ++state.in_motion;
    if (is_sent) ++sent_pieces_;
    pieces_.push_back(*made);
    return *made;
  }
  static void piece_ended(piece& ended, ucs_status_t status) {
    const std::unique_ptr<piece> owned(&ended);
    if (ended.owner == nullptr) return;
    ended.owner->pieces_.remove(ended);
    if (ended.is_sent) --ended.owner->sent_pieces_;
    ended.state->end(status);
  }

  // ---- receiving

  // If a drain has begun to take the payload of the message, makes a message with that payload of
  // it. Returns false if the payload has not arrived.
  bool take_pulled(arrival& message) {
    if (message.pulled == nullptr) return true;
    const transfer_state& state = message.pulled->state;
    if (state.in_motion > 0) return false;
    note(state.status);
    message.is_rendezvous = false;
    return state.status == UCS_OK;
  }

  void pop() {
    box_.bytes -= box_.arrivals.front().counted;
    box_.arrivals.pop_front();
    ++box_.next_number;
  }
  bool is_intact(const arrival& message) const {
    const interprocess::checked_header& frame = message.head.frame;
    return frame.is_intact() &&
           colls::detail::crc32c(0, message.bytes(), message.size) == frame.payload_sum;
  }

  bool take_arrivals() {
    bool moved = false;
    for (int rounds = 0; is_open() && rounds < 256; ++rounds) {
      if (is_staging_ && !fold_stage()) break;
      if (!is_open() || !box_.has_next()) break;
      const bool begins = box_.arrivals.front().head.frame.kind != interprocess::kind{};
      moved = true;
      if (begins && !expects_more() && handler().take_next()) continue;
      if (!take_pulled(box_.arrivals.front())) break;
      const arrival message = std::move(box_.arrivals.front());
      pop();
      void* kept = message.data;
      const char* const fault = begins ? begin(message, kept) : go_on(message, kept);
      worker_->release(kept);
      if (fault != nullptr && is_open()) handler().refuse(fault);
    }
    return moved;
  }
  bool expects_more() const {
    return is_staging_ || (!receives_.empty() && receives_.back().started < receives_.back().size);
  }

  // Processes a message that begins a frame. Sets `kept` to null if UCX uses its data further.
  // Returns what is wrong with it, or null.
  const char* begin(const arrival& message, void*& kept) {
    const interprocess::checked_header& frame = message.head.frame;
    if (has_checksums_ && !frame.is_intact()) return interprocess::bad_checksum;
    if (expects_more() || !interprocess::is_plausible(frame)) return interprocess::malformed;
    const std::byte* const data = message.bytes();
    const bool has_message =
        frame.kind == interprocess::kind::data && (frame.flags & interprocess::flag::rts) == 0;
    const bool is_cleared = has_message && (frame.flags & interprocess::flag::cleared) != 0;
    const std::size_t length = has_message ? frame.length : interprocess::control_size(frame);
    const bool is_whole = message.size == length && !message.is_rendezvous;
    if (!is_whole && (!is_cleared || message.size > length || message.size == 0)) {
      return interprocess::malformed;
    }
    if (has_checksums_ && is_whole && !is_intact(message)) return interprocess::bad_checksum;
    has_goodbye_ |= frame.kind == interprocess::kind::goodbye;
    if (!handler().begin(frame, has_message ? nullptr : data) || !is_open()) return nullptr;
    if (length == 0 || !has_message) return nullptr;
    if (is_whole) {
      target().take(data, length);
      return nullptr;
    }
    auto& made = receives_.emplace_back(handler(), *worker_);
    made.size = length;
    made.sum = frame.payload_sum;
    made.receive = target().hand_over(made);
    if (made.receive == nullptr && target().has_destination()) {
      receives_.pop_back();
      is_staging_ = true;
      carried_ = 0;
      announced_ = length;
      if (has_checksums_) target().expect(frame.payload_sum);
    } else if (made.receive == nullptr) {
      target().begin(0);
    }
    return go_on(message, kept);
  }

  // Processes a piece of the current message.
  const char* go_on(const arrival& message, void*& kept) {
    if (is_staging_) return put_on_stage(message, kept);
    if (!expects_more()) return interprocess::malformed;
    long_receive& current = receives_.back();
    if (message.size == 0 || message.size > current.size - current.started)
      return interprocess::malformed;
    const std::size_t at = std::exchange(current.started, current.started + message.size);
    if (current.receive == nullptr) return nullptr;
    std::byte* const room = current.receive->data + at;
    current.receive->record->bytes += message.size;
    if (message.is_rendezvous) {
      receive_piece(kept, room, message.size, current.state);
    } else {
      std::memcpy(room, message.bytes(), message.size);
    }
    return nullptr;
  }

  // Receives the payload of a rendezvous.
  void receive_piece(void*& descriptor, std::byte* room, std::size_t size, transfer_state& state) {
    piece& made = add_piece(state, false);
    ucp_request_param_t param = param_of(&made, 0);
    param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* user) noexcept {
      piece_ended(*static_cast<piece*>(user), status);
      ucp_request_free(request);
    };
    const ucs_status_ptr_t request =
        worker_->receive(std::exchange(descriptor, nullptr), room, size, param);
    if (!UCS_PTR_IS_PTR(request)) piece_ended(made, UCS_PTR_STATUS(request));
  }

  // ---- a message whose receive takes it in parts

  // The memory of a stage begins with room for the bytes of an element of which the rest is
  // missing.
  static constexpr std::size_t headroom = interprocess::payload_target::max_in_place_granularity;

  const char* put_on_stage(const arrival& message, void*& kept) {
    if (message.size == 0 || message.size > announced_ || message.size > piece_bytes) {
      return interprocess::malformed;
    }
    if (stage_.memory == nullptr) {
      stage_.memory = std::make_unique<std::byte[]>(headroom + piece_bytes);
    }
    announced_ -= message.size;
    stage_.size = message.size;
    std::byte* const room = stage_.memory.get() + headroom;
    if (message.is_rendezvous) {
      receive_piece(kept, room, message.size, stage_.state);
    } else {
      std::memcpy(room, message.bytes(), message.size);
    }
    return nullptr;
  }
  // Passes what has arrived on the stage to the target. Returns whether the next piece can be put
  // on the stage.
  bool fold_stage() {
    if (stage_.state.in_motion > 0) return false;
    note(stage_.state.status);
    if (stage_.state.status != UCS_OK) return false;
    if (stage_.size > 0) {
      std::byte* const begin = stage_.memory.get() + headroom - carried_;
      const std::size_t size = carried_ + std::exchange(stage_.size, 0);
      const std::size_t taken = target().acceptable(size);
      target().take(begin, taken);
      if (!is_open()) return false;
      if (target().is_damaged()) {
        handler().refuse(interprocess::bad_checksum);
        return false;
      }
      carried_ = size - taken;
      std::memmove(stage_.memory.get() + headroom - carried_, begin + taken, carried_);
    }
    if (announced_ == 0) {
      is_staging_ = false;
      if (target().left() > 0) target().begin(0);
    }
    return true;
  }

  // Returns whether all of a message has been transferred. If a piece has failed, ends the pipe
  // soon.
  template <class Transfer>
  bool is_done(const Transfer& each) {
    if (each.state.in_motion > 0) return false;
    note(each.state.status);
    return each.started == each.size && each.state.status == UCS_OK;
  }
  bool finish_transfers() {
    if (!is_open()) return false;
    bool moved = false;
    for (auto it = sends_.begin(); it != sends_.end();) {
      long_send& each = *it;
      if (!is_done(each)) {
        ++it;
        continue;
      }
      if (each.send != nullptr) each.send->complete();
      it = sends_.erase(it);
      moved = true;
    }
    for (auto it = receives_.begin(); it != receives_.end();) {
      long_receive& each = *it;
      if (!is_done(each)) {
        ++it;
        continue;
      }
      moved = true;
      if (each.receive != nullptr && has_checksums_ &&
          colls::detail::crc32c(0, each.receive->data, each.size) != each.sum) {
        handler().refuse(interprocess::bad_checksum);
        return true;
      }
      if (posted_receive* const receive = std::exchange(each.receive, nullptr)) {
        receive->writer = nullptr;
        receive->done->post();
      }
      it = receives_.erase(it);
    }
    return moved;
  }

  engine& engine_;
  std::shared_ptr<worker> worker_;
  std::uint64_t token_;
  inbox& box_;
  std::uint64_t remote_token_;
  bool has_checksums_;
  ucp_ep_h endpoint_ = nullptr;
  bool has_greeted_ = false;
  ucs_status_t failure_ = UCS_OK;  // why UCX has ended the endpoint
  interprocess::pipe_socket socket_;
  int socket_error_ = 0;
  time_point end_seen_ = never;  // when the socket showed the peer's end
  bool has_goodbye_ = false;

  std::uint64_t sent_number_ = 0;
  std::size_t copied_ = 0;                       // bytes of copied frames that UCX has not sent yet
  intrusive_list<piece, &piece::links> pieces_;  // in motion, in both directions
  int sent_pieces_ = 0;
  intrusive_list<copied_frame, &copied_frame::links> frames_;
  std::list<long_send> sends_;
  long_send* starting_ = nullptr;  // the last of them, if pieces of it are missing
  std::list<long_receive> receives_;

  bool is_staging_ = false;    // the target takes the current message in parts
  std::size_t announced_ = 0;  // the bytes of this message that are missing
  std::size_t carried_ = 0;    // the bytes of an incomplete element, before the stage
  stage stage_;
};

}  // namespace colls::ucx::detail
