// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// split, dup and close: the second half of communicator.hpp, once per transport.

#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/call/communicator.hpp>

#include <algorithm>

namespace colls {

namespace detail {

/// The ids that a split may give: a few, made of the parent's id and the number of the call, so
/// that splits of different communicators try different ones. Held here until the split has ended;
/// those that are free on all ranks can be given, so no two communicators that share a rank, now or
/// ever, have the same. A rank on which the split fails answers all of them with why: others may
/// have made theirs.
class id_candidates {
 public:
  static constexpr int count = 8;

  id_candidates(match& with, const operation_record& split)
      : with_(with),
        of_(*split.communicator),
        ids_(static_cast<std::uint32_t>(split.communicator->size())),
        why_(std::make_shared<failure>(errc::cancelled, "the call that makes it was given up")) {
    why_->culprit = why_->observer = with.rank();
    why_->operation = split.what;
    for (int i = 0; i < count; ++i) {
      first_[i] = static_cast<std::uint32_t>(
          mix(mix(split.communicator->id(), split.sequence), static_cast<std::uint64_t>(i)));
      if (first_[i] <= UINT32_MAX - ids_ && with.hold_ids(first_[i], ids_)) free_ |= 1u << i;
    }
  }
  id_candidates(const id_candidates&) = delete;
  ~id_candidates() {
    if (!made_ && of_.failed()) *why_ = of_.why();
    for (int i = 0; i < count; ++i) {
      if ((free_ >> i & 1u) == 0) continue;
      made_ ? with_.free_ids(first_[i]) : with_.abandon_ids(first_[i], why_);
    }
  }
  /// Nothing is awaited any more: for want of memory alone this rank may not have its own.
  void all_heard() {
    why_->code = errc::not_enough_memory;
    why_->detail[0] = 0;
  }
  /// This rank has what it was to have.
  void settle() { made_ = true; }

  std::uint32_t free() const { return free_; }
  /// The first of the ids that are free everywhere.
  std::uint32_t choose(std::uint32_t free_on_all) const {
    for (int i = 0; i < count; ++i) {
      if ((free_on_all >> i & 1u) != 0) return first_[i];
    }
    throw error(errc::not_enough_memory, "no id for a communicator is free on all ranks");
  }

