// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// compare-openmpi, compare-mpich: measures the collectives of an MPI library as colls-bench
// measures colls. The library's mpirun starts it and sets the transport.

#include "peer.hpp"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

namespace {

using bench::completed_call;
using bench::element;

template <class T>
MPI_Datatype type_of() {
  if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  if constexpr (std::is_same_v<T, std::int32_t>) return MPI_INT32_T;
  if constexpr (std::is_same_v<T, std::uint64_t>) return MPI_UINT64_T;
  throw std::invalid_argument("MPI has no such type");
}

template <class Op>
MPI_Op mpi_op() {
  return std::is_same_v<Op, colls::maximum> ? MPI_MAX : MPI_SUM;
}

class communicator {
 public:
  communicator() {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }

  completed_call barrier(colls::options = {}) {
    MPI_Barrier(comm_);
    return {};
  }

  template <class Data, class Op = colls::plus>
  completed_call all_reduce(Data& data, Op = {}, colls::options = {}) {
    MPI_Allreduce(MPI_IN_PLACE, std::data(data), count(data), type(data), mpi_op<Op>(), comm_);
    return {};
  }
  template <class Data, class Op>
  completed_call all_reduce(const Data& in, Data& out, Op, colls::options) {
    MPI_Allreduce(in.data(), out.data(), count(in), type(in), mpi_op<Op>(), comm_);
    return {};
  }
  template <class Data, class Op>
  completed_call reduce(Data& data, int root, Op, colls::options) {
    const void* const in = rank_ == root ? MPI_IN_PLACE : data.data();
    MPI_Reduce(in, data.data(), count(data), type(data), mpi_op<Op>(), root, comm_);
    return {};
  }
  template <class Data, class Op>
  completed_call reduce(const Data& in, Data& out, int root, Op, colls::options) {
    MPI_Reduce(in.data(), out.data(), count(in), type(in), mpi_op<Op>(), root, comm_);
    return {};
  }
  template <class Data, class Op>
  completed_call reduce_scatter(const Data& in, Data& out, Op, colls::options) {
    MPI_Reduce_scatter_block(in.data(), out.data(), count(out), type(in), mpi_op<Op>(), comm_);
    return {};
  }
  template <class Data, class Op>
  completed_call scan(Data& data, Op, colls::options) {
    MPI_Scan(MPI_IN_PLACE, data.data(), count(data), type(data), mpi_op<Op>(), comm_);
    return {};
  }
  template <class Data, class Op>
  completed_call exscan(Data& data, Op, colls::options) {
    MPI_Exscan(MPI_IN_PLACE, data.data(), count(data), type(data), mpi_op<Op>(), comm_);
    return {};
  }

  template <class Bytes>
  completed_call broadcast(Bytes& data, int root, colls::options) {
    MPI_Bcast(data.data(), count(data), MPI_BYTE, root, comm_);
    return {};
  }
  template <class Bytes>
  completed_call all_gather(const Bytes& in, Bytes& out, colls::options) {
    MPI_Allgather(in.data(), count(in), MPI_BYTE, out.data(), count(in), MPI_BYTE, comm_);
    return {};
  }
  template <class Bytes>
  completed_call gather(const Bytes& in, Bytes& out, int root, colls::options) {
    MPI_Gather(in.data(), count(in), MPI_BYTE, out.data(), count(in), MPI_BYTE, root, comm_);
    return {};
  }
  template <class Bytes>
  completed_call scatter(const Bytes& in, Bytes& out, int root, colls::options) {
    MPI_Scatter(in.data(), count(out), MPI_BYTE, out.data(), count(out), MPI_BYTE, root, comm_);
    return {};
  }
  template <class Bytes>
  completed_call all_to_all(const Bytes& in, Bytes& out, colls::options) {
    const int block = count(in) / size_;
    MPI_Alltoall(in.data(), block, MPI_BYTE, out.data(), block, MPI_BYTE, comm_);
    return {};
  }

 private:
  template <class Data>
  static int count(const Data& data) {
    return static_cast<int>(std::size(data));
  }
  template <class Data>
  static MPI_Datatype type(const Data&) {
    return type_of<element<const Data>>();
  }

  MPI_Comm comm_ = MPI_COMM_WORLD;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
#ifdef OPEN_MPI
  const char* const library = "openmpi";
#else
  const char* const library = "mpich";
#endif
  const int status = bench::peer_main(argc, argv, library, [](const bench::options& opts) {
    communicator comm;
    bench::pin(comm.rank(), comm.size());
    bench::measure_blocking(comm, opts);
    return 0;
  });
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
#ifdef OPEN_MPI
  MPI_Finalize();
#else
  // With UCX over TCP, MPI_Finalize of MPICH 4.0 sometimes never returns.
  MPI_Barrier(MPI_COMM_WORLD);
  std::fflush(nullptr);
  std::_Exit(0);
#endif
}
