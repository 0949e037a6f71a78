// A tuning: what is read answers for groups of any size.
#include "input.hpp"

#include <pentad/comm/choice.hpp>

#include <limits>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace pentad;
    try {
        comm::Tuning const tuning(std::string(fuzz::text(data, size)), {});
        for (int const ranks : {2, 3, 1024, std::numeric_limits<int>::max()})
            for (int const nodes : {1, 2, std::numeric_limits<int>::max()})
                for (std::size_t operation = 0; operation < observe::operation_names.size(); ++operation)
                    for (std::size_t const bytes : {std::size_t{0}, std::size_t{4096}, ~std::size_t{0}})
                        (void)tuning.of(ranks, nodes).takes_mpi(static_cast<observe::Operation>(operation), bytes);
    } catch (comm::Error const&) {
    }
    return 0;
}
