// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A rank of three with calls in flight, whose peers a fuzzer plays.

#include "peer.hpp"

#include <colls/channel/channel.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <algorithm>
#include <list>
#include <optional>

namespace fuzz {

/// Lengths of messages: at every limit, and one that is longer than two ring buffers.
inline constexpr std::size_t lengths[] = {0,    4,    8,     24,    28,     100,
                                          4096, 5000, 65536, 70000, 200000, 600000};

inline std::size_t length(input& from) { return lengths[from.byte() % std::size(lengths)]; }

/// Rank 0 on the interprocess transport.
class attacked_rank {
 public:
  static constexpr int size = 3;
  static constexpr std::uint32_t communicator = 1;
  static constexpr std::uint64_t tags = 4;

  /// `checks`: frames have checksums.
  explicit attacked_rank(bool checks)
      : checks_(checks),
        who_(member(0)),
        all_(communicator, 0, size, nullptr),
        hash_(colls::hash_of(call_)) {
    who_->local_listener.adopt(address_.take());
    net_.emplace(engine(), who_);
    net_->matching().add(all_);
  }
  attacked_rank(const attacked_rank&) = delete;
  attacked_rank& operator=(const attacked_rank&) = delete;
  ~attacked_rank() {
    if (all_.failed()) require_sound(all_.reason());
    calls_.clear();
    net_->matching().remove(all_);
    net_.reset();
    settle();
  }

  /// A connection from that rank: through the shared memory `memory`, or by a socket if that is -1.
  peer link_from(int rank, int memory = -1) {
    using namespace colls;
    auto conn = std::make_unique<stream>(driver(), address_.connect());
    const auto peer_member = member(rank);
    bool accepted = false;
    {
      task_group work(driver());
      work.start([](stream& at, const world_info& as, bool& into) -> task<> {
        into = co_await as.authenticate(at, 0);
      }(*conn, *peer_member, accepted));
      settle();
    }
    require(accepted, "a rank that knows the secret is accepted");
    peer made(conn->release());
    require(shm::send_descriptor(made.descriptor(), memory), "a descriptor is passed");
    settle();
    char answer = 0;
    require(::recv(made.descriptor(), &answer, 1, MSG_DONTWAIT) == 1, "an answer to it");
    return made;
  }

  bool checks() const { return checks_; }
  std::uint64_t hash() const { return hash_; }
  const colls::fingerprint& fingerprint() const { return call_; }
  bool failed() const { return all_.failed(); }
  std::uint64_t next_sequence() const { return all_.next_sequence(); }

  /// A call on this rank, or the end of one.
  void call(input& from) {
    const int what = from.byte();
    if (what >= 0xe0 && !calls_.empty()) return calls_.pop_front();
    if (all_.failed() || calls_.size() == 16) return;
    call_state& made = calls_.emplace_back(*this, what % 16 >= 12, from.byte() % tags);
    const std::size_t bytes = length(from);
    made.in.assign(bytes, std::byte{1});
    made.out.assign(bytes, std::byte{2});
    made.work.emplace(driver());
    made.work->start(run(made, what % 16, 1 + what / 16 % 2));
    net_->wake_driver();
  }

 private:
  struct call_state {
    call_state(attacked_rank& of, bool direct, std::uint64_t tag) : owner(of) {
      record.communicator = &of.all_;
      record.sequence = direct ? tag : of.all_.take_sequence(of.call_);
      record.hash = direct ? 0 : of.hash_;
      record.started = driver().now();
      record.deadline = record.started + 100 * colls::seconds;
      of.net_->matching().begin(record);
    }
    call_state(const call_state&) = delete;
    ~call_state() {
      work.reset();
      owner.net_->matching().end(record);
    }
    attacked_rank& owner;
    colls::operation_record record;
    std::vector<std::byte> in;
    std::vector<std::byte> out;
    std::optional<colls::task_group> work;
  };
  struct last_one {
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return 3 * a + b; }
  };

  static std::shared_ptr<colls::engine> engine() { return driver().shared_from_this(); }
  std::shared_ptr<colls::world_info> member(int rank) const {
    auto made = std::make_shared<colls::world_info>();
    made->rank = rank;
    made->size = made->local_size = size;
    made->node_of.assign(size, 0);
    made->cores_of.assign(1, 1);
    made->key = colls::secret("a secret");
    made->job = 7;
    made->cfg.checksum = checks_;
    // No rank listens there: a connection that has ended is not replaced.
    made->address_book.assign(size, colls::endpoint(boost::asio::ip::address_v4::loopback(), 1));
    return made;
  }

