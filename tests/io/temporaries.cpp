// What is left of files when their writer is ended, at any moment.
#include <doctest/doctest.h>

#include <pentad/io/atomic_file.hpp>

#include "interrupted.hpp"
#include "scratch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

using namespace pentad;
using test::end_of, test::interrupted, test::start, test::Unnamed;
namespace fs = std::filesystem;

namespace {

auto entries(fs::path const& folder) { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); }

std::sig_atomic_t volatile released = 0;
void finish_on_signal() {
    std::signal(SIGUSR1, [](int) { released = 1; });
}

/// A process that holds an unfinished file.
class Writer {
  public:
    Writer(fs::path const& path, std::function<void()> const& before) {
        int ready[2];
        REQUIRE(::pipe(ready) == 0);
        process_ = start([&] {
            before();
            io::AtomicFile file(path);
            file.write("half");
            (void)!::write(ready[1], "x", 1);
            while (released == 0) ::usleep(1000);
            file.commit();
        });
        char letter = 0;
        REQUIRE(::read(ready[0], &letter, 1) == 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    void send(int signal) const { ::kill(process_, signal); }
    int after(int signal) const {
        send(signal);
        return end_of(process_);
    }

  private:
    pid_t process_;
};

void save(fs::path const& folder, std::string const& weights_text, std::string const& config_text) {
    io::AtomicFile weights(folder / "weights");
    weights.write(weights_text);
    io::AtomicFile config(folder / "config");
    config.write(config_text);
    io::publish({&weights}, config);
}
std::string pair_in(fs::path const& folder) {
    return test::text_of(folder / "weights") + "/" + test::text_of(folder / "config");
}

} // namespace

TEST_CASE("an unfinished file has no name, and is gone with its writer") {
    test::Scratch const scratch;
    Writer const killed(scratch / "a", [] {});
    CHECK(entries(scratch.path()) == 0);
    killed.after(SIGKILL);
    CHECK(entries(scratch.path()) == 0);
}

TEST_CASE("a signal that ends a writer removes what it has not finished") {
    Unnamed const named(false);
    for (int const signal : {SIGINT, SIGTERM, SIGHUP}) {
        test::Scratch const scratch;
        io::write_file(scratch / "a", "old");
        Writer const writer(scratch / "a", [] { io::remove_temporaries_on_signals(); });
        CHECK(entries(scratch.path()) == 2);
        int const status = writer.after(signal);
        CHECK(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == signal);
        CHECK(entries(scratch.path()) == 1);
        CHECK(test::text_of(scratch / "a") == "old");
    }
}

TEST_CASE("handlers that were there before follow, one that returns ends the writer too, and a signal that was ignored "
          "stays so") {
    Unnamed const named(false);
    test::Scratch const scratch;
    Writer const ends(scratch / "a", [] {
        std::signal(SIGTERM, [](int) { ::_exit(7); });
        io::remove_temporaries_on_signals();
        io::remove_temporaries_on_signals(); // twice is as once
    });
    int const status = ends.after(SIGTERM);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
    CHECK(entries(scratch.path()) == 0);

    Writer const returns(scratch / "a", [] {
        std::signal(SIGHUP, [](int) {}); // as a library's, which means something else by it
        io::remove_temporaries_on_signals();
    });
    int const status_of_returned = returns.after(SIGHUP);
    CHECK(WIFSIGNALED(status_of_returned));
    CHECK(WTERMSIG(status_of_returned) == SIGHUP);
    CHECK(entries(scratch.path()) == 0);

    Writer const ignores(scratch / "a", [] {
        std::signal(SIGINT, SIG_IGN);
        finish_on_signal();
        io::remove_temporaries_on_signals();
    });
    ignores.send(SIGINT);
    CHECK(ignores.after(SIGUSR1) == 0);
    CHECK(test::text_of(scratch / "a") == "half");
}

TEST_CASE("the next writer removes what a killed one left, and nothing of one that lives") {
    Unnamed const named(false);
    test::Scratch const scratch;
    std::string const name = "a b.c";
    Writer const killed(scratch / name, [] {});
    Writer const living(scratch / name, finish_on_signal);
    killed.after(SIGKILL);
    for (char const* const other : {".a b.c.12.0.tmpx", ".a b.c.12a.0.tmp", ".a b.c.tmp", ".b.c.12.0.tmp"})
        test::write_text(scratch / other, "not ours");
    CHECK(entries(scratch.path()) == 6);
    io::write_file(scratch / name, "whole");
    CHECK(entries(scratch.path()) == 6); // one less, one more
    CHECK(test::text_of(scratch / name) == "whole");
    CHECK(living.after(SIGUSR1) == 0);
    CHECK(test::text_of(scratch / name) == "half");
    CHECK(entries(scratch.path()) == 5);
}

TEST_CASE("many writers of one file, who all clear up, do not disturb each other") {
    test::Scratch const scratch;
    std::vector<pid_t> writers;
    for (int i = 0; i < 6; ++i)
        writers.push_back(start([&] {
            Unnamed const unnamed(i % 2 == 0);
            for (int k = 0; k < 60; ++k) {
                io::AtomicFile file(scratch / "a");
                file.write(std::string(1000, static_cast<char>('a' + i)));
                if (k % 3 > 0) file.commit();
            }
        }));
    for (pid_t const writer : writers) CHECK(end_of(writer) == 0);
    auto const text = test::text_of(scratch / "a");
    CHECK(text.size() == 1000);
    CHECK(std::all_of(text.begin(), text.end(), [&](char letter) { return letter == text[0]; }));
    CHECK(entries(scratch.path()) == 1);
}

TEST_CASE("a writer whose file is written by another at any system call still puts its own in place") {
    for (bool const unnamed : {true, false}) {
        Unnamed const mode(unnamed);
        for (int n = 0, status = -1; status != 0 || n == 0; ++n) {
            test::Scratch const scratch;
            bool was_stopped = false;
            status = interrupted(
                n, 0, [&] { io::write_file(scratch / "a", "one"); },
                [&] {
                    io::write_file(scratch / "a", "two");
                    was_stopped = true;
                });
            CAPTURE(n);
            CHECK(status == 0);
            CHECK(fs::exists(scratch / "a"));
            CHECK(entries(scratch.path()) == 1);
            status = was_stopped ? -1 : 0;
        }
    }
}

TEST_CASE("killed at any system call, files that belong together are the old ones, the new ones, or not described") {
    struct Case {
        bool unnamed;
        std::string old;
    };
    for (auto const& [unnamed, old] :
         {Case{true, ""}, {true, "old config"}, {true, "new config"}, {false, "old config"}}) {
        Unnamed const mode(unnamed);
        bool was_old = false, was_new = false, was_neither = false;
        for (int n = 0;; ++n) {
            test::Scratch const scratch;
            auto const& folder = scratch.path();
            if (!old.empty()) save(folder, "old weights", old);
            int const status = interrupted(n, SIGKILL, [&] { save(folder, "new weights", "new config"); });
            CAPTURE(n);
            auto const pair = pair_in(folder);
            CAPTURE(pair);
            was_old = was_old || pair == "old weights/" + old;
            was_new = was_new || pair == "new weights/new config";
            was_neither = was_neither || pair.ends_with("/");
            CHECK((pair == "old weights/" + old || pair == "new weights/new config" || !fs::exists(folder / "config")));
            save(folder, "newer weights", "newer config");
            CHECK(pair_in(folder) == "newer weights/newer config");
            CHECK(entries(folder) == 2);
            if (WIFEXITED(status)) {
                CHECK(WEXITSTATUS(status) == 0);
                break;
            }
            REQUIRE(WTERMSIG(status) == SIGKILL);
        }
        CHECK(was_old == !old.empty());
        CHECK(was_new);
        CHECK(was_neither == (old != "new config")); // where the description stays, there always is one
    }
}

TEST_CASE("a signal at any system call leaves the old files or the new ones, and nothing else") {
    for (bool const unnamed : {true, false}) {
        Unnamed const mode(unnamed);
        for (int n = 0;; ++n) {
            test::Scratch const scratch;
            auto const& folder = scratch.path();
            save(folder, "old weights", "old config");
            int const status = interrupted(n, SIGTERM, [&] {
                io::remove_temporaries_on_signals();
                save(folder, "new weights", "new config");
            });
            CAPTURE(n);
            auto const pair = pair_in(folder);
            CAPTURE(pair);
            CHECK((pair == "old weights/old config" || pair == "new weights/new config"));
            // Made with a name, a file is listed a moment later: a signal between leaves it to the next writer.
            if (!unnamed) save(folder, "old weights", "old config");
            CHECK(entries(folder) == 2);
            if (WIFEXITED(status)) {
                CHECK(WEXITSTATUS(status) == 0);
                break;
            }
            REQUIRE(WTERMSIG(status) == SIGTERM);
        }
    }
}

TEST_CASE("several files are published together, and a device is only written") {
    test::Scratch const scratch;
    auto const& folder = scratch.path();
    for (std::string const text : {"1", "2", "2"}) {
        io::AtomicFile a(folder / "a"), b(folder / "b"), config(folder / "config"), nothing("/dev/null");
        a.write(text);
        b.write(text + text);
        config.write("same");
        nothing.write(text);
        io::publish({&a, &b, &nothing}, config);
        CHECK(test::text_of(folder / "a") == text);
        CHECK(test::text_of(folder / "b") == text + text);
        CHECK(test::text_of(folder / "config") == "same");
    }
    CHECK(entries(folder) == 3);
}
