// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this transport cannot be made again for another executor: dup\(executor\) needs a transport between processes
#include <colls/inproc.hpp>

#include <boost/asio/io_context.hpp>

void program(colls::inproc::communicator& comm) {
#ifdef MUST_NOT_COMPILE
  boost::asio::io_context other;
  auto copy = comm.dup(other.get_executor());
#else
  auto copy = comm.dup();
#endif
}
