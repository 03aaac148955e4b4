// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// posted: a receive, and a message that comes before its receive.

#include <colls/base/key_table.hpp>
#include <colls/matching/operation_record.hpp>

#include <cstring>

namespace colls {

struct posted;

/// Whoever is writing into a posted receive: asked to stop when the receive is withdrawn.
class filler {
 public:
  virtual void abandon(posted& receive) = 0;

 protected:
  ~filler() = default;
};

/// What takes a message in place of a buffer: `piece` begins `offset` bytes into it.
using folding = void (*)(void* folds, std::size_t offset, const std::byte* piece, std::size_t size);

/// A receive. Listed until a message is paired with it, then in the hands of its `filler`.
struct posted : keyed {
  static constexpr std::int32_t any_source = -1;

  std::byte* data = nullptr;
  std::size_t size = 0;
  /// If set, the message goes to `fold(folds, offset, piece, size)` in place of a copy to `data`:
  /// whole, or piece by piece in order, each a multiple of `grain` bytes.
  folding fold = nullptr;
  void* folds = nullptr;
  std::size_t grain = 1;
  operation_record* record = nullptr;
  completion* done = nullptr;
  filler* held_by = nullptr;
  std::size_t received = 0;
  std::int32_t source = -1;
  std::error_code ec;
  bool listed = false;
  bool granted = false;
  std::uint64_t posted_at = 0;  // point to point: in the order in which they were posted
  /// For the transport: the message that it was granted to, and whether any source's would do.
  std::uint64_t number = 0;
  bool takes_any = false;

  bool busy() const { return listed || held_by != nullptr; }

  /// Takes a whole message from where it lies.
  void accept(const std::byte* message, std::size_t bytes, std::int32_t from) {
    received = bytes;
    source = from;
    if (fold != nullptr) {
      fold(folds, 0, message, bytes);
    } else if (bytes != 0) {
      std::memcpy(data, message, bytes);
    }
  }

  void finish(std::error_code result = {}) {
    held_by = nullptr;
    ec = result;
    record->bytes += received;
    done->post();
  }
};

/// A message (or the announcement of one) that came before its receive. Transports derive from it
/// what they need to move the bytes later.
struct arrival : keyed {
  /// Its place among the messages of its tag, whatever their source.
  struct of_any : keyed {
    arrival* message = nullptr;
  };
  of_any by_tag;
  std::size_t size = 0;
  std::uint64_t hash = 0;
  bool buffered = false;  // for the transport: its bytes lie here, the sender has gone on
  /// Gives the node back to its transport; the message will never be received.
  virtual void drop() = 0;

 protected:
  ~arrival() = default;
};

}  // namespace colls
