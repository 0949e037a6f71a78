// What the MPI library has under way, as something that goes on when it is asked to.
#pragma once

#include <pentad/comm/detail/pending.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/progress.hpp>

#include <mpi.h>

#include <string>
#include <string_view>

namespace pentad::comm {

class MpiOperation final : public Pending {
  public:
    /// mpi(MPI_Request*) starts it, by the function `call`. `where`, for messages, outlives it.
    /// @throws Error when MPI does not start it
    template <class Mpi>
    void begin(std::string const& where, std::string_view call, Mpi const& mpi) {
        where_ = &where;
        call_ = call;
        request_ = MPI_REQUEST_NULL;
        check(mpi(&request_), call, where);
        progress().count_mpi(1);
    }
    bool step() override {
        if (request_ == MPI_REQUEST_NULL) return true;
        int done = 0;
        int const code = MPI_Test(&request_, &done, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && done == 0) return false;
        request_ = MPI_REQUEST_NULL;
        progress().count_mpi(-1);
        check(code, call_, *where_);
        return true;
    }

  private:
    std::string const* where_ = nullptr;
    std::string_view call_;
    MPI_Request request_ = MPI_REQUEST_NULL;
};

} // namespace pentad::comm
