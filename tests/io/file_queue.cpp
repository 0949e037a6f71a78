// A thread that reads and writes a file without a name.
#include <doctest/doctest.h>

#include <pentad/io/file_queue.hpp>
#include <pentad/io/scratch_file.hpp>

#include "scratch.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

using pentad::io::FileError;
using pentad::io::FileQueue;
using pentad::io::ScratchFile;

namespace {

constexpr std::size_t page = ScratchFile::page;

/// Pages of memory as O_DIRECT wants them, each byte the same.
class Pages {
  public:
    explicit Pages(int value, std::size_t count = 1)
        : size_(count * page), data_(static_cast<unsigned char*>(std::aligned_alloc(page, size_)), std::free) {
        std::fill_n(data_.get(), size_, static_cast<unsigned char>(value));
    }
    [[nodiscard]] unsigned char* data() const { return data_.get(); }
    [[nodiscard]] bool all(int value) const {
        return std::all_of(data_.get(), data_.get() + size_, [&](unsigned char x) { return x == value; });
    }

  private:
    std::size_t size_;
    std::unique_ptr<unsigned char, void (*)(void*)> data_;
};

} // namespace

TEST_CASE("requests are carried out in their order, more than usually at once too") {
    test::Scratch const folder;
    FileQueue queue(ScratchFile(folder.path(), 100 * page), 2);
    std::vector<Pages> written, read;
    for (int i = 0; i < 100; ++i) {
        written.emplace_back(i);
        read.emplace_back(255);
    }
    std::uint64_t last = 0;
    for (int round = 0; round < 2; ++round) // the second write of a page comes after the first read of it
        for (std::size_t i = 0; i < 100; ++i) {
            auto const other = round == 0 ? i : 99 - i;
            auto const write = queue.write(i * page, written[other].data(), page);
            last = queue.read(i * page, read[i].data(), page);
            CHECK(last == write + 1);
        }
    CHECK(queue.wait(last) >= 0);
    CHECK(queue.is_done(last));
    CHECK(queue.failure().empty());
    for (std::size_t i = 0; i < 100; ++i) CHECK(read[i].all(static_cast<int>(99 - i)));
    auto const counts = queue.counts();
    CHECK(counts.read_bytes == 200.0 * page);
    CHECK(counts.written_bytes == 200.0 * page);
    CHECK(counts.seconds > 0);
    CHECK(std::filesystem::is_empty(folder.path())); // the file has no name
}

TEST_CASE("after an error nothing is done any more, and nobody waits for ever") {
    test::Scratch const folder;
    FileQueue queue(ScratchFile(folder.path(), 4 * page), 4);
    Pages const ones(1), more(7);
    queue.wait(queue.write(0, ones.data(), page));
    queue.wait(queue.read(4 * page, more.data(), page)); // beyond its end
    CHECK(queue.failure().find("(a file without a name)") != std::string::npos);
    auto const first = queue.failure();
    queue.wait(queue.read(0, more.data(), page));
    CHECK(more.all(7));
    queue.wait(queue.write(0, more.data(), page));
    CHECK(queue.counts().written_bytes == page);
    CHECK(queue.failure() == first);
}

TEST_CASE("a file without a name that cannot be had is an error that says why") {
    test::Scratch const folder;
    CHECK_THROWS_WITH_AS(
        ScratchFile(folder / "gone", page),
        ("cannot make a file without a name in " + (folder / "gone").string() + ": No such file or directory").c_str(),
        FileError);
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = old;
    limit.rlim_cur = page;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    CHECK_THROWS_WITH_AS(
        ScratchFile(folder.path(), 2 * page),
        ("cannot take 8192 bytes for a file in " + folder.path().string() + ": File too large").c_str(), FileError);
    ::setrlimit(RLIMIT_FSIZE, &old);
    (void)std::signal(SIGXFSZ, handler);
}
