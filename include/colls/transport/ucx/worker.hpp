// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// worker: the UCX worker of one rank, its endpoints and the active messages that arrive at it.

#include <colls/base/error.hpp>
#include <colls/base/log.hpp>
#include <colls/bootstrap/fixed_string.hpp>
#include <colls/driver/engine.hpp>
#include <colls/os/fork_guard.hpp>
#include <colls/transport/interprocess/frame.hpp>

#include <sched.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace colls::ucx {

/// What the connections of this process have moved through UCX since it started.
struct traffic {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;  // without headers
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_received = 0;
};

namespace detail {

inline std::atomic<std::uint64_t> messages_sent{0};
inline std::atomic<std::uint64_t> bytes_sent{0};
inline std::atomic<std::uint64_t> messages_received{0};
inline std::atomic<std::uint64_t> bytes_received{0};

/// The header of an active message. UCX passes it beside the payload.
struct message_header {
  std::uint64_t token = 0;   // names the inbox; a secret of the two ranks
  std::uint64_t number = 0;  // counts the messages of a connection from 1; 0: it only greets
  /// The header of the frame that begins with this message. Its kind is 0 if the message continues
  /// the payload of the previous one.
  interprocess::checked_header frame;
};
static_assert(sizeof(message_header) == 56 && std::is_trivially_copyable_v<message_header>);

/// What UCX reads or writes, and the result.
struct transfer_state {
  int in_motion = 0;  // the calls of UCX that have not ended
  ucs_status_t status = UCS_OK;

  void end(ucs_status_t result) {
    --in_motion;
    if (result != UCS_OK && status == UCS_OK) status = result;
  }
};

/// The payload of a rendezvous in memory of this rank, which took it without a receive.
struct pulled_payload {
  transfer_state state;
  std::vector<std::byte> bytes;
};

/// An active message that has arrived and that its connection has not processed yet.
struct arrival {
  message_header head;
  void* data = nullptr;  // of UCX: the payload, or the descriptor of a rendezvous
  std::size_t size = 0;
  std::size_t counted = 0;     // the part of `inbox::bytes`
  bool is_rendezvous = false;  // the payload has not arrived: the receiver has to ask for it
  std::shared_ptr<pulled_payload> pulled;

  const std::byte* bytes() const {
    return pulled != nullptr ? pulled->bytes.data() : static_cast<const std::byte*>(data);
  }
};

/// What has arrived on one connection, in the order of its numbers.
struct inbox {
  std::deque<arrival> arrivals;
  std::uint64_t next_number = 1;
  std::size_t bytes = 0;  // of the payloads that have arrived
  bool has_greeting = false;
  const char* fault = nullptr;  // what is wrong with what has come

  bool has_next() const { return !arrivals.empty() && arrivals.front().head.number == next_number; }
};

/// Limits on what waits in an inbox. The frames of a rank of colls stay far below them.
inline constexpr std::size_t max_waiting_messages = 1 << 18;
inline constexpr std::size_t max_waiting_bytes = std::size_t{64} << 20;
/// The fault of an inbox for which there was no memory.
inline constexpr const char* no_memory_for_messages = "there is no memory for its messages";

/// Returns the number of a system error that describes `status`.
inline int system_error_of(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return 0;
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
      return ETIMEDOUT;
    case UCS_ERR_UNREACHABLE:
      return EHOSTUNREACH;
    case UCS_ERR_REJECTED:
      return ECONNREFUSED;
    case UCS_ERR_NO_MEMORY:
      return ENOMEM;
    default:
      return ECONNRESET;
  }
}

inline std::string version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return std::to_string(major) + '.' + std::to_string(minor) + '.' + std::to_string(release);
}

/// Throws `join_failed` if a call of UCX has failed.
inline void check(ucs_status_t status, const char* call) {
  if (status == UCS_OK) return;
  colls::detail::raise(errc::join_failed,
                       "UCX %s: %s failed: %s; UCX_TLS and UCX_NET_DEVICES choose what it uses",
                       version().c_str(), call, ucs_status_string(status));
}

