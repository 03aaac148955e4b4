// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Tests the parts of a connection without a peer.
#include <colls/transport/interprocess/carrier/socket_pipe.hpp>
#include <colls/transport/interprocess/connection.hpp>

#include <doctest/doctest.h>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <random>

#include "../../support/sanitized.hpp"

namespace {

using namespace colls;
using namespace colls::interprocess;

std::vector<std::byte> pattern(std::size_t size, std::size_t seed) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>(i * 31 + seed);
  return all;
}

struct counter : completion {
  int times = 0;

  explicit counter(run_queue& queue) {
    bind([](completion& self) noexcept { ++static_cast<counter&>(self).times; },
         completion(nullptr, &queue));
  }
};

/// Rank 0 of two ranks, with one operation.
struct one_rank {
  run_queue queue;
  tag_matcher matching{0};
  communicator_state all{7, 0, 2, nullptr};
  operation_record record;

  one_rank() {
    matching.add(all);
    record.communicator = &all;
  }
};

/// A send that owns its bytes. `sequence` numbers it.
struct message : posted_send {
  std::vector<std::byte> bytes;
  counter ended;

  message(one_rank& here, std::uint64_t sequence, std::size_t length)
      : bytes(pattern(length, sequence)), ended(here.queue) {
    key = {1, 7, sequence, 0};
    data = bytes.data();
    size = length;
    record = &here.record;
    done = &ended;
    frame = make_header(kind::data, key, size, 0);
  }
  /// Makes the queue get the payload in pieces of 16 bytes, none of which is the payload itself.
  void send_in_pieces() {
    const auto copy = [](const void* self, std::size_t offset, std::size_t n, std::byte* dest) {
      std::copy_n(static_cast<const message*>(self)->bytes.data() + offset, n, dest);
    };
    pieces.emplace(copy, this, size, colls::mutable_bytes(piece.data(), piece.size()));
    source = &*pieces;
    data = nullptr;
  }

 private:
  std::array<std::byte, 16> piece{};
  std::optional<colls::payload_source> pieces;
};

struct receive : posted_receive {
  std::vector<std::byte> bytes;
  counter ended;

  receive(one_rank& here, std::size_t length) : bytes(length), ended(here.queue) {
    data = bytes.data();
    size = received = length;
    record = &here.record;
    done = &ended;
  }
};

/// Takes up to `max_size` bytes from a send queue, as a socket does.
std::vector<std::byte> written_by(send_queue& queue, std::size_t max_size) {
  iovec parts[4];
  const int count = queue.gather(parts);
  std::vector<std::byte> taken;
  for (int i = 0; i < count; ++i) {
    const auto* const part = static_cast<const std::byte*>(parts[i].iov_base);
    taken.insert(taken.end(), part, part + parts[i].iov_len);
  }
  taken.resize(std::min(taken.size(), max_size));
  queue.advance(taken.size());
  return taken;
}

template <class... Parts>
std::vector<std::byte> joined(const Parts&... parts) {
  std::vector<std::byte> all;
  const auto add = [&](const auto& part) {
    if constexpr (std::is_base_of_v<header, std::remove_cvref_t<decltype(part)>>) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(&part);
      all.insert(all.end(), bytes, bytes + sizeof(header));
    } else {
      all.insert(all.end(), part.begin(), part.end());
    }
  };
  (add(parts), ...);
  return all;
}

/// Both ends of a connection: `in` reads what `out` writes.
struct socket_carrier {
  detail::descriptor out;
  detail::descriptor in;
  stream_frames reader;

  socket_carrier() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    out = detail::descriptor(ends[0]);
    in = detail::descriptor(ends[1]);
  }
  bool write(send_queue& queue) {
    const auto write_bytes = [this](iovec* parts, int count, std::size_t) {
      return ::writev(out.get(), parts, count);
    };
    return stream_frames::write(write_bytes, queue).moved;
  }
  ssize_t read_bytes(payload_target& target) {
    return reader.read([this](iovec* parts, int count) { return ::readv(in.get(), parts, count); },
                       target);
  }
  /// Returns the fault of a frame, or null.
  template <class Begin>
  const char* read(payload_target& target, Begin begin) {
    if (read_bytes(target) <= 0) return nullptr;
    return reader.take(target, [] { return false; }, begin);
  }
};
struct ring_buffer_carrier {
  shm::segment memory;
  shm::ring_buffer out;
  shm::ring_buffer in;

  explicit ring_buffer_carrier(bool checked = false) : out(checked), in(checked) {
    REQUIRE(!memory.make(shm::connection_bytes(shm::min_ring_buffer_bytes)));
    REQUIRE(!out.map(memory, 0));
    shm::segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(memory.descriptor()))));
    REQUIRE(!in.map(same, 1));
  }
  bool write(send_queue& queue) { return write_frames(out, queue); }
  template <class Begin>
  const char* read(payload_target& target, Begin begin) {
    const shm::slot* const next = in.front();
    if (next == nullptr) return in.has_valid_number() ? nullptr : bad_checksum;
    const char* const fault = take_slot(in, *next, target, begin);
    in.publish_if_due();
    return fault;
  }
};
/// Carriers with checksums.
struct checked_socket_carrier : socket_carrier {
  checked_socket_carrier() { reader.add_checksums(); }
};
struct checked_ring_buffer_carrier : ring_buffer_carrier {
  checked_ring_buffer_carrier() : ring_buffer_carrier(true) {}
};

