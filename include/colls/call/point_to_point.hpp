// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What runs under a started send or receive.

#include <colls/call/arguments.hpp>
#include <colls/call/call.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/when_all.hpp>

namespace colls::detail {

template <transport Transport>
struct messages {
  using send_operation = decltype(std::declval<Transport&>().send(
      std::declval<message_key>(), const_bytes{}, std::declval<operation_record&>()));
  using recv_operation = decltype(std::declval<Transport&>().recv(
      std::declval<message_key>(), mutable_bytes{}, std::declval<operation_record&>()));

  template <class Leaf>
  static void watch(call_base& made, Leaf& leaf) {
    made.leaf = &leaf;
    made.untouched = [](const call_base& self) {
      return static_cast<const Leaf*>(self.leaf)->untouched();
    };
  }

  static task<> send(Transport& net, call_base& made, message_key key, const_bytes from) {
    made.sends_to = key.peer;
    made.bytes_expected = from.size;
    send_operation leaf = net.send(key, from, made);
    watch(made, leaf);
    co_await leaf;
  }

  /// What a receive that has ended found, or its error.
  static received found(const recv_operation& leaf, const call_base& made, mutable_bytes into,
                        std::size_t element) {
    const std::error_code ec = leaf.result();
    failure why;
    const auto tag = static_cast<unsigned long long>(made.sequence);
    if (ec == errc::truncated) {
      why.code = errc::truncated;
      why.say("the message with tag %llu has %llu bytes, the buffer %zu", tag,
              static_cast<unsigned long long>(made.bytes_expected), into.size);
    } else if (!ec && leaf.count() % element != 0) {
      why.code = errc::mismatch;
      why.say("a message of %zu bytes with tag %llu came for elements of %zu bytes", leaf.count(),
              tag, element);
    }
    if (why.code != errc{}) {
      why.culprit = leaf.source_rank();
      throw error(why);
    }
    unwrap(ec);
    return {made.communicator->rank_of(leaf.source_rank()), leaf.count() / element};
  }
  static task<received> recv(Transport& net, call_base& made, message_key key, mutable_bytes into,
                             std::size_t element) {
    recv_operation leaf = net.recv(key, into, made);
    watch(made, leaf);
    co_await ended<recv_operation>{&leaf};
    co_return found(leaf, made, into, element);
  }

  struct both {
    send_operation out;
    recv_operation in;
    bool untouched() const { return out.untouched() && in.untouched(); }
  };
  static task<received> send_recv(Transport& net, call_base& made, message_key to, const_bytes from,
                                  message_key source, mutable_bytes into, std::size_t element) {
    both leaves{net.send(to, from, made), net.recv(source, into, made)};
    watch(made, leaves);
    co_await when_all(reference<send_operation>{&leaves.out}, ended<recv_operation>{&leaves.in});
    co_return found(leaves.in, made, into, element);
  }

  template <class Leaf>
  struct reference {
    Leaf* leaf;
    bool start(completion& done) { return leaf->start(done); }
    std::error_code result() { return leaf->result(); }
  };
  /// Its end, good or bad: who waited looks at the result.
  template <class Leaf>
  struct ended {
    Leaf* leaf;
    bool start(completion& done) { return leaf->start(done); }
    void result() {}
  };
};

}  // namespace colls::detail
