// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/os/descriptor.hpp>

#include <colls/bootstrap/environment_variables.hpp>
#include <colls/bootstrap/file_store.hpp>
#include <colls/ddp/checkpoint.hpp>
#include <colls/driver/local_socket.hpp>
#include <colls/os/procfs.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "../support/folder.hpp"
#include "../support/interrupted.hpp"
#include "../support/joining.hpp"

using namespace joining;

TEST_CASE("a connect that a signal interrupts continues") {
  bench at;
  colls::listener acceptor;
  REQUIRE(!acceptor.listen(loopback()));
  colls::stream client(at.on);
  client.set_deadline(at.in(5 * seconds));
  const auto dial = [](colls::stream& from, endpoint server, std::error_code* ec) -> task<> {
    const auto done = co_await colls::detail::attempt(from.connect(server));
    *ec = done.ec;
  };
  std::error_code ec = make_error_code(errc::cancelled);
  const interrupted::begin all;
  at.run(dial(client, acceptor.local(), &ec));
  CHECK(!ec);
  CHECK(interrupted::count > 0);
  CHECK(acceptor.accept());
}

TEST_CASE("local sockets and the descriptors passed through them survive signals") {
  colls::listener tcp, local;
  REQUIRE(!tcp.listen(loopback()));
  REQUIRE(!colls::shm::listen_local(tcp.local(), local));
  colls::detail::descriptor one, passed;
  std::error_code ec;
  const interrupted::begin all;
  REQUIRE(!colls::shm::connect_local(tcp.local(), one));
  const colls::detail::descriptor other = local.accept();
  REQUIRE(other);
  CHECK(colls::shm::send_descriptor(one.get(), STDERR_FILENO));
  CHECK(colls::shm::receive_descriptor(other.get(), passed, ec));
  CHECK(!ec);
  CHECK(passed);
  CHECK(interrupted::count == 3);
}

TEST_CASE("a file store survives signals") {
  const folder here;
  bench at;
  const colls::file_store::options opts{2, 7, false};
  const interrupted::begin all;
  const auto first = colls::file_store::create(at.on, here.path + "/store", opts);
  const auto second =
      at.run(colls::file_store::open(at.on, here.path + "/store", opts, at.in(5 * seconds)));
  at.run(first->set("key", "value", at.in(5 * seconds)));
  CHECK(at.run(second->get("key", at.in(5 * seconds))) == "value");
  CHECK(at.run(second->add("number", 5, at.in(5 * seconds))) == 5);
  CHECK(interrupted::count > 5);
}

TEST_CASE("small files, secrets and checkpoints survive signals") {
  const folder here;
  const std::string path = here.path + "/secret";
  std::ofstream(path) << "a shared secret\n";
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  const interrupted::begin all;
  CHECK(colls::detail::read_small_file(path.c_str()) == "a shared secret\n");
  CHECK(colls::detail::read_secret_file(path) == "a shared secret");
  const std::string saved = here.path + "/checkpoint";
  {
    colls::ddp::atomic_file file(saved);
    file.write("weights", 7);
    file.commit();
  }
  const std::vector<char> read = colls::ddp::read_whole_file(saved);
  CHECK(std::string(read.begin(), read.end()) == "weights");
  CHECK(interrupted::count > 8);
}

TEST_CASE("a line of the log survives a signal") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  {
    const interrupted::begin all;
    colls::log_warn("a line");
  }
  ::dup2(before, STDERR_FILENO);
  char text[64] = {};
  CHECK(::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
  const ssize_t size = ::read(ends[0], text, sizeof text - 1);
  CHECK(std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0) ==
        "colls: [-] warning: a line\n");
  for (const int each : {ends[0], ends[1], before}) ::close(each);
}
