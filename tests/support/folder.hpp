// A folder for files that all ranks of a test see.
#pragma once

#include <pentad/comm/broadcast_text.hpp>

#include <io/scratch.hpp>
#include <support/world.hpp>

#include <mpi.h>

#include <filesystem>
#include <optional>
#include <string>

namespace support {

/// A folder that all ranks see.
class Folder {
  public:
    Folder() {
        if (world_rank() == 0) own_.emplace();
        path_ = pentad::comm::broadcast_text(MPI_COMM_WORLD, own_ ? own_->path().string() : "", 0);
    }
    Folder(Folder const&) = delete;
    Folder& operator=(Folder const&) = delete;
    ~Folder() { MPI_Barrier(MPI_COMM_WORLD); }
    [[nodiscard]] std::filesystem::path const& path() const { return path_; }

  private:
    std::optional<test::Scratch> own_;
    std::filesystem::path path_;
};

} // namespace support
