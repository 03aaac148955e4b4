// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// worker: the UCX worker of one rank, its endpoints and the active messages that arrive at it.
// UCX itself makes endpoints ready at their first use.

#include <colls/base/error.hpp>
#include <colls/base/log.hpp>
#include <colls/bootstrap/fixed_string.hpp>
#include <colls/driver/engine.hpp>
#include <colls/transport/interprocess/frame.hpp>

#include <ucp/api/ucp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
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
  std::uint64_t token = 0;   // the secret of the receiving worker
  std::uint64_t number = 0;  // counts the messages of a connection from 1; 0: it only greets
  std::uint32_t sender = 0;
  std::uint32_t reserved = 0;
  /// The header of the frame that begins with this message. Its kind is 0 if the message continues
  /// the payload of the previous one.
  interprocess::checked_header frame;
};
static_assert(sizeof(message_header) == 64 && std::is_trivially_copyable_v<message_header>);

/// An active message that has arrived and that its connection has not processed yet.
struct arrival {
  message_header head;
  void* data = nullptr;  // of UCX: the payload, or the descriptor of a rendezvous
  std::size_t size = 0;
  bool is_rendezvous = false;  // the payload has not arrived: the receiver has to ask for it
};

/// The arrivals of one peer in the order of their numbers. They may come before the connection to
/// the peer is open.
struct inbox {
  std::deque<arrival> arrivals;
  std::uint64_t next_number = 1;
  bool has_greeting = false;
  bool is_closed = false;  // whatever arrives is discarded

  bool has_next() const { return !arrivals.empty() && arrivals.front().head.number == next_number; }
};

/// The greatest number of messages that wait until the connection to their sender opens.
inline constexpr std::size_t max_early_arrivals = 1 << 16;

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

/// A UCX context with one worker. All functions must be called on the thread of the engine.
class worker final : engine::watcher {
 public:
  explicit worker(engine& driver) : engine_(driver), token_(draw_token()) {
    try {
      open();
    } catch (...) {
      destroy();
      throw;
    }
    const std::lock_guard lock(all().mutex);
    all().workers.push_back(this);
  }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker() {
    ucp_request_param_t params{};
    closing_.push_back(ucp_worker_flush_nbx(worker_, &params));
    const bool is_quiet = drain([this] { return closing_.empty(); });
    for (const ucs_status_ptr_t request : closing_) {
      if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    }
    {
      const std::lock_guard lock(all().mutex);
      std::erase(all().workers, this);
    }
    engine_.unwatch(event_, *this);
    // UCX ends the process if a worker is destroyed that has not answered all requests to connect.
    if (is_quiet && connecting == 0) destroy();
  }

  /// The number of peers that may connect to this worker and have not been greeted by it.
  int connecting = 0;

  std::span<const std::byte> address() const { return address_; }
  /// Returns the number that a message to this worker must carry. Only ranks of the world know it.
  std::uint64_t token() const { return token_; }

  inbox& inbox_of(int peer) { return inboxes_[peer]; }

  /// Makes an endpoint. `failed` is the place where UCX writes why the endpoint has failed. It must
  /// outlive the endpoint. Returns the status of a failure.
  ucs_status_t make_endpoint(const std::vector<std::byte>& remote, ucs_status_t& failed,
                             ucp_ep_h& made) {
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
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = by_force ? static_cast<std::uint32_t>(UCP_EP_CLOSE_FLAG_FORCE) : 0U;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &params);
    closing_.push_back(request);
  }

  /// Makes UCX progress. Calls no code of colls but the callbacks that this class and pipes have
  /// passed to UCX, which only note what has happened. Returns whether there was any progress.
  bool progress() {
    bool moved = false;
    for (int rounds = 0; rounds < max_rounds && ucp_worker_progress(worker_) != 0; ++rounds) {
      moved = true;
    }
    std::erase_if(closing_, [](ucs_status_ptr_t request) {
      if (!UCS_PTR_IS_PTR(request)) return true;
      if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
      ucp_request_free(request);
      return true;
    });
    return moved;
  }
  // The first open pipe drives the worker for all.

  void add(const void* pipe) { pipes_.push_back(pipe); }
  void remove(const void* pipe) { std::erase(pipes_, pipe); }
  bool progress_for(const void* pipe) { return leads(pipe) && progress(); }
  /// Makes sure that an event wakes the thread when UCX has something to do. Returns false if it
  /// has something to do now.
  bool arm_for(const void* pipe) { return !leads(pipe) || ucp_worker_arm(worker_) != UCS_ERR_BUSY; }

  /// Makes progress until `has_ended()` returns true, for at most 200 ms. Returns whether it does.
  /// The workers of other ranks on this engine make progress, too.
  template <class Predicate>
  bool drain(const Predicate& has_ended) {
    const time_point limit = engine_.now() + max_drain;
    while (!has_ended()) {
      if (engine_.now() >= limit) return false;
      const std::lock_guard lock(all().mutex);
      for (worker* const each : all().workers) {
        if (&each->engine_ == &engine_) each->progress();
      }
    }
    return true;
  }

  ucs_status_ptr_t receive(void* descriptor, std::byte* room, std::size_t size,
                           const ucp_request_param_t& params) {
    return ucp_am_recv_data_nbx(worker_, descriptor, room, size, &params);
  }
  void release(void* data) { ucp_am_data_release(worker_, data); }
  void discard(const arrival& message) {
    if (message.data != nullptr) release(message.data);
  }

 private:
  static constexpr int max_rounds = 16;
  static constexpr time_point max_drain = 200 * milliseconds;

  bool leads(const void* pipe) const { return !pipes_.empty() && pipes_.front() == pipe; }

  struct worker_list {
    std::mutex mutex;
    std::vector<worker*> workers;
  };
  static worker_list& all() {
    static worker_list list;
    return list;
  }
  static std::uint64_t draw_token() {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }

  void open() {
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
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
    check(ucp_worker_get_efd(worker_, &event_), "ucp_worker_get_efd");
    // Edge-triggered, because UCX may leave it readable.
    engine_.watch(event_, EPOLLIN | EPOLLET, *this);
  }
  void destroy() {
    for (auto& [peer, box] : inboxes_) {
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
    // A message of a stranger, or of a rank of an earlier world.
    if (message.head.token != token_) return UCS_OK;
    const auto sender = static_cast<int>(message.head.sender);
    message.is_rendezvous = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    const bool persists = message.is_rendezvous || (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    if (size != 0 && persists) message.data = data;
    message.size = size;
    try {
      inbox& box = inboxes_[sender];
      if (message.head.number == 0) box.has_greeting = true;
      if (message.head.number < box.next_number) return UCS_OK;
      if (box.is_closed || box.arrivals.size() >= max_early_arrivals) return UCS_OK;
      const auto is_later = [&](const arrival& other) {
        return other.head.number > message.head.number;
      };
      // Messages nearly always arrive in order.
      auto place = box.arrivals.end();
      while (place != box.arrivals.begin() && is_later(*std::prev(place))) --place;
      box.arrivals.insert(place, message);
    } catch (const std::bad_alloc&) {
      log_warn("there is no memory for a message that arrives through UCX");
      return UCS_OK;
    }
    messages_received.fetch_add(1, std::memory_order_relaxed);
    bytes_received.fetch_add(size, std::memory_order_relaxed);
    return message.data != nullptr ? UCS_INPROGRESS : UCS_OK;
  }

  engine& engine_;
  std::uint64_t token_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  int event_ = -1;
  std::unordered_map<int, inbox> inboxes_;
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
