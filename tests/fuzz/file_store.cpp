// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The file of a file store, as any process may have left it behind.
//
// covers: bootstrap/file_store_header.hpp: is_sound is_abandoned of_this_process
// covers: bootstrap/file_store.ipp: open check_directory read_header may_replace explain_existing wait_for_file refresh append do_set do_get do_add do_wait do_compare_set do_check

#include "peer.hpp"

#include <colls/bootstrap/file_store.hpp>

#include <fcntl.h>

namespace {

using namespace colls;

/// A directory of this process alone.
class directory {
 public:
  directory() { fuzz::require(::mkdtemp(path_) != nullptr, "a directory"); }
  ~directory() { ::rmdir(path_); }
  std::string file() const { return std::string(path_) + "/store"; }

 private:
  char path_[32] = "/tmp/colls-fuzz-XXXXXX";
};

/// A header as rank 0 writes it, with the changes of this run.
std::string head_text(fuzz::input& from, std::uint64_t job, int world) {
  auto head = colls::detail::file_store_header::of_this_process();
  head.world = world;
  head.job = job;
  std::memset(head.secret, 's', sizeof head.secret - 1);
  const int change = from.byte();
  if (change & 1) head.boot[0] = static_cast<char>(head.boot[0] ^ 1);
  if (change & 2) head.started ^= 1;
  if (change & 4) head.job = from.byte();
  if (change & 8) head.world = from.byte();
  if (change & 16) head.pid = from.number<std::int64_t>();
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  if (change & 32) text[from.byte() % text.size()] = static_cast<char>(from.byte());
  if (change & 64) text.resize(from.byte() % text.size());
  return text;
}

std::string record_text(fuzz::input& from) {
  const int how = from.byte();
  const std::string key(from.text(static_cast<std::size_t>(how % 8)));
  const std::string value(from.text(static_cast<std::size_t>(how / 8 % 8)));
  std::uint32_t sizes[2] = {static_cast<std::uint32_t>(key.size()),
                            static_cast<std::uint32_t>(value.size())};
  if (how & 64) sizes[how >> 7] = from.number<std::uint32_t>();
  return std::string(reinterpret_cast<const char*>(sizes), sizeof sizes) + key + value;
}

void write(const std::string& path, const std::string& text, mode_t mode) {
  const colls::detail::descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  fuzz::require(
      static_cast<bool>(file) && ::fchmod(file.get(), mode) == 0 &&
          ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()),
      "a file that is written");
}

task<> use(store& at, fuzz::input from) {
  for (int calls = 0; calls < 16 && !from.is_over(); ++calls) {
    const std::string key(1, static_cast<char>('a' + from.below(4)));
    const std::vector<std::string> keys{key, "b"};
    try {
      switch (from.below(6)) {
        case 0:
          co_await at.set(key, "value", 0);
          break;
        case 1:
          co_await at.get(key, 0);
          break;
        case 2:
          co_await at.add(key, from.number<std::int64_t>(), 0);
          break;
        case 3:
          co_await at.compare_set(key, "value", "next", 0);
          break;
        case 4:
          co_await at.wait(keys, 0);
          break;
        default: {
          const std::string there = co_await at.check(keys, 0);
          fuzz::require(there.size() == keys.size(), "an answer for each key");
        }
      }
    } catch (const error& thrown) {
      fuzz::require_sound(thrown.record());
    }
  }
}

task<> attack(const std::string& path, fuzz::input from, int world, std::uint64_t job, bool makes,
              bool replaces, bool& ended) {
  const file_store::options how{world, job, replaces};
  try {
    std::shared_ptr<file_store> made;
    if (makes) {
      made = file_store::create(fuzz::driver(), path, how);
    } else {
      made = co_await file_store::open(fuzz::driver(), path, how, 0);
    }
    co_await use(*made, from);
  } catch (const error& thrown) {
    fuzz::require_sound(thrown.record());
  }
  ended = true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const directory here;
  fuzz::input from(data, size);
  constexpr std::uint64_t job = 5;
  constexpr int world = 3;
  const int what = from.byte();
  const std::string path = what & 128 ? "/proc/none/store" : here.file();
  if ((what & 128) == 0 && (what & 64) == 0) {
    std::string text = head_text(from, job, world);
    for (int records = from.below(8); records > 0; --records) text += record_text(from);
    if (what & 1) text += from.text();
    write(path, text, what & 2 ? 0644 : 0600);
  }
  bool ended = false;
  {
    task_group work(fuzz::driver());
    work.start(attack(path, from, world, job, (what & 4) != 0, (what & 8) != 0, ended));
    fuzz::settle();
  }
  fuzz::require(ended, "a store whose deadline has passed waits for nothing");
  ::unlink(here.file().c_str());
  return 0;
}
