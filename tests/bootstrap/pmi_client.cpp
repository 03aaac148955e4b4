// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// A stand-in for a process manager: what ranks store there reaches the others by PMI-1 and by
// PMI-2, and whatever it answers, joining ends with an error that says what to do. Real process
// managers are in tests/cluster.
#include <colls/bootstrap/pmi_client.hpp>

#include <colls/bootstrap/form_world_by_pmi.hpp>
#include <colls/interprocess.hpp>
#include <colls/run.hpp>

#include "../support/joining.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace joining;
using colls::secret;
using colls::detail::pmi_client;
using colls::detail::pmi_field;

namespace {

/// A process manager with one connection for each rank. It serves them on a thread of its own.
class process_manager {
 public:
  /// Changes an answer. An empty one is not sent; `hang_up` closes the connection.
  using editor = std::function<std::string(const std::string& command, std::string answer)>;
  static inline const std::string hang_up = "(hangs up)";

  process_manager(int size, int version, editor edit = {})
      : version_(version), edit_(std::move(edit)) {
    for (int rank = 0; rank < size; ++rank) {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      clients_.emplace_back(ends[0]);
      connections_.push_back({colls::detail::descriptor(ends[1]), {}, false});
    }
    server_ = std::thread([this] { serve(); });
  }
  process_manager(const process_manager&) = delete;
  process_manager& operator=(const process_manager&) = delete;
  ~process_manager() {
    stops_ = true;
    server_.join();
  }

  int descriptor(int rank = 0) const { return clients_[static_cast<std::size_t>(rank)].get(); }
  /// Everything that was stored, and the number of fences.
  const std::map<std::string, std::string>& values() const { return values_; }
  int fences() const { return fences_; }
  /// How many initialisations were accepted.
  int initialisations() const { return initialisations_; }
  int finalisations() const { return finalisations_; }

 private:
  struct connection {
    colls::detail::descriptor socket;
    std::string received;
    bool has_lengths = false;  // of PMI-2
  };

  void serve() {
    while (!stops_) {
      std::vector<pollfd> watched;
      for (const connection& each : connections_) watched.push_back({each.socket.get(), POLLIN, 0});
      if (::poll(watched.data(), watched.size(), 20) <= 0) continue;
      for (std::size_t i = 0; i < watched.size(); ++i) {
        if (watched[i].revents != 0) read(connections_[i]);
      }
    }
  }
  void read(connection& from) {
    char piece[4096];
    const ssize_t got = ::recv(from.socket.get(), piece, sizeof piece, MSG_DONTWAIT);
    if (got <= 0) {
      from.socket = {};
      return;
    }
    from.received.append(piece, static_cast<std::size_t>(got));
    for (;;) {
      std::string command;
      // The first command of each initialisation is a line.
      if (from.has_lengths && !from.received.starts_with("cmd=init")) {
        if (from.received.size() < 6) return;
        const std::size_t size = std::stoul(from.received.substr(0, 6));
        if (from.received.size() < 6 + size) return;
        command = from.received.substr(6, size);
        from.received.erase(0, 6 + size);
      } else {
        const std::size_t end = from.received.find('\n');
        if (end == from.received.npos) return;
        command = from.received.substr(0, end);
        from.received.erase(0, end + 1);
      }
      execute(from, command);
    }
  }
  void execute(connection& from, const std::string& command) {
    if (command.starts_with("cmd=init ")) from.has_lengths = false;
    const char separator = from.has_lengths ? ';' : ' ';
    const auto field = [&](const char* name) { return pmi_field(command, name, separator); };
    const std::string name = field("cmd");
    if (name == "init") {
      const bool fits = field("pmi_version") == std::to_string(version_);
      answer(from, command,
             "cmd=response_to_init pmi_version=" + std::to_string(version_) +
                 " pmi_subversion=1 rc=" + (fits ? "0" : "-1"));
      from.has_lengths = fits && version_ == 2;
      if (fits) ++initialisations_;
    } else if (name == "finalize") {
      ++finalisations_;
      answer(from, command, version_ == 2 ? "cmd=finalize-response;rc=0;" : "cmd=finalize_ack");
    } else if (name == "fullinit") {
      answer(from, command, "cmd=fullinit-response;pmi-version=2;rank=0;size=1;rc=0;");
    } else if (name == "get_my_kvsname") {
      answer(from, command, "cmd=my_kvsname kvsname=kvs_7");
    } else if (name == "put" || name == "kvs-put") {
      const std::string text =
          version_ == 2 ? "cmd=kvs-put-response;rc=0;" : "cmd=put_result rc=0 msg=success";
      if (!edit_ || edit_(command, text) == text) values_[field("key")] = field("value");
      answer(from, command, text);
    } else if (name == "barrier_in" || name == "kvs-fence") {
      if (++in_fence_ < static_cast<int>(connections_.size())) return;
      in_fence_ = 0;
      ++fences_;
      for (connection& each : connections_) {
        answer(each, command, version_ == 2 ? "cmd=kvs-fence-response;rc=0;" : "cmd=barrier_out");
      }
    } else if (name == "get" || name == "kvs-get") {
      const auto found = values_.find(field("key"));
      const bool has = found != values_.end();
      const std::string value = has ? "value=" + found->second : "";
      answer(from, command,
             version_ == 2 ? "cmd=kvs-get-response;rc=0;found=" +
                                 std::string(has ? "TRUE;" : "FALSE;") + (has ? value + ";" : "")
                           : "cmd=get_result rc=" + std::string(has ? "0 " : "-1 ") + value);
    }
  }
  void answer(connection& to, const std::string& command, std::string text) {
    if (edit_) text = edit_(command, text);
    if (text.empty()) return;
    if (text == hang_up) {
      to.socket = {};
      return;
    }
    char length[16] = "";
    if (to.has_lengths) std::snprintf(length, sizeof length, "%6zu", text.size());
    const std::string sent = length + text + (to.has_lengths ? "" : "\n");
    (void)::send(to.socket.get(), sent.data(), sent.size(), MSG_NOSIGNAL);
  }