/// Prepares a send queue for frames that the carrier writes.
template <class Carrier>
void prepare(send_queue& queue) {
  if (std::is_same_v<Carrier, checked_socket_carrier>) queue.add_checksums();
}

}  // namespace

TEST_CASE("a send queue writes what it has begun, then control frames, then other sends") {
  for (std::size_t i = 0; i < 400; ++i) {
    const std::size_t cut = i / 2 + 1;
    const bool in_pieces = i % 2 == 1;
    CAPTURE(cut);
    CAPTURE(in_pieces);
    one_rank here;
    message first(here, 1, 50);
    message second(here, 2, 0);
    if (in_pieces) first.send_in_pieces();
    const header control_frame = make_header(kind::goodbye, {}, 0, 0);
    send_queue queue;
    CHECK(queue.push(first));
    CHECK_FALSE(queue.push(second));
    std::vector<std::byte> all = written_by(queue, 1);
    REQUIRE(queue.control(control_frame, nullptr));
    while (!queue.empty()) {
      const std::vector<std::byte> more = written_by(queue, cut);
      all.insert(all.end(), more.begin(), more.end());
    }
    CHECK(all == joined(first.frame, first.bytes, control_frame, second.frame));
    here.queue.run();
    CHECK(first.ended.times == 1);
    CHECK(second.ended.times == 1);
    CHECK(here.record.bytes == 50);
  }
}

TEST_CASE("a withdrawn send leaves no trace, or all of its frame from a copy") {
  for (std::size_t i = 0; i < 2 * (sizeof(header) + 50); ++i) {
    const std::size_t begun = i / 2;
    const bool in_pieces = i % 2 == 1;
    CAPTURE(begun);
    CAPTURE(in_pieces);
    one_rank here;
    message first(here, 1, 50);
    message second(here, 2, 20);
    if (in_pieces) first.send_in_pieces();
    send_queue queue;
    queue.push(first);
    queue.push(second);
    std::vector<std::byte> all;
    while (all.size() < begun) {
      const std::vector<std::byte> more = written_by(queue, begun - all.size());
      all.insert(all.end(), more.begin(), more.end());
    }
    const std::vector<std::byte> whole = joined(first.frame, first.bytes);
    CHECK(queue.withdraw(first));
    first.bytes.assign(50, std::byte{});
    first.frame = header{};
    while (!queue.empty()) {
      const std::vector<std::byte> more = written_by(queue, 7);
      all.insert(all.end(), more.begin(), more.end());
    }
    const std::vector<std::byte> rest = joined(second.frame, second.bytes);
    CHECK(all == (begun == 0 ? rest : joined(whole, rest)));
    here.queue.run();
    CHECK(first.ended.times == 0);
    CHECK(second.ended.times == 1);
  }
}