/// Lets UCX connect by TCP without waiting. If it waits while the peer dies, it ends this process:
/// see `worker::hold`.
inline void connect_without_waiting(ucp_config_t* config) {
  if (std::getenv("UCX_TCP_CONN_NB") != nullptr) return;
  // Without TCP, UCX would warn that it does not know the setting.
  const char* const chosen = std::getenv("UCX_TLS");
  const std::string_view transports = chosen != nullptr ? chosen : "all";
  const bool names_tcp = transports.find("tcp") != transports.npos;
  const bool names_all = transports.find("all") != transports.npos;
  if (transports.starts_with('^') ? names_tcp : !names_tcp && !names_all) return;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  const bool has_prefix = major > 1 || minor >= 17;
  (void)ucp_config_modify(config, has_prefix ? "TCP_CONN_NB" : "CONN_NB", "y");
}

/// A UCX context with one worker. All functions must be called on the thread of the engine. In a
/// process that was forked from that of the world they do nothing, because UCX's sockets are those
/// of the parent.
class worker final : engine::watcher {
 public:
  explicit worker(engine& driver) : engine_(driver), forks_(colls::detail::fork_guard::forks()) {
    {
      const std::lock_guard lock(all().mutex);
      all().workers.push_back(this);
    }
    try {
      open();
    } catch (...) {
      remove_from_all();
      destroy();
      throw;
    }
  }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker() {
    engine_.unwatch(event_, *this);
    if (is_forked()) return;
    ucp_request_param_t params{};
    closing_.push_back(ucp_worker_flush_nbx(worker_, &params));  // there is room: see `open`
    const bool is_quiet = drain([this] { return closing_.empty(); });
    for (const ucs_status_ptr_t request : closing_) {
      if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    }
    remove_from_all();
    // UCX ends the process if a worker is destroyed that has not answered all requests to connect.
    if (is_quiet && connecting == 0) destroy();
  }

  /// The number of peers that may connect to this worker and have not been greeted by it.
  int connecting = 0;

  std::span<const std::byte> address() const { return address_; }

  bool is_forked() const { return forks_ != colls::detail::fork_guard::forks(); }

  /// Makes an inbox, and returns its token. What arrives with that token goes to this inbox.
  std::pair<std::uint64_t, inbox*> add_inbox() {
    std::random_device device;
    for (;;) {
      const std::uint64_t token = std::uint64_t{device()} << 32 | device();
      const auto [position, is_new] = inboxes_.try_emplace(token);
      if (is_new) return {token, &position->second};
    }
  }
  void remove_inbox(std::uint64_t token) {
    const auto found = inboxes_.find(token);
    for (const arrival& each : found->second.arrivals) discard(each);
    inboxes_.erase(found);
  }

  /// Makes an endpoint. `failed` is the place where UCX writes why the endpoint has failed. It must
  /// outlive the endpoint. Returns the status of a failure.
  ucs_status_t make_endpoint(const std::vector<std::byte>& remote, ucs_status_t& failed,
                             ucp_ep_h& made) {
    closing_.reserve(++endpoints_ + 1);  // so that nothing has to be allocated to close them
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(remote.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* place, ucp_ep_h, ucs_status_t status) {
      *static_cast<ucs_status_t*>(place) = status;
    };
    params.err_handler.arg = &failed;
    return ucp_ep_create(worker_, &params, &made);
  }

  /// Begins to close an endpoint. If `by_force` is true, all its operations end soon, wherever the
  /// peer is. Otherwise UCX first sends what it still has.
  void close_endpoint(ucp_ep_h endpoint, bool by_force) {
    if (is_forked()) return;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = by_force ? static_cast<std::uint32_t>(UCP_EP_CLOSE_FLAG_FORCE) : 0U;
    closing_.push_back(ucp_ep_close_nbx(endpoint, &params));
  }

  /// Makes UCX progress. Calls no code of colls but the callbacks that this class and pipes have
  /// passed to UCX, which only note what has happened. Returns whether there was any progress.
  bool progress() {
    has_moved_ = false;
    if (is_forked() || is_held()) return false;
    has_arrived_ = false;
    for (int rounds = 0; rounds < max_rounds && ucp_worker_progress(worker_) != 0; ++rounds) {
      has_moved_ = true;
      if (has_arrived_) break;  // a waiting operation may need the message at once
    }
    std::erase_if(closing_, [](ucs_status_ptr_t request) {
      if (!UCS_PTR_IS_PTR(request)) return true;
      if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
      ucp_request_free(request);
      return true;
    });
    return has_moved_;
  }
  /// Returns whether the last call of `progress` made any.
  bool has_moved() const { return has_moved_; }

