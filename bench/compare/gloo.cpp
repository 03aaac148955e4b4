// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// compare-gloo: measures Gloo's collectives over TCP as colls-bench measures colls. It starts its
// own ranks. --algorithm auto|ring|bcube|halving_doubling: halving_doubling is an older Gloo class.
// Its buffers are registered once, the calling thread polls its sockets, and it supports only
// all_reduce.

#include "peer.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

namespace {

using bench::completed_call;
using bench::element;

template <class T, class Op>
void combine(void* out, const void* a, const void* b, std::size_t n) {
  if constexpr (std::is_same_v<Op, colls::maximum>) {
    gloo::max<T>(out, a, b, n);
  } else {
    gloo::sum<T>(out, a, b, n);
  }
}

class communicator {
 public:
  communicator(const bench::options& opts, int rank, const std::string& folder) : opts_(opts) {
    gloo::rendezvous::FileStore store(folder);
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    const auto device = gloo::transport::tcp::CreateDevice(address);
    gloo_ = make_context(store, device, rank, "gloo");
    if (opts.algorithm == "halving_doubling") {
      polled_ = make_context(store, device, rank, "polled");
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank) polled_->getPair(peer)->setSync(true, true);
      }
    }
  }
  int rank() const { return gloo_->rank; }
  int size() const { return gloo_->size; }

  completed_call barrier(colls::options = {}) {
    gloo::BarrierOptions call(gloo_);
    gloo::barrier(call);
    return {};
  }

  template <class Data, class Op = colls::plus>
  completed_call all_reduce(Data& data, Op = {}) {
    gloo::AllreduceOptions call(gloo_);
    call.setOutput(std::data(data), std::size(data));
    call.setReduceFunction(combine<element<Data>, Op>);
    gloo::allreduce(call);
    return {};
  }
  template <class Data, class Op>
  completed_call all_reduce(Data& data, Op op, colls::options) {
    return reduce_all(data, data, op);
  }
  template <class Data, class Op>
  completed_call all_reduce(Data& in, Data& out, Op op, colls::options) {
    return reduce_all(in, out, op);
  }
  template <class Data, class Op>
  completed_call reduce(Data& data, int root, Op op, colls::options call) {
    return reduce(data, data, root, op, call);
  }
  template <class Data, class Op>
  completed_call reduce(Data& in, Data& out, int root, Op, colls::options) {
    gloo::ReduceOptions call(gloo_);
    call.setInput(in.data(), in.size());
    call.setOutput(out.data(), out.size());
    call.setRoot(root);
    call.setReduceFunction(combine<element<Data>, Op>);
    gloo::reduce(call);
    return {};
  }
  template <class Data, class Op>
  completed_call reduce_scatter(const Data&, Data&, Op, colls::options) {
    bench::throw_unsupported(opts_, opts_.collective);
  }
  template <class Data, class Op>
  completed_call scan(Data&, Op, colls::options) {
    bench::throw_unsupported(opts_, opts_.collective);
  }
  template <class Data, class Op>
  completed_call exscan(Data&, Op, colls::options) {
    bench::throw_unsupported(opts_, opts_.collective);
  }

  template <class Bytes>
  completed_call broadcast(Bytes& data, int root, colls::options) {
    gloo::BroadcastOptions call(gloo_);
    call.setOutput(data.data(), data.size());
    call.setRoot(root);
    gloo::broadcast(call);
    return {};
  }
  template <class Bytes>
  completed_call all_gather(Bytes& in, Bytes& out, colls::options) {
    gloo::AllgatherOptions call(gloo_);
    call.setInput(in.data(), in.size());
    call.setOutput(out.data(), out.size());
    gloo::allgather(call);
    return {};
  }
  template <class Bytes>
  completed_call gather(Bytes& in, Bytes& out, int root, colls::options) {
    gloo::GatherOptions call(gloo_);
    call.setInput(in.data(), in.size());
    if (rank() == root) call.setOutput(out.data(), out.size());
    call.setRoot(root);
    gloo::gather(call);
    return {};
  }
  template <class Bytes>
  completed_call scatter(Bytes& in, Bytes& out, int root, colls::options) {
    gloo::ScatterOptions call(gloo_);
    std::vector<unsigned char*> parts;
    for (int i = 0; rank() == root && i < size(); ++i) {
      parts.push_back(in.data() + out.size() * static_cast<std::size_t>(i));
    }
    if (!parts.empty()) call.setInputs(parts, out.size());
    call.setOutput(out.data(), out.size());
    call.setRoot(root);
    gloo::scatter(call);
    return {};
  }
  template <class Bytes>
  completed_call all_to_all(Bytes& in, Bytes& out, colls::options) {
    gloo::AlltoallOptions call(gloo_);
    call.setInput(in.data(), in.size());
    call.setOutput(out.data(), out.size());
    gloo::alltoall(call);
    return {};
  }

 private:
  using context = std::shared_ptr<gloo::rendezvous::Context>;

  context make_context(gloo::rendezvous::Store& store,
                       std::shared_ptr<gloo::transport::Device> device, int rank,
                       const std::string& name) const {
    gloo::rendezvous::PrefixStore own(name, store);
    auto result = std::make_shared<gloo::rendezvous::Context>(rank, opts_.ranks);
    result->connectFullMesh(own, device);
    return result;
  }

  template <class Data, class Op>
  completed_call reduce_all(Data& in, Data& out, Op op) {
    if (polled_) return reduce_all_polling(in, out, op);
    using algorithms = gloo::AllreduceOptions::Algorithm;
    gloo::AllreduceOptions call(gloo_);
    call.setAlgorithm(opts_.algorithm == "ring"    ? algorithms::RING
                      : opts_.algorithm == "bcube" ? algorithms::BCUBE
                                                   : algorithms::UNSPECIFIED);
    if (&in != &out) call.setInput(in.data(), in.size());
    call.setOutput(out.data(), out.size());
    call.setReduceFunction(combine<element<Data>, Op>);
    gloo::allreduce(call);
    return {};
  }

  // The algorithm works in place and belongs to one buffer, so it is kept as long as the buffer
  // stays the same.
  template <class Data, class Op>
  completed_call reduce_all_polling(Data& in, Data& out, Op) {
    using T = element<Data>;
    if (out.data() != buffer_ || out.size() != buffer_size_) {
      const auto* const op = std::is_same_v<Op, colls::maximum> ? gloo::ReductionFunction<T>::max
                                                                : gloo::ReductionFunction<T>::sum;
      polling_.reset();
      polling_ = std::make_unique<gloo::AllreduceHalvingDoubling<T>>(
          polled_, std::vector<T*>{out.data()}, static_cast<int>(out.size()), op);
      buffer_ = out.data();
      buffer_size_ = out.size();
    }
    if (&in != &out) std::copy_n(in.data(), in.size(), out.data());
    polling_->run();
    return {};
  }

  const bench::options& opts_;
  context gloo_;
  context polled_;
  std::unique_ptr<gloo::Algorithm> polling_;
  const void* buffer_ = nullptr;
  std::size_t buffer_size_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return bench::peer_main(argc, argv, "gloo", [](const bench::options& opts) {
    const bench::temporary_folder folder;
    return bench::run_in_processes(opts.ranks, [&](int rank) {
      try {
        communicator comm(opts, rank, folder.path());
        bench::measure_blocking(comm, opts);
        return 0;
      } catch (const std::exception& failed) {
        if (rank == 0) std::fprintf(stderr, "%s\n", failed.what());
        return 1;
      }
    });
  });
}
