#include <pentad/comm/environment.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

TEST_CASE("more threads than there is room for are refused, and never chosen") {
    CHECK(complaint("OMP_NUM_THREADS", "512").empty());
    CHECK(complaint("OMP_NUM_THREADS", "513") ==
          "OMP_NUM_THREADS=513: a rank has 512 threads at most: give it fewer, and the machine more ranks");
    CHECK(complaint("OMP_NUM_THREADS", "1024,2").starts_with("OMP_NUM_THREADS=1024,2: a rank has 512 threads at most"));
    CHECK(complaint("KOKKOS_NUM_THREADS", "600").starts_with("KOKKOS_NUM_THREADS=600: "));
    CHECK(complaint("OMP_NUM_THREADS", "2,1024").empty());
    CHECK(comm::environment::threads_of_rank(768, 1) == 512);
    CHECK(comm::environment::threads_of_rank(768, 2) == 384);
    CHECK(comm::environment::threads_of_rank(2, 8) == 1);
    CHECK(comm::environment::threads_of_rank(0, 1) == 1); // not known
}

namespace {

/// The findings of a process that is alone in MPI's world with these variables: whether it speaks, and the variable.
std::string found_alone(std::vector<std::pair<char const*, char const*>> const& values, int ranks = 1) {
    std::vector<std::unique_ptr<Variable>> variables;
    for (auto const& [name, value] : values) variables.push_back(std::make_unique<Variable>(name, value));
    auto const found = comm::environment::lonely_rank(ranks);
    if (!found) return "";
    auto const begin = found->sentence.find('(') + 1;
    return (found->speaks ? "says " : "silent ") + found->sentence.substr(begin, found->sentence.find(')') - begin);
}

} // namespace

TEST_CASE("a rank that is alone although its launcher started several is told so, by the first of them") {
    for (auto const& launcher : comm::environment::launchers) { // of this test itself
        if (launcher.size != nullptr) unsetenv(launcher.size);
        unsetenv(launcher.rank);
    }
    CHECK(!comm::environment::is_launched());
    for (auto const& [name, size, rank] : comm::environment::launchers) {
        if (size == nullptr) {
            CHECK(found_alone({{rank, "1"}}) == "says " + std::string(rank) + "=1");
            CHECK(found_alone({{rank, "2"}}) == "silent " + std::string(rank) + "=2");
            CHECK(found_alone({{rank, "0"}}).empty());
            continue;
        }
        CHECK(found_alone({{size, "2"}, {rank, "0"}}) == "says " + std::string(size) + "=2");
        CHECK(found_alone({{size, "2"}}) == "says " + std::string(size) + "=2");
        CHECK(found_alone({{size, "2"}, {rank, "1"}}) == "silent " + std::string(size) + "=2");
        CHECK(found_alone({{size, "1"}, {rank, "0"}}).empty());
        CHECK(found_alone({{size, "2"}, {rank, "0"}}, 2).empty()); // MPI knows of them
        Variable const several(size, "2");
        CHECK(comm::environment::is_launched());
    }
    // Slurm's variables in the script of a job, and of srun -n 1 in an allocation of several tasks.
    CHECK(found_alone({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}).empty());
    CHECK(found_alone({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}).empty());
    // MPICH's launcher, which Slurm has started on several nodes, has started one rank.
    CHECK(found_alone({{"SLURM_STEP_NUM_TASKS", "2"}, {"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}).empty());
}