TEST_CASE("the rest of a withdrawn send is not moved while it is written") {
  for (const bool ends : {false, true}) {
    CAPTURE(ends);
    one_rank here;
    message first(here, 1, 1'000'000);
    send_queue queue;
    queue.push(first);
    (void)written_by(queue, 100);
    if (ends) queue.end();
    CHECK(queue.withdraw(first));
    CHECK(queue.empty() == ends);  // after its end a queue keeps no rest
    if (ends) continue;
    const std::byte* const rest = queue.front().data;
    queue.advance_front(32'768);
    CHECK(queue.front().data == rest + 32'768);
    (void)written_by(queue, 10'000);
    CHECK(queue.front().data == rest + 42'768);
    queue.advance_front(queue.front().size);
    CHECK(queue.empty());
  }
}

TEST_CASE("the rest of a frame that was begun past the send queue goes before all others") {
  one_rank here;
  message sent(here, 1, 50);
  const std::vector<std::byte> whole = joined(sent.frame, sent.bytes);
  for (std::size_t done = 1; done < whole.size(); ++done) {
    CAPTURE(done);
    send_queue queue;
    std::vector<std::byte> copy = sent.bytes;
    REQUIRE(queue.append_rest(sent.frame, {copy.data(), copy.size()}, done));
    copy.assign(copy.size(), std::byte(255));
    header control_frame;
    control_frame.kind = kind::goodbye;
    REQUIRE(queue.control(control_frame, nullptr));
    std::vector<std::byte> written(whole.begin(),
                                   whole.begin() + static_cast<std::ptrdiff_t>(done));
    while (!queue.empty()) {
      const auto more = written_by(queue, 7);
      written.insert(written.end(), more.begin(), more.end());
    }
    CHECK(written == joined(sent.frame, sent.bytes, control_frame));
  }
}

TEST_CASE("control frames that are queued while others are written keep their order") {
  send_queue queue;
  std::uint64_t made = 0;
  std::uint64_t gone = 0;
  while (gone < 1000) {
    for (int i = 0; i < 3 && made < 1000; ++i) {
      REQUIRE(queue.control(make_header(kind::announce, {1, 7, made++, 0}, 0, 0), nullptr));
    }
    for (int i = 0; i < 2 && gone < made; ++i) {
      CHECK(queue.front().frame.sequence == gone++);
      queue.advance_front(0);
    }
  }
  CHECK(queue.empty());
}

TEST_CASE("a send that is written while it starts posts no completion") {
  one_rank here;
  message whole(here, 1, 10);
  message half(here, 2, 10);
  send_queue queue;
  queue.push(whole);
  CHECK(queue.ends_at_once(whole, [&] { (void)written_by(queue, 1000); }));
  queue.push(half);
  CHECK_FALSE(queue.ends_at_once(half, [&] { (void)written_by(queue, 20); }));
  (void)written_by(queue, 1000);
  here.queue.run();
  CHECK(whole.ended.times == 0);
  CHECK(half.ended.times == 1);
}

TEST_CASE("the credit is spent, comes back in quarters, and never grows") {
  flow_control flow;
  std::size_t sent = 0;
  while (flow.spend(1000)) sent += credit_cost(1000);
  CHECK(sent <= credit_window);
  CHECK(sent + credit_cost(1000) > credit_window);
  CHECK(flow.spend(10));
  flow.refill(credit_cost(1000));
  CHECK(flow.spend(1000));
  CHECK_FALSE(flow.spend(1000));
  flow.refill(10 * credit_window);  // a peer returns more credit than was spent
  CHECK_FALSE(flow.spend(eager_limit + 1));
  for (sent = 0; flow.spend(1000);) sent += credit_cost(1000);
  CHECK(sent <= credit_window);

  flow_control receiver;
  std::size_t used = 0;
  std::size_t given = 0;
  for (int i = 0; i < 1000; ++i) {
    used += credit_cost(1000);
    const std::size_t back = receiver.consumed(1000);
    given += back;
    CHECK((back == 0 || back >= credit_window / 4));
    CHECK(used - given < credit_window / 4 + credit_cost(1000));
  }
}

TEST_CASE("a receiver knows what its peer may still send eagerly") {
  std::mt19937 random(1);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random()) % end; };
  const auto take = [&](auto& list, std::size_t at) {
    const std::size_t size = list[at];
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
    return size;
  };
  flow_control sender;
  flow_control receiver;
  std::deque<std::size_t> sent;   // messages on their way to the receiver
  std::deque<std::size_t> given;  // returned credit on its way to the sender
  std::vector<std::size_t> kept;  // messages that the receiver buffers
  int compared[2] = {0, 0};
  for (int step = 0; step < 100'000; ++step) {
    const std::size_t size = below(3) == 0 ? eager_limit - below(200) : below(3000);
    const auto use_up = [&](std::size_t used) {
      if (const std::size_t back = receiver.consumed(used)) given.push_back(back);
    };
    switch (below(8)) {
      case 0:
      case 1:
        if (sender.spend(size)) sent.push_back(size);
        break;
      case 2:
      case 3:
      case 4:
        if (sent.empty()) break;
        REQUIRE(receiver.is_within_window(sent.front()));
        if (below(4) == 0) {
          use_up(take(sent, 0));
        } else {
          kept.push_back(take(sent, 0));
          receiver.add_buffered(kept.back());
        }
        break;
      case 5: {
        if (kept.empty()) break;
        const std::size_t wanted = take(kept, below(kept.size()));
        receiver.remove_buffered(wanted);
        use_up(wanted);
        break;
      }
      default:
        if (!given.empty()) sender.refill(take(given, 0));
    }
    if (!sent.empty() || !given.empty()) continue;
    const bool goes = sender.spend(size);
    if (goes) sender.refill(credit_cost(size));
    REQUIRE(receiver.is_within_window(size) == goes);
    ++compared[goes];
  }
  CHECK(compared[false] > 100);
  CHECK(compared[true] > 100);
  CHECK_FALSE(flow_control().is_within_window(eager_limit + 1));
  CHECK_FALSE(flow_control().is_within_window(SIZE_MAX));
}

TEST_CASE("the CTS of a key are a count, and those of a communicator end with it") {
  flow_control flow;
  const message_key one{1, 7, 1, 0};
  const message_key two{1, 7, 2, 0};
  const message_key other{1, 8, 1, 0};
  for (const message_key& key : {one, one, two, other}) REQUIRE(flow.store_cts(key));
  CHECK(flow.take_cts(one));
  CHECK(flow.take_cts(one));
  CHECK_FALSE(flow.take_cts(one));
  flow.drop_cts(7);
  CHECK_FALSE(flow.take_cts(two));
  CHECK(flow.take_cts(other));

  one_rank here;
  message waits(here, 1, 100'000);
  waits.awaits_cts = true;
  flow.collective_sends.push_back(waits);
  CHECK_FALSE(flow.none_pending(one));
  CHECK(flow.none_pending(two));
  flow.fail(errc::closed, [](const posted_send&) { return true; });
  CHECK(flow.none_pending(one));
  CHECK_FALSE(waits.awaits_cts);
  CHECK(waits.ec == errc::closed);
}

TEST_CASE("no more CTS wait on a connection than its peer can have receives posted") {
  flow_control flow;
  const auto key = [](std::size_t number) { return message_key{1, 7, number % 1000 + 1, 0}; };
  for (std::size_t i = 0; i < max_stored_cts; ++i) REQUIRE(flow.store_cts(key(i)));
  CHECK_FALSE(flow.store_cts(key(0)));
  CHECK_FALSE(flow.store_cts({1, 8, 1, 0}));
  for (std::size_t i = 0; i < max_stored_cts; ++i) REQUIRE(flow.take_cts(key(i)));
  CHECK_FALSE(flow.take_cts(key(0)));
  REQUIRE(flow.store_cts({1, 8, 1, 0}));
  for (std::size_t i = 1; i < max_stored_cts; ++i) REQUIRE(flow.store_cts(key(i)));
  CHECK_FALSE(flow.store_cts(key(0)));
  flow.drop_cts(7);
  CHECK_FALSE(flow.take_cts(key(5)));
  for (std::size_t i = 1; i < max_stored_cts; ++i) REQUIRE(flow.store_cts(key(i)));
  CHECK_FALSE(flow.store_cts(key(0)));
  CHECK(flow.take_cts({1, 8, 1, 0}));
}

TEST_CASE("what a peer does not read takes a bounded amount of memory") {
  const std::vector<std::byte> payload = pattern(max_control_bytes, 1);
  const auto frame = [](kind type, std::uint32_t communicator, std::size_t size) {
    return make_header(type, {1, communicator, 0, 0}, size, 0);
  };
  const auto drain = [](send_queue& queue) {
    std::size_t frames = 0;
    for (; !queue.empty(); ++frames) queue.advance_front(queue.front().size);
    return frames;
  };
  for (const kind type : {kind::announce, kind::report}) {
    send_queue queue;
    const header control_frame = frame(type, 7, sizeof(state_report));
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 10'000; ++i) REQUIRE(queue.control(control_frame, payload.data()));
      const header cts = frame(kind::cts, 7, 0);
      REQUIRE(queue.control(cts, nullptr));
      CHECK(drain(queue) ==
            max_unread_repeated / (sizeof control_frame + sizeof(state_report)) + 2);
    }
  }
  {
    // A reason that is queued already is not queued again. Other control frames are.
    send_queue queue;
    const header one = frame(kind::revoke, 7, sizeof(failure));
    const header other = frame(kind::revoke, 8, sizeof(failure));
    const std::vector<std::byte> reason = pattern(sizeof(failure), 2);
    for (int round = 0; round < 3; ++round) {
      REQUIRE(queue.control(frame(kind::cts, 7, 0), nullptr));
      for (int i = 0; i < 10; ++i) REQUIRE(queue.control(one, payload.data()));
      CHECK(drain(queue) == 2);
      REQUIRE(queue.control(one, payload.data()));
      (void)written_by(queue, 1);
      REQUIRE(queue.control(one, payload.data()));
      (void)written_by(queue, 1000);
      (void)written_by(queue, 1000);
      CHECK(queue.empty());
      for (const header& each : {one, one, other, other, one}) {
        REQUIRE(queue.control(each, payload.data()));
      }
      REQUIRE(queue.control(one, reason.data()));
      CHECK(drain(queue) == 4);
    }
  }
  send_queue queue;
  std::size_t taken = 0;
  for (std::uint32_t i = 1;
       queue.control(frame(kind::fingerprint, i, sizeof(fingerprint)), payload.data()); ++i) {
    taken += sizeof(header) + sizeof(fingerprint);
    REQUIRE(taken <= max_unread + 1000);
  }
  CHECK(taken > max_unread);
  CHECK(queue.empty());  // nothing more is written
}

namespace {

/// An owner that lets the peer write more at each arrival.
struct fed_owner final : connection_owner {
  tag_matcher all{0};
  int arrivals = 0;
  int losses = 0;
  std::function<void()> feed;

  void received(interprocess::connection&, const header&, const std::byte*) override {
    ++arrivals;
    feed();
  }
  void lost(interprocess::connection&, const failure&) override { ++losses; }
  void heap_received(interprocess::connection&, detail::descriptor) override {
    ++arrivals;
    feed();
  }
  tag_matcher& matching() override { return all; }
};

}  // namespace

TEST_CASE("a peer that writes without pause does not keep the thread, before its end and after") {
  constexpr int many = 20'000;
  for (const bool has_ended : {false, true}) {
    CAPTURE(has_ended);
    boost::asio::io_context context(1);
    const std::shared_ptr<engine> driver = engine::get(context.get_executor());
    fed_owner owner;
    ring_buffer_carrier memory;
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const detail::descriptor other(ends[0]);
    auto mine = std::make_unique<shared_memory_pipe>(*driver);
    shm::segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(memory.memory.descriptor()))));
    REQUIRE(!mine->map(same, 1));
    mine->adopt(detail::descriptor(ends[1]));
    interprocess::connection conn(*driver, owner, 1);
    conn.open(std::move(mine));
    if (has_ended) {
      const header control_frame = make_header(kind::mapped, {}, 0, 0);
      owner.feed = [&] {
        if (owner.arrivals < many && memory.out.has_slot())
          memory.out.write(control_frame, nullptr, 0);
      };
      while (memory.out.has_slot()) memory.out.write(control_frame, nullptr, 0);
      REQUIRE(::shutdown(other.get(), SHUT_WR) == 0);
      driver->dispatch(0);
      CHECK(owner.arrivals == static_cast<int>(shm::slots));  // all that was in the ring
      CHECK(conn.has_ended());
      CHECK(owner.losses == 1);
    } else {
      owner.feed = [&] {
        if (owner.arrivals < many) CHECK(::send(other.get(), "+", 1, MSG_NOSIGNAL) == 1);
      };
      owner.feed();
      int before = 0;
      for (int round = 0; round < 3; ++round) {
        driver->dispatch(0);
        CHECK(owner.arrivals > before);  // epoll reports the socket again
        CHECK(owner.arrivals < before + 100);
        before = owner.arrivals;
      }
      CHECK(!conn.has_ended());
    }
  }
}

