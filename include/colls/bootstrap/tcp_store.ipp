// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a client does: the second half of tcp_store.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/tcp_store.hpp>

namespace colls {

COLLS_ONCE tcp_store::tcp_store(std::unique_ptr<stream> link, const hello& server,
                                time_point patience, bool checks)
    : engine_(link->on()),
      link_(std::move(link)),
      where_(detail::text_of(link_->remote())),
      local_(link_->local().address()),
      server_(server),
      patience_(patience),
      checks_(checks),
      tasks_(engine_) {
  detail::keep_alive(link_->descriptor());
  link_->deadline(never);
  engine_.add(static_cast<engine::source&>(*this), false);
  send({.what = frame::kind::enter}, {}, {});
  tasks_.start(read_answers());
}

COLLS_ONCE tcp_store::~tcp_store() {
  engine_.remove(static_cast<engine::source&>(*this));
  if (lost_ || left_ || writing_ || !link_->is_open()) return;
  std::string last;
  detail::append_frame(last, {.what = frame::kind::goodbye}, {}, {}, checks_);
  const detail::descriptor socket = link_->release();
  // A server that is gone hears nothing.
  [[maybe_unused]] const auto ignored =
      ::send(socket.get(), last.data(), last.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

COLLS_ONCE void tcp_store::interrupt(const failure& why) {
  if (!given_up_) given_up_ = why;
  for (auto& [id, it] : std::exchange(requests_, {})) it->fail(*given_up_);
}

COLLS_ONCE task<> tcp_store::report_failure(failure why, time_point deadline) {
  co_await ask(frame::kind::report, std::string(), std::string(reported_failure::bytes_of(why)), 0,
               deadline);
}

COLLS_ONCE void tcp_store::listen_for_failures(failure_listener* who) {
  listener_ = who;
  for (std::size_t i = 0; i < failures_.size() && listener_ != nullptr; ++i) {
    listener_->rank_failed(failures_[i].why().culprit, failures_[i]);
  }
}

COLLS_ONCE task<> tcp_store::leave(time_point deadline) {
  if (lost_ || left_) co_return;
  left_ = true;
  try {
    co_await ask(frame::kind::goodbye, std::string(), std::string(), 0, deadline);
  } catch (const error& gone) {
    log_debug("the store at %s did not answer to the goodbye: %s", where_.c_str(),
              gone.record().detail);
  }
  link_->close();
}

COLLS_ONCE task<tcp_store::answer> tcp_store::ask(frame::kind what, std::string key,
                                                  std::string value, std::int64_t number,
                                                  time_point deadline) {
  if (given_up_ && (lost_ || what != frame::kind::goodbye)) throw error(*given_up_);
  if (key.size() > longest_key || value.size() > frame::longest_value) {
    detail::raise(errc::invalid_argument, "a key of %zu bytes with a value of %zu: too long",
                  key.size(), value.size());
  }
  if (deadline == never) deadline = time_span::of(patience_).after(engine_.now());
  request mine(*this, ++last_id_, what, deadline);
  send({.what = what, .id = mine.id(), .number = number}, key, value);
  co_await mine;
  if (mine.failed) {
    if (mine.failed->code == errc::timeout) {
      mine.failed->say("the store at %s did not give an answer on '%.160s' in time", where_.c_str(),
                       key.c_str());
    }
    throw error(*mine.failed);
  }
  co_return std::move(mine.got);
}

COLLS_ONCE task<> tcp_store::do_set(std::string key, std::string value, time_point deadline) {
  co_await ask(frame::kind::set, std::move(key), std::move(value), 0, deadline);
}

COLLS_ONCE task<std::string> tcp_store::do_get(std::string key, time_point deadline) {
  answer got = co_await ask(frame::kind::get, std::move(key), std::string(), 0, deadline);
  co_return std::move(got.value);
}

COLLS_ONCE task<std::int64_t> tcp_store::do_add(std::string key, std::int64_t amount,
                                                time_point deadline) {
  const answer got =
      co_await ask(frame::kind::add, std::move(key), std::string(), amount, deadline);
  co_return got.number;
}

COLLS_ONCE task<> tcp_store::do_wait(std::vector<std::string> keys, time_point deadline) {
  co_await ask(frame::kind::wait, std::string(), detail::join_texts(keys), 0, deadline);
}

COLLS_ONCE task<std::string> tcp_store::do_compare_set(std::string key, std::string expected,
                                                       std::string desired, time_point deadline) {
  std::string both;
  detail::append_text(both, expected);
  detail::append_text(both, desired);
  answer got = co_await ask(frame::kind::compare_set, std::move(key), std::move(both), 0, deadline);
  co_return std::move(got.value);
}

COLLS_ONCE task<std::string> tcp_store::do_check(std::vector<std::string> keys,
                                                 time_point deadline) {
  answer got =
      co_await ask(frame::kind::check, std::string(), detail::join_texts(keys), 0, deadline);
  co_return std::move(got.value);
}

COLLS_ONCE void tcp_store::send(const frame& head, std::string_view key, std::string_view value) {
  detail::append_frame(out_, head, key, value, checks_);
  if (!writing_) tasks_.start(flush());
}

COLLS_ONCE void tcp_store::forget(std::uint32_t id) {
  if (!lost_) send({.what = frame::kind::forget, .id = id}, {}, {});
}

COLLS_ONCE task<> tcp_store::flush() {
  writing_ = true;
  while (!out_.empty()) {
    const std::string batch = std::exchange(out_, {});
    const detail::outcome done = co_await detail::attempt(
        link_->write({reinterpret_cast<const std::byte*>(batch.data()), batch.size()}));
    if (!done) break;  // the reader says why
  }
  writing_ = false;
}

COLLS_ONCE task<> tcp_store::read_answers() {
  try {
    co_await read_on();
  } catch (const std::bad_alloc&) {
    lose("there is no memory for what it says");
  }
}

COLLS_ONCE task<> tcp_store::read_on() {
  detail::store_head head;
  std::string value;
  std::error_code ec;
  while (!lost_) {
    const detail::outcome done = co_await detail::read_head(*link_, checks_, head);
    ec = done.ec;
    if (!done) break;
    if (head.frame.what < frame::kind::reply || head.frame.key_size != 0) {
      ec = make_error_code(errc::protocol_error);
      break;
    }
    const detail::outcome rest = co_await detail::read_text(*link_, value, head.frame.value_size);
    ec = rest.ec;
    if (!rest) break;
    if (!head.is_of({}, value)) {
      ec = detail::damaged_frame();
      break;
    }
    if (head.frame.what == frame::kind::bye) {
      lose("it has left");
      co_return;
    }
    if (!take(head.frame, value)) {
      ec = make_error_code(errc::protocol_error);
      break;
    }
  }
  if (left_ && requests_.empty()) co_return;
  if (ec == detail::damaged_frame()) {
    failure why(errc::protocol_error);
    why.culprit = server_.rank;
    std::snprintf(why.address, sizeof why.address, "%s", where_.c_str());
    why.say("%s", detail::damaged_store_frame);
    lose(why);
    failed(reported_failure(why));
    co_return;
  }
  const bool silent = ec == std::errc::timed_out || ec == std::errc::host_unreachable;
  const bool died = ec == errc::closed || ec == std::errc::connection_reset || silent;
  lose(ec == errc::closed ? "it hung up" : ec.message().c_str());
  if (died && !left_ && server_.rank >= 0) {
    failure why(errc::peer_failed);
    why.culprit = server_.rank;
    std::snprintf(why.address, sizeof why.address, "%s", where_.c_str());
    why.say(silent ? "its host is silent" : "its process ended without a goodbye");
    failed(reported_failure(why));
  }
}

COLLS_ONCE bool tcp_store::take(const frame& head, std::string& value) {
  if (head.what == frame::kind::failed) {
    const auto report = detail::read_failure(value, server_.world);
    if (report) failed(*report);
    return report.has_value();
  }
  const auto found = requests_.find(head.id);
  if (found == requests_.end()) return true;  // it was withdrawn or late
  request& it = *found->second;
  requests_.erase(found);
  if (head.what == frame::kind::reply) {
    it.finish(std::move(value), head.number);
    return true;
  }
  const auto why = detail::read_failure(value, server_.world);
  it.fail(why ? why->why() : failure(errc::protocol_error, "the store refused without a reason"));
  return true;
}

COLLS_ONCE void tcp_store::failed(const reported_failure& report) {
  failures_.push_back(report);
  if (listener_ != nullptr) listener_->rank_failed(report.why().culprit, report);
}

COLLS_ONCE void tcp_store::lose(const char* how) {
  failure why(errc::unreachable);
  why.culprit = server_.rank;
  std::snprintf(why.address, sizeof why.address, "%s", where_.c_str());
  why.say("the store at %s, served by %s, is gone: %s", where_.c_str(),
          server_.rank < 0 ? "the launcher" : ("rank " + std::to_string(server_.rank)).c_str(),
          how);
  lose(why);
}

COLLS_ONCE void tcp_store::lose(const failure& why) {
  lost_ = why;
  log_debug("%s", why.detail);
  interrupt(why);
}

COLLS_ONCE void tcp_store::sweep(time_point now) {
  std::vector<request*> late;
  for (const auto& [id, it] : requests_) {
    if (it->late(now)) late.push_back(it);
  }
  for (request* it : late) {
    requests_.erase(it->id());
    if (it->waits()) forget(it->id());
    it->fail(failure(errc::timeout));
  }
}

}  // namespace colls