  /// Stops the progress of the worker while one exists, for at most 5 ms. UCX ends this process if
  /// it makes an endpoint to a peer from which it has accepted a connection, and the peer dies
  /// meanwhile. So a rank accepts none between sending its address to a peer and making the
  /// endpoint to that peer.
  class hold {
   public:
    explicit hold(worker& of) : worker_(&of) {
      if (of.holds_++ == 0) of.held_until_ = of.engine_.now() + max_hold;
    }
    hold(const hold&) = delete;
    hold& operator=(const hold&) = delete;
    ~hold() { release(); }
    void release() {
      if (worker_ != nullptr) --std::exchange(worker_, nullptr)->holds_;
    }

   private:
    worker* worker_;
  };

  /// Returns whether a `hold` stops the progress of the worker.
  bool is_held() const { return holds_ > 0 && engine_.now() < held_until_; }

  // The first open pipe drives the worker for all.

  void add(const void* pipe) { pipes_.push_back(pipe); }
  void remove(const void* pipe) { std::erase(pipes_, pipe); }
  bool progress_for(const void* pipe) { return leads(pipe) && progress(); }
  /// Makes sure that an event wakes the thread when UCX has something to do. Returns false if it
  /// has something to do now.
  bool arm_for(const void* pipe) {
    if (!leads(pipe) || is_forked()) return true;
    return !is_held() && ucp_worker_arm(worker_) != UCS_ERR_BUSY;
  }

  /// Makes progress until `has_ended()` returns true, for at most 200 ms. Returns whether it does.
  /// The workers of other ranks on this engine make progress, too. Meanwhile this rank takes what
  /// peers offer, because they may wait in the same way.
  template <class Predicate>
  bool drain(const Predicate& has_ended) {
    if (is_forked()) return true;
    const time_point limit = engine_.now() + max_drain;
    while (!has_ended()) {
      if (engine_.now() >= limit) return false;
      bool moved = false;
      const std::lock_guard lock(all().mutex);
      for (worker* const each : all().workers) {
        if (&each->engine_ != &engine_) continue;
        moved |= each->progress();
        each->pull();
      }
      if (!moved) ::sched_yield();
    }
    return true;
  }

  ucs_status_ptr_t receive(void* descriptor, std::byte* room, std::size_t size,
                           const ucp_request_param_t& params) {
    return ucp_am_recv_data_nbx(worker_, descriptor, room, size, &params);
  }
  void release(void* data) {
    if (data != nullptr && !is_forked()) ucp_am_data_release(worker_, data);
  }
  void discard(const arrival& message) { release(message.data); }

 private:
  static constexpr int max_rounds = 16;
  static constexpr int max_pulled =
      4;  // rendezvous of an inbox that this rank takes while it drains
  static constexpr time_point max_drain = 200 * milliseconds;
  static constexpr time_point max_hold = 5 * milliseconds;

  bool leads(const void* pipe) const { return !pipes_.empty() && pipes_.front() == pipe; }

  struct worker_list {
    std::mutex mutex;
    std::vector<worker*> workers;
  };
  static worker_list& all() {
    static worker_list list;
    return list;
  }
  void remove_from_all() {
    const std::lock_guard lock(all().mutex);
    std::erase(all().workers, this);
  }

  void open() {
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    connect_without_waiting(config);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    const ucs_status_t status = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    check(status, "ucp_init");
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    check(ucp_worker_create(context_, &worker_params, &worker_), "ucp_worker_create");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = 0;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
    handler.cb = arrived;
    handler.arg = this;
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");
    ucp_address_t* own = nullptr;
    std::size_t size = 0;
    check(ucp_worker_get_address(worker_, &own, &size), "ucp_worker_get_address");
    const auto* const bytes = reinterpret_cast<const std::byte*>(own);
    address_.assign(bytes, bytes + size);
    ucp_worker_release_address(worker_, own);
    closing_.reserve(1);
    check(ucp_worker_get_efd(worker_, &event_), "ucp_worker_get_efd");
    // Edge-triggered, because UCX may leave it readable.
    engine_.watch(event_, EPOLLIN | EPOLLET, *this);
  }
  void destroy() {
    for (auto& [token, box] : inboxes_) {
      for (const arrival& each : box.arrivals) discard(each);
    }
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    if (context_ != nullptr) ucp_cleanup(context_);
  }

