// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the ranks of pipes.cpp do: programs whose results are known, and the memory that they use.

#include <colls/algorithm/dissemination.hpp>
#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/algorithm/ring.hpp>
#include <colls/base/op.hpp>

#include "../support/simulated_carrier.hpp"

#include <span>

namespace pipes {

using namespace colls;
using simulated::virtual_rank;
using channel = basic_channel<virtual_rank>;

/// The memory of the operations of one rank. It outlives them. The memory of an operation that has
/// ended is poisoned, so that later reads and writes show.
class buffers {
 public:
  buffers() : memory_(capacity) {}

  void clear() {
    used_ = 0;
    ended_.clear();
  }
  std::byte* take(std::size_t size) {
    std::byte* const taken = memory_.data() + used_;
    used_ += (size + 63) / 64 * 64;
    if (used_ > capacity) throw std::length_error("a program needs more memory");
    return taken;
  }
  void end(std::byte* data, std::size_t size) {
    std::memset(data, poison, size);
    ended_.push_back({data, size});
  }
  /// Ends all operations. Returns false if the memory of one was written after its end.
  bool end_all() {
    const bool result = std::all_of(ended_.begin(), ended_.end(), is_poisoned);
    ended_.clear();
    end(memory_.data(), used_);
    return result;
  }
  bool are_poisoned() const { return std::all_of(ended_.begin(), ended_.end(), is_poisoned); }

 private:
  static constexpr std::size_t capacity = 4 << 20;
  static constexpr int poison = 0xe7;

  static bool is_poisoned(const std::span<std::byte>& part) {
    return part.empty() || (part[0] == std::byte{poison} &&
                            std::memcmp(part.data(), part.data() + 1, part.size() - 1) == 0);
  }

  std::vector<std::byte> memory_;
  std::size_t used_ = 0;
  std::vector<std::span<std::byte>> ended_;
};

/// Which program all ranks run.
enum class program : std::uint8_t { collectives, messages, window };
inline constexpr const char* program_names[] = {"collectives", "messages", "window"};

/// One rank of a scenario: its program, and how it has ended.
class member {
 public:
  bool has_finished = false;  // to the end of its program, without an error
  int wrong = 0;              // messages and results with other bytes than expected
  bool is_written_late = false;
  buffers memory;

  void start(virtual_rank& net, program what, time_point timeout) {
    has_finished = is_written_late = false;
    wrong = 0;
    memory.clear();
    timeout_ = timeout;
    net.begin([this, what](virtual_rank& rank) { return run(rank, what); });
  }

 private:
  // The shortest message that waits for a CTS.
  static constexpr std::size_t too_long = eager_limit + 28;

  /// The content of the message with the number `number` between two ranks.
  static const std::byte* content(int from, int to, int number) {
    static const std::vector<std::byte> noise = [] {
      std::mt19937 random(1);
      std::vector<std::byte> made(too_long + 3 * 4096);
      for (std::byte& each : made) each = static_cast<std::byte>(random());
      return made;
    }();
    return noise.data() + ((from * 3 + to) * 131 + number * 977) % (3 * 4096);
  }
  static auto microseconds(int count) { return time_point{1000} * count; }

  task<> run(virtual_rank& net, program what) {
    try {
      task<> body = what == program::collectives ? collectives(net)
                    : what == program::messages  ? messages(net)
                                                 : window(net);
      co_await body;
      has_finished = true;
    } catch (const error&) {
      // The state of the communicator says why.
    }
    is_written_late = !memory.end_all();
  }

  std::byte* outgoing(int from, int to, int number, std::size_t size) {
    std::byte* const data = memory.take(size);
    std::memcpy(data, content(from, to, number), size);
    return data;
  }
  void arrived(int from, int to, int number, std::byte* data, std::size_t size) {
    wrong += std::memcmp(data, content(from, to, number), size) != 0;
    memory.end(data, size);
  }

  task<> send(channel net, int to, int number, std::size_t size) {
    std::byte* const data = outgoing(net.rank(), to, number, size);
    co_await net.send(to, const_bytes(data, size));
    memory.end(data, size);
  }
  task<> recv(virtual_rank& rank, channel net, int from, int number, std::size_t size,
              time_point delay) {
    if (delay > 0) co_await rank.driver().sleep_until(rank.now() + delay);
    std::byte* const data = memory.take(size);
    co_await net.recv(from, mutable_bytes(data, size));
    arrived(from, net.rank(), number, data, size);
  }

  // ---- collectives

