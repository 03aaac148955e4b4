// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the call writes the buffers of a list, and they are const
#include <colls/colls.hpp>

#include <span>

#ifdef MUST_NOT_COMPILE
using buffer = std::span<const float>;
#else
using buffer = std::span<float>;
#endif

colls::operation<> rank_main(colls::inproc::communicator& comm, std::vector<buffer>& buffers) {
  return comm.all_reduce(buffers);
}
