// Room: io. A file that is there whole or not at all: written under a temporary name in the same folder, flushed to the
// disk, renamed. A reader sees the old file or the new one, and a run that dies leaves no half a checkpoint.
#pragma once

#include <pentad/io/file.hpp>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace pentad::io {

class AtomicFile {
  public:
    explicit AtomicFile(std::filesystem::path const& path) : path_(target_of(path)) {
        // A device or a pipe is no file to replace: it is written as it is.
        std::error_code ignored;
        auto const status = std::filesystem::status(path_, ignored);
        direct_ = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
        if (direct_) {
            file_ = File::create(path_);
            return;
        }
        for (int attempt = 0; !file_.is_open(); ++attempt) {
            if (attempt == 1000) throw FileError("write", path_, EEXIST);
            temporary_ = path_.parent_path() / ("." + path_.filename().string() + "." + std::to_string(::getpid()) +
                                                "." + std::to_string(attempt) + ".tmp");
            file_ = File::create_new(temporary_, path_);
        }
    }
    AtomicFile(AtomicFile const&) = delete;
    AtomicFile& operator=(AtomicFile const&) = delete;
    ~AtomicFile() {
        if (!committed_ && !direct_) ::unlink(temporary_.c_str());
    }

    void write(void const* data, std::size_t bytes) { file_.write(data, bytes); }
    void write(std::string_view text) { file_.write(text); }

    /// Puts the file in place. Without this call nothing changes at the path.
    void commit() {
        file_.flush_to_disk();
        file_.close();
        committed_ = true;
        if (direct_) return;
        if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
            int const error = errno;
            ::unlink(temporary_.c_str());
            throw FileError("write", path_, error);
        }
        // The new name is on the disk once its folder is.
        auto const folder = path_.parent_path();
        File::open_folder(folder.empty() ? "." : folder).flush_to_disk();
    }

    [[nodiscard]] std::filesystem::path const& path() const { return path_; }

  private:
    /// A link stays a link: what it points at is replaced.
    static std::filesystem::path target_of(std::filesystem::path const& path) {
        std::error_code error;
        if (!std::filesystem::is_symlink(path, error)) return path;
        auto target = std::filesystem::weakly_canonical(path, error);
        return error ? path : target;
    }

    std::filesystem::path path_;
    std::filesystem::path temporary_;
    File file_;
    bool direct_ = false;
    bool committed_ = false;
};

/// Writes a whole file, atomically.
inline void write_file(std::filesystem::path const& path, std::string_view text) {
    AtomicFile file(path);
    file.write(text);
    file.commit();
}

} // namespace pentad::io