  /// Messages on several lanes, some of which arrive before their receives. Then a barrier, and
  /// sums by two algorithms.
  task<> collectives(virtual_rank& rank) {
    {
      virtual_rank::call call(rank, {.operation = collective::all_to_all}, timeout_);
      const channel net(rank, call.record);
      std::vector<detail::concurrent_task<virtual_rank>> parts;
      int number = 0;
      for (const std::size_t size :
           {std::size_t{0}, std::size_t{700}, std::size_t{40'000}, too_long}) {
        for (int step = 1; step < net.size(); ++step) {
          if (size == too_long && step > 1) continue;
          const int to = (net.rank() + step) % net.size();
          const int from = (net.rank() + net.size() - step) % net.size();
          const time_point delay = (number + net.rank()) % 2 == 0 ? 0 : microseconds(300);
          parts.push_back(net.concurrent(send(net.lane(number), to, number, size)));
          parts.push_back(net.concurrent(recv(rank, net.lane(number), from, number, size, delay)));
        }
        ++number;
      }
      co_await when_all(std::move(parts));
    }
    {
      virtual_rank::call call(rank, {.operation = collective::barrier}, timeout_);
      co_await dissemination::barrier.run(channel(rank, call.record));
    }
    co_await sum(rank, algorithm::ring, 3000);
    co_await sum(rank, algorithm::recursive_doubling, too_long / 4);
  }

  task<> sum(virtual_rank& rank, algorithm algo, std::size_t count) {
    virtual_rank::call call(
        rank, {.operation = collective::all_reduce, .algorithm = algo, .count = count}, timeout_);
    call.record.segment = 2048;
    call.record.lanes = 2;
    const std::size_t size = 4 * count;
    std::byte* const in = memory.take(size);
    std::byte* const out = memory.take(size);
    const std::span<std::uint32_t> given(reinterpret_cast<std::uint32_t*>(in), count);
    const std::span<std::uint32_t> sums(reinterpret_cast<std::uint32_t*>(out), count);
    const auto own = static_cast<std::uint32_t>(rank.rank() + 1);
    const auto all = static_cast<std::uint32_t>(rank.size() * (rank.size() + 1) / 2);
    for (std::uint32_t i = 0; i < count; ++i) given[i] = own * (i + 1);
    const channel net(rank, call.record);
    if (algo == algorithm::ring) {
      co_await ring::all_reduce.run(net, given, sums, plus{});
    } else {
      co_await recursive_doubling::all_reduce.run(net, given, sums, plus{});
    }
    int differing = 0;
    for (std::uint32_t i = 0; i < count; ++i) differing += sums[i] != all * (i + 1);
    wrong += differing != 0;
    memory.end(in, size);
    memory.end(out, size);
  }

  // ---- point-to-point messages

  static message_key key(virtual_rank& net, int peer, std::uint64_t tag) {
    return {peer, net.state().id(), tag, message_key::point_to_point};
  }
  static void check(virtual_rank& net, std::error_code ec) {
    if (ec) throw error(net.state().failed() ? net.state().reason() : failure(errc::closed));
  }

  task<> send_to(virtual_rank& net, int to, std::uint64_t tag, int number, std::size_t size) {
    virtual_rank::call call(net, to, tag, timeout_);
    std::byte* const data = outgoing(net.rank(), to, number, size);
    virtual_rank::send_operation sending =
        net.send(key(net, to, tag), const_bytes(data, size), call.record);
    co_await sending;
    memory.end(data, size);
  }
  task<> recv_from(virtual_rank& net, int from, std::uint64_t tag, int number, std::size_t size,
                   time_point delay) {
    if (delay > 0) co_await net.driver().sleep_until(net.now() + delay);
    virtual_rank::call call(net, -1, tag, timeout_);
    std::byte* const data = memory.take(size);
    virtual_rank::recv_operation receiving =
        net.recv(key(net, from, tag), mutable_bytes(data, size), call.record);
    co_await receiving;
    arrived(receiving.source_rank(), net.rank(), number, data, size);
  }

  /// Probes a message, holds it for a while and receives it. If its sender withdraws it meanwhile,
  /// probes the next one.
  task<> recv_probed_from(virtual_rank& net, int from, std::uint64_t tag, int number,
                          std::size_t size, time_point hold) {
    using receiver = virtual_rank::recv_operation::transport_type;
    virtual_rank::call call(net, -1, tag, timeout_);
    std::byte* const data = memory.take(size);
    unexpected_message* message = nullptr;
    const struct discarding {
      ~discarding() { matcher.discard(held); }
      tag_matcher& matcher;
      unexpected_message*& held;
    } guard{net.matching(), message};
    for (bool is_received = false; !is_received;) {
      {
        probe_operation<receiver> probing(net, key(net, from, tag), call.record);
        co_await probing;
        probing.move_message_to(message);
      }
      co_await net.driver().sleep_until(net.now() + hold);
      if (message == nullptr) continue;
      probed_receive_operation<receiver> receiving(net, message, {data, size}, call.record);
      try {
        co_await receiving;
        is_received = true;
      } catch (const error& thrown) {
        if (net.state().failed() || thrown.record().code != errc::cancelled) throw;
      }
    }
    arrived(from, net.rank(), number, data, size);
  }

  struct flag : completion {
    explicit flag(run_queue& queue)
        : completion([](completion& self) noexcept { static_cast<flag&>(self).is_set = true; },
                     &queue) {}
    flag(const flag&) = delete;
    ~flag() { withdraw(); }
    bool is_set = false;
  };

  /// Sends a message, withdraws it if nothing of it has left, and sends it again.
  task<> send_twice(virtual_rank& net, int to, std::uint64_t tag, int number, std::size_t size,
                    time_point pause) {
    {
      virtual_rank::call call(net, to, tag, timeout_);
      std::byte* const data = outgoing(net.rank(), to, number, size);
      bool is_withdrawn = false;
      {
        flag ended(net.queue());
        virtual_rank::send_operation sending =
            net.send(key(net, to, tag), const_bytes(data, size), call.record);
        ended.is_set = sending.start(ended);
        if (!ended.is_set) co_await net.driver().sleep_until(net.now() + pause);
        is_withdrawn = !ended.is_set && !ended.posted() && sending.untouched();
        while (!ended.is_set && !is_withdrawn) {
          co_await net.driver().sleep_until(net.now() + microseconds(20));
        }
        if (!is_withdrawn) check(net, sending.result());
      }
      memory.end(data, size);
      if (!is_withdrawn) co_return;
    }
    co_await send_to(net, to, tag, number, size);
  }

  /// Short and long messages of one tag, messages from any source, and withdrawn messages.
  task<> messages(virtual_rank& net) {
    const int size = net.size();
    std::vector<task<>> parts;
    for (int step = 1; step < size; ++step) {
      const int to = (net.rank() + step) % size;
      const int from = (net.rank() + size - step) % size;
      const time_point delay = (net.rank() + step) % 2 == 0 ? 0 : microseconds(250);
      for (const int number : {0, 1, 2}) {
        if (number == 1 && step > 1) continue;
        const std::size_t length = number == 0 ? 20'000 : number == 1 ? too_long : 900;
        parts.push_back(send_to(net, to, 7, number, length));
        parts.push_back(recv_from(net, from, 7, number, length, delay));
      }
      parts.push_back(send_to(net, to, 11, 5, 64));
      parts.push_back(recv_from(net, posted_receive::any_source, 11, 5, 64, delay));
    }
    const int next = (net.rank() + 1) % size;
    const int prev = (net.rank() + size - 1) % size;
    parts.push_back(send_twice(net, next, 9, 3, too_long, microseconds(150)));
    parts.push_back(recv_from(net, prev, 9, 3, too_long, microseconds(net.rank() == 0 ? 400 : 0)));
    parts.push_back(send_twice(net, prev, 10, 4, 5000, 0));
    parts.push_back(recv_probed_from(net, next, 10, 4, 5000, microseconds(100)));
    co_await when_all(std::move(parts));
  }

  // ---- more eager messages than the window holds

  task<> window(virtual_rank& rank) {
    virtual_rank::call call(rank, {.operation = collective::all_gather}, timeout_);
    const channel net(rank, call.record);
    const int to = (net.rank() + 1) % net.size();
    const int from = (net.rank() + net.size() - 1) % net.size();
    const time_point delay = microseconds(net.rank() == 0 ? 900 : 100);
    std::vector<task<>> parts;
    for (int number = 0; number < 6; ++number) {
      const std::size_t size = eager_limit - static_cast<std::size_t>(number) * 7000;
      parts.push_back(send(net.lane(number), to, number, size));
      parts.push_back(recv(rank, net.lane(number), from, number, size, delay));
    }
    for (int number = 6; number < 9; ++number) {
      parts.push_back(send_to(rank, to, 5, number, 3000));
      parts.push_back(recv_from(rank, from, 5, number, 3000, delay));
    }
    co_await when_all(std::move(parts));
  }

  time_point timeout_ = 0;
};

}  // namespace pipes
