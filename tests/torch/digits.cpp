// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Tests what train_mnist reads, draws and prints. This file needs no libtorch.
#include "../../examples/train_mnist/dataset.hpp"
#include "../../examples/train_mnist/layer_table.hpp"
#include "../support/folder.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace {

namespace files = std::filesystem;
using bytes = std::vector<std::uint8_t>;

void put(const std::string& path, const bytes& all) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
}

void put_compressed(const std::string& path, const bytes& all) {
  const gzFile file = ::gzopen(path.c_str(), "wb");
  REQUIRE(::gzwrite(file, all.data(), static_cast<unsigned>(all.size())) > 0);
  REQUIRE(::gzclose(file) == Z_OK);
}

bytes idx(std::uint8_t type, const std::vector<std::uint32_t>& sizes, std::size_t size) {
  bytes all{0, 0, type, static_cast<std::uint8_t>(sizes.size())};
  for (const std::uint32_t one : sizes) {
    for (const int shift : {24, 16, 8, 0}) all.push_back(static_cast<std::uint8_t>(one >> shift));
  }
  for (std::size_t i = 0; i < size; ++i) all.push_back(static_cast<std::uint8_t>(i % 7));
  return all;
}
bytes pictures(std::uint32_t count) { return idx(8, {count, 28, 28}, count * 784); }
bytes labels(std::uint32_t count) { return idx(8, {count}, count); }

bytes cut(bytes all, std::size_t size) {
  all.resize(size);
  return all;
}

template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const std::runtime_error& thrown) {
    return thrown.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("IDX files, raw and compressed") {
  const folder here;
  put(here / "i", pictures(20));
  put(here / "l", labels(20));
  put_compressed(here / "i.gz", pictures(20));
  put_compressed(here / "l.gz", labels(20));
  for (const char* const end : {"", ".gz"}) {
    const mnist::digits read = mnist::read_idx(here / "i" + end, here / "l" + end);
    REQUIRE(read.size() == 20);
    CHECK(read.labels[8] == 1);
    CHECK(read.pixels.size() == 20 * 784);
    CHECK(read.picture(19)[783] == (20 * 784 - 1) % 7);
  }
}

TEST_CASE("invalid files are errors that name them") {
  const folder here;
  const std::string i = here / "i", l = here / "l";
  const auto error_with = [&](const bytes& images, const bytes& names) {
    put(i, images);
    put(l, names);
    return error_of([&] { mnist::read_idx(i, l); });
  };
  CHECK(error_with(pictures(3), labels(3)) == "no error");
  CHECK(error_with(cut(pictures(3), 1000), labels(3)) ==
        i + ": ends after 984 of 2352 bytes: is it truncated?");
  CHECK(error_with(cut(pictures(3), 10), labels(3)) ==
        i + ": ends after 6 of 12 bytes: is it truncated?");
  CHECK(error_with({}, labels(3)) == i + ": ends after 0 of 4 bytes: is it truncated?");
  CHECK(error_with(idx(8, {3, 28, 28}, 2353), labels(3)) ==
        i + ": goes on after the 2352 bytes of data");
  CHECK(error_with(labels(3), labels(3)) ==
        i + ": is no IDX file of bytes in 3 dimensions (pictures)");
  CHECK(error_with(idx(13, {3, 28, 28}, 2352), labels(3)) ==
        i + ": is no IDX file of bytes in 3 dimensions (pictures)");
  CHECK(error_with(pictures(3), pictures(3)) ==
        l + ": is no IDX file of bytes in 1 dimensions (labels)");
  CHECK(error_with(idx(8, {3, 32, 28}, 3 * 32 * 28), labels(3)) ==
        i + ": its pictures are 32 x 28, this network takes 28 x 28");
  CHECK(error_with(pictures(0), labels(0)) == i + ": has no pictures");
  CHECK(error_with(pictures(3), labels(4)) == l + ": has 4 labels for the 3 pictures of " + i);
  CHECK(error_with(pictures(3), cut(labels(3), 9)) ==
        l + ": ends after 1 of 3 bytes: is it truncated?");
  bytes eleven = labels(3);
  eleven.back() = 11;
  CHECK(error_with(pictures(3), eleven) == l + ": label 2 is 11, no digit");
  // The header announces 2^32 - 1 pictures, 3 TB. Memory is allocated only for data that is there.
  CHECK(error_with(idx(8, {UINT32_MAX, 28, 28}, 5000), labels(3)) ==
        i + ": ends after 5000 of 3367254359280 bytes: is it truncated?");
  files::remove(l);
  CHECK(error_of([&] { mnist::read_idx(here / "none", l); }) ==
        here / "none" + ": No such file or directory");
}

TEST_CASE("a compressed file that is cut off or damaged") {
  const folder here;
  put_compressed(here / "i.gz", pictures(20));
  put(here / "l", labels(20));
  const auto size = files::file_size(here / "i.gz");
  files::resize_file(here / "i.gz", size / 2);
  const std::string half = error_of([&] { mnist::read_idx(here / "i.gz", here / "l"); });
  CHECK(half.find(here / "i.gz: ") == 0);
  CHECK(half.find("unexpected end of file") != half.npos);
  files::resize_file(here / "i.gz", size);
  const std::string hole = error_of([&] { mnist::read_idx(here / "i.gz", here / "l"); });
  CHECK(hole.find(here / "i.gz: ") == 0);
}

TEST_CASE("drawn digits are the same for a seed, all ten come, and no two are alike") {
  const mnist::digits one = mnist::draw_digits(500, 3), same = mnist::draw_digits(500, 3);
  CHECK(one.pixels == same.pixels);
  CHECK(one.labels == same.labels);
  CHECK(mnist::draw_digits(500, 4).pixels != one.pixels);
  CHECK(std::set<int>(one.labels.begin(), one.labels.end()).size() == 10);
  std::set<bytes> different;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const auto picture = one.picture(i);
    different.emplace(picture.begin(), picture.end());
    const auto ink = std::count_if(picture.begin(), picture.end(), [](int p) { return p > 127; });
    CHECK((ink > 15 && ink < 350));
  }
  CHECK(different.size() == one.size());
}

