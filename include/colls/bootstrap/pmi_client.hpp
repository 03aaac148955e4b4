// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pmi_client: a client of the process manager that has started this process. It uses the key-value
// space of the job by the protocol PMI-1 or PMI-2.

#include <colls/bootstrap/key_value_space.hpp>
#include <colls/driver/socket.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace colls::detail {

/// A connection to the process manager, such as mpiexec or srun, by the descriptor that it has left
/// to this process (PMI_FD). All functions throw `join_failed` if the process manager refuses,
/// closes the connection or sends anything but an answer, and `join_timeout` if it does not answer
/// by the deadline.
///
/// The first client of a process initialises the connection. The process finalises it when it
/// exits, because mpiexec ends the job if a process exits without that. (Until then mpiexec lets
/// MPI initialise the connection, too. With srun and PMI-2, only one library of a process can use
/// it.)
class pmi_client final : public key_value_space {
 public:
  /// Opens a connection by a copy of the descriptor `fd`, when no other join uses it. Asks for
  /// PMI-1 and, if that is refused, for PMI-2. `rank` is the rank of this process.
  static task<std::unique_ptr<key_value_space>> open(engine& driver, int fd, int rank,
                                                     time_point deadline);

  int number() const override { return lock_->number(); }
  task<> put(std::string key, std::string value) override;
  task<> fence() override;
  task<std::string> get(std::string key) override;

 private:
  // What the clients of a connection have in common. It exists until the process exits.
  struct connection : manager_connection {
    connection() = default;
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection();

    int fd = -1;
    ino_t inode = 0;    // of the socket
    int version = 0;    // of PMI, or 0 before the connection is initialised
    std::string space;  // the name of the key-value space (PMI-1)
  };

  pmi_client(engine& driver, descriptor socket, connection& shared,
             std::unique_ptr<manager_lock> lock, time_point deadline);

  // Returns the connection by the descriptor `fd`.
  static connection& find(int fd);
  task<> initialise(int rank);
  bool is_second() const { return shared_.version == 2; }
  bool is_fence() const { return command_ == "barrier_in" || command_ == "kvs-fence"; }
  // Sends a command and returns the answer, which must have the name `answer`.
  task<std::string> ask(std::string command, std::string answer);
  // Sends the command that asks for a version of PMI; returns whether it is accepted.
  task<bool> ask_for_version(int version);
  task<> write(std::string text);
  // Waits until an answer comes. Logs a warning after 30 s.
  task<> wait_for_answer();
  task<std::string> read_line();
  task<std::string> read(std::size_t size);
  [[noreturn]] void refuse(const std::string& answer) const;
  [[noreturn]] void fail(std::error_code ec) const;

  connection& shared_;
  std::unique_ptr<manager_lock> lock_;
  stream socket_;
  time_point deadline_;
  std::string command_;  // the name of the last command, for errors
};

/// Returns the value of a field `name=value` in an answer whose fields end with `separator`, or an
/// empty text if there is none.
std::string pmi_field(std::string_view answer, std::string_view name, char separator);

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/pmi_client.ipp>
#endif
