// The main of tests that need MPI (and Kokkos). Every rank runs every test case; any failure on any rank fails the run.
//
// An MPI_TEST_CASE of n ranks runs in the run of n ranks and not again in the larger ones; PENTAD_TEST_RANKS, set by
// the registration, says which runs there are. One that no run is large enough for fails the largest run.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/extensions/doctest_mpi.h>

#include <Kokkos_Core.hpp>

#include <pentad/comm/end_job.hpp>
#include <support/world.hpp>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

namespace {

using support::world_rank, support::world_size;

/// Says at once what doctest's MPI reporter would say at the end of the test case, or not at all from ranks other
/// than 0, and ends the run where a rank leaves a test case early: the others would wait for it for ever.
struct EarlyExit final : doctest::IReporter {
    explicit EarlyExit(doctest::ContextOptions const&) {}

    void log_assert(doctest::AssertData const& assertion) override {
        if (!assertion.m_failed) return;
        std::ostringstream text;
        text << assertion.m_file << ":" << assertion.m_line << ": " << assertion.m_expr << " ("
             << assertion.m_decomp.c_str() << ")";
        bool const leaves = (assertion.m_at & doctest::assertType::is_require) != 0;
        if (leaves || world_rank() != 0) say(text.str());
        if (leaves) end();
    }
    void test_case_start(doctest::TestCaseData const& test_case) override { name_ = test_case.m_name; }
    void test_case_exception(doctest::TestCaseException const& exception) override {
        say(std::string("exception: ") + exception.error_string.c_str());
        end();
    }

    void report_query(doctest::QueryData const&) override {}
    void test_run_start() override {}
    void test_run_end(doctest::TestRunStats const&) override {}
    void test_case_reenter(doctest::TestCaseData const&) override {}
    void test_case_end(doctest::CurrentTestCaseStats const&) override {}
    void subcase_start(doctest::SubcaseSignature const&) override {}
    void subcase_end() override {}
    void log_message(doctest::MessageData const&) override {}
    void test_case_skipped(doctest::TestCaseData const&) override {}

  private:
    void say(std::string const& what) const {
        std::ostringstream line;
        line << "rank " << world_rank() << " of " << world_size() << ", " << name_ << ": " << what << "\n";
        std::cerr << line.str() << std::flush;
    }
    static void end() {
        if (world_size() > 1) pentad::comm::end_job(1);
    }

    std::string name_;
};
REGISTER_LISTENER("EarlyExit", 0, EarlyExit);

/// Leaves the test cases of fewer ranks to the runs of exactly their size. Returns the size of the largest run.
int leave_to_other_runs() {
    char const* const runs = std::getenv("PENTAD_TEST_RANKS");
    if (runs == nullptr) return world_size();
    int largest = 0;
    std::istringstream stream(runs);
    for (int size = 0; stream >> size;) {
        largest = std::max(largest, size);
        if (size >= world_size()) continue;
        doctest::mpi_sub_comm nobody(size);
        nobody.destroy_comm(); // a test case runs on the ranks that have a communicator
        doctest::sub_comms_by_size.emplace(size, std::move(nobody));
    }
    return largest;
}

} // namespace

int main(int argc, char** argv) {
    doctest::mpi_init_thread(argc, argv, MPI_THREAD_SERIALIZED);
    int failed = 0;
    {
        Kokkos::ScopeGuard const kokkos(argc, argv);
        int const largest_run = leave_to_other_runs();
        doctest::Context context;
        context.setOption("reporters", "MpiConsoleReporter");
        context.applyCommandLine(argc, argv);
        failed = context.run();
        if (world_size() >= largest_run && doctest::nb_test_cases_skipped_insufficient_procs > 0) {
            if (world_rank() == 0) std::cerr << "test cases for more ranks than any run has\n";
            failed = 1;
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    doctest::mpi_finalize();
    return failed;
}
