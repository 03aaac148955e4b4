// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// An Asio program that serves requests and, between them, adds up over all ranks how many there
// were. One thread, one io_context: colls-run -n 3 asio_requests

#include <colls/asio.hpp>
#include <colls/join.hpp>

#include <boost/asio.hpp>
#include <cstdio>

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

// Answers each byte with the same byte.
asio::awaitable<void> serve(tcp::acceptor& door, long& served) {
  tcp::socket client = co_await door.async_accept(asio::use_awaitable);
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

// Somebody with that many requests.
asio::awaitable<void> ask(tcp::endpoint where, long times) {
  tcp::socket server(co_await asio::this_coro::executor);
  co_await server.async_connect(where, asio::use_awaitable);
  for (char request[1] = {}; times > 0; --times) {
    co_await asio::async_write(server, asio::buffer(request), asio::use_awaitable);
    co_await asio::async_read(server, asio::buffer(request), asio::use_awaitable);
  }
}

// Every rank sees the same totals, so all of them leave after the same one.
asio::awaitable<void> add_up(tcp::acceptor& door, long& served) {
  const auto executor = co_await asio::this_coro::executor;
  colls::world world = co_await colls::join(executor, colls::environment());
  long wanted[] = {1000 * (world.rank() + 1)};
  asio::co_spawn(executor, ask(door.local_endpoint(), wanted[0]), asio::detached);
  co_await world.all_reduce(wanted);

  asio::steady_timer timer(executor);
  for (long total[] = {0}; total[0] < wanted[0];) {
    timer.expires_after(10ms);
    co_await timer.async_wait(asio::use_awaitable);
    total[0] = served;
    co_await world.all_reduce(total);
    if (world.rank() == 0) std::printf("%ld of %ld requests\n", total[0], wanted[0]);
  }
  co_await world.close();
}

int main() {
  asio::io_context io(1);
  tcp::acceptor door(io, {asio::ip::address_v4::loopback(), 0});
  long served = 0;
  int status = 0;
  asio::co_spawn(io, serve(door, served), asio::detached);
  asio::co_spawn(io, add_up(door, served), [&](std::exception_ptr failed) {
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
