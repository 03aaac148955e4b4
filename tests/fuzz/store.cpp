// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Store frames: clients that send any bytes to a server, and a server that answers a client with
// any bytes.
//
// covers: base/reported_failure.hpp: parse terminate
// covers: bootstrap/store_frame.hpp
// covers: bootstrap/store.hpp: find set add compare_set check wait forget check_limits
// covers: bootstrap/store_server.ipp: handle_peer decide_verdict serve_client serve_requests handle_request parse_strings wait_for keys_ready reply flush announce_failure
// covers: bootstrap/tcp_store.ipp: call send flush forget read_loop handle_reply record_failure disconnect report_failure listen_for_failures

#include "peer.hpp"

#include <colls/bootstrap/store_server.hpp>
#include <colls/bootstrap/tcp_store.hpp>

namespace {

using namespace colls;
using frame = detail::store_frame;

constexpr int world = 3;

hello greeting(int rank, bool checks = false) {
  hello made;
  made.checksum = checks;
  made.purpose = connection_purpose::store;
  made.job = 7;
  made.rank = rank;
  made.world = world;
  return made;
}

std::string key_text(fuzz::input& from) {
  const int which = from.below(8);
  if (which < 5) return std::string(1, static_cast<char>('a' + which));
  if (which == 5) return std::string(store::max_key_size, 'k');
  return std::string(from.text());
}

/// The value of a frame: a list of keys, two texts, a failure, a long text, any bytes, or nothing.
std::string value_text(fuzz::input& from) {
  switch (from.below(8)) {
    case 0:
      return std::string(from.text());
    case 1:
    case 2: {
      std::string joined;
      for (int n = from.below(4); n > 0; --n) detail::append_string(joined, key_text(from));
      if (from.below(4) == 0) joined += from.text();
      return joined;
    }
    case 3:
      return fuzz::failure_text(from);
    case 4:
      return std::string(from.number<std::uint16_t>(), 'v');
    default:
      return {};
  }
}

/// One frame, or bytes that are not a frame.
std::string frame_text(fuzz::input& from, int first_kind, int kinds, bool checks) {
  const int how = from.byte();
  if (how == 255) return std::string(from.text());
  frame head;
  head.op = static_cast<frame::opcode>(how & 1 ? from.byte() : first_kind + from.below(kinds));
  head.id = how & 2 ? from.number<std::uint32_t>() : static_cast<std::uint32_t>(from.below(8));
  head.number = how & 4 ? from.number<std::int64_t>() : from.number<std::int8_t>();
  const std::string key = how & 8 ? std::string() : key_text(from);
  const std::string value = how & 16 ? std::string() : value_text(from);
  std::string text;
  detail::append_frame(text, head, key, value, checks);
  if (how & 32) {
    // Lengths that differ from those of the bytes that follow.
    const std::size_t at = 8 + 4 * static_cast<std::size_t>(from.below(2));
    const auto length = from.number<std::uint32_t>();
    std::memcpy(&text[at], &length, sizeof length);
  }
  return text;
}

/// Requires that the bytes a server has sent are frames that a client understands.
void require_answers(std::string_view heard, bool checks) {
  const std::size_t size = frame::size + (checks ? detail::store_checksums_size : 0);
  while (!heard.empty()) {
    fuzz::require(heard.size() >= size, "an answer has its header");
    const auto head = detail::parse_store_frame(
        std::span(reinterpret_cast<const std::byte*>(heard.data()), frame::size));
    fuzz::require(head.has_value() && head->op >= frame::opcode::reply && head->key_size == 0,
                  "an answer is one");
    heard.remove_prefix(size);
    fuzz::require(heard.size() >= head->value_size, "an answer has its value");
    if (head->op == frame::opcode::failed || head->op == frame::opcode::refused) {
      failure why;
      fuzz::require(head->value_size == sizeof why, "a failure has its length");
      std::memcpy(static_cast<void*>(&why), heard.data(), sizeof why);
      fuzz::require_sound(why);
    }
    heard.remove_prefix(head->value_size);
  }
}

/// A rank beside the hostile ones, for which the store works as ever.
task<> honest(tcp_store& at, bool& done) {
  const time_point soon = fuzz::driver().now() + 10 * seconds;
  co_await at.set("honest", "word", soon);
  const std::string word = co_await at.get("honest", soon);
  fuzz::require(word == "word", "a store keeps what a rank has set");
  done = true;
}

struct told final : failure_listener {
  void rank_failed(int rank, const reported_failure& why) override {
    fuzz::require_sound(why);
    fuzz::require(rank == why.reason().culprit, "a failure names one rank");
  }
};

void at_the_server(fuzz::input from, bool checks) {
  const secret key("a secret");
  fuzz::local_address address;
  store_server server(fuzz::driver(), greeting(-1), key);
  server.adopt(address.take().release());
  std::vector<fuzz::peer> peers(3);
  std::vector<std::string> heard(peers.size());
  int steps = 0;
  while (!from.is_over() && ++steps < 64) {
    const int what = from.byte();
    const auto which = static_cast<std::size_t>(what % 4 % 3);
    fuzz::peer& one = peers[which];
    if (!one.is_open()) {
      const int rank = what & 4 ? from.number<std::int8_t>() : static_cast<int>(which);
      hello mine = greeting(rank, checks);
      if (what & 8) mine.world = from.number<std::int8_t>();
      if (mine.rank >= mine.world || mine.rank < -1 || mine.world < 1) continue;
      one = fuzz::authenticate(address, mine, key);
      heard[which].clear();
      if (one.is_open() && (what & 16) == 0) {
        std::string text;
        detail::append_frame(text, {.op = frame::opcode::enter}, {}, {}, checks);
        one.send(text);
      }
    } else if ((what & 0xf0) == 0xf0) {
      one.close();
    } else {
      one.send(frame_text(from, 1, 10, checks));
    }
    if ((what & 0x20) == 0) fuzz::settle();
    if (!one.is_open()) continue;
    heard[which] += one.receive();
    if ((what & 0x20) == 0) require_answers(std::exchange(heard[which], {}), checks);
  }
  for (fuzz::peer& each : peers) each.close();
  fuzz::settle();
  fuzz::peer end = fuzz::authenticate(address, greeting(-1), key);
  fuzz::require(end.is_open(), "a launcher is accepted, whatever other clients did");
  bool done = false;
  told listening;
  tcp_store beside(std::make_unique<stream>(fuzz::driver(), end.release()), greeting(-1),
                   10 * seconds);
  {
    task_group work(fuzz::driver());
    work.start(honest(beside, done));
    beside.listen_for_failures(&listening);
    fuzz::settle();
    fuzz::require(done, "the server still serves");
    beside.listen_for_failures(nullptr);
  }
  server.close();
}

/// A call of a client. It succeeds or fails with a valid record.
task<> ask(tcp_store& at, int what, std::string key, std::string value) {
  const time_point soon = fuzz::driver().now() + 10 * seconds;
  const std::vector<std::string> keys{key, value};
  try {
    switch (what) {
      case 0:
        co_await at.set(key, value, soon);
        break;
      case 1:
        co_await at.get(key, soon);
        break;
      case 2:
        co_await at.add(key, 3, soon);
        break;
      case 3:
        co_await at.wait(keys, soon);
        break;
      case 4:
        co_await at.compare_set(key, value, "new", soon);
        break;
      case 5:
        co_await at.check(keys, soon);
        break;
      case 6:
        co_await at.report_failure(failure(errc::peer_failed, "late"), soon);
        break;
      default:
        co_await at.leave(soon);
        break;
    }
  } catch (const error& thrown) {
    fuzz::require_sound(thrown.record());
  }
}

void at_the_client(fuzz::input from, bool checks) {
  auto [outside, inside] = fuzz::peer::pair();
  told listening;
  tcp_store store(std::make_unique<stream>(fuzz::driver(), std::move(inside)),
                  greeting(from.below(2) - 1), 10 * seconds, checks);
  task_group work(fuzz::driver());
  int calls = 0;
  int steps = 0;
  bool has_left = false;
  while (!from.is_over() && ++steps < 64) {
    const int what = from.byte();
    if (what < 0x60 && calls < 16 && !has_left) {
      ++calls;
      has_left = what % 16 > 12;
      work.start(ask(store, has_left ? 7 : what % 7, key_text(from), value_text(from)));
    } else if (what < 0xf0) {
      outside.send(frame_text(from, 64, 4, checks));
      if (what & 1) fuzz::settle();
    } else if (what < 0xf4) {
      store.listen_for_failures(&listening);
    } else if (what < 0xf8) {
      store.interrupt(failure(errc::cancelled, "no more"));
    } else if (what < 0xfc) {
      outside.stop_writing();
    } else {
      outside.close();
    }
    if (outside.is_open()) outside.receive();
  }
  fuzz::settle();
  store.listen_for_failures(&listening);
  store.listen_for_failures(nullptr);
  outside.close();
  fuzz::settle();
  fuzz::require(work.running() == 0, "calls end when the server is gone");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input from(data, size);
  const int what = from.below(4);
  const bool checks = (what & 2) != 0;
  if ((what & 1) == 0) {
    at_the_server(from, checks);
  } else {
    at_the_client(from, checks);
  }
  return 0;
}
