// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// split: implements split, group, dup, attach and close. Also defines those functions of
// communicator.hpp that are compiled once per transport.

#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/call/communicator.hpp>

#include <algorithm>
#include <vector>

namespace colls {

namespace detail {

/// The ids that a split may give to the communicators that it creates. There are several
/// candidates. Each candidate is a range of ids, with one id for each color. Its first id is a hash
/// of the parent's id, the split's sequence number and the candidate's number, so that different
/// splits rarely try the same ids. Each rank reserves those candidates that are free on this rank.
/// The ranks then choose a candidate that is free on all of them, so two communicators that share a
/// rank never have the same id.
///
/// If the split fails on this rank, the peers may still have created their communicators. Therefore
/// this rank keeps its candidates reserved, and answers messages for their ids with the reason for
/// the failure.
class id_candidates {
 public:
  static constexpr int count = 8;

  id_candidates(tag_matcher& matcher, const operation_record& split)
      : matcher_(matcher),
        parent_(*split.communicator),
        ids_per_candidate_(static_cast<std::uint32_t>(split.communicator->size())),
        reason_(std::make_shared<failure>(errc::cancelled,
                                          "the call that makes this communicator was cancelled")) {
    reason_->culprit = reason_->observer = matcher.rank();
    reason_->operation = split.operation;
    for (int i = 0; i < count; ++i) {
      first_ids_[i] = static_cast<std::uint32_t>(
          mix(mix(split.communicator->id(), split.sequence), static_cast<std::uint64_t>(i)));
      if (first_ids_[i] <= UINT32_MAX - ids_per_candidate_ &&
          matcher.hold_ids(first_ids_[i], ids_per_candidate_))
        free_ |= 1u << i;
    }
  }
  id_candidates(const id_candidates&) = delete;
  ~id_candidates() {
    if (!is_made_ && parent_.failed()) *reason_ = parent_.reason();
    for (int i = 0; i < count; ++i) {
      if ((free_ >> i & 1u) == 0) continue;
      is_made_ ? matcher_.free_ids(first_ids_[i]) : matcher_.abandon_ids(first_ids_[i], reason_);
    }
  }
  /// Called when the ranks have exchanged their requests. After the exchange, the split can fail on
  /// this rank only with `errc::not_enough_memory`. Therefore this function stores this error as
  /// the reason that the peers get if the split fails.
  void exchange_done() {
    reason_->code = errc::not_enough_memory;
    reason_->detail[0] = 0;
  }
  /// Called when the split has succeeded on this rank, which has created its communicator or needs
  /// none. The destructor will then free the ids. If `commit` is not called, the destructor treats
  /// the split as failed.
  void commit() { is_made_ = true; }

  std::uint32_t free() const { return free_; }
  /// Chooses the first candidate that is free on all ranks, and returns its first id. Bit i of
  /// `free_on_all` tells whether candidate i is free on all ranks. Throws `errc::not_enough_memory`
  /// if no candidate is free on all ranks.
  std::uint32_t choose(std::uint32_t free_on_all) const {
    for (int i = 0; i < count; ++i) {
      if ((free_on_all >> i & 1u) != 0) return first_ids_[i];
    }
    throw error(errc::not_enough_memory, "no id for a communicator is free on all ranks");
  }

