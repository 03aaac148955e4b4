// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// harness: what the conformance suite needs below the collectives: a world whose messages are
// counted, all ranks of an operation run to its end, buffers between guards, pairs of an element
// type and an operation.
//
// A World has `explicit World(int size)`, `size()`, `operator[](rank)` that returns a transport,
// and is the driver of all of them: see colls::inproc_world.

#include <colls/algorithm/table.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace conformance {

/// The messages of an operation, their bytes, and the longest chain of messages in which each
/// depends on one that its sender had received in the same lane before.
class traffic {
 public:
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t rounds = 0;
  std::vector<int> hosts;    // of the ranks; empty: as the transport has them
  bool has_windows = false;  // the transport's ranks can access each other's buffers

  void sent(int source, int dest, int lane, std::size_t size) {
    ++messages;
    bytes += size;
    const std::uint64_t chain = received_[{source, lane}] + 1;
    rounds = std::max(rounds, chain);
    in_flight_[{source, dest, lane}].push_back(chain);
  }
  void received(int source, int dest, int lane) {
    std::deque<std::uint64_t>& chains = in_flight_[{source, dest, lane}];
    std::uint64_t& longest = received_[{dest, lane}];
    longest = std::max(longest, chains.front());
    chains.pop_front();
  }

 private:
  std::map<std::array<int, 3>, std::deque<std::uint64_t>> in_flight_;
  std::map<std::array<int, 2>, std::uint64_t> received_;
};

/// Additional members of a transport with windows.
template <colls::transport Transport>
struct window_members {};
template <colls::shared_window_transport Transport>
struct window_members<Transport> {
  class exposure : public Transport::exposure {
   public:
    template <class Counted>
    exposure(Counted& net, colls::communicator_state& comm)
        : Transport::exposure(net.counts(), comm) {}
    std::uint64_t address_for(int, colls::const_bytes, colls::readers) { return 0; }
  };
  // There are no bounce buffers, and `address_for` exposes nothing: data that does not travel in
  // messages cannot be counted. tests/algorithm/shared_window.cpp tests both.
  struct bounce_buffer {
    static constexpr std::size_t size = Transport::bounce_buffer::size;
    template <class Counted>
    explicit bounce_buffer(Counted&) {}
    std::byte* data() const { return nullptr; }
  };
  using view = typename Transport::view;
};

/// Additional member of a transport with fused sends and receives.
template <colls::transport Transport>
struct multi_send_recv_members {};
template <colls::multi_send_recv_transport Transport>
struct multi_send_recv_members<Transport> {
  class multi_send_recv_operation {
   public:
    template <class Counted>
    multi_send_recv_operation(Counted& net, std::uint16_t lane,
                              const colls::multi_send_buffers& sends,
                              const colls::multi_recv_buffers& recvs,
                              colls::operation_record& record)
        : sent_(net.sent()),
          rank_(net.rank()),
          lane_(lane),
          sends_(sends),
          recvs_(recvs),
          leaf_(net.counts(), lane, sends, recvs, record) {}
    bool start(colls::completion& done) {
      sends_.for_each(
          rank_, [&](int peer) { sent_.sent(rank_, peer, lane_, sends_.buffer_for(peer).size); });
      return leaf_.start(done);
    }
    std::error_code result() {
      const std::error_code ec = leaf_.result();
      if (!ec) recvs_.for_each(rank_, [&](int peer) { sent_.received(peer, rank_, lane_); });
      return ec;
    }

   private:
    traffic& sent_;
    int rank_;
    int lane_;
    colls::multi_send_buffers sends_;
    colls::multi_recv_buffers recvs_;
    typename Transport::multi_send_recv_operation leaf_;
  };
};

/// A transport that counts what is sent.
template <colls::transport Transport>
class counted : public window_members<Transport>, public multi_send_recv_members<Transport> {
  using receive = decltype(std::declval<Transport&>().recv(
      std::declval<colls::message_key>(), colls::mutable_bytes{},
      std::declval<colls::operation_record&>()));

 public:
  static constexpr bool consumes = colls::consuming_transport<Transport>;

  counted(Transport& net, traffic& sent) : net_(net), sent_(sent) {}

  int rank() const { return net_.rank(); }
  int size() const { return net_.size(); }

  class send_operation {
   public:
    using leaf = decltype(std::declval<Transport&>().send(
        std::declval<colls::message_key>(), colls::const_bytes{},
        std::declval<colls::operation_record&>()));
    send_operation(counted& net, const colls::message_key& key, colls::const_bytes data,
                   colls::operation_record& record)
        : net_(net), key_(key), size_(data.size), leaf_(net.net_.send(key, data, record)) {}
    bool start(colls::completion& done) {
      net_.sent_.sent(net_.rank(), key_.peer, key_.lane, size_);
      return leaf_.start(done);
    }
    std::error_code result() { return leaf_.result(); }

   private:
    counted& net_;
    colls::message_key key_;
    std::size_t size_;
    leaf leaf_;
  };

