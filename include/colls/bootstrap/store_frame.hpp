// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What travels on a store's connection once it is authenticated.

#include <colls/base/log.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/bootstrap/store.hpp>
#include <colls/os/crc32c.hpp>

namespace colls {

namespace detail {

/// What travels on a store's connection once it is authenticated: this, a key, a value.
struct store_frame {
  enum class kind : std::uint8_t {
    enter = 1,
    set,
    get,
    add,
    wait,
    compare_set,
    check,
    forget,
    report,
    goodbye,  // requests
    reply = 64,
    refused,
    failed,
    bye,  // answers
  };
  static constexpr std::size_t size = 24;
  static constexpr std::size_t longest_value = store::longest_value + store::longest_key + 64;

  kind what{};
  std::uint32_t id = 0;
  std::uint32_t key_size = 0;
  std::uint32_t value_size = 0;
  std::int64_t number = 0;
};

/// Bytes after a frame's head where the connecting side asked for checksums in its HELLO: that of
/// key and value, and that of all before it.
inline constexpr std::size_t store_sums = 8;

inline std::uint32_t payload_sum(std::string_view key, std::string_view value) {
  return crc32c(crc32c(0, key.data(), key.size()), value.data(), value.size());
}

/// All of it or, where there is no memory for that, nothing.
inline void append_frame(std::string& to, store_frame head, std::string_view key,
                         std::string_view value, bool checks = false) {
  const std::size_t size = to.size() + store_frame::size + store_sums + key.size() + value.size();
  if (to.capacity() < size) to.reserve(std::max(size, 2 * to.capacity()));
  std::array<std::byte, store_frame::size + store_sums> bytes{};
  put_number(&bytes[0], static_cast<std::uint8_t>(head.what));
  put_number(&bytes[4], head.id);
  put_number(&bytes[8], static_cast<std::uint32_t>(key.size()));
  put_number(&bytes[12], static_cast<std::uint32_t>(value.size()));
  put_number(&bytes[16], head.number);
  if (checks) {
    put_number(&bytes[24], payload_sum(key, value));
    put_number(&bytes[28], crc32c(0, bytes.data(), 28));
  }
  to.append(reinterpret_cast<const char*>(bytes.data()),
            store_frame::size + (checks ? store_sums : 0));
  to.append(key);
  to.append(value);
}

/// Nothing if no colls would send it.
inline std::optional<store_frame> parse_store_frame(std::span<const std::byte> from) {
  if (from.size() != store_frame::size) return std::nullopt;
  store_frame to;
  to.what = static_cast<store_frame::kind>(from[0]);
  to.id = get_number<std::uint32_t>(&from[4]);
  to.key_size = get_number<std::uint32_t>(&from[8]);
  to.value_size = get_number<std::uint32_t>(&from[12]);
  to.number = get_number<std::int64_t>(&from[16]);
  using kind = store_frame::kind;
  const bool known = (to.what >= kind::enter && to.what <= kind::goodbye) ||
                     (to.what >= kind::reply && to.what <= kind::bye);
  const bool fits =
      to.key_size <= store::longest_key && to.value_size <= store_frame::longest_value;
  return known && fits ? std::optional(to) : std::nullopt;
}

/// A head that has come, and the checksum of the key and the value that follow.
struct store_head {
  store_frame frame;
  std::uint32_t sum = 0;
  bool checks = false;

  bool is_of(std::string_view key, std::string_view value) const {
    return !checks || sum == payload_sum(key, value);
  }
};

/// What a reader says of a frame with a wrong checksum.
inline std::error_code damaged_frame() { return std::make_error_code(std::errc::bad_message); }
inline constexpr const char* damaged_store_frame =
    "a frame on its connection to the store came with a wrong checksum";

inline void append_text(std::string& to, std::string_view text) {
  std::array<std::byte, 4> size{};
  put_number(size.data(), static_cast<std::uint32_t>(text.size()));
  to.append(reinterpret_cast<const char*>(size.data()), size.size());
  to.append(text);
}
inline std::string join_texts(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) append_text(joined, text);
  return joined;
}
/// Nothing unless the lengths add up.
inline std::optional<std::vector<std::string>> split_texts(std::string_view joined) {
  std::vector<std::string> texts;
  while (!joined.empty()) {
    if (joined.size() < 4) return std::nullopt;
    const auto size = get_number<std::uint32_t>(reinterpret_cast<const std::byte*>(joined.data()));
    joined.remove_prefix(4);
    if (joined.size() < size) return std::nullopt;
    texts.emplace_back(joined.substr(0, size));
    joined.remove_prefix(size);
  }
  return texts;
}

/// The failure that a frame brings, in a world of `size` ranks.
inline std::optional<reported_failure> read_failure(std::string_view value, int size) {
  return reported_failure::parse(std::as_bytes(std::span(value)), size);
}

/// A host that vanishes without a word is noticed within 15 s, also while nothing is said.
inline void keep_alive(int fd) {
  const int on = 1;
  const int seconds_idle = 5;
  const int probes = 2;
  const bool asks =
      ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0 &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds_idle, sizeof seconds_idle) == 0 &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds_idle, sizeof seconds_idle) == 0 &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) == 0;
  if (!asks) log_warn("no keep-alive on a connection: %s", std::strerror(errno));
}

/// `protocol_error`: no colls would send it.
inline task<outcome> read_head(stream& from, bool checks, store_head& into) {
  std::array<std::byte, store_frame::size + store_sums> bytes{};
  const std::size_t size = store_frame::size + (checks ? store_sums : 0);
  const outcome done = co_await attempt(from.read({bytes.data(), size}));
  if (!done) co_return done;
  into.checks = checks;
  into.sum = get_number<std::uint32_t>(&bytes[24]);
  if (checks && get_number<std::uint32_t>(&bytes[28]) != crc32c(0, bytes.data(), 28)) {
    co_return outcome{damaged_frame()};
  }
  const auto head = parse_store_frame({bytes.data(), store_frame::size});
  if (!head) co_return outcome{make_error_code(errc::protocol_error)};
  into.frame = *head;
  co_return outcome{};
}

/// Reads `size` bytes into a string that grows as they come, never by what the peer announced.
inline task<outcome> read_text(stream& from, std::string& into, std::size_t size) {
  constexpr std::size_t piece = std::size_t{64} << 10;
  into.clear();
  while (into.size() < size) {
    const std::size_t had = into.size();
    const std::size_t more = std::min(piece, size - had);
    into.resize(had + more);
    const outcome done =
        co_await attempt(from.read({reinterpret_cast<std::byte*>(into.data() + had), more}));
    if (!done) co_return done;
  }
  co_return outcome{};
}

}  // namespace detail

}  // namespace colls