 private:
  tag_matcher& matcher_;
  const communicator_state& parent_;
  std::uint32_t ids_per_candidate_;
  std::shared_ptr<failure> reason_;
  bool is_made_ = false;
  std::uint32_t first_ids_[count] = {};
  std::uint32_t free_ = 0;
};

/// The data that each rank contributes to a split. A rank sends the bytes of this struct as they
/// are in memory.
struct split_request {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::uint32_t free_ids = 0;
};

template <class Transport, class NewTransport>
task<communicator<NewTransport>> split_body(basic_channel<Transport> net, core<Transport>& parent,
                                            split_request own_request,
                                            std::shared_ptr<NewTransport> new_net) {
  id_candidates ids(parent.matching(), net.record());
  own_request.free_ids = ids.free();
  std::vector<split_request> requests(static_cast<std::size_t>(net.size()));
  requests[static_cast<std::size_t>(net.rank())] = own_request;
  const any_buffer all(requests.data(), requests.size(), sizeof(split_request));
  co_await recursive_doubling::all_gather.run(net,
                                              all.subspan(static_cast<std::size_t>(net.rank()), 1),
                                              all, partition::blocks(1, net.size()));
  ids.exchange_done();

  std::uint32_t free_on_all = ids.free();
  std::vector<std::int32_t> colors;
  for (const split_request& request : requests) {
    free_on_all &= request.free_ids;
    if (request.color >= 0) colors.push_back(request.color);
  }
  if (own_request.color < 0) {
    ids.commit();
    co_return communicator<NewTransport>();
  }
  std::sort(colors.begin(), colors.end());
  colors.erase(std::unique(colors.begin(), colors.end()), colors.end());
  const auto color =
      std::lower_bound(colors.begin(), colors.end(), own_request.color) - colors.begin();
  const std::uint32_t id = ids.choose(free_on_all) + static_cast<std::uint32_t>(color);

  std::vector<int> ranks;
  for (int rank = 0; rank < net.size(); ++rank) {
    if (requests[static_cast<std::size_t>(rank)].color == own_request.color) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    const std::int32_t first = requests[static_cast<std::size_t>(a)].key;
    const std::int32_t second = requests[static_cast<std::size_t>(b)].key;
    return first != second ? first < second : a < b;
  });
  int rank = 0;
  while (ranks[static_cast<std::size_t>(rank)] != net.rank()) ++rank;
  for (int& member : ranks) member = parent.state().world_rank(member);
  const int size = static_cast<int>(ranks.size());
  auto new_core = std::make_unique<core<NewTransport>>(
      std::move(new_net), id, rank, size,
      std::make_shared<const std::vector<int>>(std::move(ranks)), false);
  new_core->state().inactivity = parent.state().inactivity;
  new_core->set_costs(parent.tuning().costs());
  ids.commit();
  co_return communicator<NewTransport>(std::move(new_core));
}

template <class Transport>
operation<communicator<Transport>> core<Transport>::split(collective coll, int color, int key,
                                                          std::uint64_t shape,
                                                          const options& opts) {
  fingerprint agreed;
  agreed.operation = coll;
  agreed.shape = shape;
  return begin<call<communicator<Transport>>>(cached_call(agreed), opts, 0, [&](auto& call) {
    (void)(call.body =
               split_body<Transport, Transport>({*net_, call}, *this, {color, key, 0}, net_));
  });
}

template <class Transport>
template <class NewTransport>
operation<communicator<NewTransport>> core<Transport>::attach(std::shared_ptr<NewTransport> net,
                                                              std::uint64_t shape,
                                                              const options& opts) {
  fingerprint agreed;
  agreed.operation = collective::attach;
  agreed.shape = shape;
  return begin<call<communicator<NewTransport>>>(cached_call(agreed), opts, 0, [&](auto& call) {
    (void)(call.body = split_body<Transport, NewTransport>({*net_, call}, *this,
                                                           {0, state().rank(), 0}, std::move(net)));
  });
}

/// Passes a text of every rank to all ranks, and returns the texts of all ranks in the order of the
/// ranks. A text has at most `max_size` bytes.
template <class Channel, class Text>
task<std::vector<Text>> pass_texts(Channel net, Text own, std::size_t max_size) {
  const auto ranks = static_cast<std::size_t>(net.size());
  const auto rank = static_cast<std::size_t>(net.rank());
  std::vector<std::uint64_t> sizes(ranks);
  sizes[rank] = own.size();
  const any_buffer all_sizes(sizes.data(), ranks, sizeof(std::uint64_t));
  co_await recursive_doubling::all_gather.run(net, all_sizes.subspan(rank, 1), all_sizes,
                                              partition::blocks(1, net.size()));
  const std::uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest > max_size) throw error(errc::protocol_error, "a rank has passed too long a text");
  std::vector<char> bytes(ranks * longest);
  std::copy(own.begin(), own.end(), bytes.begin() + static_cast<std::ptrdiff_t>(rank * longest));
  const any_buffer all_bytes(bytes.data(), bytes.size(), 1);
  co_await recursive_doubling::all_gather.run(net, all_bytes.subspan(rank * longest, longest),
                                              all_bytes, partition::blocks(longest, net.size()));
  std::vector<Text> texts;
  for (std::size_t i = 0; i < ranks; ++i) texts.emplace_back(bytes.data() + i * longest, sizes[i]);
  co_return texts;
}

/// Sets `pass_texts` of a `world_info` to null, because texts travel only while a transport is
/// made.
template <class Info>
class exchange_guard {
 public:
  explicit exchange_guard(std::shared_ptr<Info> info) : info_(std::move(info)) {}
  exchange_guard(const exchange_guard&) = delete;
  ~exchange_guard() { info_->pass_texts = nullptr; }

 private:
  std::shared_ptr<Info> info_;
};