  void ready(std::uint32_t) override { progress(); }

  static ucs_status_t arrived(void* self, const void* head, std::size_t head_size, void* data,
                              std::size_t size, const ucp_am_recv_param_t* param) noexcept {
    return static_cast<worker*>(self)->arrived(head, head_size, data, size, param->recv_attr);
  }
  // Returns UCS_INPROGRESS if the data stays in use.
  ucs_status_t arrived(const void* head, std::size_t head_size, void* data, std::size_t size,
                       std::uint64_t attributes) noexcept {
    arrival message;
    if (head_size != sizeof message.head) return UCS_OK;
    std::memcpy(static_cast<void*>(&message.head), head, sizeof message.head);
    const auto found = inboxes_.find(message.head.token);
    if (found == inboxes_.end()) return UCS_OK;  // of a stranger, or of a connection that has ended
    inbox& box = found->second;
    if (message.head.number == 0) box.has_greeting = true;
    if (message.head.number == 0 || box.fault != nullptr) return UCS_OK;
    message.is_rendezvous = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    const bool persists = message.is_rendezvous || (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    if (size != 0 && persists) message.data = data;
    message.size = size;
    if (!message.is_rendezvous) message.counted = size;
    box.bytes += message.counted;
    // Messages nearly always arrive in order.
    auto place = box.arrivals.end();
    while (place != box.arrivals.begin() && std::prev(place)->head.number > message.head.number) {
      --place;
    }
    const bool is_repeated =
        message.head.number < box.next_number ||
        (place != box.arrivals.begin() && std::prev(place)->head.number == message.head.number);
    if (is_repeated) {
      box.fault = interprocess::malformed;
    } else if (box.arrivals.size() >= max_waiting_messages || box.bytes > max_waiting_bytes) {
      box.fault = "more messages than a rank sends";
    } else {
      try {
        box.arrivals.insert(place, message);
      } catch (const std::bad_alloc&) {
        box.fault = no_memory_for_messages;
      }
    }
    if (box.fault != nullptr) return UCS_OK;
    has_arrived_ = true;
    messages_received.fetch_add(1, std::memory_order_relaxed);
    bytes_received.fetch_add(size, std::memory_order_relaxed);
    return message.data != nullptr ? UCS_INPROGRESS : UCS_OK;
  }

  // Takes the payloads of the first rendezvous of each inbox into memory of its own.
  void pull() {
    for (auto& [token, box] : inboxes_) {
      int count = 0;
      for (arrival& each : box.arrivals) {
        if (!each.is_rendezvous) continue;
        if (++count > max_pulled) break;
        if (each.pulled != nullptr || each.size > max_waiting_bytes) continue;
        try {
          auto made = std::make_shared<pulled_payload>();
          made->bytes.resize(each.size);
          auto held = std::make_unique<std::shared_ptr<pulled_payload>>(made);
          ucp_request_param_t param{};
          param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
          param.user_data = held.get();
          param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t,
                                void* user) noexcept {
            const std::unique_ptr<std::shared_ptr<pulled_payload>> ended(
                static_cast<std::shared_ptr<pulled_payload>*>(user));
            (*ended)->state.end(status);
            ucp_request_free(request);
          };
          ++made->state.in_motion;
          const ucs_status_ptr_t request =
              receive(std::exchange(each.data, nullptr), made->bytes.data(), each.size, param);
          if (UCS_PTR_IS_PTR(request)) {
            (void)held.release();
          } else {
            made->state.end(UCS_PTR_STATUS(request));
          }
          each.pulled = std::move(made);
        } catch (const std::bad_alloc&) {
          return;
        }
      }
    }
  }

  engine& engine_;
  unsigned forks_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  int event_ = -1;
  int holds_ = 0;
  time_point held_until_ = 0;
  bool has_moved_ = false;
  bool has_arrived_ = false;
  std::unordered_map<std::uint64_t, inbox> inboxes_;
  std::size_t endpoints_ = 0;
  std::vector<ucs_status_ptr_t> closing_;
  std::vector<const void*> pipes_;
};

}  // namespace detail

/// Returns what the connections of this process have moved through UCX since it started.
inline traffic counted_traffic() {
  return {detail::messages_sent, detail::bytes_sent, detail::messages_received,
          detail::bytes_received};
}

}  // namespace colls::ucx