  static colls::task<> run(call_state& of, int what, int other) {
    using namespace colls;
    interprocess_transport& net = *of.owner.net_;
    const basic_channel<interprocess_transport> channel(net, of.record);
    const const_bytes out(of.out.data(), of.out.size());
    const mutable_bytes in(of.in.data(), of.in.size());
    const message_key direct{other, communicator, of.record.sequence, message_key::point_to_point};
    message_key any = direct;
    any.peer = posted_receive::any_source;
    const std::size_t words = of.in.size() / 4;
    const any_buffer mine(of.out.data(), words, 4);
    const any_buffer sums(of.in.data(), words, 4);
    const last_one op;
    const any_op fold = erase<std::uint32_t>(op).op;
    try {
      if (what < 3) {
        co_await channel.recv(other, in);
      } else if (what < 6) {
        co_await channel.send(other, out);
      } else if (what < 8) {
        co_await when_all(channel.send(other, out), channel.recv(other, in));
      } else if (what < 10) {
        co_await channel.recv_reduce(other, mine, sums, fold, incoming::left);
      } else if (what == 10) {
        const pattern::rank_range all{0, size};
        const const_bytes part(of.out.data(), of.out.size() / size);
        const mutable_bytes place(of.in.data(), of.in.size() / size);
        co_await channel.multi_send_recv(multi_send_buffers::same(all, part),
                                         multi_recv_buffers::blocks(all, place));
      } else if (what == 11) {
        co_await channel.multi_send_recv({}, multi_recv_buffers::same({other, other + 1}, in));
      } else if (what == 12) {
        co_await net.recv(direct, in, of.record);
      } else if (what == 13 && of.record.sequence % 2 == 0) {
        co_await net.recv(any, in, of.record);
      } else if (what == 13) {
        any.sequence = posted_receive::any_tag;
        unexpected_message* message = nullptr;
        {
          probe_operation<transport_base> probe(net, any, of.record);
          co_await probe;
          probe.move_message_to(message);
        }
        if (message == nullptr) co_return;
        probed_receive_operation<transport_base> reads(net, message, in, of.record);
        if (of.record.sequence % 4 == 1) co_await reads;
      } else {
        co_await net.send(direct, out, of.record);
      }
    } catch (const error& thrown) {
      require_sound(thrown.record());
    }
  }

  local_address address_;
  bool checks_;
  std::shared_ptr<colls::world_info> who_;
  colls::fingerprint call_;
  colls::communicator_state all_;
  std::uint64_t hash_;
  std::optional<colls::interprocess_transport> net_;
  std::list<call_state> calls_;
};

/// A frame of a peer as a rank might send it, with the changes of this run.
struct fuzzed_frame {
  colls::interprocess::checked_header head;
  std::string payload;
};

/// The bytes of the frame as a socket carries them.
inline std::string text_of(const fuzzed_frame& frame, const attacked_rank& to) {
  const std::size_t size = to.checks() ? sizeof frame.head : sizeof(colls::interprocess::header);
  return std::string(reinterpret_cast<const char*>(&frame.head), size) + frame.payload;
}

inline fuzzed_frame make_frame(input& from, const attacked_rank& to) {
  using namespace colls;
  using namespace colls::interprocess;
  constexpr int kinds = 8;
  const int how = from.byte();
  const int what = from.byte();
  fuzzed_frame made;
  checked_header& head = made.head;
  head.kind = static_cast<kind>(what % kinds == 0 ? from.byte() : what % kinds);
  if (how & 1) head.flags = from.byte();
  head.communicator = how & 2 ? from.byte() : attacked_rank::communicator;
  if (what & 8) {
    head.lane = message_key::point_to_point;
    head.sequence = static_cast<std::uint64_t>(what >> 4) % attacked_rank::tags;
  } else {
    head.lane = how & 4 ? from.byte() : 0;
    head.sequence = 1 + static_cast<std::uint64_t>(what >> 4);
    head.hash = how & 8 ? from.byte() : to.hash();
  }
  head.length = how & 16 ? from.number<std::uint64_t>() : length(from);
  const bool has_number = head.kind == kind::cts || (head.flags & flag::cancel) != 0;
  if (has_number && (what & 8) && !(how & 16)) head.length %= 3;  // the number of an RTS
  const bool has_payload = head.kind == kind::data && (head.flags & flag::rts) == 0;
  if (head.kind == kind::revoke) {
    made.payload = failure_text(from);
  } else if (head.kind == kind::fingerprint) {
    fingerprint theirs = to.fingerprint();
    made.payload.assign(reinterpret_cast<const char*>(&theirs), sizeof theirs);
    if (how & 32) made.payload[from.byte() % sizeof theirs] = static_cast<char>(from.byte());
  } else if (head.kind == kind::announce || head.kind == kind::report) {
    state_report theirs;
    made.payload.assign(reinterpret_cast<const char*>(&theirs), sizeof theirs);
    const std::string_view changed = from.text();
    std::copy(changed.begin(), changed.end(), made.payload.begin());
  } else if (head.kind == kind::recovery) {
    made.payload = from.text();
  } else if (has_payload && head.length <= lengths[std::size(lengths) - 1]) {
    made.payload.assign(head.length, 'p');
  }
  if (!has_payload && !(how & 64) && head.kind != kind::cts) head.length = made.payload.size();
  head.set_checksums(reinterpret_cast<const std::byte*>(made.payload.data()), made.payload.size());
  if (how & 128) head.payload_sum ^= from.byte();
  return made;
}

}  // namespace fuzz
