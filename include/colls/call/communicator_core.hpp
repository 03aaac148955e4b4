// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// core: a communicator's calls without the users' types: checked, numbered and started.

#include <colls/call/arguments.hpp>
#include <colls/call/call_queue.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <memory>

namespace colls {

template <class Transport>
class communicator;

namespace detail {

/// One rank's side of a communicator over a transport. The transport may be incomplete where its
/// calls are only made; what they do is compiled with <colls/call/start_call.hpp>. `type` is the id of
/// the element type; no offsets mean equal blocks, else there is one more than ranks. The operation
/// of a reduction is copied into the call.
template <class Transport>
class core final : public call_queue {
 public:
  using offsets = std::vector<std::size_t>;

  core(std::shared_ptr<Transport> net, std::uint32_t id, int rank, int size,
       std::shared_ptr<const std::vector<int>> members, bool whole_world);
  ~core();

  Transport& net() const { return *net_; }
  const std::shared_ptr<Transport>& shared_net() const { return net_; }

  /// Zeros that peers may work in where the transport lends, else this process's own, in the memory
  /// that calls work on; null: there is no memory.
  std::shared_ptr<std::byte> allocate(std::size_t size);

  /// all_reduce, scan and exscan.
  template <collective What>
  operation<> everywhere(const reduction& by, const any_buffer& in, const any_buffer& out,
                         const options& how);
  operation<> grouped(const reduction& by, std::vector<any_buffer> parts, const options& how);
  operation<> at_root(const reduction& by, const any_buffer& in, const any_buffer& out, int root,
                      const options& how);
  operation<> in_parts(const reduction& by, const any_buffer& in, const any_buffer& out,
                       offsets shares, const options& how);
  operation<> barrier(const options& how);
  operation<> broadcast(std::uint32_t type, any_buffer data, int root, const options& how);
  operation<> all_gather(std::uint32_t type, any_buffer in, any_buffer out, offsets shares,
                         const options& how);
  /// gather and scatter: `mine` is this rank's share of the root's `whole`.
  template <collective What>
  operation<> rooted(std::uint32_t type, any_buffer mine, any_buffer whole, offsets shares,
                     int root, const options& how);
  operation<> all_to_all(std::uint32_t type, any_buffer in, any_buffer out, offsets sends,
                         offsets receives, const options& how);

  operation<> measure(const options& how);
  explanation explain(collective what, std::uint64_t bytes, const options& how) const;

  operation<> send(any_buffer from, int to, int tag, const options& how);
  operation<received> recv(any_buffer into, peer from, int tag, const options& how);
  operation<received> send_recv(any_buffer outgoing, int to, any_buffer incoming, peer from,
                                int tag, const options& how);

  /// split, group and dup: `what` says which; `shape` is equal on all ranks.
  operation<communicator<Transport>> split(collective what, int color, int key, std::uint64_t shape,
                                           const options& how);
  template <class Executor>
  operation<communicator<Transport>> dup(const Executor& on, const options& how);
  /// A communicator of the same ranks on a transport that stands on ours.
  template <class Made>
  operation<communicator<Made>> over(std::shared_ptr<Made> net, std::uint64_t shape,
                                     const options& how);
  operation<> close(time_span deadline);

 private:
  time_point now() const override;
  int host_of(int rank) const override;
  void progress() override;
  void kick() override;
  void ended(call_base& made) noexcept override;

  /// Chooses an algorithm and starts it, or refuses the call: `body(call, channel, row)` is its
  /// coroutine, `print()` its fingerprint with what options ask for in place of the plan. If
  /// `is_plain`, and the choice is one step, no coroutine is made: `prepare(step_call)` does.
  template <collective What, class Print, class Asked, class Body, class Prepare>
  operation<> launch(const Print& print, const Asked& asked, const options& how, checks& check,
                     std::size_t working_bytes, const Body& body, bool is_plain,
                     const Prepare& prepare);
  /// What `launch` does where the last call of that collective was another one; null: refused.
  template <class Rows>
  const known_calls::entry* choose(const Rows& rows, const fingerprint& wanted,
                                   const question& asked, const options& how, checks& check);

  std::shared_ptr<Transport> net_;
};

}  // namespace detail

}  // namespace colls

#include <colls/call/start_call.hpp>
