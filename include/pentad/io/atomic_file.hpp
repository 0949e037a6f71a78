// Files that are there whole or not at all: written without a name, or under a temporary one in the same
// folder, flushed to the disk, renamed. A reader sees the old file or the new one, and a run that dies leaves no half a
// checkpoint.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/io/temporaries.hpp>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace pentad::io {

class AtomicFile {
  public:
    explicit AtomicFile(std::filesystem::path const& path);
    AtomicFile(AtomicFile const&) = delete;
    AtomicFile& operator=(AtomicFile const&) = delete;
    ~AtomicFile() {
        if (!in_place_ && !temporary_.empty()) ::unlink(temporary_.c_str());
    }

    void write(void const* data, std::size_t bytes) { file_.write(data, bytes); }
    void write(std::string_view text) { file_.write(text); }
    void start_flush() { file_.start_flush(); }

    /// Puts the file in place. Without this call nothing changes at the path.
    void commit();

    [[nodiscard]] std::filesystem::path const& path() const { return path_; }

  private:
    friend void publish(std::vector<AtomicFile*> const& files, AtomicFile& description,
                        std::vector<std::filesystem::path> const& obsolete);

    /// A link stays a link: what it points at is replaced.
    static std::filesystem::path target_of(std::filesystem::path const& path);
    [[nodiscard]] std::filesystem::path folder() const { return path_.has_parent_path() ? path_.parent_path() : "."; }
    /// Tries names until `make` makes a file of that name.
    template <class Make>
    void make_temporary(Make const& make) {
        std::string const start = detail::temporary_prefix(path_) + std::to_string(::getpid()) + ".";
        for (int attempt = 0; temporary_.empty(); ++attempt) {
            if (attempt == 1000) throw FileError("write", path_, EEXIST);
            auto const name = path_.parent_path() / (start + std::to_string(attempt) + ".tmp");
            if (make(name)) temporary_ = name;
        }
        listed_.emplace(temporary_);
    }
    /// What has no name cannot be renamed.
    void name() {
        if (direct_ || !temporary_.empty()) return;
        (void)detail::lock(file_); // before others see it
        make_temporary([this](auto const& name) { return file_.give_name(name); });
    }
    void put_in_place();
    void remove_old() {
        if (!direct_ && ::unlink(path_.c_str()) != 0 && errno != ENOENT) throw FileError("write", path_, errno);
    }
    /// The new name is on the disk once its folder is.
    void finish() {
        if (!direct_) File::open_folder(folder()).flush_to_disk();
        file_.close();
    }
    /// Whether a small file with the same bytes is in place.
    [[nodiscard]] bool is_in_place_already() const;

    std::filesystem::path path_;
    std::filesystem::path temporary_;
    std::optional<detail::Listed> listed_;
    File file_;
    bool direct_ = false;
    bool in_place_ = false;
};

/// Puts files in place that are useless without the last, their description: weights and their config.json; then
/// removes `obsolete` ones, which belong to the files that were there before. Whenever the process is killed, the old
/// files are there, or the new ones, or there is no description, so that no reader takes new files for what the old
/// description says. A signal of remove_temporaries_on_signals() waits for the end.
void publish(std::vector<AtomicFile*> const& files, AtomicFile& description,
             std::vector<std::filesystem::path> const& obsolete = {});

/// Writes a whole file, atomically.
inline void write_file(std::filesystem::path const& path, std::string_view text) {
    AtomicFile file(path);
    file.write(text);
    file.commit();
}

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/atomic_file.hpp>
#endif
