// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// The bytes of every frame and of every handshake message. A change to one of them needs a higher
// `wire_version` and new bytes here.

#include <colls/algorithm/shared_window.hpp>
#include <colls/bootstrap/file_store_header.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/bootstrap/local_secret.hpp>
#include <colls/bootstrap/store_frame.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/interprocess/carrier/ring_buffer.hpp>
#include <colls/transport/interprocess/frame.hpp>

#include "../support/joining.hpp"
#include "../support/recovery_messages.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace colls;

/// Two digits a byte; "(N)" stands for a run of N zero bytes, where N is at least 4.
std::string hex(const void* data, std::size_t size) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  std::string text;
  for (std::size_t i = 0; i < size;) {
    std::size_t zeros = 0;
    while (i + zeros < size && bytes[i + zeros] == 0) ++zeros;
    if (zeros >= 4) {
      text += '(' + std::to_string(zeros) + ')';
      i += zeros;
      continue;
    }
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i++]);
    text += digits;
  }
  return text;
}
template <class T>
std::string hex(const T& value) {
  return hex(&value, sizeof value);
}
std::string hex(const std::string& text) { return hex(text.data(), text.size()); }

failure a_failure() {
  failure why(errc::peer_failed, "rank 3 has died");
  why.culprit = 3;
  why.observer = 1;
  why.waited_for = 2;
  why.communicator = 5;
  why.operation = collective::all_reduce;
  why.sequence = 0x1122334455667788;
  why.bytes_done = 9;
  why.bytes_expected = 10;
  why.elapsed_ns = 11;
  std::snprintf(why.address, sizeof why.address, "10.0.0.1:7000");
  return why;
}

rank_state a_state(std::int32_t rank) {
  rank_state state;
  state.entered = 0x0101;
  state.waits_in = 0x0202;
  state.sequence = 0x0303;
  state.waiter_in = 0x0404;
  state.communicator = 5;
  state.rank = rank;
  state.age_ms = 7;
  state.silent_ms = 8;
  state.operation = collective::barrier;
  state.answers = 1;
  state.awaited = 1;
  state.stopped = 1;
  state.waiter = 9;
  state.waiter_ms = 10;
  return state;
}

fingerprint a_fingerprint() {
  fingerprint call;
  call.operation = collective::reduce_scatter;
  call.algorithm = algorithm::circulant;
  call.order = order::rank;
  call.wire = wire::storage;
  call.root = 2;
  call.type = type_id<float>();
  call.element_size = 4;
  call.accumulate = type_id<double>();
  call.op = op_id<plus>();
  call.lanes = 3;
  call.radix = 4;
  call.count = 0x1000000000;
  call.shape = 6;
  call.segment = 7;
  return call;
}

secret the_secret() { return secret("it is a secret"); }

hello a_hello() {
  hello result;
  result.generation = 0x01020304;
  result.job = 0x1112131415161718;
  result.rank = 2;
  result.world = 5;
  for (std::size_t i = 0; i < result.nonce.size(); ++i)
    result.nonce[i] = static_cast<std::byte>(i + 0x40);
  return result;
}

}  // namespace

TEST_CASE("the wire version") { CHECK(wire_version == 8); }

