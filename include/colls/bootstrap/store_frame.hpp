// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The frames (requests and replies) that the store and its clients exchange after the handshake,
// and functions that write and read them.

#include <colls/base/log.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/bootstrap/store.hpp>
#include <colls/os/crc32c.hpp>

namespace colls {

namespace detail {

/// The header of a frame. The key and the value of the frame follow the header.
struct store_frame {
  enum class opcode : std::uint8_t {
    enter = 1,
    set,
    get,
    add,
    wait,
    compare_set,
    check,
    forget,
    report,
    goodbye,  // the request with the highest value
    reply = 64,
    refused,
    failed,
    bye,  // the reply with the highest value
  };
  static constexpr std::size_t size = 24;
  static constexpr std::size_t max_value_size = store::max_value_size + store::max_key_size + 64;

  opcode op{};
  std::uint32_t id = 0;
  std::uint32_t key_size = 0;
  std::uint32_t value_size = 0;
  std::int64_t number = 0;
};

/// The size in bytes of the two checksums that follow the header of a frame. Frames have checksums
/// only if the connecting side has requested them in its HELLO (the first message of the
/// handshake). The first checksum covers the key and the value. The second one covers the header
/// and the first checksum.
inline constexpr std::size_t store_checksums_size = 8;

inline std::uint32_t payload_checksum(std::string_view key, std::string_view value) {
  return crc32c(crc32c(0, key.data(), key.size()), value.data(), value.size());
}

/// Appends a frame to `buffer`. If the function throws `std::bad_alloc`, `buffer` is unchanged.
inline void append_frame(std::string& buffer, store_frame header, std::string_view key,
                         std::string_view value, bool has_checksums = false) {
  const std::size_t size =
      buffer.size() + store_frame::size + store_checksums_size + key.size() + value.size();
  if (buffer.capacity() < size) buffer.reserve(std::max(size, 2 * buffer.capacity()));
  std::array<std::byte, store_frame::size + store_checksums_size> bytes{};
  put_number(&bytes[0], static_cast<std::uint8_t>(header.op));
  put_number(&bytes[4], header.id);
  put_number(&bytes[8], static_cast<std::uint32_t>(key.size()));
  put_number(&bytes[12], static_cast<std::uint32_t>(value.size()));
  put_number(&bytes[16], header.number);
  if (has_checksums) {
    put_number(&bytes[24], payload_checksum(key, value));
    put_number(&bytes[28], crc32c(0, bytes.data(), 28));
  }
  buffer.append(reinterpret_cast<const char*>(bytes.data()),
                store_frame::size + (has_checksums ? store_checksums_size : 0));
  buffer.append(key);
  buffer.append(value);
}

/// Parses the header of a frame. Returns nullopt if the header is invalid.
inline std::optional<store_frame> parse_store_frame(std::span<const std::byte> bytes) {
  if (bytes.size() != store_frame::size) return std::nullopt;
  store_frame result;
  result.op = static_cast<store_frame::opcode>(bytes[0]);
  result.id = get_number<std::uint32_t>(&bytes[4]);
  result.key_size = get_number<std::uint32_t>(&bytes[8]);
  result.value_size = get_number<std::uint32_t>(&bytes[12]);
  result.number = get_number<std::int64_t>(&bytes[16]);
  using opcode = store_frame::opcode;
  const bool known = (result.op >= opcode::enter && result.op <= opcode::goodbye) ||
                     (result.op >= opcode::reply && result.op <= opcode::bye);
  const bool fits =
      result.key_size <= store::max_key_size && result.value_size <= store_frame::max_value_size;
  return known && fits ? std::optional(result) : std::nullopt;
}

/// The header of a received frame and, if the frame has checksums, the received checksum of its key
/// and its value.
struct received_frame {
  store_frame frame;
  std::uint32_t checksum = 0;
  bool has_checksums = false;

  /// Returns whether the received checksum is the checksum of `key` and `value`. If the frame has
  /// no checksums, returns true.
  bool matches(std::string_view key, std::string_view value) const {
    return !has_checksums || checksum == payload_checksum(key, value);
  }
};

/// Returns the error code for a frame with a wrong checksum.
inline std::error_code damaged_frame() { return std::make_error_code(std::errc::bad_message); }
inline constexpr const char* damaged_store_frame_text =
    "a frame on its connection to the store has a wrong checksum";

/// Appends the length of `text`, and then `text` itself, to `buffer`.
inline void append_string(std::string& buffer, std::string_view text) {
  std::array<std::byte, 4> size{};
  put_number(size.data(), static_cast<std::uint32_t>(text.size()));
  buffer.append(reinterpret_cast<const char*>(size.data()), size.size());
  buffer.append(text);
}
inline std::string join_strings(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) append_string(joined, text);
  return joined;
}
/// Splits a string that `join_strings` has returned. Returns nullopt if a length in the string is
/// invalid.
inline std::optional<std::vector<std::string>> split_strings(std::string_view joined) {
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

/// Parses a failure from the value of a frame. `size` is the number of ranks in the world. Returns
/// nullopt if `value` is not a valid failure.
inline std::optional<reported_failure> parse_failure(std::string_view value, int size) {
  return reported_failure::parse(std::as_bytes(std::span(value)), size);
}

/// Enables TCP keep-alive on the socket `fd`. An unreachable peer is then detected within 15 s,
/// even if the connection is idle.
inline void enable_keep_alive(int fd) {
  const int enabled = 1;
  const int seconds_idle = 5;
  const int probes = 2;
  const bool done =
      ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &enabled, sizeof enabled) == 0 &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds_idle, sizeof seconds_idle) == 0 &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds_idle, sizeof seconds_idle) == 0 &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) == 0;
  if (!done) log_warn("no keep-alive on a connection: %s", std::strerror(errno));
}

/// Reads the header of a frame into `result`. The outcome is `protocol_error` if the header is
/// invalid, `damaged_frame()` if the checksum of the header is wrong, and the error of the
/// connection if reading fails.
inline task<outcome> read_frame_header(stream& connection, bool has_checksums,
                                       received_frame& result) {
  std::array<std::byte, store_frame::size + store_checksums_size> bytes{};
  const std::size_t size = store_frame::size + (has_checksums ? store_checksums_size : 0);
  const outcome done = co_await attempt(connection.read({bytes.data(), size}));
  if (!done) co_return done;
  result.has_checksums = has_checksums;
  result.checksum = get_number<std::uint32_t>(&bytes[24]);
  if (has_checksums && get_number<std::uint32_t>(&bytes[28]) != crc32c(0, bytes.data(), 28)) {
    co_return outcome{damaged_frame()};
  }
  const auto header = parse_store_frame({bytes.data(), store_frame::size});
  if (!header) co_return outcome{make_error_code(errc::protocol_error)};
  result.frame = *header;
  co_return outcome{};
}

/// Reads `size` bytes into `result`. Allocates memory in small steps while bytes arrive. Otherwise
/// a peer could exhaust the memory of this process by announcing a large size and sending nothing.
/// If reading fails, the outcome is the error of the connection.
inline task<outcome> read_string(stream& connection, std::string& result, std::size_t size) {
  constexpr std::size_t piece = std::size_t{64} << 10;
  result.clear();
  while (result.size() < size) {
    const std::size_t had = result.size();
    const std::size_t more = std::min(piece, size - had);
    result.resize(had + more);
    const outcome done = co_await attempt(
        connection.read({reinterpret_cast<std::byte*>(result.data() + had), more}));
    if (!done) co_return done;
  }
  co_return outcome{};
}

}  // namespace detail

}  // namespace colls
