// Tunings: which groups take the MPI library's collectives where; texts that are refused; the machine that they name.
#include <doctest/doctest.h>

#include <pentad/comm/choice.hpp>
#include <pentad/comm/proc_line.hpp>

#include <unistd.h>

#include <cstdio>
#include <string>

using pentad::comm::Error;
using pentad::comm::Tuning;
using pentad::observe::Operation;

namespace {

std::string const head = "pentad tuning 1\nmachine here\n";

std::string refusal(std::string const& text) {
    try {
        (void)Tuning(text, "here");
    } catch (Error const& error) {
        return error.what();
    }
    return "none";
}

} // namespace

TEST_CASE("a group takes what was measured for the most similar one") {
    Tuning const tuning(head + "group 2 ranks 1 nodes\nmpi all_reduce 0 100\nmpi all_reduce 500 600\n"
                               "group 16 ranks 1 nodes\nmpi broadcast 0 8\n"
                               "group 16 ranks 4 nodes\nmpi all_to_all 16 32\n",
                        "here");
    CHECK(tuning.of(2, 1).takes_mpi(Operation::all_reduce, 0));
    CHECK(tuning.of(2, 1).takes_mpi(Operation::all_reduce, 99));
    CHECK_FALSE(tuning.of(2, 1).takes_mpi(Operation::all_reduce, 100));
    CHECK(tuning.of(2, 1).takes_mpi(Operation::all_reduce, 599));
    CHECK_FALSE(tuning.of(2, 1).takes_mpi(Operation::all_gather, 0));
    CHECK(tuning.of(4, 1).takes_mpi(Operation::all_reduce, 0)); // nearer to 2 than to 16
    CHECK(tuning.of(8, 1).takes_mpi(Operation::broadcast, 0));
    CHECK(tuning.of(100, 1).takes_mpi(Operation::broadcast, 7));
    CHECK(tuning.of(4, 2).takes_mpi(Operation::all_to_all, 16)); // on several nodes: only such groups count
    CHECK_FALSE(tuning.of(4, 2).takes_mpi(Operation::all_reduce, 0));
}

TEST_CASE("without a tuning MPI is taken for small exchanges across nodes only") {
    Tuning const tuning;
    CHECK_FALSE(tuning.of(2, 1).takes_mpi(Operation::all_reduce, 1000));
    CHECK_FALSE(tuning.of(64, 1).takes_mpi(Operation::all_to_all, 1000));
    CHECK(tuning.of(8, 4).takes_mpi(Operation::all_reduce, 1000));
    CHECK_FALSE(tuning.of(8, 4).takes_mpi(Operation::all_reduce, 1000000));
    CHECK_FALSE(tuning.of(8, 4).takes_mpi(Operation::all_gather, 1000));
}

TEST_CASE("a text that is no tuning of this machine is refused with the line") {
    CHECK(refusal(head + "group 2 ranks 1 nodes\n") == "none");
    CHECK(refusal("") == "it names no machine, or no group");
    CHECK(refusal(head) == "it names no machine, or no group");
    CHECK(refusal("pentad tuning 2\n") == "line 1: it is not 'pentad tuning 1'");
    CHECK(refusal("pentad tuning 1\nmachine there\n") == "line 2: it is of another machine, this is here");
    CHECK(refusal(head + "mpi all_reduce 0 1\n") ==
          "line 3: 'mpi all_reduce 0 1' is neither machine, group nor, after a group, mpi");
    for (char const* const group :
         {"group", "group 2 ranks", "group 2 nodes 1 ranks", "group 1 ranks 1 nodes", "group -4 ranks 1 nodes",
          "group 4 ranks 0 nodes", "group x ranks 1 nodes", "group 2 ranks 1 nodes 7"})
        CHECK(refusal(head + group + "\n") == "line 3: it is not 'group <number> ranks <number> nodes'");
    for (char const* const range : {"mpi", "mpi sort 0 1", "mpi all_reduce 0", "mpi all_reduce 5 5",
                                    "mpi all_reduce 9 5", "mpi all_reduce 0 many", "mpi all_reduce -1 -2"})
        CHECK(refusal(head + "group 2 ranks 1 nodes\n" + range + "\n") ==
              "line 4: it is not 'mpi <operation> <from bytes> <to bytes>'");
}

TEST_CASE("a line of /proc is found by how it begins, whole, however long the lines are") {
    std::string const path = "proc_line." + std::to_string(getpid()),
                      flags = std::string(300, 'x') + "model name: not here";
    std::FILE* const file = std::fopen(path.c_str(), "w");
    REQUIRE(file != nullptr);
    std::fputs((flags + "\n\nmodel name\t: " + flags + "\nmodel name\t: second\nlast").c_str(), file);
    std::fclose(file);
    using pentad::comm::proc_line;
    CHECK(proc_line(path.c_str(), "model name") == "model name\t: " + flags);
    CHECK(proc_line(path.c_str()) == flags);
    CHECK(proc_line(path.c_str(), "last") == "last");
    CHECK(proc_line(path.c_str(), "none").empty());
    std::remove(path.c_str());
    CHECK(proc_line(path.c_str()).empty());
}

TEST_CASE("the machine is a processor, how many there are, and three words of the MPI library") {
    auto const machine = Tuning::machine();
    CHECK(machine.find(" processors, ") != std::string::npos);
    auto const library = machine.substr(machine.rfind(", ") + 2);
    CHECK(library.find('\n') == std::string::npos);
    CHECK(library.find("  ") == std::string::npos);
}
