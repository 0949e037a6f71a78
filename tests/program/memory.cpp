#include <pentad/program/memory.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>

TEST_CASE("the host has memory to give, and says what bounds it") {
    auto const available = pentad::program::memory_of_host();
    CHECK(available.bytes > 1e6);
    CHECK(available.bytes < 1e15);
    CHECK_FALSE(available.bound.empty());
}

TEST_CASE("a limit of the address space bounds the process, by what it has taken already") {
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    auto limited = before;
    limited.rlim_cur = rlim_t{1} << 44;
    setrlimit(RLIMIT_AS, &limited);
    auto const available = pentad::program::memory_of_process();
    setrlimit(RLIMIT_AS, &before);
    CHECK(available.bytes < static_cast<double>(rlim_t{1} << 44));
    CHECK(available.bytes > 0.5 * static_cast<double>(rlim_t{1} << 44));
    CHECK(available.bound == "the limit of its address space (ulimit -v)");
}