TEST_CASE("headers of frames, with and without checksums") {
  using interprocess::kind;
  const message_key key{6, 0x01020304, 0x1112131415161718, 0x2122};
  const auto plain = [&](kind type, std::uint64_t length, std::uint8_t flags) {
    return hex(interprocess::make_header(type, key, length, 0x3132333435363738, flags));
  };
  CHECK(plain(kind::data, 24, 0) == "0100222104030201181716151413121118(7)3837363534333231");
  CHECK(plain(kind::data, 1 << 20, interprocess::flag::rts) ==
        "01012221040302011817161514131211000010(5)3837363534333231");
  CHECK(plain(kind::data, 1 << 20, interprocess::flag::rts | interprocess::flag::repeat) ==
        "01032221040302011817161514131211000010(5)3837363534333231");
  CHECK(plain(kind::data, 1 << 20, interprocess::flag::cleared) ==
        "01042221040302011817161514131211000010(5)3837363534333231");
  CHECK(plain(kind::data, 7, interprocess::flag::cancel) ==
        "0140222104030201181716151413121107(7)3837363534333231");
  CHECK(plain(kind::recovery, 616, interprocess::flag::last) ==
        "090122210403020118171615141312116802(6)3837363534333231");
  CHECK(plain(kind::cts, 1 << 20, 0) ==
        "02002221040302011817161514131211000010(5)3837363534333231");
  CHECK(plain(kind::cts, 4096, interprocess::flag::credit) ==
        "020822210403020118171615141312110010(6)3837363534333231");
  CHECK(plain(kind::cts, 1 << 20, interprocess::flag::truncated) ==
        "02102221040302011817161514131211000010(5)3837363534333231");
  CHECK(plain(kind::cts, 3, interprocess::flag::discarded) ==
        "0280222104030201181716151413121103(7)3837363534333231");
  CHECK(plain(kind::announce, sizeof(state_report), 0) ==
        "030022210403020118171615141312114802(6)3837363534333231");
  CHECK(plain(kind::revoke, sizeof(failure), 0) ==
        "04002221040302011817161514131211b801(6)3837363534333231");
  CHECK(plain(kind::goodbye, 0, 0) == "05002221040302011817161514131211(8)3837363534333231");
  CHECK(plain(kind::fingerprint, sizeof(fingerprint), 0) ==
        "0600222104030201181716151413121138(7)3837363534333231");
  CHECK(plain(kind::mapped, 0, interprocess::flag::cma) ==
        "07202221040302011817161514131211(8)3837363534333231");
  CHECK(plain(kind::report, sizeof(state_report), 0) ==
        "080022210403020118171615141312114802(6)3837363534333231");

  interprocess::checked_header checked;
  checked = interprocess::make_header(kind::data, key, 4, 0x3132333435363738);
  checked.set_checksums(reinterpret_cast<const std::byte*>("word"), 4);
  CHECK(hex(checked) == "0100222104030201181716151413121104(7)383736353433323129c840906b008ce7");
}

TEST_CASE("payloads of frames that are not data") {
  const failure why = a_failure();
  CHECK(hex(std::string(reported_failure::bytes_of(why))) ==
        "010000000300000001000000020000000500000003000000887766554433221109(7)0a(7)0b(7)"
        "31302e302e302e313a37303030(51)72616e6b2033206861732064696564(305)");
  state_report report;
  report.self = a_state(4);
  report.count = 2;
  report.others[0] = a_state(6);
  report.others[1] = a_state(7);
  CHECK(hex(report) ==
        "0101(6)0202(6)0303(6)0404(6)0500000004000000070000000800000001010101090000000a(7)02(7)"
        "0101(6)0202(6)0303(6)0404(6)0500000006000000070000000800000001010101090000000a(7)0101(6)"
        "0202(6)0303(6)0404(6)0500000007000000070000000800000001010101090000000a(43)ffffffff(12)"
        "ffffffff(44)ffffffff(12)ffffffff(44)ffffffff(12)ffffffff(44)ffffffff(12)ffffffff(44)"
        "ffffffff(12)ffffffff(44)ffffffff(12)ffffffff(8)");
  CHECK(hex(a_fingerprint()) ==
        "050b010102000000040400000400000008040000010000000300000004(7)1000000006(7)07(7)");
}

