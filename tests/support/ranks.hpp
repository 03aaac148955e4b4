// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks without communicator objects, for tests of the folders below call/: communicator states and
// operation records are made by hand.

#include <colls/channel/channel.hpp>
#include <colls/transport/inproc/inproc_transport.hpp>

#include <memory>
#include <vector>

/// A world of inproc ranks with one communicator.
class ranks {
 public:
  explicit ranks(int size, std::uint32_t id = 1)
      : ranks(std::make_shared<colls::inproc_world>(size), id) {}
  /// A further communicator in the same world.
  ranks(std::shared_ptr<colls::inproc_world> world, std::uint32_t id) : world_(std::move(world)) {
    for (int rank = 0; rank < world_->size(); ++rank) {
      states_.push_back(
          std::make_unique<colls::communicator_state>(id, rank, world_->size(), nullptr));
      (*world_)[rank].matching().add(*states_.back());
    }
  }
  ranks(const ranks&) = delete;
  ~ranks() {
    for (const auto& state : states_) (*world_)[state->rank()].matching().remove(*state);
  }

  const std::shared_ptr<colls::inproc_world>& world() const { return world_; }
  colls::communicator_state& operator[](int rank) {
    return *states_[static_cast<std::size_t>(rank)];
  }

  /// Polls the world until it makes no more progress.
  void settle() {
    while (world_->poll()) {
    }
  }

 private:
  std::shared_ptr<colls::inproc_world> world_;
  std::vector<std::unique_ptr<colls::communicator_state>> states_;
};

/// One rank's part in one call. Calls with different counts have different fingerprints.
class call {
 public:
  using channel = colls::basic_channel<colls::inproc_transport>;

  call(ranks& all, int rank, std::uint64_t count = 0) : net_((*all.world())[rank]) {
    colls::fingerprint print;
    print.operation = colls::collective::all_reduce;
    print.count = count;
    record_.communicator = &all[rank];
    record_.operation = print.operation;
    record_.sequence = all[rank].take_sequence(print);
    record_.hash = hash_of(print);
    record_.started = net_.now();
    record_.deadline = record_.started + 20 * colls::seconds;
    net_.matching().begin(record_);
  }
  call(const call&) = delete;
  ~call() { net_.matching().end(record_); }

  channel net() { return channel(net_, record_); }
  colls::operation_record& record() { return record_; }

 private:
  colls::inproc_transport& net_;
  colls::operation_record record_;
};

/// Point-to-point operations of one rank.
class direct {
 public:
  direct(ranks& all, int rank) : net_((*all.world())[rank]) { record_.communicator = &all[rank]; }

  auto send(int peer, std::uint64_t tag, colls::const_bytes from) {
    return net_.send(key(peer, tag), from, record_);
  }
  auto recv(int peer, std::uint64_t tag, colls::mutable_bytes into) {
    return net_.recv(key(peer, tag), into, record_);
  }

 private:
  colls::message_key key(int peer, std::uint64_t tag) const {
    return {peer, record_.communicator->id(), tag, colls::message_key::point_to_point};
  }

  colls::inproc_transport& net_;
  colls::operation_record record_;
};

/// Starts an operation at once and owns it, as calls on a communicator do.
template <colls::startable Operation>
class started : colls::completion {
 public:
  template <class Request>
  started(ranks& all, Request&& request)
      : completion([](completion& self) noexcept { static_cast<started&>(self).ended_ = true; },
                   &all.world()->queue()),
        operation_(std::forward<Request>(request)) {
    ended_ = operation_.start(*this);
  }

  bool ended() const { return ended_; }
  Operation& operation() { return operation_; }

 private:
  bool ended_ = false;
  Operation operation_;
};
template <class Request>
started(ranks&, Request&&) -> started<colls::detail::awaited<std::remove_cvref_t<Request>>>;

/// The error code of an operation that has ended; its `result()` throws if it has failed.
template <class Operation>
std::error_code outcome(const Operation& ended) {
  try {
    ended.result();
  } catch (const colls::error& thrown) {
    return thrown.code();
  }
  return {};
}

template <class T>
colls::mutable_bytes as_bytes(std::vector<T>& data) {
  return {reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(T)};
}