/// Waits until a transport is made for the engine `driver`, which nothing else drives yet. Ends if
/// the communicator of this call fails.
template <class Transport, class Driver>
task<std::shared_ptr<Transport>> make_and_drive(basic_channel<Transport> net,
                                                core<Transport>& parent, Driver driver,
                                                task<std::shared_ptr<Transport>> making) {
  struct flag : completion {
    bool is_set = false;
  } ended;
  ended.bind([](completion& self) noexcept { static_cast<flag&>(self).is_set = true; },
             completion(nullptr, &parent.queue()));
  auto& own_driver = parent.net().driver();
  ended.is_set = making.start(ended);
  while (!ended.is_set) {
    if (driver.get() != &own_driver) driver->poll();
    co_await own_driver.sleep_until(parent.net().now() + milliseconds);
    const communicator_state& comm = *net.record().communicator;
    if (comm.failed()) throw error(comm.reason());
  }
  co_return making.result();
}

template <class Transport, class Executor>
task<communicator<Transport>> dup_body(basic_channel<Transport> net, core<Transport>& parent,
                                       Executor executor) {
  // `duplicate_world` is found by the namespace of its argument, because only some transports have
  // worlds of processes.
  auto forming = duplicate_world(
      parent.net().info(), parent.net().driver(), executor, net.rank(), net.size(),
      [&net](auto own, std::size_t max_size) { return pass_texts(net, std::move(own), max_size); });
  auto made = co_await forming;
  const exchange_guard closes_exchange(made.info);
  auto making =
      make_and_drive<Transport>(net, parent, made.driver, Transport::make(made.driver, made.info));
  auto new_net = co_await making;
  auto new_core = std::make_unique<core<Transport>>(std::move(new_net), 0, net.rank(), net.size(),
                                                    nullptr, true);
  new_core->state().inactivity = parent.state().inactivity;
  new_core->set_costs(parent.tuning().costs());
  co_return communicator<Transport>(std::move(new_core));
}

template <class Transport>
template <class Executor>
operation<communicator<Transport>> core<Transport>::dup(const Executor& executor,
                                                        const options& opts) {
  fingerprint agreed;
  agreed.operation = collective::dup;
  agreed.shape = 1;  // a dup whose result shares this communicator's connections has shape 0
  return begin<call<communicator<Transport>>>(cached_call(agreed), opts, 0, [&](auto& call) {
    (void)(call.body = dup_body<Transport, Executor>({*net_, call}, *this, executor));
  });
}

/// The call that closes a communicator. Unlike most calls, it has no pointer to the communicator,
/// which may be destroyed first. The call keeps the transport alive until the user destroys the
/// `operation` that `close` has returned.
template <class Transport>
class close_call final : public call<void>, call_owner {
 public:
  explicit close_call(std::shared_ptr<Transport> net)
      : call<void>(static_cast<call_owner*>(this), nullptr, net->queue()), net_(std::move(net)) {}

 private:
  void call_ended(call_base&) noexcept override {}
  void progress() override { poll_once(net_); }
  void wake_driver() override { net_->wake_driver(); }

  std::shared_ptr<Transport> net_;
};

inline task<> nothing_to_close() { co_return; }

template <class Transport>
operation<> core<Transport>::close(time_span deadline) {
  check_thread();
  auto* const closing = new close_call<Transport>(net_);
  const bool closes_world = is_open() && is_world();
  shut_down();
  if (closes_world) {
    // If the communicator has failed, its peers may hang. In this case, the transport waits at most
    // one second for them, unless the caller gives a deadline.
    const time_point default_limit = state().failed() ? seconds : state().inactivity;
    const time_span limit = deadline ? deadline : time_span::from_nanoseconds(default_limit);
    (void)(closing->body = net_->close(limit.after(net_->now())));
  } else {
    (void)(closing->body = nothing_to_close());
  }
  closing->run();
  net_->wake_driver();
  return operation<>(closing);
}

}  // namespace detail

template <class Transport>
communicator<Transport>::communicator(std::unique_ptr<detail::core<Transport>> impl)
    : core_(std::move(impl)) {}
template <class Transport>
communicator<Transport>::communicator(communicator&&) noexcept = default;
template <class Transport>
communicator<Transport>& communicator<Transport>::operator=(communicator&&) noexcept = default;
template <class Transport>
communicator<Transport>::~communicator() = default;

template <class Transport>
operation<> communicator<Transport>::close(time_span deadline) {
  if (core_ != nullptr) return core_->close(deadline);
  return operation<>(detail::ended_call<void>(failure()));
}

template <class Transport>
bool communicator<Transport>::poll() {
  return net().driver().poll();
}
template <class Transport>
void communicator<Transport>::idle(unsigned polls) {
  net().driver().idle(polls);
}
template <class Transport>
void communicator<Transport>::enter() {
  net().driver().enter();
}
template <class Transport>
void communicator<Transport>::leave() {
  net().driver().leave();
}

}  // namespace colls
