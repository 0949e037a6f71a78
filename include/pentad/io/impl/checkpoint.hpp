// The functions of <pentad/io/checkpoint.hpp>.
#pragma once

#include <pentad/io/checkpoint.hpp>

#include <pentad/io/json.hpp>
#include <pentad/mesh/inline.hpp>

#include <cstdint>
#include <set>
#include <stdexcept>
#include <system_error>

namespace pentad::io::detail {

/// "a, b, c and 4 more"
class SomeNames {
  public:
    void add(std::string const& name) {
        if (++count_ > most) return;
        text_ += (count_ > 1 ? ", " : "") + name;
    }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::string text() const {
        return count_ <= most ? text_ : text_ + " and " + std::to_string(count_ - most) + " more";
    }

  private:
    static constexpr std::size_t most = 3;
    std::size_t count_ = 0;
    std::string text_;
};

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE Checkpoint::Checkpoint(std::filesystem::path const& path) : path_(path) {
    auto const file = file_of(path);
    FileOfTensor by_index;
    if (file.extension() == ".json")
        by_index = open_shards(file);
    else
        open(file);
    for (std::size_t shard = 0; shard < shards_.size(); ++shard)
        for (auto const& tensor : shards_[shard].tensors()) {
            auto const [place, is_new] = index_.try_emplace(tensor.name, Place{shard, tensors_.size()});
            if (!is_new)
                refuse("tensor " + detail::shown(tensor.name) + " is in both " + name_of(place->second.shard) +
                       " and " + name_of(shard));
            tensors_.push_back(tensor);
        }
    if (!by_index.empty()) compare_with(by_index);
}

PENTAD_INLINE std::optional<std::string>
Checkpoint::refusal(std::span<NamedShape const> expected,
                    std::function<bool(std::string_view)> const& is_ignored) const {
    detail::SomeNames missing, others, left_over, unreadable;
    std::set<std::string_view> known;
    for (auto const& [name, shape] : expected) {
        known.insert(name);
        std::string const shown = detail::shown(name);
        if (!contains(name)) {
            missing.add(shown);
            continue;
        }
        auto const& found = tensor(name);
        if (found.shape != shape)
            others.add(shown + " is " + detail::shape_text(found.shape) + ", not " + detail::shape_text(shape));
        else if (!detail::with_real_type(found.type, [](auto) {}))
            unreadable.add(shown + " holds " + one_line(found.type));
    }
    for (auto const& [name, type, shape] : tensors_)
        if (!known.contains(name) && !(is_ignored && is_ignored(name))) left_over.add(detail::shown(name));

    std::string reasons;
    auto const add = [&reasons](detail::SomeNames const& names, std::string const& before, std::string const& after) {
        if (names.count() == 0) return;
        reasons += (reasons.empty() ? "" : "; ") + before + std::to_string(names.count()) +
                   (names.count() == 1 ? " tensor" : " tensors") + after + " (" + names.text() + ")";
    };
    add(missing, "it lacks ", "");
    add(others, "it has ", " of another shape");
    add(unreadable, "it has ", " not of F64, F32, BF16 or F16");
    add(left_over, "it has ", " that the model does not have");
    if (reasons.empty()) return std::nullopt;
    return path_.string() + " does not fit the model: " + reasons;
}

PENTAD_INLINE std::filesystem::path Checkpoint::file_of(std::filesystem::path const& path) const {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) return path;
    auto const is_there = [&](std::string_view name) {
        return std::filesystem::exists(std::filesystem::symlink_status(path / name, ignored));
    };
    std::string const file(detail::checkpoint_file), index(detail::checkpoint_index);
    bool const has_file = is_there(file), has_index = is_there(index);
    if (has_file && has_index) refuse("it has both " + file + " and " + index + ": name the one to read");
    if (!has_file && !has_index) refuse("it has neither " + file + " nor " + index);
    return path / (has_file ? file : index);
}

PENTAD_INLINE auto Checkpoint::open_shards(std::filesystem::path const& index) -> FileOfTensor {
    std::string const text = read_file(index, std::uint64_t{64} << 20); // of the largest models it has some MiB
    files_.push_back(index);
    FileOfTensor by_index;
    std::set<std::string> files;
    try {
        auto const json = detail::parse_object(text);
        auto const& names = detail::member(json, "weight_map", "weight_map");
        if (!names.is_object() || names.empty())
            detail::refuse_json("weight_map", "an object of tensors and their files", names);
        for (auto const& [tensor, file] : names.items()) {
            std::string const where = "weight_map." + detail::shown(tensor);
            auto name = detail::text(file, where);
            if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos)
                detail::refuse_json(where, "the name of a file in the folder of the index", file);
            files.insert(name);
            by_index.emplace(tensor, std::move(name));
        }
    } catch (std::invalid_argument const& error) {
        refuse(one_line(index.filename().string()) + ": " + error.what());
    }
    allow_open_files(files.size());
    for (auto const& name : files) open(index.parent_path() / name);
    return by_index;
}

PENTAD_INLINE void Checkpoint::compare_with(FileOfTensor const& by_index) const {
    for (auto const& [tensor, file] : by_index) {
        auto const found = index_.find(tensor);
        if (found != index_.end() && shards_[found->second.shard].path().filename() == file) continue;
        refuse("the index puts tensor " + detail::shown(tensor) + " into " + one_line(file) +
               (found == index_.end() ? ", which lacks it" : ", and it is in " + name_of(found->second.shard)));
    }
    for (auto const& [tensor, place] : index_)
        if (!by_index.contains(tensor))
            refuse(name_of(place.shard) + " has tensor " + detail::shown(tensor) + ", which the index does not name");
}

} // namespace pentad::io
