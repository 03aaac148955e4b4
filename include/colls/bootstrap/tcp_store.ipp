// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of tcp_store.hpp: sends requests to the store and reads its replies.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/tcp_store.hpp>

namespace colls {

COLLS_ONCE tcp_store::tcp_store(std::unique_ptr<stream> connection, const hello& server,
                                time_point default_timeout, bool has_checksums)
    : engine_(connection->driver()),
      connection_(std::move(connection)),
      server_address_(detail::text_of(connection_->remote())),
      local_(connection_->local().address()),
      server_(server),
      default_timeout_(default_timeout),
      has_checksums_(has_checksums),
      tasks_(engine_) {
  detail::enable_keep_alive(connection_->descriptor());
  connection_->set_deadline(never);
  engine_.add(static_cast<engine::source&>(*this), false);
  send({.op = frame::opcode::enter}, {}, {});
  tasks_.start(read_loop());
}

COLLS_ONCE tcp_store::~tcp_store() {
  engine_.remove(static_cast<engine::source&>(*this));
  if (loss_ || has_left_ || writing_ || !connection_->is_open()) return;
  std::string last;
  detail::append_frame(last, {.op = frame::opcode::goodbye}, {}, {}, has_checksums_);
  const detail::descriptor socket = connection_->release();
  // An error of `send` is ignored, because the connection is closed in any case.
  [[maybe_unused]] const auto ignored =
      ::send(socket.get(), last.data(), last.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

COLLS_ONCE void tcp_store::interrupt(const failure& reason) {
  if (!interruption_) interruption_ = reason;
  for (auto& [id, it] : std::exchange(requests_, {})) it->fail(*interruption_);
}

COLLS_ONCE task<> tcp_store::report_failure(failure reason, time_point deadline) {
  co_await call(frame::opcode::report, std::string(),
                std::string(reported_failure::bytes_of(reason)), 0, deadline);
}

COLLS_ONCE void tcp_store::listen_for_failures(failure_listener* listener) {
  listener_ = listener;
  for (std::size_t i = 0; i < failures_.size() && listener_ != nullptr; ++i) {
    listener_->rank_failed(failures_[i].reason().culprit, failures_[i]);
  }
}

COLLS_ONCE task<> tcp_store::leave(time_point deadline) {
  if (loss_ || has_left_) co_return;
  has_left_ = true;
  try {
    co_await call(frame::opcode::goodbye, std::string(), std::string(), 0, deadline);
  } catch (const error& gone) {
    log_debug("the store at %s did not answer to the goodbye: %s", server_address_.c_str(),
              gone.record().detail);
  }
  connection_->close();
}

COLLS_ONCE task<tcp_store::answer> tcp_store::call(frame::opcode op, std::string key,
                                                   std::string value, std::int64_t number,
                                                   time_point deadline) {
  if (interruption_ && (loss_ || op != frame::opcode::goodbye)) throw error(*interruption_);
  if (key.size() > max_key_size || value.size() > frame::max_value_size) {
    detail::raise(errc::invalid_argument, "a key of %zu bytes with a value of %zu: too long",
                  key.size(), value.size());
  }
  if (deadline == never)
    deadline = time_span::from_nanoseconds(default_timeout_).after(engine_.now());
  request pending(*this, ++last_id_, op, deadline);
  send({.op = op, .id = pending.id(), .number = number}, key, value);
  co_await pending;
  if (pending.cause) {
    if (pending.cause->code == errc::timeout && pending.cause->detail[0] == 0) {
      pending.cause->set_detail("the store at %s did not answer the request for '%.160s' in time",
                                server_address_.c_str(), key.c_str());
    }
    throw error(*pending.cause);
  }
  co_return std::move(pending.reply);
}

COLLS_ONCE task<> tcp_store::do_set(std::string key, std::string value, time_point deadline) {
  co_await call(frame::opcode::set, std::move(key), std::move(value), 0, deadline);
}

COLLS_ONCE task<std::string> tcp_store::do_get(std::string key, time_point deadline) {
  answer result = co_await call(frame::opcode::get, std::move(key), std::string(), 0, deadline);
  co_return std::move(result.value);
}

COLLS_ONCE task<std::int64_t> tcp_store::do_add(std::string key, std::int64_t amount,
                                                time_point deadline) {
  const answer result =
      co_await call(frame::opcode::add, std::move(key), std::string(), amount, deadline);
  co_return result.number;
}

COLLS_ONCE task<> tcp_store::do_wait(std::vector<std::string> keys, time_point deadline) {
  co_await call(frame::opcode::wait, std::string(), detail::join_strings(keys), 0, deadline);
}

COLLS_ONCE task<std::string> tcp_store::do_compare_set(std::string key, std::string expected,
                                                       std::string desired, time_point deadline) {
  std::string both;
  detail::append_string(both, expected);
  detail::append_string(both, desired);
  answer result =
      co_await call(frame::opcode::compare_set, std::move(key), std::move(both), 0, deadline);
  co_return std::move(result.value);
}

COLLS_ONCE task<std::string> tcp_store::do_check(std::vector<std::string> keys,
                                                 time_point deadline) {
  answer result =
      co_await call(frame::opcode::check, std::string(), detail::join_strings(keys), 0, deadline);
  co_return std::move(result.value);
}

COLLS_ONCE void tcp_store::send(const frame& header, std::string_view key, std::string_view value) {
  detail::append_frame(output_, header, key, value, has_checksums_);
  if (!writing_) tasks_.start(flush());
}

COLLS_ONCE void tcp_store::forget(std::uint32_t id) {
  if (!loss_) send({.op = frame::opcode::forget, .id = id}, {}, {});
}

COLLS_ONCE task<> tcp_store::flush() {
  writing_ = true;
  while (!output_.empty()) {
    const std::string batch = std::exchange(output_, {});
    const detail::outcome done = co_await detail::attempt(
        connection_->write({reinterpret_cast<const std::byte*>(batch.data()), batch.size()}));
    if (!done) break;  // `read_frames` reports the reason
  }
  writing_ = false;
}

COLLS_ONCE task<> tcp_store::read_loop() {
  try {
    co_await read_frames();
  } catch (const std::bad_alloc&) {
    disconnect("out of memory for its replies");
  }
}

COLLS_ONCE task<> tcp_store::read_frames() {
  detail::received_frame received;
  std::string value;
  std::error_code ec;
  while (!loss_) {
    const detail::outcome done =
        co_await detail::read_frame_header(*connection_, has_checksums_, received);
    ec = done.ec;
    if (!done) break;
    if (received.frame.op < frame::opcode::reply || received.frame.key_size != 0) {
      ec = make_error_code(errc::protocol_error);
      break;
    }
    const detail::outcome rest =
        co_await detail::read_string(*connection_, value, received.frame.value_size);
    ec = rest.ec;
    if (!rest) break;
    if (!received.matches({}, value)) {
      ec = detail::damaged_frame();
      break;
    }
    if (received.frame.op == frame::opcode::bye) {
      disconnect("it has left");
      co_return;
    }
    if (!handle_reply(received.frame, value)) {
      ec = make_error_code(errc::protocol_error);
      break;
    }
  }
  if (has_left_ && requests_.empty()) co_return;
  if (ec == detail::damaged_frame()) {
    failure reason(errc::protocol_error);
    reason.culprit = server_.rank;
    std::snprintf(reason.address, sizeof reason.address, "%s", server_address_.c_str());
    reason.set_detail("%s", detail::damaged_store_frame_text);
    disconnect(reason);
    record_failure(reported_failure(reason));
    co_return;
  }
  const bool silent = ec == std::errc::timed_out || ec == std::errc::host_unreachable;
  const bool died = ec == errc::closed || ec == std::errc::connection_reset || silent;
  disconnect(ec == errc::closed ? "it hung up" : ec.message().c_str());
  if (died && !has_left_ && server_.rank >= 0) {
    failure reason(errc::peer_failed);
    reason.culprit = server_.rank;
    std::snprintf(reason.address, sizeof reason.address, "%s", server_address_.c_str());
    reason.set_detail(silent ? "its host is silent" : "its process ended without a goodbye");
    record_failure(reported_failure(reason));
  }
}

COLLS_ONCE bool tcp_store::handle_reply(const frame& header, std::string& value) {
  if (header.op == frame::opcode::failed) {
    const auto report = detail::parse_failure(value, server_.world);
    if (report) record_failure(*report);
    return report.has_value();
  }
  const auto found = requests_.find(header.id);
  if (found == requests_.end()) return true;  // the request was cancelled or has timed out
  request& it = *found->second;
  requests_.erase(found);
  if (header.op == frame::opcode::reply) {
    it.finish(std::move(value), header.number);
    return true;
  }
  const auto reason = detail::parse_failure(value, server_.world);
  it.fail(reason ? reason->reason()
                 : failure(errc::protocol_error, "the store refused without a reason"));
  return true;
}

COLLS_ONCE void tcp_store::record_failure(const reported_failure& report) {
  failures_.push_back(report);
  if (listener_ != nullptr) listener_->rank_failed(report.reason().culprit, report);
}

COLLS_ONCE void tcp_store::disconnect(const char* cause) {
  failure reason(errc::unreachable);
  reason.culprit = server_.rank;
  std::snprintf(reason.address, sizeof reason.address, "%s", server_address_.c_str());
  reason.set_detail(
      "the store at %s, served by %s, is gone: %s", server_address_.c_str(),
      server_.rank < 0 ? "the launcher" : ("rank " + std::to_string(server_.rank)).c_str(), cause);
  disconnect(reason);
}

COLLS_ONCE void tcp_store::disconnect(const failure& reason) {
  loss_ = reason;
  log_debug("%s", reason.detail);
  interrupt(reason);
}

COLLS_ONCE void tcp_store::sweep(time_point now) {
  std::vector<request*> overdue;
  for (const auto& [id, it] : requests_) {
    if (it->is_overdue(now)) overdue.push_back(it);
  }
  for (request* it : overdue) {
    requests_.erase(it->id());
    if (it->is_wait()) forget(it->id());
    it->fail(failure(errc::timeout));
  }
}

}  // namespace colls
