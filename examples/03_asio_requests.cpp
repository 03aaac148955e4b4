// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// An Asio program that serves requests and from time to time adds up their number over all ranks,
// in one thread with one io_context: colls-run -n 3 asio_requests

#include <colls/asio.hpp>
#include <colls/join.hpp>

#include <boost/asio.hpp>
#include <cstdio>

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

// Accepts one client and answers each byte with the same byte. `served` counts the requests.
asio::awaitable<void> serve(tcp::acceptor& acceptor, long& served) {
  tcp::socket client = co_await acceptor.async_accept(asio::use_awaitable);
  for (;;) {
    char request[1];
    boost::system::error_code ec;
    co_await asio::async_read(client, asio::buffer(request),
                              asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return;
    ++served;
    co_await asio::async_write(client, asio::buffer(request), asio::use_awaitable);
  }
}

// A client that sends `count` requests.
asio::awaitable<void> send_requests(tcp::endpoint address, long count) {
  tcp::socket server(co_await asio::this_coro::executor);
  co_await server.async_connect(address, asio::use_awaitable);
  for (char request[1] = {}; count > 0; --count) {
    co_await asio::async_write(server, asio::buffer(request), asio::use_awaitable);
    co_await asio::async_read(server, asio::buffer(request), asio::use_awaitable);
  }
}

// Adds up the served requests of all ranks until all have been served. Every rank sees the same
// totals, so all ranks leave the loop after the same all_reduce.
asio::awaitable<void> add_up(tcp::acceptor& acceptor, long& served) {
  const auto executor = co_await asio::this_coro::executor;
  colls::world world = co_await colls::join(executor, colls::environment());
  long expected[] = {1000 * (world.rank() + 1)};
  asio::co_spawn(executor, send_requests(acceptor.local_endpoint(), expected[0]), asio::detached);
  co_await world.all_reduce(expected);

  asio::steady_timer timer(executor);
  for (long total[] = {0}; total[0] < expected[0];) {
    timer.expires_after(10ms);
    co_await timer.async_wait(asio::use_awaitable);
    total[0] = served;
    co_await world.all_reduce(total);
    if (world.rank() == 0) std::printf("%ld of %ld requests\n", total[0], expected[0]);
  }
  co_await world.close();
}

int main() {
  asio::io_context io(1);
  tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  long served = 0;
  int status = 0;
  asio::co_spawn(io, serve(acceptor, served), asio::detached);
  asio::co_spawn(io, add_up(acceptor, served), [&](std::exception_ptr failed) {
    try {
      if (failed) std::rethrow_exception(failed);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      status = 1;
      io.stop();
    }
  });
  io.run();
  return status;
}
