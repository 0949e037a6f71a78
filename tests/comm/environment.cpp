#include <pentad/comm/environment.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

using namespace pentad;

namespace {

struct Variable {
    char const* name;
    Variable(char const* name_, char const* value) : name(name_) { setenv(name, value, 1); }
    Variable(Variable const&) = delete;
    Variable& operator=(Variable const&) = delete;
    ~Variable() { unsetenv(name); }
};

/// What the check says of the environment with this variable.
std::string complaint(char const* name, char const* value) {
    Variable const variable(name, value);
    try {
        comm::environment::check();
    } catch (comm::Error const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("values that make no sense are refused with what is expected") {
    CHECK(complaint("PENTAD_COLLECTIVES", "zzz") ==
          "PENTAD_COLLECTIVES=zzz: it is one of auto, mpi, mailbox, direct, process");
    for (char const* const value : {"", "0", "-1", "two", "2x", "99999999999999999999"})
        CHECK(complaint("PENTAD_RANKS_PER_NODE", value) ==
              "PENTAD_RANKS_PER_NODE=" + std::string(value) + ": it is a number of ranks, 1 or more");
    CHECK(complaint("PENTAD_SHARED_MEMORY_LIMIT", "1G") == "PENTAD_SHARED_MEMORY_LIMIT=1G: it is a number of bytes");
    CHECK(complaint("PENTAD_GPU_AWARE_MPI", "yes") == "PENTAD_GPU_AWARE_MPI=yes: it is 0 or 1");
    for (char const* const value : {"", "none", "0", "-1", "inf", "nan"})
        CHECK(complaint("PENTAD_TIMEOUT", value) ==
              "PENTAD_TIMEOUT=" + std::string(value) + ": it is a number of seconds, more than 0");
}

TEST_CASE("a variable that nothing reads is refused with the one that was meant") {
    CHECK(complaint("PENTAD_COLECTIVES", "mpi") ==
          "there is no variable PENTAD_COLECTIVES: did you mean PENTAD_COLLECTIVES?");
}

TEST_CASE("what makes sense passes, and so do the variables of other tools") {
    CHECK(complaint("PENTAD_COLLECTIVES", "mailbox").empty());
    CHECK(complaint("PENTAD_RANKS_PER_NODE", "2").empty());
    CHECK(complaint("PENTAD_TIMEOUT", "2.5").empty());
    CHECK(complaint("PENTAD_TOOLCHAIN", "system").empty());
    CHECK(complaint("OTHER_VARIABLE", "").empty());
}
