// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of local_secret.hpp: sending and fetching the generated secret.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/local_secret.hpp>
#include <colls/driver/local_socket.hpp>

#include <cerrno>

namespace colls::detail {

// The state in the message that the server sends to a client. The value `drawn` means that rank 0
// has generated the secret, `given` that the user has given it, and `none` that the job has no
// secret. The value `no_descriptor` means that the server has reached its limit on open files. The
// layout of the message is: magic (8 bytes), version (2 bytes), state (1 byte), 5 zero bytes, and
// the text of the secret if the state is `drawn` (64 bytes).
enum class secret_state : std::uint8_t { drawn = 1, given, none, no_descriptor };
inline constexpr char secret_magic[8] = {'c', 'o', 'l', 'l', 's', 'k', 'e', 'y'};

COLLS_ONCE local_secret_bytes write_local_secret_state(secret_state state) {
  local_secret_bytes message{};
  std::memcpy(message.data(), secret_magic, sizeof secret_magic);
  put_number(&message[8], wire_version);
  put_number(&message[10], static_cast<std::uint8_t>(state));
  return message;
}

COLLS_ONCE local_secret_bytes write_local_secret(const secret& key) {
  local_secret_bytes message = write_local_secret_state(key.is_drawn() ? secret_state::drawn
                                                        : key.empty()  ? secret_state::none
                                                                       : secret_state::given);
  if (key.is_drawn()) std::memcpy(&message[16], key.text().data(), secret::drawn_size);
  return message;
}

// Returns the address at which a client on this machine reaches a listener that is bound to
// `listening`. If `listening` is the wildcard address (0.0.0.0 or ::), returns the loopback address
// with the same port. Otherwise returns `listening`.
COLLS_ONCE endpoint dialled_address(const endpoint& listening) {
  if (!listening.address().is_unspecified()) return listening;
  const auto loopback = listening.address().is_v6()
                            ? boost::asio::ip::address(boost::asio::ip::address_v6::loopback())
                            : boost::asio::ip::address(boost::asio::ip::address_v4::loopback());
  return {loopback, listening.port()};
}

COLLS_ONCE std::int64_t user_listening_beside(const endpoint& store) {
  descriptor socket;
  if (shm::connect_local(dialled_address(store), socket)) return -1;
  return peer_user(socket.get());
}

COLLS_ONCE task<secret> fetch_local_secret(engine& driver, endpoint store, bool insecure,
                                           time_point deadline) {
  const std::string name = text_of(store);
  descriptor socket;
  const std::error_code ec = shm::connect_local(dialled_address(store), socket);
  if (ec == std::errc::connection_refused) {
    raise(errc::unreachable,
          "%s accepts connections and is no rank 0 of this user (between users a secret is needed)",
          name.c_str());
  }
  if (ec)
    raise(errc::unreachable, "the local socket of %s: %s", name.c_str(), ec.message().c_str());
  if (!is_own_user(socket.get())) {
    raise(errc::auth_failed,
          "%s is served by user %lld and this process runs as user %lld: ranks of one host under "
          "different users need a secret",
          name.c_str(), static_cast<long long>(peer_user(socket.get())),
          static_cast<long long>(::geteuid()));
  }
  stream connection(driver, std::move(socket));
  connection.set_deadline(deadline);
  local_secret_bytes message{};
  const outcome done = co_await attempt(connection.read(as_mutable_bytes(message)));
  if (done.ec == errc::timeout) {
    raise(errc::timeout, "the local socket of %s accepted the connection and sent nothing",
          name.c_str());
  }
  if (!done) {
    raise(errc::unreachable, "the local socket of %s hung up (%s)", name.c_str(),
          done.ec.message().c_str());
  }
  if (std::memcmp(message.data(), secret_magic, sizeof secret_magic) != 0) {
    raise(errc::protocol_error, "the local socket of %s is not of colls", name.c_str());
  }
  const auto version = get_number<std::uint16_t>(&message[8]);
  if (version != wire_version) {
    raise(errc::version_mismatch, "%s speaks wire version %d, this process %d", name.c_str(),
          version, wire_version);
  }
  const auto state = static_cast<secret_state>(message[10]);
  if (state == secret_state::given) {
    raise(errc::auth_failed, "%s has a secret and this process has none", name.c_str());
  }
  if (state == secret_state::none && !insecure) {
    raise(errc::insecure_bind, "%s was told to run without a secret, and this process was not",
          name.c_str());
  }
  if (state == secret_state::no_descriptor) {
    raise(errc::too_many_files,
          "the process that serves %s has too many open files and cannot give its key",
          name.c_str());
  }
  const bool is_none = state == secret_state::none;
  if (!is_none && state != secret_state::drawn) {
    raise(errc::protocol_error, "the local socket of %s sent an unknown state", name.c_str());
  }
  const auto* const text = reinterpret_cast<const char*>(&message[16]);
  secret key = is_none ? secret({}, insecure) : secret::drawn({text, secret::drawn_size});
  ::OPENSSL_cleanse(message.data(), message.size());
  co_return key;
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE local_secret_server::local_secret_server(engine& driver, const secret& key)
    : engine_(driver), key_(key) {
  engine_.add(static_cast<engine::source&>(*this), false);
}

COLLS_ONCE local_secret_server::~local_secret_server() {
  engine_.remove(static_cast<engine::source&>(*this));
  if (local_.is_open()) engine_.unwatch(local_.descriptor(), *this);
}

COLLS_ONCE std::error_code local_secret_server::listen(const listener& store) {
  if (const std::error_code ec =
          shm::listen_local(detail::dialled_address(store.local()), local_)) {
    return ec;
  }
  try {
    engine_.watch(local_.descriptor(), EPOLLIN, *this);
  } catch (...) {
    local_.close();
    throw;
  }
  return {};
}

COLLS_ONCE void local_secret_server::ready(std::uint32_t) {
  // Each call accepts at most 64 connections. Without this limit, clients that connect all the time
  // could keep this thread from its other work.
  for (int accepted = 0; accepted < 64; ++accepted) {
    detail::descriptor client = local_.accept();
    if (!client) {
      if (detail::is_resource_exhausted(errno)) refuse();
      return;
    }
    answer(std::move(client));
    if (foreign_ == 64) return pause(32 * milliseconds);
  }
}

COLLS_ONCE void local_secret_server::refuse() {
  const local_secret_bytes message =
      detail::write_local_secret_state(detail::secret_state::no_descriptor);
  spare_.refuse(local_, [&](int client) {
    // The result is ignored. If `send` fails, the client gets no message, but notices that this
    // process has closed the connection.
    (void)::send(client, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  pause(100 * milliseconds);
}

COLLS_ONCE void local_secret_server::answer(detail::descriptor client) {
  if (!detail::is_own_user(client.get())) {
    ++foreign_;
    log_.warn(
        "a process of user %lld asked for the key of this job of user %lld and got none: ranks of "
        "one host under different users need a secret",
        static_cast<long long>(detail::peer_user(client.get())),
        static_cast<long long>(::geteuid()));
    return;
  }
  local_secret_bytes message = detail::write_local_secret(key_);
  // The send buffer of a new connection has room for the whole message, so `send` need not wait. If
  // it fails nevertheless, this function closes the connection, and the client connects again.
  const ssize_t sent =
      ::send(client.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::OPENSSL_cleanse(message.data(), message.size());
  if (sent != static_cast<ssize_t>(message.size())) {
    log_debug("the local secret was not sent: %s", std::strerror(errno));
  }
}

COLLS_ONCE void local_secret_server::pause(time_point span) {
  foreign_ = 0;
  paused_until_ = engine_.now() + span;
  paused_ = true;
  engine_.rewatch(local_.descriptor(), 0U, *this);
}

COLLS_ONCE void local_secret_server::sweep(time_point now) {
  if (!paused_ || now < paused_until_) return;
  paused_ = false;
  engine_.rewatch(local_.descriptor(), static_cast<std::uint32_t>(EPOLLIN), *this);
}

}  // namespace colls
