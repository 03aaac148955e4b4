// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A recovery message, for tests of its bytes.

#include <colls/matching/recovery_message.hpp>

/// Returns a message in which no member has its initial value. It is one of 6 ranks.
inline colls::recovery_message a_recovery_message() {
  using colls::collective;
  using colls::quorum;
  colls::recovery_message message;
  message.type = colls::recovery_message::kind::proposal;
  message.late = 3;
  message.number = 0x0102030405060708;
  message.view.add_proved(2);
  message.view.add_broken(5, 1);
  message.request = {collective::agree, quorum::any, true, 0x1112131415161718};
  message.accepted.emplace();
  message.accepted->facts = 9;
  message.accepted->decision.request = {collective::agree, quorum::any, false, 7};
  message.accepted->decision.lost = {{2, true}, {5, false}};
  return message;
}