  class recv_operation {
   public:
    recv_operation(counted& net, const colls::message_key& key, colls::mutable_bytes buffer,
                   colls::operation_record& record)
        : net_(net), key_(key), leaf_(net.net_.recv(key, buffer, record)) {}
    bool start(colls::completion& done) { return leaf_.start(done); }
    void consume_with(colls::fold_function fold, void* self, std::size_t element)
      requires consumes
    {
      leaf_.consume_with(fold, self, element);
    }
    std::error_code result() {
      const std::error_code ec = leaf_.result();
      if (!ec) net_.sent_.received(key_.peer, net_.rank(), key_.lane);
      return ec;
    }

   private:
    counted& net_;
    colls::message_key key_;
    receive leaf_;
  };

  send_operation send(const colls::message_key& key, colls::const_bytes data,
                      colls::operation_record& record) {
    return {*this, key, data, record};
  }
  recv_operation recv(const colls::message_key& key, colls::mutable_bytes buffer,
                      colls::operation_record& record) {
    return {*this, key, buffer, record};
  }
  auto arrive(std::uint16_t lane, void* arguments, colls::operation_record& record)
    requires colls::completion_barrier_transport<Transport>
  {
    return net_.arrive(lane, arguments, record);
  }
  auto* view_of(int peer)
    requires colls::shared_window_transport<Transport>
  {
    return net_.view_of(peer);
  }
  bool can_expose(colls::const_bytes data) const
    requires colls::shared_window_transport<Transport>
  {
    return net_.can_expose(data);
  }
  auto allocate(std::size_t size)
    requires colls::shared_window_transport<Transport>
  {
    return net_.allocate(size);
  }
  Transport& counts() const { return net_; }
  traffic& sent() const { return sent_; }
  colls::time_point now() const { return net_.now(); }
  colls::tag_matcher& matching() { return net_.matching(); }
  colls::run_queue& queue() { return net_.queue(); }
  void wake_driver() { net_.wake_driver(); }
  auto& driver() { return net_.driver(); }
  int node_of(int rank) const {
    return sent_.hosts.empty() ? net_.node_of(rank) : sent_.hosts[static_cast<std::size_t>(rank)];
  }
  auto close(colls::time_point deadline) { return net_.close(deadline); }

 private:
  Transport& net_;
  traffic& sent_;
};

/// The parameters of an operation.
struct pieces {
  std::uint64_t segment = 0;
  int lanes = 1;
  int radix = 4;
};

/// All ranks of a world, with one communicator.
template <class World>
class team {
 public:
  using transport = counted<std::remove_cvref_t<decltype(std::declval<World&>()[0])>>;
  using channel = colls::basic_channel<transport>;
  using algorithm_table = colls::detail::algorithm_table<channel>;

  explicit team(int size, const std::vector<int>& hosts = {}) : world_(size), hosts_(hosts) {
    for (int rank = 0; rank < size; ++rank) {
      members_.push_back(std::make_unique<member>(world_[rank], sent_, rank, size));
    }
  }

  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& hosts() const { return hosts_; }

  /// Runs `body(channel)` on every rank and returns what was sent. A hang ends as a timeout.
  template <class Body>
  traffic run(colls::collective coll, pieces cut, const Body& body) {
    sent_ = {};
    sent_.hosts = hosts_;
    sent_.has_windows = colls::shared_window_transport<transport>;
    std::vector<std::unique_ptr<call>> calls;
    std::vector<colls::task<>> tasks;
    for (const auto& each : members_) {
      calls.push_back(std::make_unique<call>(*each, coll, cut));
      tasks.push_back(body(channel(each->net, calls.back()->record)));
    }
    colls::sync_wait(world_, colls::when_all(std::move(tasks)));
    return sent_;
  }

 private:
  struct member {
    transport net;
    colls::communicator_state state;

    template <class Net>
    member(Net& below, traffic& sent, int rank, int size)
        : net(below, sent), state(1, rank, size, nullptr) {
      net.matching().add(state);
    }
    ~member() { net.matching().remove(state); }
  };

  struct call {
    colls::operation_record record;
    colls::tag_matcher& matcher;

    call(member& owner, colls::collective coll, pieces cut) : matcher(owner.net.matching()) {
      colls::fingerprint print;
      print.operation = coll;
      print.segment = cut.segment;
      print.lanes = static_cast<std::uint32_t>(cut.lanes);
      print.radix = static_cast<std::uint32_t>(cut.radix);
      record.communicator = &owner.state;
      record.sequence = owner.state.take_sequence(print);
      record.hash = hash_of(print);
      record.operation = coll;
      record.started = owner.net.now();
      record.deadline = record.started + 20 * colls::seconds;
      record.segment = cut.segment;
      record.lanes = cut.lanes;
      record.radix = cut.radix;
      matcher.begin(record);
    }
    ~call() { matcher.end(record); }
  };

