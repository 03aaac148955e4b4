// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of store_server.hpp: serves the clients of the store (the key-value service
// through which ranks find each other).

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/store_server.hpp>

namespace colls {

COLLS_ONCE store_server::store_server(engine& driver, hello local, const secret& key)
    : engine_(driver), local_(local), key_(key), tasks_(driver) {
  local_.purpose = connection_purpose::store;
  engine_.add(static_cast<engine::source&>(*this), false);
}

COLLS_ONCE store_server::~store_server() {
  engine_.remove(static_cast<engine::source&>(*this));
  close();
}

COLLS_ONCE std::error_code store_server::listen(const endpoint& address) {
  if (!key_.is_good()) return make_error_code(errc::insecure_bind);
  auto entry = std::make_unique<listening_address>();
  if (const std::error_code ec = entry->socket.listen(address)) return ec;
  return open(std::move(entry));
}

COLLS_ONCE std::error_code store_server::adopt(int socket) {
  auto entry = std::make_unique<listening_address>();
  entry->socket.adopt(detail::descriptor(socket));
  if (!key_.is_good()) return make_error_code(errc::insecure_bind);
  return open(std::move(entry));
}

COLLS_ONCE int store_server::pending_count() const {
  int sum = 0;
  for (const auto& it : listening_) sum += it->authenticator->pending_count();
  return sum;
}

COLLS_ONCE std::uint64_t store_server::rejected_count() const {
  std::uint64_t sum = 0;
  for (const auto& it : listening_) sum += it->authenticator->rejected_count();
  return sum;
}

COLLS_ONCE std::string store_server::accept_error() const {
  for (const auto& it : listening_) {
    std::string reason = it->authenticator->accept_error();
    if (!reason.empty()) return reason;
  }
  return {};
}

COLLS_ONCE std::size_t store_server::unsent_bytes() const {
  std::size_t sum = 0;
  for (const auto& it : clients_) sum += it->output.size() + it->sending.size();
  return sum;
}

COLLS_ONCE bool store_server::has_work() const {
  return std::any_of(clients_.begin(), clients_.end(), [](const client_ptr& each) {
    return each->writing || !each->output.empty() || each->connection->has_input();
  });
}

COLLS_ONCE void store_server::announce_failure(const reported_failure& report) {
  failure reason = report;
  // The death of a rank concerns all communicators. What a rank only suspects concerns one.
  const bool is_death = reason.code == errc::peer_failed && !reason.is_suspicion_of_a_rank();
  if (is_death) reason.communicator = 0;
  for (const failure& known : failures_) {
    const bool is_weaker =
        known.proved < reason.proved || (known.is_suspicion_of_a_rank() && is_death);
    if (known.culprit == reason.culprit && known.code == reason.code &&
        known.communicator == reason.communicator && !is_weaker) {
      return;
    }
  }
  if (!is_death && revocations_ == max_revocations) return;
  failures_.push_back(reported_failure(reason));
  if (!is_death) ++revocations_;
  for (const auto& it : clients_) send_failures(*it);
}

COLLS_ONCE void store_server::reserve_failures() {
  const std::size_t wanted = failures_.size() + clients_.size() + 2;
  if (failures_.capacity() < wanted) failures_.reserve(2 * wanted);
}

COLLS_ONCE void store_server::send_failures(client& peer) {
  try {
    while (peer.has_entered && peer.failures_sent < failures_.size()) {
      const failure& reason = failures_[peer.failures_sent];
      detail::append_frame(peer.output, {.op = frame::opcode::failed}, {},
                           reported_failure::bytes_of(reason), peer.info.checksum);
      ++peer.failures_sent;
    }
  } catch (const std::bad_alloc&) {
  }
  start_flush(peer);
}

COLLS_ONCE void store_server::start_flush(client& peer) {
  if (peer.writing || (peer.output.empty() && peer.ready.empty())) return;
  try {
    tasks_.start(flush(peer.shared_from_this()));
  } catch (const std::bad_alloc&) {
  }
}

COLLS_ONCE void store_server::announce_failure(int rank, std::string_view reason) {
  failure record(errc::peer_failed);
  record.culprit = rank;
  record.proved = true;  // the launcher has seen that the process has ended
  record.set_detail("%.*s", static_cast<int>(reason.size()), reason.data());
  reserve_failures();
  announce_failure(reported_failure(record));
}

COLLS_ONCE task<> store_server::drain(time_point deadline) {
  drain_deadline_ = deadline;
  drain_operation all_left(*this);
  co_await all_left;
}

COLLS_ONCE void store_server::close() {
  listening_.clear();
  std::string last;
  for (const auto& it : clients_) {
    if (it->writing || !it->connection->is_open()) continue;
    last.clear();
    detail::append_frame(last, {.op = frame::opcode::bye}, {}, {}, it->info.checksum);
    const detail::descriptor socket = it->connection->release();
    // An error of `send` is ignored, because the connection is closed in any case.
    [[maybe_unused]] const auto ignored =
        ::send(socket.get(), last.data(), last.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

COLLS_ONCE std::error_code store_server::open(std::unique_ptr<listening_address> entry) {
  const auto address = entry->socket.local().address();
  if (detail::is_loopback(address) || address.is_unspecified()) {
    entry->local_secret = std::make_unique<local_secret_server>(engine_, key_);
    const std::error_code ec = entry->local_secret->listen(entry->socket);
    lacks_local_socket_ = ec && key_.is_drawn();
    if (lacks_local_socket_) return ec;
    if (ec) {
      entry->local_secret.reset();
      log_debug("no local socket beside the store: %s", ec.message().c_str());
    }
  }
  entry->authenticator = std::make_unique<authenticating_listener>(
      engine_, entry->socket, local_, key_, static_cast<authenticating_listener::handler&>(*this));
  listening_.push_back(std::move(entry));
  return {};
}

COLLS_ONCE void store_server::handle_peer(std::unique_ptr<stream> connection, const hello& peer) {
  detail::enable_keep_alive(connection->descriptor());
  auto entry = std::make_shared<client>();
  entry->address = detail::text_of(connection->remote());
  entry->connection = std::move(connection);
  entry->info = peer;
  tasks_.start(serve_client(std::move(entry)));
}

COLLS_ONCE verdict store_server::decide_verdict(const hello& peer) const {
  if (peer.purpose != connection_purpose::store) return verdict::unavailable;
  if (peer.world != local_.world) return verdict::other_world;
  if (peer.rank < 0) return verdict::accepted;
  const auto known = ranks_.find(peer.rank);
  if (known == ranks_.end()) return verdict::accepted;
  return known->second ? verdict::rank_taken : verdict::world_complete;
}

COLLS_ONCE task<> store_server::serve_client(client_ptr peer) {
  const int rank = peer->info.rank;
  const verdict result = decide_verdict(peer->info);
  if (result == verdict::accepted) {
    reserve_failures();
    clients_.reserve(clients_.size() + 1);
    if (rank >= 0) ranks_[rank] = true;
    clients_.push_back(peer);
  } else {
    log_.warn("turned away rank %d of %d at %s, connected from %s: %s", rank, peer->info.world,
              detail::text_of(local()).c_str(), peer->address.c_str(),
              result == verdict::other_world      ? "this world has another size"
              : result == verdict::rank_taken     ? "that rank has already joined"
              : result == verdict::world_complete ? "that rank has joined and left"
                                                  : "this is a store");
  }
  const char* cause = nullptr;
  bool damaged = false;
  try {
    co_await give_verdict(*peer->connection, result, local_.world);
    if (result == verdict::accepted) {
      const detail::outcome ended = co_await serve_requests(*peer);
      damaged = ended.ec == detail::damaged_frame();
    }
  } catch (const error& thrown) {
    cause = thrown.record().code == errc::protocol_error ? "sent what no rank of colls would send"
                                                         : nullptr;
  } catch (const std::bad_alloc&) {
    cause = "asked for more than the store has memory for";
  }
  if (result != verdict::accepted) co_return;
  if (damaged) {
    failure reason(errc::protocol_error);
    reason.culprit = rank;
    std::snprintf(reason.address, sizeof reason.address, "%s", peer->address.c_str());
    reason.set_detail("%s", detail::damaged_store_frame_text);
    announce_failure(reported_failure(reason));
    co_await end_after_error(*peer);
  }
  peer->connection->close();
  std::erase(clients_, peer);
  for (const auto& [id, it] : peer->waits) table_.forget(*it);
  peer->waits.clear();
  peer->ready.clear();
  if (!peer->has_entered) {
    ranks_.erase(rank);
    co_return;
  }
  if (rank < 0) co_return;
  ranks_[rank] = false;
  client_gone();
  if (peer->has_left || damaged) co_return;
  failure reason(errc::peer_failed);
  reason.culprit = rank;
  std::snprintf(reason.address, sizeof reason.address, "%s", peer->address.c_str());
  reason.set_detail("%s", cause != nullptr ? cause : "its process ended without a goodbye");
  announce_failure(reported_failure(reason));
}

COLLS_ONCE task<detail::outcome> store_server::serve_requests(client& peer) {
  detail::received_frame received;
  std::string key;
  std::string value;
  for (;;) {
    const detail::outcome done =
        co_await detail::read_frame_header(*peer.connection, peer.info.checksum, received);
    if (done.ec == errc::protocol_error) throw error(errc::protocol_error);
    if (!done) co_return done;
    const frame& request = received.frame;
    if (request.op >= frame::opcode::reply || peer.has_left ||
        peer.has_entered == (request.op == frame::opcode::enter)) {
      throw error(errc::protocol_error);
    }
    const detail::outcome first =
        co_await detail::read_string(*peer.connection, key, request.key_size);
    if (!first) co_return first;
    const detail::outcome second =
        co_await detail::read_string(*peer.connection, value, request.value_size);
    if (!second) co_return second;
    if (!received.matches(key, value)) co_return detail::outcome{detail::damaged_frame()};
    handle_request(peer, request, key, value);
    // While the unsent replies to a client exceed `max_unsent_bytes`, the server does not read the
    // client's next request. Otherwise a client that reads no replies could exhaust the memory.
    while (peer.output.size() > max_unsent_bytes && peer.connection->is_open()) {
      co_await engine_.sleep_until(engine_.now() + 10 * milliseconds);
    }
  }
}

COLLS_ONCE task<> store_server::end_after_error(client& peer) {
  reply(peer, {.op = frame::opcode::bye}, {});
  peer.connection->set_deadline(engine_.now() + seconds);
  // The caller closes the connection when this function has returned. If the caller closed a
  // connection with unread input, the system would reset the connection, and the frame `bye` could
  // be lost. Therefore this loop reads all input.
  std::array<std::byte, 4096> rest{};
  for (detail::outcome more; more;) {
    std::size_t some = 0;
    more =
        co_await detail::attempt(peer.connection->read_some(detail::as_mutable_bytes(rest), &some));
  }
}

COLLS_ONCE void store_server::handle_request(client& peer, const frame& request,
                                             const std::string& key, std::string& value) {
  frame answer{.op = frame::opcode::reply, .id = request.id};
  std::string text;
  try {
    switch (request.op) {
      case frame::opcode::enter:
        peer.has_entered = true;
        if (peer.info.rank >= 0) ++present_;
        send_failures(peer);
        return;
      case frame::opcode::set:
        table_.set(key, std::move(value));
        break;
      case frame::opcode::get:
        if (const std::string* const held = table_.find(key)) {
          text = *held;
          break;
        }
        wait_for(peer, request.id, {key}).key = key;
        return;
      case frame::opcode::add:
        answer.number = table_.add(key, request.number);
        break;
      case frame::opcode::wait: {
        const auto keys = parse_strings(value);
        if (table_.check(keys).find('0') == std::string::npos) break;
        wait_for(peer, request.id, keys);
        return;
      }
      case frame::opcode::check:
        text = table_.check(parse_strings(value));
        break;
      case frame::opcode::compare_set: {
        auto both = parse_strings(value);
        if (both.size() != 2) throw error(errc::protocol_error);
        text = table_.compare_set(key, both[0], std::move(both[1]));
        break;
      }
      case frame::opcode::forget:
        forget(peer, request.id);
        return;
      case frame::opcode::report: {
        const auto reason = detail::parse_failure(value, local_.world);
        if (!reason) throw error(errc::protocol_error);
        reserve_failures();
        announce_failure(*reason);
        break;
      }
      case frame::opcode::goodbye:
        peer.has_left = true;
        break;
      default:
        throw error(errc::protocol_error);
    }
  } catch (const error& refusal) {
    if (refusal.record().code == errc::protocol_error) throw;
    answer.op = frame::opcode::refused;
    reply(peer, answer, reported_failure::bytes_of(refusal.record()));
    return;
  }
  reply(peer, answer, text);
}

COLLS_ONCE std::vector<std::string> store_server::parse_strings(std::string_view joined) {
  auto split = detail::split_strings(joined);
  if (!split) throw error(errc::protocol_error);
  return std::move(*split);
}

COLLS_ONCE store_server::pending_wait& store_server::wait_for(
    client& peer, std::uint32_t id, const std::vector<std::string>& keys) {
  if (peer.waits.size() >= max_waits || peer.waits.contains(id)) throw error(errc::protocol_error);
  std::size_t bytes = 0;
  for (const std::string& key : keys) bytes += key.size() + 64;
  if (bytes > max_waited_key_bytes - peer.waited_key_bytes) {
    detail::raise(errc::invalid_argument, "the keys that one process waits for may take %zu bytes",
                  max_waited_key_bytes);
  }
  peer.ready.reserve(peer.waits.size() + 1);
  pending_wait& entry = *(peer.waits[id] = std::make_unique<pending_wait>(*this, peer, id));
  peer.waited_key_bytes += entry.bytes = bytes;
  try {
    table_.wait(entry, keys);
  } catch (...) {
    forget(peer, id);
    throw;
  }
  return entry;
}

COLLS_ONCE void store_server::forget(client& peer, std::uint32_t id) {
  const auto found = peer.waits.find(id);
  if (found == peer.waits.end()) return;
  table_.forget(*found->second);
  std::erase(peer.ready, id);
  peer.waited_key_bytes -= found->second->bytes;
  peer.waits.erase(found);
}

COLLS_ONCE void store_server::keys_ready(pending_wait& it) {
  it.owner.ready.push_back(it.id);  // does not throw, because `wait_for` has reserved the memory
  start_flush(it.owner);
}

COLLS_ONCE void store_server::reply(client& peer, const frame& header, std::string_view value) {
  detail::append_frame(peer.output, header, {}, value, peer.info.checksum);
  start_flush(peer);
}

COLLS_ONCE void store_server::reply_ready(client& peer) {
  constexpr std::size_t at_once = std::size_t{1} << 20;
  try {
    while (!peer.ready.empty() && peer.output.size() < at_once) {
      const std::uint32_t id = peer.ready.back();
      const pending_wait& it = *peer.waits.at(id);
      const std::string_view value =
          it.key.empty() ? std::string_view() : std::string_view(*table_.find(it.key));
      detail::append_frame(peer.output, {.op = frame::opcode::reply, .id = id}, {}, value,
                           peer.info.checksum);
      peer.ready.pop_back();
      peer.waited_key_bytes -= it.bytes;
      peer.waits.erase(id);
    }
  } catch (const std::bad_alloc&) {
    // An allocation has failed. The engine calls `sweep` periodically, and the next call tries
    // again to send the remaining replies.
  }
}

COLLS_ONCE task<> store_server::flush(client_ptr peer) {
  peer->writing = true;
  for (reply_ready(*peer); !peer->output.empty(); reply_ready(*peer)) {
    peer->sending = std::exchange(peer->output, {});
    const std::string& batch = peer->sending;
    const detail::outcome done = co_await detail::attempt(
        peer->connection->write({reinterpret_cast<const std::byte*>(batch.data()), batch.size()}));
    peer->sending = {};
    if (!done) break;
  }
  peer->writing = false;
}

COLLS_ONCE bool store_server::awaits_ranks() const {
  const auto is_present = [this](int rank) {
    const auto known = ranks_.find(rank);
    return known != ranks_.end() && known->second;
  };
  return present_ > std::count_if(excluded_.begin(), excluded_.end(), is_present);
}

COLLS_ONCE void store_server::exclude(int rank, bool is_excluded) {
  std::erase(excluded_, rank);
  if (is_excluded) excluded_.push_back(rank);
  if (!awaits_ranks()) end_drain();
}

COLLS_ONCE void store_server::client_gone() {
  --present_;
  if (!awaits_ranks()) end_drain();
}

COLLS_ONCE void store_server::end_drain() {
  if (completion* const done = std::exchange(drained_, nullptr)) done->post();
}

COLLS_ONCE void store_server::sweep(time_point now) {
  for (const auto& it : clients_) send_failures(*it);
  if (now >= drain_deadline_) end_drain();
}

}  // namespace colls
