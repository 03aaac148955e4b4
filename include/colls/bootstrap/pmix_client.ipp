// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of pmix_client.hpp: the calls of PMIx.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/fixed_string.hpp>
#include <colls/base/log.hpp>
#include <colls/bootstrap/pmix_abi.hpp>
#include <colls/bootstrap/pmix_client.hpp>

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <utility>

namespace colls::detail {

/// What a call of PMIx passes to its callback, which runs on a thread of PMIx. `data` is a pointer
/// to a shared pointer, which the callback frees.
struct pmix_client::answer {
  std::atomic<bool> has_come{false};
  int status = 0;
  std::string text;
  // What the call reads until then.
  pmix_process source{};
  char key[sizeof pmix_setting::key] = "";

  using pointer = std::unique_ptr<std::shared_ptr<answer>>;
  static void receive_value(int status, pmix_datum* value, void* data) {
    const pointer owned(static_cast<std::shared_ptr<answer>*>(data));
    answer& self = **owned;
    self.status = status;
    if (status == 0 && value != nullptr && value->type == pmix_text && value->text != nullptr) {
      self.text = value->text;
    }
    self.has_come = true;
  }
  static void receive_status(int status, void* data) { receive_value(status, nullptr, data); }
};

/// The library of PMIx, once for each process.
struct pmix_client::library : manager_connection {
  using value_callback = void (*)(int status, pmix_datum* value, void* data);
  using status_callback = void (*)(int status, void* data);

  library() = default;
  library(const library&) = delete;
  library& operator=(const library&) = delete;
  ~library() {
    // At exit, a failure has no consequences.
    if (process == ::getpid() && self.job[0] != 0) (void)finalize(nullptr, 0);
  }

  void open();
  template <class Function>
  void find(void* handle, const char* name, Function*& found) {
    void* const symbol = ::dlsym(handle, name);
    if (symbol == nullptr) {
      raise(errc::join_failed, "the library of PMIx lacks %s: %s", name, ::dlerror());
    }
    found = reinterpret_cast<Function*>(symbol);
  }

  pmix_process self{};  // this process, once PMIx is initialised

  int (*init)(pmix_process*, const pmix_setting*, std::size_t) = nullptr;
  int (*finalize)(const pmix_setting*, std::size_t) = nullptr;
  int (*put)(std::uint8_t, const char*, pmix_datum*) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const pmix_process*, std::size_t, const pmix_setting*, std::size_t, status_callback,
               void*) = nullptr;
  int (*get)(const pmix_process*, const char*, const pmix_setting*, std::size_t, value_callback,
             void*) = nullptr;
  const char* (*describe)(int) = nullptr;
};

COLLS_ONCE void pmix_client::library::open() {
  if (self.job[0] != 0) return;  // it is initialised
  // The library stays open, also if MPI has opened it and closes it.
  void* const handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
  const std::string problem = handle == nullptr ? ::dlerror() : "";
  // Without a handle, symbols of the program itself are found.
  if (handle == nullptr && ::dlsym(RTLD_DEFAULT, "PMIx_Init") == nullptr) {
    raise(errc::join_failed,
          "the process manager speaks PMIx, whose library cannot be opened: %.150s; install "
          "libpmix2, or %s",
          problem.c_str(), without_process_manager);
  }
  find(handle, "PMIx_Init", init);
  find(handle, "PMIx_Finalize", finalize);
  find(handle, "PMIx_Put", put);
  find(handle, "PMIx_Commit", commit);
  find(handle, "PMIx_Fence_nb", fence);
  find(handle, "PMIx_Get_nb", get);
  find(handle, "PMIx_Error_string", describe);
  pmix_process found{};
  const int status = init(&found, nullptr, 0);
  if (status != 0) {
    raise(errc::join_failed, "PMIx_Init failed: %s; %s", describe(status), without_process_manager);
  }
  self = found;
}