  int version_;
  editor edit_;
  std::vector<colls::detail::descriptor> clients_;
  std::vector<connection> connections_;
  std::map<std::string, std::string> values_;
  int in_fence_ = 0;
  std::atomic<int> fences_{0};
  std::atomic<int> initialisations_{0};
  std::atomic<int> finalisations_{0};
  std::atomic<bool> stops_{false};
  std::thread server_;
};

bool contains(const colls::failure& failed, std::string_view part) {
  return std::string_view(failed.detail).find(part) != std::string_view::npos;
}

/// What one rank gets, or the failure, if it stores a value and reads it.
task<std::string> store_and_read(engine& on, int fd, time_point deadline) {
  const auto client = co_await pmi_client::open(on, fd, 0, deadline);
  co_await client->put("key", "127.0.0.1:5/x");
  co_await client->fence();
  co_return co_await client->get("key");
}
struct reading {
  std::optional<std::string> value;
  std::optional<colls::failure> failed;
};
reading read_through(const process_manager& manager, time_point patience = 5 * seconds) {
  bench at;
  reading got;
  at.run(
      keep(store_and_read(at.on, manager.descriptor(), at.in(patience)), &got.value, &got.failed));
  return got;
}

/// Runs a world of `size` ranks on threads that meet by the process manager; returns their
/// statuses.
std::vector<int> run_world(const process_manager& manager, int size, int worlds,
                           const std::function<void(colls::config&)>& change = {}) {
  std::vector<int> statuses(static_cast<std::size_t>(size), -1);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      colls::config cfg;
      cfg.rank = rank;
      cfg.size = size;
      cfg.address = "pmi://" + std::to_string(manager.descriptor(rank));
      cfg.join_timeout = std::chrono::seconds(20);
      if (change) change(cfg);
      int& status = statuses[static_cast<std::size_t>(rank)];
      for (int i = 0; i < worlds && status <= 0; ++i) {
        status = colls::run(
            [size](colls::world& world) -> task<int> {
              int sum = world.rank();
              co_await world.all_reduce(std::span(&sum, 1));
              co_return sum == size*(size - 1) / 2 ? 0 : 2;
            },
            cfg);
      }
    });
  }
  for (std::thread& each : ranks) each.join();
  return statuses;
}

/// Whether this host has an address at which other hosts could reach rank 0; if not, prints that
/// the case is skipped.
bool has_other_address() {
  for (const auto& each : colls::detail::interface_addresses()) {
    if (!each.address.is_loopback()) return true;
  }
  MESSAGE("skipped: this host has no address but loopback");
  return false;
}

}  // namespace

