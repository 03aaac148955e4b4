// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How the local key is handed out and asked for: the second half of local_secret.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/local_secret.hpp>
#include <colls/driver/local_socket.hpp>

#include <cerrno>

namespace colls::detail {

// magic (8), version (2), state (1), zeros, the secret's text (64 from byte 16).
enum class key_state : std::uint8_t { drawn = 1, given, none, no_descriptor };
inline constexpr char key_magic[8] = {'c', 'o', 'l', 'l', 's', 'k', 'e', 'y'};

COLLS_ONCE local_key_bytes write_key_state(key_state state) {
  local_key_bytes into{};
  std::memcpy(into.data(), key_magic, sizeof key_magic);
  put_number(&into[8], wire_version);
  put_number(&into[10], static_cast<std::uint8_t>(state));
  return into;
}

COLLS_ONCE local_key_bytes write_local_key(const secret& key) {
  local_key_bytes into = write_key_state(key.is_drawn() ? key_state::drawn
                                         : key.empty()  ? key_state::none
                                                        : key_state::given);
  if (key.is_drawn()) std::memcpy(&into[16], key.text().data(), secret::drawn_size);
  return into;
}

// Every address that means this host's loopback to whoever dials it.
COLLS_ONCE endpoint dialled_at(const endpoint& listening) {
  if (!listening.address().is_unspecified()) return listening;
  const auto loopback = listening.address().is_v6()
                            ? boost::asio::ip::address(boost::asio::ip::address_v6::loopback())
                            : boost::asio::ip::address(boost::asio::ip::address_v4::loopback());
  return {loopback, listening.port()};
}

COLLS_ONCE std::int64_t user_beside(const endpoint& store) {
  descriptor socket;
  if (shm::connect_beside(dialled_at(store), socket)) return -1;
  return user_behind(socket.get());
}

COLLS_ONCE task<secret> ask_for_local_key(engine& on, endpoint store, bool insecure,
                                          time_point deadline) {
  const std::string where = text_of(store);
  descriptor socket;
  const std::error_code ec = shm::connect_beside(dialled_at(store), socket);
  if (ec == std::errc::connection_refused) {
    raise(errc::unreachable,
          "%s takes connections and is no rank 0 of this user (between users a secret is needed)",
          where.c_str());
  }
  if (ec)
    raise(errc::unreachable, "the local socket of %s: %s", where.c_str(), ec.message().c_str());
  if (!is_own_user(socket.get())) {
    raise(errc::auth_failed,
          "%s is served by user %lld and this process runs as user %lld: ranks of one host under "
          "different users need a secret",
          where.c_str(), static_cast<long long>(user_behind(socket.get())),
          static_cast<long long>(::geteuid()));
  }
  stream link(on, std::move(socket));
  link.deadline(deadline);
  local_key_bytes got{};
  const outcome done = co_await attempt(link.read(whole(got)));
  if (done.ec == errc::timeout) {
    raise(errc::timeout, "the local socket of %s took the connection and said nothing",
          where.c_str());
  }
  if (!done) {
    raise(errc::unreachable, "the local socket of %s hung up (%s)", where.c_str(),
          done.ec.message().c_str());
  }
  if (std::memcmp(got.data(), key_magic, sizeof key_magic) != 0) {
    raise(errc::protocol_error, "what listens beside %s is no colls", where.c_str());
  }
  const auto version = get_number<std::uint16_t>(&got[8]);
  if (version != wire_version) {
    raise(errc::version_mismatch, "%s speaks wire version %d, this process %d", where.c_str(),
          version, wire_version);
  }
  const auto state = static_cast<key_state>(got[10]);
  if (state == key_state::given) {
    raise(errc::auth_failed, "%s has a secret and this process has none", where.c_str());
  }
  if (state == key_state::none && !insecure) {
    raise(errc::insecure_bind, "%s was told to do without a secret, and this process was not",
          where.c_str());
  }
  if (state == key_state::no_descriptor) {
    raise(errc::too_many_files,
          "the process that serves %s has too many open files and cannot give its key",
          where.c_str());
  }
  const bool none = state == key_state::none;
  if (!none && state != key_state::drawn) {
    raise(errc::protocol_error, "what listens beside %s makes no sense", where.c_str());
  }
  const auto* const text = reinterpret_cast<const char*>(&got[16]);
  secret key = none ? secret({}, insecure) : secret::drawn({text, secret::drawn_size});
  ::OPENSSL_cleanse(got.data(), got.size());
  co_return key;
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE key_server::key_server(engine& on, const secret& key) : engine_(on), key_(key) {
  engine_.add(static_cast<engine::source&>(*this), false);
}

COLLS_ONCE key_server::~key_server() {
  engine_.remove(static_cast<engine::source&>(*this));
  if (local_.is_open()) engine_.unwatch(local_.descriptor(), *this);
}

COLLS_ONCE std::error_code key_server::listen(const listener& store) {
  if (const std::error_code ec = shm::listen_beside(detail::dialled_at(store.local()), local_)) {
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

COLLS_ONCE void key_server::ready(std::uint32_t) {
  // Bounded, so that a flood does not keep the thread from its work.
  for (int accepted = 0; accepted < 64; ++accepted) {
    detail::descriptor asking = local_.accept();
    if (!asking) {
      if (detail::is_lack(errno)) refuse();
      return;
    }
    answer(std::move(asking));
    if (others_ == 64) return rest(32 * milliseconds);
  }
}

COLLS_ONCE void key_server::refuse() {
  const local_key_bytes said = detail::write_key_state(detail::key_state::no_descriptor);
  spare_.refuse(local_, [&](int asking) {
    // A process that this does not reach finds the connection closed.
    (void)::send(asking, said.data(), said.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  rest(100 * milliseconds);
}

COLLS_ONCE void key_server::answer(detail::descriptor asking) {
  if (!detail::is_own_user(asking.get())) {
    ++others_;
    log_.warn(
        "a process of user %lld asked for the key of this job of user %lld and got none: ranks of "
        "one host under different users need a secret",
        static_cast<long long>(detail::user_behind(asking.get())),
        static_cast<long long>(::geteuid()));
    return;
  }
  local_key_bytes said = detail::write_local_key(key_);
  // A fresh connection takes it at once. If it does not, the asking process asks again.
  const ssize_t sent = ::send(asking.get(), said.data(), said.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::OPENSSL_cleanse(said.data(), said.size());
  if (sent != static_cast<ssize_t>(said.size())) {
    log_debug("the local key was not sent: %s", std::strerror(errno));
  }
}

COLLS_ONCE void key_server::rest(time_point span) {
  others_ = 0;
  rests_until_ = engine_.now() + span;
  resting_ = true;
  engine_.rewatch(local_.descriptor(), 0U, *this);
}

COLLS_ONCE void key_server::sweep(time_point now) {
  if (!resting_ || now < rests_until_) return;
  resting_ = false;
  engine_.rewatch(local_.descriptor(), static_cast<std::uint32_t>(EPOLLIN), *this);
}

}  // namespace colls
