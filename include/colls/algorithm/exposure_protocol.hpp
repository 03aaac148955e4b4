// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// exposure_protocol: the messages of an operation in which ranks access each other's memory. The
// memory may be host memory (shared_window.hpp) or device memory (cuda/ipc_operation.hpp). The
// steps of such an operation are the same:
//
// 1. Publish. Each rank opens a remote key and sends it, with a description of the memory that it
//    exposes, to the ranks that will access the memory. Like every message of a collective, this
//    one carries a hash of the sender's arguments, so arguments are compared before memory is
//    touched.
// 2. Enter. Before a rank accesses memory, it enters the access guards of the owners (see
//    os/access_guard.hpp), which checks the keys. If a key is closed, the operation has failed on
//    its owner. The rank then waits for the revocation, which says why (`await_revocation`).
// 3. Work. The rank accesses the memory and leaves the guards. It repeats steps 2 and 3 for each
//    piece.
// 4. Done. The rank tells the owners that it no longer accesses their memory, and waits until all
//    ranks that access its own memory have said so. Then it closes its key.
//
// A rank that ends the operation early revokes its key instead (see the access guard), so that no
// rank accesses the memory afterwards.

#include <colls/algorithm/multi_send_recv.hpp>

namespace colls::exposure_protocol {

/// An exchange of messages of the protocol. Their bytes count as bytes in place, because they are
/// not the caller's data.
template <channel Channel>
class exchange {
 public:
  exchange(Channel net, const multi_send_buffers& sends, const multi_recv_buffers& recvs)
      : net_(net),
        sends_(sends),
        recvs_(recvs),
        messages_(multi_send_recv::exchange(net_, sends, recvs)) {}
  bool start(completion& done) { return messages_.start(done); }
  void result() {
    detail::unwrap_result(messages_);
    std::uint64_t& count = net_.record().bytes_in_place;
    sends_.for_each(net_.rank(), [&](int peer) { count += sends_.buffer_for(peer).size; });
    recvs_.for_each(net_.rank(), [&](int peer) { count += recvs_.buffer_for(peer).size; });
  }

 private:
  Channel net_;
  multi_send_buffers sends_;
  multi_recv_buffers recvs_;
  detail::awaited<decltype(multi_send_recv::exchange(std::declval<Channel&>(), multi_send_buffers(),
                                                     multi_recv_buffers()))>
      messages_;
};

/// Returns an exchange in which each rank sends `own` to all other ranks. Afterwards block r of
/// `blocks` holds what rank r sent, for every rank r except this rank.
template <channel Channel>
exchange<Channel> exchange_with_all(Channel net, const_bytes own, std::byte* blocks) {
  return {net, multi_send_buffers::same(multi_send_recv::all_ranks(net), own),
          multi_recv_buffers::blocks(multi_send_recv::all_ranks(net), {blocks, own.size})};
}

/// Called after a peer has closed its key early. Waits until this rank learns that the communicator
/// has been revoked, and then throws the error that the revocation contains. To wait, posts a
/// receive on `unused_lane`. No rank sends a message on this lane, so the receive ends only when
/// the revocation makes it fail.
template <channel Channel>
task<> await_revocation(Channel net, int peer) {
  co_await net.lane(unused_lane).recv(peer, mutable_bytes());
}

}  // namespace colls::exposure_protocol