TEST_CASE("payload whose receive has gone is discarded") {
  one_rank here;
  payload_target target(here.matching);
  const std::vector<std::byte> payload = pattern(100, 1);
  receive gone(here, 100);
  target.begin(100);
  target.deliver_to(gone, true);
  target.take(payload.data(), 40);
  here.matching.withdraw(gone);
  gone.bytes.assign(100, std::byte{});
  target.take(payload.data() + 40, 60);
  CHECK(target.left() == 0);
  CHECK(gone.bytes == std::vector<std::byte>(100));
  here.queue.run();
  CHECK(gone.ended.times == 0);

  receive next(here, 100);
  target.begin(100);
  target.deliver_to(next, true);
  target.fail(errc::closed, [](const posted_receive&) { return true; });
  target.take(payload.data(), 100);
  here.queue.run();
  CHECK(next.ended.times == 1);
  CHECK(next.ec == errc::closed);
  CHECK(next.bytes == std::vector<std::byte>(100));
}

/// An owner that records losses and ignores everything else.
struct silent_owner final : connection_owner {
  tag_matcher& all;
  std::vector<failure> losses;

  explicit silent_owner(tag_matcher& matcher) : all(matcher) {}
  void received(interprocess::connection&, const header&, const std::byte*) override {}
  void lost(interprocess::connection&, const failure& reason) override { losses.push_back(reason); }
  void heap_received(interprocess::connection&, detail::descriptor) override {}
  tag_matcher& matching() override { return all; }
};