TEST_CASE("hashes and identifiers that ranks compare") {
  CHECK(hex(hash_of(a_fingerprint())) == "937aa5718d8a9bda");
  const std::uint32_t types[] = {
      type_id<std::byte>(),     type_id<bool>(),          type_id<std::int8_t>(),
      type_id<std::uint8_t>(),  type_id<std::int16_t>(),  type_id<std::uint16_t>(),
      type_id<std::int32_t>(),  type_id<std::uint32_t>(), type_id<std::int64_t>(),
      type_id<std::uint64_t>(), type_id<float16>(),       type_id<bfloat16>(),
      type_id<float>(),         type_id<double>(),        type_id<value_index<float>>()};
  CHECK(hex(types) ==
        "010300000101000001020000010300000202000002030000040200000403000008020000080300000204000002"
        "050000040400000804000004040100");
  const std::uint32_t ops[] = {op_id<plus>(),    op_id<multiplies>(),  op_id<minimum>(),
                               op_id<maximum>(), op_id<bit_and>(),     op_id<bit_or>(),
                               op_id<bit_xor>(), op_id<logical_and>(), op_id<logical_or>(),
                               op_id<min_loc>(), op_id<max_loc>(),     op_id<average>()};
  CHECK(hex(ops) ==
        "0100000002000000030000000400000005000000060000000700000008000000090000000a0000000b0000000c"
        "000000");
  CHECK(static_cast<int>(collective::probe) == 20);
  CHECK(static_cast<int>(algorithm::native) == 18);
  CHECK(static_cast<int>(algorithm::custom) == 255);
  CHECK(colls::with_name(0x0123'4567'89ab'cdefULL, "star") == 0x6e687edd88888888ULL);
  CHECK(static_cast<int>(errc::crypto_failed) == 28);
}

TEST_CASE("slots of a ring buffer in shared memory") {
  for (const bool checks : {false, true}) {
    CAPTURE(checks);
    shm::segment memory;
    REQUIRE(!memory.make(shm::connection_bytes(shm::min_ring_buffer_bytes)));
    shm::ring_buffer writer(checks);
    REQUIRE(!writer.map(memory, 0));
    shm::mapping half;
    REQUIRE(!half.map(memory, 0, shm::direction_bytes));
    const std::string text(64, 'x');
    for (const std::size_t length : {std::size_t{4}, text.size()}) {
      writer.write(interprocess::make_header(interprocess::kind::data, {0, 1, 2, 3}, length, 5),
                   reinterpret_cast<const std::byte*>(text.data()), length);
    }
    const auto& direction = *reinterpret_cast<const shm::direction*>(half.data());
    CHECK(hex(&direction.all[0], sizeof(shm::slot)) ==
          (checks ? "01(7)010003000100000002(7)04(7)05(7)78787878(16)4d75abe5"
                  : "01(7)010003000100000002(7)04(7)05(7)78787878(20)"));
    CHECK(hex(&direction.all[1], sizeof(shm::slot)) ==
          (checks ? "0200000040000000010003000100000002(7)40(7)05(27)c2dba11b"
                  : "0200000040000000010003000100000002(7)40(7)05(31)"));
  }
  CHECK(offsetof(shm::direction, sleeper) == 128);
  CHECK(offsetof(shm::direction, all) == 4096);
  CHECK(shm::direction_bytes == 65536);
}

TEST_CASE("the descriptor of a rank's shared window") {
  CHECK(hex(direct::window_descriptor{0x0102, 0x0304, 0x0506}) == "0201(6)0403(6)0605(6)");
}

TEST_CASE("HELLO and refusals") {
  hello mine = a_hello();
  CHECK(hex(write_hello(mine)) ==
        "89434f4c0d0a1a0a080001030403020118171615141312110200000005000000404142434445464748494a4b4c"
        "4d4e4f505152535455565758595a5b5c5d5e5f");
  mine.purpose = connection_purpose::store;
  mine.has_secret = true;
  mine.checksum = true;
  CHECK(hex(write_hello(mine)) ==
        "89434f4c0d0a1a0a080002c30403020118171615141312110200000005000000404142434445464748494a4b4c"
        "4d4e4f505152535455565758595a5b5c5d5e5f");
  CHECK(hex(write_hello(refusal(connection_purpose::wrong_job))) ==
        "89434f4c0d0a1a0a08000303(12)ffffffff01(35)");
  CHECK(hex(write_hello(refusal(connection_purpose::no_descriptor, 3))) ==
        "89434f4c0d0a1a0a08000403(12)0300000005(35)");
  CHECK(hex(write_hello(refusal(connection_purpose::other_generation))) ==
        "89434f4c0d0a1a0a08000503(12)ffffffff01(35)");
}

TEST_CASE("proofs, and the secret that ranks of one host share") {
  hello other = a_hello();
  other.rank = 4;
  const hello_bytes connecting = write_hello(a_hello());
  const hello_bytes accepting = write_hello(other);
  CHECK(hex(detail::make_proof(the_secret(), detail::role::connects, connecting, accepting)) ==
        "935083df43153bd43e1d741278503c89ddbaee85f8fe29e4076f5ce65626a261");
  CHECK(hex(detail::make_proof(the_secret(), detail::role::accepts, connecting, accepting)) ==
        "2fa4f3877c0df017a69f32d6538b94ee42cdde68e9d957b92d4c68ba518a79ec");
  CHECK(hex(detail::hash_of("a job")) == "cec0dd209335167a");
  CHECK(hex(detail::write_local_secret(secret::drawn(std::string(secret::drawn_size, 'k')))) ==
        "636f6c6c736b6579080001(5)"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b"
        "6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b");
  CHECK(hex(detail::write_local_secret(the_secret())) == "636f6c6c736b6579080002(69)");
  CHECK(hex(detail::write_local_secret(secret("", true))) == "636f6c6c736b6579080003(69)");
}

TEST_CASE("verdicts") {
  joining::bench at;
  stream dialled(at.on);
  listener acceptor;
  REQUIRE(!acceptor.listen(joining::loopback()));
  sync_wait(at.on, dialled.connect(acceptor.local()));
  detail::descriptor socket;
  while (!socket) socket = acceptor.accept();
  stream accepted(at.on, std::move(socket));
  dialled.set_deadline(at.in(5 * seconds));
  const auto sent = [&](verdict value, std::int32_t number) {
    verdict_bytes bytes{};
    at.run(give_verdict(accepted, value, number));
    sync_wait(at.on, dialled.read({bytes.data(), bytes.size()}));
    return hex(bytes);
  };
  CHECK(sent(verdict::accepted, 0) == "01(11)6d61111a");
  CHECK(sent(verdict::other_world, 12) == "050000000c(7)1ab7f0bc");
  CHECK(sent(verdict::connection_failed, 0) == "07(11)cd9935bd");
}

TEST_CASE("frames of the store") {
  using detail::store_frame;
  using kind = store_frame::opcode;
  const auto frame = [](kind op, std::string_view key, std::string_view value,
                        bool checks = false) {
    std::string bytes;
    store_frame head;
    head.op = op;
    head.id = 0x01020304;
    head.number = -2;
    detail::append_frame(bytes, head, key, value, checks);
    return hex(bytes);
  };
  CHECK(frame(kind::enter, "", "") == "0100000004030201(8)feffffffffffffff");
  CHECK(frame(kind::set, "key", "value") ==
        "02000000040302010300000005000000feffffffffffffff6b657976616c7565");
  CHECK(frame(kind::set, "key", "value", true) ==
        "02000000040302010300000005000000feffffffffffffff448900e8ebdf132b6b657976616c7565");
  for (const kind op :
       {kind::get, kind::add, kind::wait, kind::compare_set, kind::check, kind::forget,
        kind::report, kind::goodbye, kind::reply, kind::refused, kind::failed, kind::bye}) {
    char expected[80];
    std::snprintf(expected, sizeof expected, "%02x00000004030201(8)feffffffffffffff",
                  static_cast<unsigned>(op));
    CHECK(frame(op, "", "") == expected);
  }
  CHECK(static_cast<int>(kind::goodbye) == 10);
  CHECK(static_cast<int>(kind::bye) == 67);
  CHECK(hex(detail::join_strings({"one", "", "three"})) == "030000006f6e65(4)050000007468726565");
}

TEST_CASE("what ranks publish about themselves") {
  detail::rank_info info;
  info.address = {boost::asio::ip::make_address("10.1.2.3"), 7000};
  info.boot = "boot";
  info.host = "host";
  info.network = 42;
  info.transport = "auto";
  info.checksum = true;
  info.pid = 77;
  info.nonce = 0xabc;
  CHECK(info.text() == "10.1.2.3 7000 boot host 42 auto 1 0 77 abc");
  detail::file_store_header head;
  head.pid = 77;
  head.started = 78;
  head.process_space = 79;
  std::snprintf(head.boot, sizeof head.boot, "boot");
  CHECK(hex(head) == "434f4c4c5346530a08(23)4d(7)4e(7)4f(7)626f6f74(108)");
  world_info all;
  all.node_of = {0, 0, 1};
  all.machine_of = {0, 1};
  all.cores_of = {4, 8};
  CHECK(detail::world_info_text(all) == "0 0 4\n0 0 4\n1 1 8\n");
  for (const int port : {7000, 7001, 7002}) {
    all.address_book.emplace_back(boost::asio::ip::make_address("10.1.2.3"),
                                  static_cast<std::uint16_t>(port));
  }
  CHECK(detail::world_info_text(all) ==
        "0 0 4 10.1.2.3 7000\n0 0 4 10.1.2.3 7001\n1 1 8 10.1.2.3 7002\n");
}

TEST_CASE("messages of agreements") {
  const std::vector<std::byte> bytes = a_recovery_message().bytes();
  CHECK(hex(bytes.data(), bytes.size()) ==
        "031501010300000008070605040302011817161514131211010000000100000009(7)07(7)0200000015010001"
        "020000000100000005000000020000000100000005(7)");
}