TEST_CASE("fields of answers") {
  CHECK(pmi_field("cmd=get_result rc=0 value=a=b msg=", "value", ' ') == "a=b");
  CHECK(pmi_field("cmd=get_result rc=0 value=a", "val", ' ').empty());
  CHECK(pmi_field("cmd=x;rc=0;", "rc", ';') == "0");
  CHECK(pmi_field("", "rc", ';').empty());
  CHECK(pmi_field("rc", "rc", ';').empty());
}

TEST_CASE("a value is stored and read by PMI-1, and by PMI-2 if PMI-1 is refused") {
  for (const int version : {1, 2}) {
    CAPTURE(version);
    const process_manager manager(1, version);
    const reading got = read_through(manager);
    REQUIRE(got.value.has_value());
    CHECK(*got.value == "127.0.0.1:5/x");
    CHECK(manager.values().at("key") == "127.0.0.1:5/x");
    // A second client does not initialise the connection again, which ends a job of srun.
    CHECK(read_through(manager).value.has_value());
    CHECK(manager.initialisations() == 1);
  }
}

TEST_CASE("a process finalises the connection when it exits, and no other process does") {
  for (const int version : {1, 2}) {
    CAPTURE(version);
    const process_manager manager(1, version);
    const pid_t rank = ::fork();
    if (rank == 0) {
      const bool has_value = read_through(manager).value.has_value();
      const pid_t child = ::fork();
      if (child == 0) {
        const reading got = read_through(manager);
        std::exit(got.failed.has_value() && contains(*got.failed, "was forked from a rank") ? 0
                                                                                            : 1);
      }
      int status = -1;
      ::waitpid(child, &status, 0);
      std::exit(has_value && status == 0 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(rank, &status, 0) == rank);
    CHECK(status == 0);
    CHECK(manager.finalisations() == 1);
  }
}

TEST_CASE("worlds that meet by a process manager, one after another") {
  if (!has_other_address()) return;
  for (const int version : {1, 2}) {
    for (const int size : {2, 3, 5}) {
      CAPTURE(version);
      CAPTURE(size);
      const process_manager manager(size, version);
      CHECK(run_world(manager, size, 2) == std::vector<int>(static_cast<std::size_t>(size), 0));
      CHECK(manager.fences() == 2);
      REQUIRE(manager.values().size() == 2);
      // A drawn secret, another one for each world, at an address that other hosts can reach.
      const std::string first = manager.values().at("colls-1");
      const std::string second = manager.values().at("colls-2");
      CHECK(first.substr(first.find('/')) != second.substr(second.find('/')));
      CHECK(first.size() - first.find('/') == 1 + secret::drawn_size);
      CHECK_FALSE(first.starts_with("127."));
    }
  }
}

TEST_CASE("a secret that the user has given does not reach the process manager") {
  if (!has_other_address()) return;
  const process_manager manager(2, 1);
  const auto give = [](colls::config& cfg) { cfg.secret = "a secret of the user"; };
  CHECK(run_world(manager, 2, 1, give) == std::vector<int>{0, 0});
  CHECK(manager.values().at("colls-1").ends_with("/given"));
  const process_manager other(2, 1);
  const auto give_one = [](colls::config& cfg) {
    if (cfg.rank == 0) cfg.secret = "a secret of the user";
    cfg.join_timeout = std::chrono::seconds(1);
  };
  CHECK(run_world(other, 2, 1, give_one) == std::vector<int>{1, 1});
  CHECK(other.values().at("colls-1").ends_with("/given"));
}

TEST_CASE("rank 0 that cannot serve the store tells the others") {
  const process_manager manager(3, 2);
  const auto choose = [](colls::config& cfg) {
    if (cfg.rank == 0) cfg.socket_ifname = "no-such-interface";
  };
  const auto began = std::chrono::steady_clock::now();
  CHECK(run_world(manager, 3, 1, choose) == std::vector<int>{1, 1, 1});
  CHECK(manager.values().at("colls-1") == "none");
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));  // of 20
  // Nor do they wait if it cannot tell them.
  const process_manager full(3, 1, [](const std::string& command, std::string answer) {
    return command.find("cmd=put") == 0 ? "cmd=put_result rc=-1 msg=no_space" : answer;
  });
  const auto again = std::chrono::steady_clock::now();
  CHECK(run_world(full, 3, 1) == std::vector<int>{1, 1, 1});
  CHECK(std::chrono::steady_clock::now() - again < std::chrono::seconds(10));
}

