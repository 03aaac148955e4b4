// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// mpi_transport: the transport of communicators that have the native collectives of MPI beside all
// algorithms of colls. Messages go through the links of the world.

#include <colls/algorithm/table.hpp>
#include <colls/channel/layered_transport.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>
#include <colls/transport/mpi/datatypes.hpp>
#include <colls/transport/mpi/environment.hpp>

namespace colls::mpi {

/// How `attach` uses MPI. The options must be equal on all ranks.
struct options {
  /// The communicator of MPI that has the ranks of the communicator of colls, in the same order.
  /// `attach` duplicates it.
  MPI_Comm comm = MPI_COMM_WORLD;
  /// If true, MPI works on the buffers of the caller, and only an input that overlaps the output is
  /// copied. But MPI cannot cancel a collective. So an operation that is dropped or fails blocks
  /// this rank until MPI has ended it, without a limit, and the other ranks are told afterwards.
  bool in_place = false;
};

/// The transport of a communicator that `attach` has made.
class transport : public layered_transport<interprocess_transport> {
 public:
  using host_transport = interprocess_transport;
  static constexpr bool consumes = true;

  /// `parent` is the communicator of colls to which `comm` is attached.
  transport(std::shared_ptr<host_transport> host, const options& opts, MPI_Comm comm,
            std::uint32_t parent)
      : layered_transport(std::move(host)), opts_(opts), comm_(comm), parent_(parent) {}
  transport(const transport&) = delete;
  transport& operator=(const transport&) = delete;
  ~transport() {
    environment& mpi = environment::get();
    mpi.sweep();
    const bool has_failed = is_retired_ || id_ == 0 || matching().has_failed(0) ||
                            matching().has_failed(parent_) || matching().has_failed(id_);
    if (has_failed) {
      mpi.note_failure();
    } else if (mpi.thread_obstacle() == nullptr) {
      mpi.free_duplicate(comm_);
    }
  }

  // ---- what algorithms of colls use beside messages

  network_cost costs() const { return next_layer().costs(); }
  struct multi_send_recv_operation : host_transport::multi_send_recv_operation {
    template <class... Arguments>
    multi_send_recv_operation(transport& net, Arguments&&... arguments)
        : host_transport::multi_send_recv_operation(net.next_layer(),
                                                    std::forward<Arguments>(arguments)...) {}
  };
  std::shared_ptr<std::byte> allocate(std::size_t size) { return next_layer().allocate(size); }
  bool can_expose(const_bytes data) const { return next_layer().can_expose(data); }
  struct bounce_buffer : host_transport::bounce_buffer {
    explicit bounce_buffer(transport& net) : host_transport::bounce_buffer(net.next_layer()) {}
  };
  struct exposure : host_transport::exposure {
    exposure(transport& net, communicator_state& comm)
        : host_transport::exposure(net.next_layer(), comm) {}
  };
  using view = host_transport::view;
  view* view_of(int peer) { return next_layer().view_of(peer); }

  // ---- native collectives

  MPI_Comm comm() const { return comm_; }
  bool is_in_place() const { return opts_.in_place; }
  /// The memory of native calls, which may outlive this object.
  const std::shared_ptr<scratch_pool>& pool() const { return pool_; }
  /// Names the communicator of colls whose ranks are those of `comm()`.
  void set_communicator(std::uint32_t id) { id_ = id; }
  /// Makes this transport use MPI no more, because a call of MPI may never end.
  void retire() { is_retired_ = true; }
  /// Returns why MPI does not do the call with the fingerprint `call` on `comm`, or null if it
  /// does. The result is equal on all ranks.
  const char* native_obstacle(const communicator_state& comm, const fingerprint& call,
                              const network_cost& costs) const;
  /// Measures the native collectives on the communicator that `attach` has made, and stores their
  /// times in `costs`: those of the slowest rank. On other communicators it measures nothing,
  /// because they have none.
  template <class Channel>
  static task<> measure_collectives(Channel net, network_cost& costs);

 private:
  options opts_;
  MPI_Comm comm_;
  std::shared_ptr<scratch_pool> pool_ = std::make_shared<scratch_pool>();
  std::uint32_t parent_;
  std::uint32_t id_ = 0;  // 0 before `set_communicator`
  bool is_retired_ = false;
};

inline const char* transport::native_obstacle(const communicator_state& comm,
                                              const fingerprint& call,
                                              const network_cost& costs) const {
  if (comm.id() != id_) {
    return "MPI has no communicator for these ranks: attach one to this communicator";
  }
  if (call.algorithm == algorithm::automatic && !costs.native_of(call.operation).is_known()) {
    return "how long MPI takes is not known: measure() finds out";
  }
  const bool reduces = call.op != 0;
  if (reduces && call.wire != wire::accumulate) return "MPI sends no elements of the storage type";
  if (reduces && !native_reduction_of(call.accumulate, call.op)) {
    return "MPI has no such operation on elements of this type, or says less about its result";
  }
  if (call.operation == collective::all_to_all && call.shape != 0) {
    return "the lengths of the blocks are known to their ranks alone";
  }
  // Vectors that are cut, and equal blocks that MPI only moves, may be longer than an MPI count.
  const bool has_lengths = call.shape != 0 && call.operation != collective::all_reduce;
  const bool has_long_blocks = call.operation == collective::reduce_scatter &&
                               call.count / static_cast<std::uint64_t>(comm.size()) > max_count;
  if ((has_lengths && call.count > max_count) || has_long_blocks) {
    return "the counts of MPI are too small for this vector";
  }
  return nullptr;
}

}  // namespace colls::mpi
