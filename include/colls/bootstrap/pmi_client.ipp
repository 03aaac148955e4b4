// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of pmi_client.hpp: the commands of PMI-1, which are lines, and those of PMI-2,
// which have their lengths before them.

#include <colls/base/compiler.hpp>
#include <colls/base/log.hpp>
#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/bootstrap/pmi_client.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace colls::detail {

/// The size of the number that PMI-2 sends before a message, and the longest message.
inline constexpr std::size_t pmi_length_size = 6;
inline constexpr long max_pmi_message = 64 * 1024;

COLLS_ONCE std::string pmi_field(std::string_view answer, std::string_view name, char separator) {
  while (!answer.empty()) {
    const std::size_t end = std::min(answer.find(separator), answer.size());
    const std::string_view field = answer.substr(0, end);
    if (field.size() > name.size() && field.starts_with(name) && field[name.size()] == '=') {
      return std::string(field.substr(name.size() + 1));
    }
    answer.remove_prefix(std::min(end + 1, answer.size()));
  }
  return {};
}

COLLS_ONCE pmi_client::pmi_client(engine& driver, descriptor socket, connection& shared,
                                  std::unique_ptr<manager_lock> lock, time_point deadline)
    : shared_(shared),
      lock_(std::move(lock)),
      socket_(driver, std::move(socket)),
      deadline_(deadline) {
  socket_.set_deadline(deadline);
}

COLLS_ONCE pmi_client::connection::~connection() {
  if (version == 0 || process != ::getpid()) return;
  struct stat facts{};
  if (::fstat(fd, &facts) != 0 || facts.st_ino != inode) return;  // it is closed
  const char* const command = version == 1 ? "cmd=finalize\n" : "    13cmd=finalize;";
  if (::send(fd, command, std::strlen(command), MSG_NOSIGNAL | MSG_DONTWAIT) <= 0) return;
  pollfd answered{fd, POLLIN, 0};
  (void)::poll(&answered, 1, 1000);  // a process manager that does not answer is not waited for
}

COLLS_ONCE pmi_client::connection& pmi_client::find(int fd) {
  static std::mutex mutex;
  static std::map<ino_t, connection> connections;
  struct stat facts{};
  if (::fstat(fd, &facts) != 0 || !S_ISSOCK(facts.st_mode)) {
    raise(errc::join_failed,
          "PMI_FD=%d, by which this process should reach its process manager, is no socket; %s", fd,
          without_process_manager);
  }
  const std::lock_guard lock(mutex);
  connection& found = connections[facts.st_ino];
  found.fd = fd;
  found.inode = facts.st_ino;
  return found;
}

COLLS_ONCE task<std::unique_ptr<key_value_space>> pmi_client::open(engine& driver, int fd, int rank,
                                                                   time_point deadline) {
  connection& shared = find(fd);
  auto lock =
      co_await manager_lock::acquire(shared, "PMI_FD=" + std::to_string(fd), driver, deadline);
  descriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    raise(errc::too_many_files, "PMI_FD=%d cannot be copied: %s", fd, std::strerror(errno));
  }
  std::unique_ptr<pmi_client> made(
      new pmi_client(driver, std::move(copy), shared, std::move(lock), deadline));
  if (shared.version == 0) co_await made->initialise(rank);
  co_return std::move(made);
}

COLLS_ONCE task<> pmi_client::initialise(int rank) {
  const bool is_first = co_await ask_for_version(1);
  if (is_first) {
    const std::string answer = co_await ask("cmd=get_my_kvsname", "my_kvsname");
    shared_.space = pmi_field(answer, "kvsname", ' ');
    shared_.version = 1;
    co_return;
  }
  const bool is_second = co_await ask_for_version(2);
  if (!is_second) {
    raise(errc::join_failed, "the process manager at PMI_FD=%d speaks neither PMI-1 nor PMI-2; %s",
          shared_.fd, without_process_manager);
  }
  shared_.version = 2;
  try {
    (void)co_await ask("cmd=fullinit;pmirank=" + std::to_string(rank) + ";threaded=FALSE;",
                       "fullinit-response");
  } catch (const error&) {
    shared_.version = 0;
    throw;
  }
}

COLLS_ONCE task<bool> pmi_client::ask_for_version(int version) {
  command_ = "init";
  lock_->set_pending(true);
  co_await write("cmd=init pmi_version=" + std::to_string(version) +
                 " pmi_subversion=" + (version == 1 ? "1\n" : "0\n"));
  const std::string answer = co_await read_line();
  lock_->set_pending(false);
  co_return pmi_field(answer, "rc", ' ') == "0" &&
      pmi_field(answer, "pmi_version", ' ') == std::to_string(version);
}