 private:
  match& with_;
  const communicator_state& of_;
  std::uint32_t ids_;
  std::shared_ptr<failure> why_;
  bool made_ = false;
  std::uint32_t first_[count] = {};
  std::uint32_t free_ = 0;
};

/// What each rank says in a split.
struct split_word {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::uint32_t free_ids = 0;
};

template <class Transport, class Made>
task<communicator<Made>> divide(basic_channel<Transport> net, core<Transport>& parent,
                                split_word mine, std::shared_ptr<Made> over) {
  id_candidates ids(parent.matching(), net.record());
  mine.free_ids = ids.free();
  std::vector<split_word> words(static_cast<std::size_t>(net.size()));
  words[static_cast<std::size_t>(net.rank())] = mine;
  const any_buffer all(words.data(), words.size(), sizeof(split_word));
  co_await recursive_doubling::all_gather(net, all, partition::blocks(1, net.size()));
  ids.all_heard();

  std::uint32_t free_on_all = ids.free();
  std::vector<std::int32_t> colors;
  for (const split_word& word : words) {
    free_on_all &= word.free_ids;
    if (word.color >= 0) colors.push_back(word.color);
  }
  if (mine.color < 0) {
    ids.settle();
    co_return communicator<Made>();
  }
  std::sort(colors.begin(), colors.end());
  colors.erase(std::unique(colors.begin(), colors.end()), colors.end());
  const auto color = std::lower_bound(colors.begin(), colors.end(), mine.color) - colors.begin();
  const std::uint32_t id = ids.choose(free_on_all) + static_cast<std::uint32_t>(color);

  std::vector<int> ranks;
  for (int rank = 0; rank < net.size(); ++rank) {
    if (words[static_cast<std::size_t>(rank)].color == mine.color) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end(), [&](int one, int other) {
    const std::int32_t first = words[static_cast<std::size_t>(one)].key;
    const std::int32_t second = words[static_cast<std::size_t>(other)].key;
    return first != second ? first < second : one < other;
  });
  int rank = 0;
  while (ranks[static_cast<std::size_t>(rank)] != net.rank()) ++rank;
  for (int& member : ranks) member = parent.state().world_rank(member);
  const int size = static_cast<int>(ranks.size());
  auto made = std::make_unique<core<Made>>(
      std::move(over), id, rank, size, std::make_shared<const std::vector<int>>(std::move(ranks)),
      false);
  made->state().inactivity = parent.state().inactivity;
  made->set_costs(parent.choices().costs());
  ids.settle();
  co_return communicator<Made>(std::move(made));
}

template <class Transport>
operation<communicator<Transport>> core<Transport>::split(collective what, int color, int key,
                                                          std::uint64_t shape, const options& how) {
  fingerprint print;
  print.what = what;
  print.shape = shape;
  return begin<call<communicator<Transport>>>(agreement(print), how, 0, [&](auto& call) {
    (void)(call.body = divide<Transport, Transport>({*net_, call}, *this, {color, key, 0}, net_));
  });
}

template <class Transport>
template <class Made>
operation<communicator<Made>> core<Transport>::over(std::shared_ptr<Made> net, std::uint64_t shape,
                                                    const options& how) {
  fingerprint print;
  print.what = collective::attach;
  print.shape = shape;
  return begin<call<communicator<Made>>>(agreement(print), how, 0, [&](auto& call) {
    (void)(call.body = divide<Transport, Made>({*net_, call}, *this, {0, state().rank(), 0},
                                               std::move(net)));
  });
}

template <class Transport, class Executor>
task<communicator<Transport>> dup_on(basic_channel<Transport> net, core<Transport>& parent,
                                     Executor on) {
  using card = typename Transport::card;
  std::vector<card> cards(static_cast<std::size_t>(net.size()));
  auto who = parent.net().prepare_world(net.rank(), net.size(),
                                        cards[static_cast<std::size_t>(net.rank())]);
  const any_buffer all(cards.data(), cards.size(), sizeof(card));
  co_await recursive_doubling::all_gather(net, all, partition::blocks(1, net.size()));
  auto made = std::make_unique<core<Transport>>(parent.net().open_world(on, std::move(who), cards),
                                                0, net.rank(), net.size(), nullptr, true);
  made->state().inactivity = parent.state().inactivity;
  made->set_costs(parent.choices().costs());
  co_return communicator<Transport>(std::move(made));
}

template <class Transport>
template <class Executor>
operation<communicator<Transport>> core<Transport>::dup(const Executor& on, const options& how) {
  fingerprint print;
  print.what = collective::dup;
  print.shape = 1;  // with links of its own
  return begin<call<communicator<Transport>>>(agreement(print), how, 0, [&](auto& call) {
    (void)(call.body = dup_on<Transport, Executor>({*net_, call}, *this, on));
  });
}

/// A close under way: it belongs to no communicator, and keeps its transport.
template <class Transport>
class close_call final : public call<void>, call_owner {
 public:
  explicit close_call(std::shared_ptr<Transport> net)
      : call<void>(static_cast<call_owner*>(this), nullptr, net->queue()), net_(std::move(net)) {}

 private:
  void ended(call_base&) noexcept override {}
  void progress() override { look(net_); }
  void kick() override { net_->kick(); }

  std::shared_ptr<Transport> net_;
};

inline task<> nothing_to_close() { co_return; }

template <class Transport>
operation<> core<Transport>::close(time_span deadline) {
  auto* const made = new close_call<Transport>(net_);
  const bool whole = is_open() && whole_world();
  leave();
  if (whole) {
    // After an error the last words have a second; peers that hang are not waited for.
    const time_point patience = state().failed() ? seconds : state().inactivity;
    const time_span limit = deadline ? deadline : time_span::of(patience);
    (void)(made->body = net_->close(limit.after(net_->now())));
  } else {
    (void)(made->body = nothing_to_close());
  }
  made->run();
  net_->kick();
  return operation<>(made);
}

}  // namespace detail

template <class Transport>
communicator<Transport>::communicator(std::unique_ptr<detail::core<Transport>> made)
    : core_(std::move(made)) {}
template <class Transport>
communicator<Transport>::communicator(communicator&&) noexcept = default;
template <class Transport>
communicator<Transport>& communicator<Transport>::operator=(communicator&&) noexcept = default;
template <class Transport>
communicator<Transport>::~communicator() = default;

template <class Transport>
operation<> communicator<Transport>::close(time_span deadline) {
  if (core_ != nullptr) return core_->close(deadline);
  static run_queue unused;
  auto* const nothing = new detail::call<void>(nullptr, nullptr, unused);
  nothing->refuse(failure());
  return operation<>(nothing);
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