#ifndef ADDRESS_SANITIZED  // it ends a process that asks for too much
TEST_CASE("without memory for the rest of a half-written message its connection ends, later") {
  boost::asio::io_context context(1);
  const auto driver = engine::get(context.get_executor());
  one_rank here;
  silent_owner owner(here.matching);
  socket_carrier carrier;
  interprocess::connection conn(*driver, owner, 1);
  conn.open(std::make_unique<socket_pipe>(*driver, std::move(carrier.out)));
  message half(here, 1, 10'000'000);
  CHECK_FALSE(conn.enqueue(half));
  REQUIRE(half.written > sizeof(header));
  half.size = SIZE_MAX / 4;
  conn.withdraw(half);
  CHECK(conn.has_ended());
  CHECK(!conn.is_open());
  CHECK(!conn.has_peer_exited());
  CHECK(owner.losses.empty());
  driver->queue().run();
  REQUIRE(owner.losses.size() == 1);
  CHECK(owner.losses[0].code == errc::peer_failed);
  CHECK(owner.losses[0].culprit == 0);
  std::vector<std::byte> taken(65536);
  ssize_t got = 1;
  while (got > 0) got = ::read(carrier.in.get(), taken.data(), taken.size());
  CHECK(got == 0);
}
#endif

TEST_CASE(
    "after its end a connection still reports that a peer which may be inside a window has "
    "exited") {
  boost::asio::io_context context(1);
  const auto driver = engine::get(context.get_executor());
  one_rank here;
  silent_owner owner(here.matching);
  socket_carrier carrier;
  interprocess::connection conn(*driver, owner, 1);
  conn.peer_maps_heap = true;
  conn.open(std::make_unique<socket_pipe>(*driver, std::move(carrier.out)));
  conn.fail(0, "an invalid frame");
  CHECK(!conn.is_open());
  std::byte some{};
  CHECK(::read(carrier.in.get(), &some, 1) == 0);
  CHECK(!conn.has_peer_exited());
  carrier.in = {};
  CHECK(conn.has_peer_exited());
}