COLLS_ONCE pmix_client::library& pmix_client::shared() {
  static library opened;
  return opened;
}

COLLS_ONCE task<std::unique_ptr<key_value_space>> pmix_client::open(scheduler& driver, int rank,
                                                                    time_point deadline) {
  library& opened = shared();
  auto lock = co_await manager_lock::acquire(opened, "PMIx", driver, deadline);
  opened.open();
  if (opened.self.rank != static_cast<std::uint32_t>(rank)) {
    raise(errc::join_failed,
          "this process is rank %u of its job by PMIx, and rank %d of the world: all processes of "
          "the job must join, with these ranks",
          opened.self.rank, rank);
  }
  co_return std::unique_ptr<key_value_space>(
      new pmix_client(driver, opened, std::move(lock), deadline));
}

COLLS_ONCE task<> pmix_client::put(std::string key, std::string value) {
  char name[sizeof pmix_setting::key] = "";
  key.copy(name, sizeof name - 1);
  pmix_datum datum{};
  datum.type = pmix_text;
  datum.text = value.c_str();
  int status = library_.put(pmix_global, name, &datum);
  if (status == 0) status = library_.commit();
  if (status != 0) {
    raise(errc::join_failed, "PMIx_Put or PMIx_Commit failed: %s", library_.describe(status));
  }
  co_return;
}

COLLS_ONCE task<> pmix_client::fence() {
  // The values of all ranks come with the fence.
  pmix_setting collect{};
  std::string_view(pmix_collect).copy(collect.key, sizeof collect.key - 1);
  collect.value.type = pmix_bool;
  collect.value.flag = true;
  const auto awaited = std::make_shared<answer>();
  auto passed = std::make_unique<std::shared_ptr<answer>>(awaited);
  const int status = library_.fence(nullptr, 0, &collect, 1, &answer::receive_status, passed.get());
  if (status == pmix_has_ended) co_return;
  if (status != 0) {
    raise(errc::join_failed, "PMIx_Fence_nb failed: %s", library_.describe(status));
  }
  (void)passed.release();  // the callback frees it
  co_await wait_for(awaited, "PMIx_Fence_nb", ": some ranks of the job have not joined");
}

COLLS_ONCE task<std::string> pmix_client::get(std::string key) {
  const auto awaited = std::make_shared<answer>();
  awaited->source = library_.self;
  awaited->source.rank = 0;
  key.copy(awaited->key, sizeof awaited->key - 1);
  auto passed = std::make_unique<std::shared_ptr<answer>>(awaited);
  const int status = library_.get(&awaited->source, awaited->key, nullptr, 0,
                                  &answer::receive_value, passed.get());
  if (status != 0) raise(errc::join_failed, "PMIx_Get_nb failed: %s", library_.describe(status));
  (void)passed.release();  // the callback frees it
  co_await wait_for(awaited, "PMIx_Get_nb", "");
  if (awaited->text.empty())
    raise(errc::join_failed, "PMIx has no text for the key %s", key.c_str());
  co_return awaited->text;
}

COLLS_ONCE task<> pmix_client::wait_for(std::shared_ptr<answer> awaited, const char* call,
                                        const char* hint) {
  lock_->set_pending(true);
  const time_point warn_at = driver_.now() + 30 * seconds;
  bool has_warned = false;
  while (!awaited->has_come) {
    if (driver_.now() >= deadline_) {
      raise(errc::join_timeout, "PMIx does not answer to %s%s", call, hint);
    }
    if (driver_.now() >= warn_at && !std::exchange(has_warned, true)) {
      log_warn("PMIx has not answered to %s for 30 s%s", call, hint);
    }
    co_await driver_.sleep_until(driver_.now() + milliseconds);
  }
  lock_->set_pending(false);
  if (awaited->status != 0) {
    raise(errc::join_failed, "%s failed: %s; %s", call, library_.describe(awaited->status),
          without_process_manager);
  }
}

}  // namespace colls::detail