  World world_;
  std::vector<int> hosts_;
  traffic sent_;
  std::vector<std::unique_ptr<member>> members_;
};

/// Bytes at any misalignment, between guard bytes, filled with a value that no test expects.
class memory {
 public:
  memory(std::size_t size, std::size_t misalignment)
      : start_(guard + misalignment), size_(size), all_(start_ + size + guard, unwritten) {}

  std::byte* data() { return all_.data() + start_; }
  const std::byte* data() const { return all_.data() + start_; }
  std::size_t size() const { return size_; }

  bool guards_are_intact() const {
    for (std::size_t i = 0; i < start_; ++i) {
      if (all_[i] != unwritten) return false;
    }
    for (std::size_t i = start_ + size_; i < all_.size(); ++i) {
      if (all_[i] != unwritten) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::byte unwritten{0xa5};

  std::size_t start_;
  std::size_t size_;
  std::vector<std::byte> all_;
};

/// An element type and an operation on it, with the test's own version of both.
struct element_and_op {
  const char* name;
  std::size_t size;
  colls::any_op op;
  bool exact;  // the bits do not depend on the order of the fold
  void (*fill)(std::byte* at, std::uint64_t random);
  void (*add)(std::byte* left, const std::byte* right);  // left = left (+) right
};

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void write(std::byte* at, const T& value) {
  std::memcpy(at, &value, sizeof value);
}

/// Matrices over the integers modulo 2^32: their product is associative and does not commute.
struct matrix {
  std::uint32_t a, b, c, d;
};
struct matrix_product {
  matrix operator()(const matrix& x, const matrix& y) const {
    return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c,
            x.c * y.b + x.d * y.d};
  }
};

inline const std::vector<element_and_op>& elements_and_ops() {
  using std::byte;
  using std::int32_t;
  using std::uint32_t;
  using std::uint64_t;
  static const colls::plus sum;
  static const matrix_product product;
  static const std::vector<element_and_op> all = {
      {"int plus", 4, colls::erase<int32_t>(sum).op, true,
       [](byte* at, uint64_t random) { write(at, static_cast<uint32_t>(random)); },
       [](byte* left, const byte* right) {
         write(left, read<uint32_t>(left) + read<uint32_t>(right));
       }},
      {"float plus", 4, colls::erase<float>(sum).op, false,
       [](byte* at, uint64_t random) {
         write(at, 1.0f + static_cast<float>(random % 8388608) / 8388608.0f);
       },
       [](byte* left, const byte* right) { write(left, read<float>(left) + read<float>(right)); }},
      {"matrix product", sizeof(matrix), colls::erase<matrix>(product).op, true,
       [](byte* at, uint64_t random) {
         for (int i = 0; i < 4; ++i) {
           write(at + 4 * i, static_cast<uint32_t>(colls::mix(random, static_cast<uint64_t>(i))));
         }
       },
       [](byte* left, const byte* right) {
         uint32_t x[4];
         uint32_t y[4];
         std::memcpy(x, left, sizeof x);
         std::memcpy(y, right, sizeof y);
         for (int row = 0; row < 2; ++row) {
           for (int column = 0; column < 2; ++column) {
             write(left + 4 * (2 * row + column),
                   x[2 * row] * y[column] + x[2 * row + 1] * y[2 + column]);
           }
         }
       }},
      // Algorithms get bfloat16 sums as floats that hold bfloat16 values. Their sums are exact in
      // float and not in bfloat16.
      {"bfloat16 plus in float", colls::erase<colls::bfloat16>(sum).accumulate_size,
       colls::erase<colls::bfloat16>(sum).op, true,
       [](byte* at, uint64_t random) {
         const auto number = static_cast<float>(static_cast<int>(random % 511) - 255);
         write(at, static_cast<float>(colls::bfloat16(number / 16)));
       },
       [](byte* left, const byte* right) { write(left, read<float>(left) + read<float>(right)); }},
  };
  return all;
}

/// Returns the value of an element. No other rank or index has the same.
inline std::uint64_t value(int rank, std::size_t index) {
  return colls::mix(static_cast<std::uint64_t>(rank) + 1, index);
}

/// Writes `n` elements of `rank`, from `first` on.
inline void fill(const element_and_op& pair, std::byte* at, int rank, std::size_t first,
                 std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) pair.fill(at + i * pair.size, value(rank, first + i));
}

/// Returns x[first] (+) ... (+) x[last - 1] of the elements from `start` on, by a plain loop.
inline std::vector<std::byte> folded(const element_and_op& pair, int first, int last,
                                     std::size_t start, std::size_t n) {
  std::vector<std::byte> sum(n * pair.size);
  std::byte other[sizeof(matrix)];
  fill(pair, sum.data(), first, start, n);
  for (int rank = first + 1; rank < last; ++rank) {
    for (std::size_t i = 0; i < n; ++i) {
      pair.fill(other, value(rank, start + i));
      pair.add(sum.data() + i * pair.size, other);
    }
  }
  return sum;
}

}  // namespace conformance
