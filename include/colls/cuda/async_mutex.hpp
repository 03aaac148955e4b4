// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// turns: calls of one rank that may not do something at once.

#include <colls/coroutine/completion.hpp>

#include <algorithm>
#include <deque>

namespace colls::cuda {

/// Calls take turns, in the order in which they came.
class turns {
 public:
  /// A call's place in the line, from `come` to `leave` or its end.
  class place {
   public:
    explicit place(turns& line) : line_(line) {}
    place(const place&) = delete;
    ~place() { leave(); }

    class arrival;
    struct request {
      using operation = arrival;
      place* of;
    };
    /// Ends when all who came before have left.
    request come() { return {this}; }
    void leave() noexcept {
      auto& waiting = line_.waiting_;
      const auto mine = std::find(waiting.begin(), waiting.end(), this);
      if (mine == waiting.end()) return;
      const bool was_first = mine == waiting.begin();
      waiting.erase(mine);
      if (was_first && !waiting.empty()) waiting.front()->done_->post();
    }

   private:
    turns& line_;
    completion* done_ = nullptr;
  };

 private:
  std::deque<place*> waiting_;  // the first one's turn it is
};

class turns::place::arrival {
 public:
  explicit arrival(const request& wanted) : place_(*wanted.of) {}
  bool start(completion& done) {
    auto& waiting = place_.line_.waiting_;
    place_.done_ = &done;
    waiting.push_back(&place_);
    return waiting.size() == 1;
  }
  void result() {}

 private:
  place& place_;
};

}  // namespace colls::cuda
