// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// task_group: a group of tasks that no coroutine awaits.

#include <colls/base/intrusive_list.hpp>
#include <colls/coroutine/scheduler.hpp>
#include <colls/coroutine/task.hpp>

#include <utility>

namespace colls {

/// A group of tasks that no coroutine awaits. The group destroys each task as soon as the task
/// completes. The destructor of the group destroys the tasks that are still running. If a task
/// throws an exception, only this task ends.
class task_group {
 public:
  explicit task_group(scheduler& runner) : queue_(runner.queue()) {}
  task_group(const task_group&) = delete;
  task_group& operator=(const task_group&) = delete;
  ~task_group() {
    while (entry* const first = all_.front()) {
      all_.remove(*first);
      delete first;
    }
  }

  void start(task<> work) {
    auto* const started = new entry(*this, std::move(work));
    all_.push_front(*started);
    ++running_;
    if (started->work.start(*started)) remove(started);
  }
  /// Returns the number of tasks that have not completed.
  int running() const { return running_; }

 private:
  struct entry : completion, detail::recycled {
    entry(task_group& group, task<> started)
        : completion(
              [](completion& self) noexcept {
                auto& ended = static_cast<entry&>(self);
                ended.owner.remove(&ended);
              },
              &group.queue_),
          owner(group),
          work(std::move(started)) {}
    task_group& owner;
    task<> work;
    list_links<entry> links;
  };

  void remove(entry* ended) {
    all_.remove(*ended);
    --running_;
    delete ended;
  }

  run_queue& queue_;
  intrusive_list<entry, &entry::links> all_;
  int running_ = 0;
};

}  // namespace colls
