// An unnamed temporary file, accessed with O_DIRECT where the file system supports it: it then occupies no page cache,
// and its timings are those of the disk.
#pragma once

#include <pentad/io/file.hpp>

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace pentad::io {

class ScratchFile {
  public:
    /// What offsets, sizes and addresses must be multiples of.
    static constexpr std::size_t page = 4096;

    /// @param bytes that it has, which are taken from the disk now where the file system can do that; it can grow
    /// @throws FileError where the folder has no room for them, or no files without a name
    ScratchFile(std::filesystem::path const& folder, std::uint64_t bytes)
        : file_(File::create_unnamed(folder, folder / "(a file without a name)")) {
        if (!file_.is_open()) throw FileError("make a file without a name in", folder, errno);
        int result = 0;
        if (bytes > 0) {
            do result = ::fallocate(file_.descriptor(), 0, 0, static_cast<off_t>(bytes));
            while (result != 0 && errno == EINTR);
        }
        if (result != 0 && errno == EOPNOTSUPP) result = ::ftruncate(file_.descriptor(), static_cast<off_t>(bytes));
        if (result != 0) throw FileError("take " + std::to_string(bytes) + " bytes for a file in", folder, errno);
        is_direct_ = ::fcntl(file_.descriptor(), F_SETFL, O_DIRECT) == 0;
    }

    /// Whether it is read and written past the kernel's memory.
    [[nodiscard]] bool is_direct() const { return is_direct_; }

    void read(std::uint64_t offset, void* data, std::size_t bytes) const { file_.read_at(offset, data, bytes); }
    void write(std::uint64_t offset, void const* data, std::size_t bytes) {
        auto const* next = static_cast<std::byte const*>(data);
        while (bytes > 0) {
            ssize_t const written = ::pwrite(file_.descriptor(), next, bytes, static_cast<off_t>(offset));
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) throw FileError("write", file_.path(), errno);
            next += written;
            offset += static_cast<std::uint64_t>(written);
            bytes -= static_cast<std::size_t>(written);
        }
    }

  private:
    File file_;
    bool is_direct_ = false;
};

} // namespace pentad::io
