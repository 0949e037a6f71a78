#include <doctest/doctest.h>

#include <pentad/report/activity.hpp>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

using namespace pentad;
using namespace std::chrono_literals;

namespace {

/// A terminal, and what is written to it.
class Terminal {
  public:
    Terminal() : reader_(::posix_openpt(O_RDWR | O_NOCTTY)) {
        std::array<char, 128> name{};
        if (reader_ < 0 || ::grantpt(reader_) != 0 || ::unlockpt(reader_) != 0 ||
            ::ptsname_r(reader_, name.data(), name.size()) != 0)
            throw std::runtime_error("there is no terminal for the test");
        output_ = std::fopen(name.data(), "w");
    }
    Terminal(Terminal const&) = delete;
    Terminal& operator=(Terminal const&) = delete;
    ~Terminal() {
        std::fclose(output_);
        ::close(reader_);
    }
    [[nodiscard]] std::FILE* output() const { return output_; }
    [[nodiscard]] std::string text() const {
        std::string all;
        std::array<char, 4096> piece{};
        for (pollfd ready{.fd = reader_, .events = POLLIN, .revents = 0}; ::poll(&ready, 1, 0) > 0;) {
            auto const got = ::read(reader_, piece.data(), piece.size());
            if (got <= 0) break;
            all.append(piece.data(), static_cast<std::size_t>(got));
        }
        return all;
    }

  private:
    int reader_;
    std::FILE* output_ = nullptr;
};

bool contains(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("a terminal is told what takes long, how far it is, and gets its line back") {
    Terminal const terminal;
    report::Activity activity(terminal.output(), 10ms);
    activity.now("proving");
    std::this_thread::sleep_for(300ms);
    auto const first = terminal.text();
    CHECK_MESSAGE(contains(first, "\rproving\x1b[K"), first);
    activity.now("searching");
    std::this_thread::sleep_for(600ms);
    activity.done(0.25);
    std::this_thread::sleep_for(300ms);
    auto const second = terminal.text();
    CHECK_MESSAGE(contains(second, "\rsearching: 25 %, "), second);
    CHECK_MESSAGE(contains(second, " s left\x1b[K"), second);
    activity.hide();
    CHECK(terminal.text() == "\r\x1b[K");
    std::this_thread::sleep_for(300ms);
    CHECK(terminal.text().empty());
}

TEST_CASE("what is quick is not shown") {
    Terminal const terminal;
    {
        report::Activity activity(terminal.output(), 10s);
        activity.now("proving");
        std::this_thread::sleep_for(50ms);
    }
    CHECK(terminal.text().empty());
}

TEST_CASE("a file is told nothing") {
    std::FILE* const file = std::tmpfile();
    {
        report::Activity activity(file, 0ms);
        activity.now("proving");
        std::this_thread::sleep_for(50ms);
    }
    CHECK(std::ftell(file) == 0);
    std::fclose(file);
}