TEST_CASE("the samples of training and of tests") {
  const folder here;
  mnist::settings want;
  want.data = here.path;
  CHECK(error_of([&] { mnist::load(want); }).find(here.path + ": no train-images") == 0);
  put(here / "t10k-images-idx3-ubyte", pictures(30));
  CHECK(error_of([&] { mnist::load(want); }).find("no t10k-labels-idx1-ubyte beside") != SIZE_MAX);
  put_compressed(here / "t10k-labels-idx1-ubyte.gz", labels(30));
  mnist::dataset made = mnist::load(want);  // a tenth is held out
  CHECK(made.training.size() == 27);
  CHECK(made.test.size() == 3);
  std::set<std::size_t> all(made.training.begin(), made.training.end());
  all.insert(made.test.begin(), made.test.end());
  CHECK(all.size() == 30);
  want.holdout = 10;
  want.limit = 5;
  const mnist::dataset other = mnist::load(want);
  CHECK(other.training.size() == 5);
  CHECK(other.test.size() == 10);
  CHECK(std::equal(made.test.begin(), made.test.end(), other.test.begin()));
  want.seed = 2;
  CHECK(mnist::load(want).test != other.test);
  want.holdout = 30;
  CHECK(error_of([&] { mnist::load(want); }) ==
        "--holdout 30 of 30 samples leaves none to train on");

  put(here / "train-images-idx3-ubyte", pictures(50));
  put(here / "train-labels-idx1-ubyte", labels(50));
  want = {};
  want.data = here.path;
  made = mnist::load(want);  // both are there: no holdout
  CHECK(made.training.size() == 50);
  CHECK(made.test.size() == 30);
  CHECK(*std::min_element(made.test.begin(), made.test.end()) == 50);
  CHECK(made.all.size() == 80);
  want.holdout = 5;
  CHECK(mnist::load(want).all.size() == 50);
}

TEST_CASE("the table of layers") {
  CHECK(mnist::short_count(0) == "0");
  CHECK(mnist::short_count(999) == "999");
  CHECK(mnist::short_count(18496) == "18.5 K");
  CHECK(mnist::short_count(1179776) == "1.2 M");
  CHECK(mnist::layer_table({{"one", "Linear", 1290}}, 1290, 0, 5160) ==
        "   | name | type   | parameters\n"
        "-------------------------------\n"
        " 0 | one  | Linear | 1.3 K\n"
        "-------------------------------\n"
        "1.3 K    trainable parameters\n"
        "0        non-trainable parameters\n"
        "1.3 K    parameters in all\n"
        "0.005    MB\n");
}