TEST_CASE("a message that its connection writes at once goes completely, or not at all") {
  boost::asio::io_context context(1);
  const auto driver = engine::get(context.get_executor());
  one_rank here;
  silent_owner owner(here.matching);
  socket_carrier carrier;
  const int room = 8 * 1024;
  ::setsockopt(carrier.out.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  interprocess::connection conn(*driver, owner, 1);
  conn.open(std::make_unique<socket_pipe>(*driver, std::move(carrier.out)));
  std::vector<std::byte> wanted;
  std::vector<std::byte> got;
  std::size_t parts = 0;
  std::size_t refused = 0;
  const auto read = [&] {
    std::vector<std::byte> some(20'000);
    const ssize_t size = ::read(carrier.in.get(), some.data(), some.size());
    if (size > 0) got.insert(got.end(), some.begin(), some.begin() + size);
    return size > 0;
  };
  for (std::size_t k = 0; k < 400; ++k) {
    message next(here, k, k * 997 % 30'000);
    if (conn.try_send(next.frame, {next.data, next.size})) {
      parts += !conn.is_idle();
      wanted = joined(wanted, next.frame, next.bytes);
    } else {
      ++refused;
    }
    next.bytes.assign(next.size, std::byte(255));
    if (k % 3 == 0) read();
    if (k % 5 == 0) driver->dispatch();
    if (k % 50 == 0) conn.flow.refill(credit_window);
  }
  while (read() || !conn.is_idle()) driver->dispatch();
  CHECK(parts > 0);
  CHECK(refused > 0);
  CHECK(got == wanted);
  // A refused message spends no credit.
  std::size_t left = 0;
  conn.flow.refill(credit_window);
  message more(here, 1, 2000);
  while (conn.try_send(more.frame, {more.data, more.size})) ++left;
  std::size_t spent = 0;
  while (conn.flow.spend(2000)) ++spent;
  CHECK(left + spent == credit_window / (2000 + 64));
}

TEST_CASE("a message that is expected is received at once, or arrives as others do") {
  const std::vector<std::byte> payload = pattern(60, 3);
  for (const bool is_expected : {true, false}) {
    for (std::size_t cut = 1; cut < 200; ++cut) {
      CAPTURE(is_expected);
      CAPTURE(cut);
      one_rank here;
      payload_target target(here.matching);
      socket_carrier carrier;
      message first(here, 1, 60);
      message second(here, 2, 60);
      first.bytes = second.bytes = payload;
      header expected = first.frame;
      if (!is_expected) expected.hash = 5;
      const std::vector<std::byte> all = joined(first.frame, payload, second.frame, payload);
      std::vector<std::byte> taken(60);
      std::vector<std::uint64_t> seen;
      receive got[] = {receive(here, 60), receive(here, 60)};
      const auto is_taken = [&] {
        const bool found = carrier.reader.try_receive(expected, taken.data());
        if (found) seen.push_back(1);
        return found;
      };
      const auto begin = [&](const header& frame, const std::byte*) {
        seen.push_back(frame.sequence + 10);
        target.begin(frame.length);
        target.deliver_to(got[frame.sequence - 1], true);
        return true;
      };
      const std::size_t end = std::min(cut, all.size());
      const auto deliver = [&](std::size_t from, std::size_t to) {
        if (from == to) return;
        REQUIRE(::write(carrier.out.get(), all.data() + from, to - from) ==
                static_cast<ssize_t>(to - from));
        REQUIRE(carrier.read_bytes(target) > 0);
        REQUIRE(carrier.reader.take(target, is_taken, begin) == nullptr);
      };
      deliver(0, end);
      deliver(end, all.size());
      const bool whole =
          is_expected && (cut < sizeof(header) || cut >= sizeof(header) + payload.size());
      CHECK(seen == std::vector<std::uint64_t>{whole ? 1U : 11U, 12U});
      CHECK((whole ? taken : got[0].bytes) == payload);
      CHECK(got[1].bytes == payload);
    }
  }
}

TEST_CASE("a receive that waits for the rest of an unexpected message can fail, and be withdrawn") {
  boost::asio::io_context context(1);
  const auto driver = engine::get(context.get_executor());
  const std::vector<std::byte> payload = pattern(credit_window / 4, 1);
  for (const bool fails : {true, false}) {
    CAPTURE(fails);
    one_rank here;
    silent_owner owner(here.matching);
    interprocess::connection conn(*driver, owner, 1);
    payload_target target(here.matching);
    receive waiting(here, payload.size());
    unexpected_frame& message = *unexpected_frame::make(payload.size());
    message.key = {1, 7, 1, 0};
    message.size = payload.size();
    message.conn = &conn;
    message.buffered = true;
    conn.flow.add_buffered(message.size);
    target.begin(payload.size());
    target.deliver_to(message);
    target.take(payload.data(), 40);
    target.complete_later(message, waiting);
    if (fails) {
      target.fail(errc::closed, [](const posted_receive&) { return true; });
    } else {
      here.matching.withdraw(waiting);
    }
    CHECK(!waiting.busy());
    CHECK(!conn.is_idle());  // credit is returned to the peer
    target.take(payload.data() + 40, payload.size() - 40);
    CHECK(target.left() == 0);
    here.queue.run();
    CHECK(waiting.ended.times == (fails ? 1 : 0));
    CHECK((!fails || waiting.ec == errc::closed));
    CHECK(waiting.bytes == std::vector<std::byte>(payload.size()));
  }
}

TEST_CASE("a message that did not go gives its credit back") {
  boost::asio::io_context context(1);
  const auto driver = engine::get(context.get_executor());
  one_rank here;
  silent_owner owner(here.matching);
  interprocess::connection conn(*driver, owner, 1);  // not open yet
  for (int i = 0; i < 100; ++i) {
    message sent(here, 1, 16 * 1024);
    REQUIRE(conn.flow.spend(sent.size));
    CHECK(!conn.enqueue(sent));
    CHECK(sent.is_untouched());
    if (i % 2 == 0) {
      conn.withdraw(sent);
    } else {
      conn.fail_sends(errc::closed, [](const posted_send&) { return true; });
    }
    CHECK(!sent.is_pending());
  }
  CHECK(conn.flow.spend(eager_limit));
}

TEST_CASE("a reduction gets whole elements, in place or all at once") {
  for (const bool in_place : {true, false}) {
    one_rank here;
    payload_target target(here.matching);
    const std::vector<std::byte> payload = pattern(120, 1);
    struct folded {
      std::vector<std::byte> bytes;
      int pieces = 0;
    } seen;
    receive wanted(here, 120);
    wanted.data = nullptr;
    wanted.granularity = 12;
    wanted.fold_context = &seen;
    wanted.fold = [](void* self, std::size_t offset, const std::byte* piece, std::size_t size) {
      auto& all = *static_cast<folded*>(self);
      CHECK(offset == all.bytes.size());
      CHECK(size % 12 == 0);
      all.bytes.insert(all.bytes.end(), piece, piece + size);
      ++all.pieces;
    };
    target.begin(120);
    target.deliver_to(wanted, in_place);
    for (std::size_t at = 0; at < 120;) {
      const std::size_t size = target.acceptable(std::min<std::size_t>(31, 120 - at));
      target.take(payload.data() + at, size);
      at += size;
    }
    CHECK(seen.bytes == payload);
    CHECK((seen.pieces == 1) == !in_place);
    here.queue.run();
    CHECK(wanted.ended.times == 1);
  }
}

TEST_CASE_TEMPLATE("an invalid frame is refused before it is begun", Carrier, socket_carrier,
                   ring_buffer_carrier, checked_socket_carrier, checked_ring_buffer_carrier) {
  const auto refuses = [](std::vector<header> frames) {
    Carrier carrier;
    one_rank here;
    payload_target target(here.matching);
    send_queue queue;
    prepare<Carrier>(queue);
    const std::vector<std::byte> payload(sizeof(failure));
    for (const header& each : frames) {
      REQUIRE(queue.control(each, control_size(each) != 0 ? payload.data() : nullptr));
    }
    carrier.write(queue);
    std::size_t begun = 0;
    const auto begin = [&](const header&, const std::byte*) {
      target.begin(0);
      ++begun;
      return true;
    };
    bool good = true;
    for (std::size_t rounds = 0; good && rounds < frames.size(); ++rounds) {
      good = carrier.read(target, begin) == nullptr;
    }
    CHECK(begun == frames.size() - !good);
    return !good;
  };
  header good;
  good.kind = kind::goodbye;
  header unknown = good;
  unknown.kind = static_cast<kind>(99);
  header long_goodbye = good;
  long_goodbye.length = 8;
  header short_failure;
  short_failure.kind = kind::revoke;
  short_failure.length = sizeof(failure) - 1;
  header too_long = make_header(kind::data, {1, 7, 1, 0}, std::uint64_t{1} << 63, 0, flag::cleared);
  CHECK(refuses({good, too_long}));
  CHECK_FALSE(refuses({good, good}));
  CHECK(refuses({good, unknown}));
  CHECK(refuses({good, long_goodbye}));
  CHECK(refuses({good, short_failure}));
}

namespace {

/// Writes a frame, changes one of its bits on the way, and reads it.
template <class Carrier>
class bit_flips {
 public:
  /// Returns whether the reader refused the frame because of its checksum, and did not use it.
  static bool is_detected(const header& frame, std::size_t size, std::size_t bit) {
    bit_flips all(size);
    all.write(frame);
    all.flip(bit);
    const char* const fault = all.read();
    return fault != nullptr && std::strcmp(fault, bad_checksum) == 0 && all.got_.ended.times == 0 &&
           (frame.kind == kind::data || all.begun_ == 0);
  }
  /// Returns whether the frame arrives if no bit is changed.
  static bool arrives(const header& frame, std::size_t size) {
    bit_flips all(size);
    all.write(frame);
    const bool right = all.read() == nullptr && all.begun_ == 1;
    all.here_.queue.run();
    const bool ended = all.got_.ended.times == 1 && all.got_.bytes == all.sent_.bytes;
    return right && (size == 0 || frame.kind != kind::data || ended);
  }
  static std::size_t bits(const header& frame, std::size_t size) {
    bit_flips all(size);
    all.write(frame);
    return 8 * all.changed_.size();
  }

 private:
  explicit bit_flips(std::size_t size) : sent_(here_, 1, size), got_(here_, size) {
    prepare<Carrier>(queue_);
  }

  void write(const header& frame) {
    const std::vector<std::byte> before = all_memory();
    if (frame.kind == kind::data && (frame.flags & flag::rts) == 0) {
      sent_.frame = frame;
      queue_.push(sent_);
    } else {
      REQUIRE(queue_.control(frame, sent_.bytes.data()));
    }
    if constexpr (std::is_base_of_v<socket_carrier, Carrier>) {
      while (!queue_.empty()) {
        const std::vector<std::byte> more = written_by(queue_, 1'000'000);
        changed_.insert(changed_.end(), more.begin(), more.end());
      }
    } else {
      while (!queue_.empty()) REQUIRE(carrier_.write(queue_));
      const std::vector<std::byte> after = all_memory();
      for (std::size_t at = 0; at < after.size(); ++at) {
        if (after[at] != before[at]) offsets_.push_back(at);
      }
      changed_.resize(offsets_.size());
    }
  }
  void flip(std::size_t bit) {
    const auto mask = static_cast<std::byte>(1U << bit % 8);
    if constexpr (std::is_base_of_v<socket_carrier, Carrier>) {
      changed_[bit / 8] ^= mask;
    } else {
      std::byte byte{};
      const auto at = static_cast<off_t>(offsets_[bit / 8]);
      REQUIRE(::pread(carrier_.memory.descriptor(), &byte, 1, at) == 1);
      byte ^= mask;
      REQUIRE(::pwrite(carrier_.memory.descriptor(), &byte, 1, at) == 1);
    }
  }
  const char* read() {
    const auto begin = [&](const header& frame, const std::byte*) {
      ++begun_;
      const bool brings = frame.kind == kind::data && (frame.flags & flag::rts) == 0;
      target_.begin(brings ? frame.length : 0);
      if (brings) target_.deliver_to(got_, !std::is_base_of_v<socket_carrier, Carrier>);
      return true;
    };
    std::size_t written = 0;
    const char* fault = nullptr;
    for (int rounds = 0; rounds < 200 && fault == nullptr; ++rounds) {
      if constexpr (std::is_base_of_v<socket_carrier, Carrier>) {
        const ssize_t more =
            ::send(carrier_.out.get(), changed_.data() + written,
                   std::min<std::size_t>(changed_.size() - written, 3000), MSG_DONTWAIT);
        if (more > 0) written += static_cast<std::size_t>(more);
      }
      fault = carrier_.read(target_, begin);
    }
    return fault;
  }
  std::vector<std::byte> all_memory() {
    std::vector<std::byte> all;
    if constexpr (!std::is_base_of_v<socket_carrier, Carrier>) {
      all.resize(carrier_.memory.size());
      REQUIRE(::pread(carrier_.memory.descriptor(), all.data(), all.size(), 0) ==
              static_cast<ssize_t>(all.size()));
    }
    return all;
  }

  Carrier carrier_;
  one_rank here_;
  send_queue queue_;
  payload_target target_{here_.matching};
  message sent_;
  receive got_;
  std::vector<std::byte> changed_;    // the bytes on the socket
  std::vector<std::size_t> offsets_;  // the bytes in shared memory
  int begun_ = 0;
};

}  // namespace

TEST_CASE_TEMPLATE("with checksums no bit of any frame changes unnoticed", Carrier,
                   checked_socket_carrier, checked_ring_buffer_carrier) {
  struct sample {
    header frame;
    std::size_t size;
  };
  const message_key key{1, 7, 0x0102030405060708, 0x1122};
  const auto make_sample = [&](kind type, std::size_t size, std::uint8_t flags = 0) {
    return sample{make_header(type, key, size, 0x99aabbccddeeff00, flags), size};
  };
  std::vector<sample> samples{make_sample(kind::data, 0),
                              make_sample(kind::data, 3),
                              make_sample(kind::data, 20),
                              make_sample(kind::data, 24),
                              make_sample(kind::data, 300),
                              make_sample(kind::data, 100'000, flag::cleared),
                              make_sample(kind::data, 0, flag::rts),
                              make_sample(kind::cts, 0),
                              make_sample(kind::announce, sizeof(state_report)),
                              make_sample(kind::report, sizeof(state_report)),
                              make_sample(kind::revoke, sizeof(failure)),
                              make_sample(kind::fingerprint, sizeof(fingerprint)),
                              make_sample(kind::goodbye, 0),
                              make_sample(kind::mapped, 0, flag::cma)};
  // An RTS and a CTS carry a length and no payload.
  for (const std::size_t at : {6U, 7U}) samples[at].frame.length = 1'000'000;
  std::mt19937 random(5);
  for (const auto& [frame, size] : samples) {
    CAPTURE(static_cast<int>(frame.kind));
    CAPTURE(size);
    CHECK(bit_flips<Carrier>::arrives(frame, size));
    const std::size_t bits = bit_flips<Carrier>::bits(frame, size);
    CHECK(bits >= 8 * std::min<std::size_t>(size, 1));
    int unnoticed = 0;
    int tried = 0;
    for (std::size_t bit = 0; bit < bits; bit += size < 100 ? 1 : 1 + random() % (bits / 100)) {
      unnoticed += !bit_flips<Carrier>::is_detected(frame, size, bit);
      ++tried;
    }
    CHECK(tried > 60);
    // One bit of a slot's number makes the slot look as if it was not written yet.
    const bool has_unwritten_slot = std::is_same_v<Carrier, checked_ring_buffer_carrier>;
    CHECK(unnoticed == has_unwritten_slot);
  }
}

TEST_CASE("the rest of a frame with checksums is written from a copy as it was begun") {
  for (std::size_t begun = 1; begun < sizeof(checked_header) + 50; ++begun) {
    CAPTURE(begun);
    checked_socket_carrier carrier;
    one_rank here;
    message first(here, 1, 50);
    receive got(here, 50);
    const std::vector<std::byte> bytes = first.bytes;
    send_queue queue;
    queue.add_checksums();
    queue.push(first);
    std::vector<std::byte> all = written_by(queue, begun);
    CHECK(queue.withdraw(first));
    first.bytes.assign(50, std::byte{});
    first.frame = header{};
    const std::vector<std::byte> rest = written_by(queue, 1000);
    all.insert(all.end(), rest.begin(), rest.end());
    CHECK(queue.empty());
    payload_target target(here.matching);
    REQUIRE(::write(carrier.out.get(), all.data(), all.size()) == static_cast<ssize_t>(all.size()));
    const auto begin = [&](const header& frame, const std::byte*) {
      target.begin(frame.length);
      target.deliver_to(got, false);
      return true;
    };
    CHECK(carrier.read(target, begin) == nullptr);
    here.queue.run();
    CHECK(got.ended.times == 1);
    CHECK(got.bytes == bytes);
  }
}
