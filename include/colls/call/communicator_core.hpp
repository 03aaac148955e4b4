// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// core: checks, numbers and starts the calls of a communicator. The core does not depend on the
// types of the user's elements and operations.

#include <colls/call/arguments.hpp>
#include <colls/call/call_queue.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <memory>

namespace colls {

template <class Transport>
class communicator;

namespace detail {

/// One rank's side of a communicator over a transport. The member functions are defined in
/// <colls/call/start_call.hpp>. If they are compiled separately, code that only makes calls does
/// not need the complete type of the transport.
///
/// In the functions below, `type` is the id of the element type. A list of offsets is empty if all
/// blocks have equal length. Otherwise it has one more entry than there are ranks. A call copies
/// its reduction, so the caller need not keep the reduction alive.
template <class Transport>
class core final : public call_queue {
 public:
  using offsets = std::vector<std::size_t>;

  core(std::shared_ptr<Transport> net, std::uint32_t id, int rank, int size,
       std::shared_ptr<const std::vector<int>> members, bool is_world);
  ~core();

  Transport& net() const { return *net_; }
  const std::shared_ptr<Transport>& shared_net() const { return net_; }

  /// Returns memory of the kind (host or device memory) on which the calls of this communicator
  /// work. All bytes are zero. If the transport has shared windows, the other ranks of this machine
  /// can access the memory. Returns null if there is not enough memory.
  std::shared_ptr<std::byte> allocate(std::size_t size);

  /// Starts an all_reduce, a scan or an exscan.
  template <collective Coll>
  operation<> reduce_to_all(const reduction& op, const any_buffer& in, const any_buffer& out,
                            const options& opts);
  operation<> all_reduce_group(const reduction& op, std::vector<any_buffer> parts,
                               const options& opts);
  operation<> reduce(const reduction& op, const any_buffer& in, const any_buffer& out, int root,
                     const options& opts);
  operation<> reduce_scatter(const reduction& op, const any_buffer& in, const any_buffer& out,
                             offsets shares, const options& opts);
  operation<> barrier(const options& opts);
  operation<> broadcast(std::uint32_t type, any_buffer data, int root, const options& opts);
  operation<> all_gather(std::uint32_t type, any_buffer in, any_buffer out, offsets shares,
                         const options& opts);
  /// Starts a gather or a scatter. `own_block` is the buffer for this rank's block. `full` is the
  /// buffer for the blocks of all ranks and is used only on the root.
  template <collective Coll>
  operation<> gather_or_scatter(std::uint32_t type, any_buffer own_block, any_buffer full,
                                offsets shares, int root, const options& opts);
  operation<> all_to_all(std::uint32_t type, any_buffer in, any_buffer out, offsets sends,
                         offsets receives, const options& opts);

  operation<> measure(const options& opts);
  explanation explain(collective coll, std::uint64_t bytes, const options& opts) const;

  operation<> send(any_buffer data, int dest, int tag, const options& opts);
  operation<received> recv(any_buffer data, peer source, int tag, const options& opts);
  operation<received> send_recv(any_buffer outgoing, int dest, any_buffer incoming, peer source,
                                int tag, const options& opts);

  /// Starts a split, a group or a dup, depending on `coll`. `shape` must be equal on all ranks.
  operation<communicator<Transport>> split(collective coll, int color, int key, std::uint64_t shape,
                                           const options& opts);
  template <class Executor>
  operation<communicator<Transport>> dup(const Executor& executor, const options& opts);
  /// Starts an attach, which makes a communicator of the same ranks on the transport `net`. `net`
  /// moves its messages through the transport of this communicator.
  template <class NewTransport>
  operation<communicator<NewTransport>> attach(std::shared_ptr<NewTransport> net,
                                               std::uint64_t shape, const options& opts);
  operation<> close(time_span deadline);

 private:
  time_point now() const override;
  int host_of(int rank) const override;
  void progress() override;
  void wake_driver() override;
  void call_ended(call_base& ended_call) noexcept override;

  /// Chooses an algorithm and starts the call. Refuses the call if `check` has failed or if no
  /// algorithm can do the call. `make_fingerprint()` returns the fingerprint of the request (see
  /// `fingerprint_of`). `body(call, channel, algorithm)` returns the call's coroutine. If
  /// `is_plain` is true and the chosen algorithm is frameless (needs no coroutine),
  /// `prepare(frameless_call)` is called instead of `body`.
  template <collective Coll, class MakeFingerprint, class MakeQuery, class Body, class Prepare>
  operation<> launch(const MakeFingerprint& make_fingerprint, const MakeQuery& make_query,
                     const options& opts, checks& check, std::size_t working_bytes,
                     const Body& body, bool is_plain, const Prepare& prepare);
  /// Returns the cache entry with the algorithm for a request. Chooses the algorithm if the cache
  /// has no such entry. If the call must be refused, makes `check` fail and returns null. Called
  /// when the request differs from the last request of the same collective.
  template <class Table>
  const call_cache::entry* choose(const Table& table, const fingerprint& requested,
                                  const selection_query& query, const cost_model::pricing& price,
                                  const options& opts, checks& check);

  std::shared_ptr<Transport> net_;
};

}  // namespace detail

}  // namespace colls

#include <colls/call/start_call.hpp>
