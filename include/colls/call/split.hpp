// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// split: implements split, group, dup, attach and close. Also defines those functions of
// communicator.hpp that are compiled once per transport.

#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/call/communicator.hpp>
#include <colls/call/exchange_guard.hpp>
#include <colls/matching/id_candidates.hpp>

#include <algorithm>
#include <vector>

namespace colls {

namespace detail {

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
  const operation_record& split = net.record();
  id_candidates ids(parent.matching(), *split.communicator, split.operation, split.sequence,
                    static_cast<std::uint32_t>(net.size()));
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
  new_core->set_shrink_obstacle(parent.shrink_obstacle());
  if constexpr (!std::is_same_v<Transport, NewTransport>) {
    new_core->set_shrink_obstacle(
        "a communicator that attach has made is not shrunk: shrink the one that it is attached to, "
        "and attach again");
  }
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
  new_core->set_shrink_obstacle(
      "a result of dup(executor) is not shrunk: shrink the communicator that it was made of, and "
      "call dup(executor) again");
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
  kept_.reset();  // it may stand for the world, too
  const bool closes_world = is_open() && is_last_of_world();
  shut_down();
  shrink_ids_.reset();
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
