// A text file that is written line by line, for logs: each line goes to the operating system at once, so that
// a reader follows the run and a full disk is noticed on the line that found it full.
#pragma once

#include <pentad/io/file.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

namespace pentad::io {

class LineFile {
  public:
    /// Makes the file, or empties it.
    explicit LineFile(std::filesystem::path const& path) : file_(File::create(path)) {}
    /// Goes on with a file after its first lines, those that `stays` is true for; the others are removed. Makes the
    /// file where there is none.
    LineFile(std::filesystem::path const& path, std::function<bool(std::string_view)> const& stays)
        : file_(File::open_to_append(path)) {
        std::uint64_t kept = 0;
        for (std::ifstream in(path); std::getline(in, line_) && !in.eof() && stays(line_);) kept += line_.size() + 1;
        file_.cut(kept);
    }

    void write(std::string_view line) {
        line_.assign(line);
        line_ += '\n';
        file_.write(line_); // one write a line: lines of a log are never torn
    }
    void close() { file_.close(); }

  private:
    File file_;
    std::string line_;
};

} // namespace pentad::io