TEST_CASE("after a join that failed in the middle, the next one is refused") {
  std::atomic<bool> is_silent{true};
  const process_manager manager(1, 1, [&](const std::string& command, std::string answer) {
    return is_silent && command == "cmd=barrier_in" ? "" : answer;
  });
  const reading first = read_through(manager, 200 * milliseconds);
  REQUIRE(first.failed.has_value());
  CHECK(first.failed->code == errc::join_timeout);
  is_silent = false;
  const reading second = read_through(manager);
  REQUIRE(second.failed.has_value());
  CHECK(second.failed->code == errc::join_failed);
  CHECK(contains(*second.failed, "an earlier join failed"));
}

TEST_CASE("errors do not show the secret") {
  for (const int version : {1, 2}) {
    const std::string hidden(secret::drawn_size, 's');
    const process_manager manager(1, version, [&](const std::string& command, std::string answer) {
      const bool is_put = command.find("put") != command.npos;
      return is_put ? (version == 1 ? "cmd=get_result rc=0 value=10.0.0.1:1/" + hidden
                                    : "cmd=kvs-get-response;rc=0;value=10.0.0.1:1/" + hidden + ";")
                    : answer;
    });
    const reading got = read_through(manager);
    REQUIRE(got.failed.has_value());
    CHECK_FALSE(contains(*got.failed, "ssss"));
    CHECK_FALSE(contains(*got.failed, "127.0.0.1:5"));
  }
}

TEST_CASE("whatever the process manager answers, joining ends with an error") {
  struct fault {
    const char* command;  // the answer to which is another one
    std::string answer;
    errc code;
    const char* text;
  };
  const fault faults[] = {
      {"init", process_manager::hang_up, errc::join_failed, "it has closed the connection"},
      {"init", "", errc::join_timeout, "does not answer to init"},
      {"init", "cmd=response_to_init rc=-1", errc::join_failed, "neither PMI-1 nor PMI-2"},
      {"put", "cmd=put_result rc=-1 msg=no_space", errc::join_failed, "no_space"},
      {"put", "cmd=maxes rc=0", errc::join_failed, "answers 'maxes"},
      {"put", "garbage", errc::join_failed, "answers 'garbage'"},
      {"fence", "", errc::join_timeout, "some ranks of the job have not joined"},
      {"fence", process_manager::hang_up, errc::join_failed, "MASTER_ADDR"},
      {"get", "cmd=get_result rc=-1 msg=key_not_found", errc::join_failed, "key_not_found"},
      {"get", "cmd=get_result rc=0", errc::join_failed, "answers"},
      {"get", std::string(100'000, 'x'), errc::join_failed, "xxxx"},
  };
  for (const int version : {1, 2}) {
    for (const fault& each : faults) {
      CAPTURE(version);
      CAPTURE(each.command);
      CAPTURE(each.answer);
      const std::string wanted =
          each.command == std::string("fence") && version == 1 ? "barrier_in" : each.command;
      const process_manager manager(
          1, version, [&](const std::string& command, std::string answer) {
            const bool is_meant =
                command.find("cmd=" + wanted) == 0 || command.find("cmd=kvs-" + wanted) == 0;
            return is_meant ? each.answer : answer;
          });
      const reading got = read_through(manager, 300 * milliseconds);
      REQUIRE(got.failed.has_value());
      CHECK(got.failed->code == each.code);
      if (each.answer.size() < 1000) CHECK(contains(*got.failed, each.text));
    }
  }
}

TEST_CASE("a descriptor that is closed, and one that is no socket") {
  bench at;
  for (const int fd : {1 << 20, ::open("/dev/null", O_RDONLY | O_CLOEXEC)}) {
    reading got;
    at.run(keep(store_and_read(at.on, fd, at.in(seconds)), &got.value, &got.failed));
    REQUIRE(got.failed.has_value());
    CHECK(got.failed->code == errc::join_failed);
    CHECK(contains(*got.failed, "PMI_FD="));
    CHECK(contains(*got.failed, "MASTER_ADDR"));
  }
}

TEST_CASE("a rank that does not come") {
  const process_manager manager(2, 1);
  const reading got = read_through(manager, 200 * milliseconds);
  REQUIRE(got.failed.has_value());
  CHECK(got.failed->code == errc::join_timeout);
}