COLLS_ONCE task<> pmi_client::put(std::string key, std::string value) {
  if (is_second()) {
    (void)co_await ask("cmd=kvs-put;key=" + key + ";value=" + value + ";", "kvs-put-response");
  } else {
    (void)co_await ask("cmd=put kvsname=" + shared_.space + " key=" + key + " value=" + value,
                       "put_result");
  }
}

COLLS_ONCE task<> pmi_client::fence() {
  if (is_second()) {
    (void)co_await ask("cmd=kvs-fence;", "kvs-fence-response");
  } else {
    (void)co_await ask("cmd=barrier_in", "barrier_out");
  }
}

COLLS_ONCE task<std::string> pmi_client::get(std::string key) {
  std::string answer;
  if (is_second()) {
    answer = co_await ask("cmd=kvs-get;jobid=;srcid=-1;key=" + key + ";", "kvs-get-response");
  } else {
    answer = co_await ask("cmd=get kvsname=" + shared_.space + " key=" + key, "get_result");
  }
  std::string value = pmi_field(answer, "value", is_second() ? ';' : ' ');
  if (value.empty()) refuse(answer);
  co_return value;
}

COLLS_ONCE task<std::string> pmi_client::ask(std::string command, std::string answer) {
  const char separator = is_second() ? ';' : ' ';
  command_ = pmi_field(command, "cmd", separator);
  char length[16] = "";
  if (is_second()) std::snprintf(length, sizeof length, "%6zu", command.size());
  lock_->set_pending(true);
  co_await write(length + command + (is_second() ? "" : "\n"));
  co_await wait_for_answer();
  std::string text;
  if (is_second()) {
    std::string number = co_await read(pmi_length_size);
    number.erase(0, number.find_first_not_of(' '));
    const long size = parse_number(number, max_pmi_message);
    if (size < 0) refuse(number);
    text = co_await read(static_cast<std::size_t>(size));
  } else {
    text = co_await read_line();
  }
  lock_->set_pending(false);
  const std::string result = pmi_field(text, "rc", separator);
  const bool is_good = result.empty() ? !is_second() : result == "0";
  if (pmi_field(text, "cmd", separator) != answer || !is_good) refuse(text);
  co_return text;
}

COLLS_ONCE task<> pmi_client::wait_for_answer() {
  socket_.set_deadline(std::min(deadline_, socket_.driver().now() + 30 * seconds));
  const outcome first = co_await attempt(socket_.readable());
  socket_.set_deadline(deadline_);
  if (first.ec == errc::timeout && socket_.driver().now() < deadline_) {
    log_warn("the process manager at PMI_FD=%d has not answered to %s for 30 s%s", shared_.fd,
             command_.c_str(), is_fence() ? ": some ranks of the job have not joined" : "");
  }
}

COLLS_ONCE task<> pmi_client::write(std::string text) {
  const outcome done = co_await attempt(
      socket_.write({reinterpret_cast<const std::byte*>(text.data()), text.size()}));
  if (!done) fail(done.ec);
}

COLLS_ONCE task<std::string> pmi_client::read_line() {
  std::string line;
  for (;;) {
    char next = 0;
    const outcome done = co_await attempt(socket_.read({reinterpret_cast<std::byte*>(&next), 1}));
    if (!done) fail(done.ec);
    if (next == '\n') co_return line;
    line += next;
    if (static_cast<long>(line.size()) > max_pmi_message) refuse(line);
  }
}

COLLS_ONCE task<std::string> pmi_client::read(std::size_t size) {
  std::string text(size, '\0');
  const outcome done =
      co_await attempt(socket_.read({reinterpret_cast<std::byte*>(text.data()), size}));
  if (!done) fail(done.ec);
  co_return text;
}

// Answers and commands may contain the secret, so errors show only parts of them.
COLLS_ONCE void pmi_client::refuse(const std::string& answer) const {
  const char separator = is_second() ? ';' : ' ';
  const std::string name = pmi_field(answer, "cmd", separator);
  const std::string text = name.empty() ? answer.substr(0, 40)
                                        : name + " rc=" + pmi_field(answer, "rc", separator) + ' ' +
                                              pmi_field(answer, "msg", separator);
  raise(errc::join_failed, "the process manager at PMI_FD=%d answers '%.80s' to %.40s; %s",
        shared_.fd, text.c_str(), command_.c_str(), without_process_manager);
}

COLLS_ONCE void pmi_client::fail(std::error_code ec) const {
  if (ec == errc::timeout) {
    raise(errc::join_timeout, "the process manager at PMI_FD=%d does not answer to %s%s",
          shared_.fd, command_.c_str(),
          is_fence() ? ": some ranks of the job have not joined" : "");
  }
  raise(errc::join_failed, "the process manager at PMI_FD=%d: %s; %s", shared_.fd,
        ec == errc::closed ? "it has closed the connection" : ec.message().c_str(),
        without_process_manager);
}

}  // namespace colls::detail
