// ranks: 1 2 3 4
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/comm/agreement.hpp>

#include <support/world.hpp>

#include <string>
#include <vector>

using namespace pentad;
using support::world_rank, support::world_size;

namespace {

std::vector<comm::Fact> started_with(std::vector<char const*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return comm::start_facts(static_cast<int>(arguments.size()), arguments.data());
}
std::string disagreement(std::vector<comm::Fact> const& facts) { return comm::disagreement(MPI_COMM_WORLD, facts); }

} // namespace

TEST_CASE("ranks that were started alike agree") {
    CHECK(disagreement(started_with({"--seed", "1", "--quiet"})).empty());
    CHECK(disagreement(started_with({})).empty());
}

TEST_CASE("one rank with other arguments is named, with what it has and what the others have") {
    if (world_size() < 3) return;
    int const last = world_size() - 1;
    bool const odd = world_rank() == last;
    std::string const who = "rank " + std::to_string(last) + " differs from rank 0 in its arguments: ";
    CHECK(disagreement(started_with({"--seed", odd ? "2" : "1"})) ==
          who + "--seed 2 where that has --seed 1; start all ranks alike");
    CHECK(disagreement(odd ? started_with({"--seed", "1", "--bogus"}) : started_with({"--seed", "1"})) ==
          who + "--bogus where that has nothing; start all ranks alike");
    CHECK(disagreement(odd ? started_with({}) : started_with({"-a"})) ==
          who + "nothing where that has -a; start all ranks alike");
    CHECK(disagreement(odd ? started_with({"-a", "-b"}) : started_with({"-b", "-a"})) ==
          who + "the same in another order; start all ranks alike");
}

TEST_CASE("rank 0 may be the odd one; of two it is the second") {
    if (world_size() == 1) return;
    auto const facts = started_with({world_rank() == 0 ? "-a" : "-b"});
    CHECK(disagreement(facts) ==
          (world_size() == 2
               ? "rank 1 differs from rank 0 in its arguments: -b where that has -a; start all ranks alike"
               : "rank 0 differs from rank 1 in its arguments: -a where that has -b; start all ranks alike"));
}

TEST_CASE("other variables of the environment, another build, other files") {
    if (world_size() == 1) return;
    bool const odd = world_rank() == 1;
    if (odd) setenv("PENTAD_COLLECTIVES", "mpi", 1);
    auto const facts = started_with({"--seed", "1"});
    unsetenv("PENTAD_COLLECTIVES");
    CHECK(disagreement(facts) == "rank 1 differs from rank 0 in its environment: PENTAD_COLLECTIVES=mpi where that has "
                                 "nothing; start all ranks alike");
    std::vector<comm::Fact> const files{{"input files", odd ? "a (1 byte)" : "a (2 bytes)"}};
    CHECK(
        disagreement(files) ==
        "rank 1 differs from rank 0 in its input files: a (1 byte) where that has a (2 bytes); start all ranks alike");
}

TEST_CASE("a long value is cut short") {
    if (world_size() == 1) return;
    std::string const text(100'000, world_rank() == 1 ? 'b' : 'a');
    CHECK(disagreement({{"arguments", text}}).size() < 300);
}

TEST_CASE("a build has a number") {
    auto const id = comm::build_id();
    CHECK(id.size() >= 16);
    CHECK(id.find_first_not_of("0123456789abcdef") == id.npos);
}
