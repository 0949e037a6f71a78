// Looks at the checkpoints of train_lm: lists them, says what is in one, verifies every byte, converts to and from
// Hugging Face. Exit status: 0 done, 2 bad input, 3 a file cannot be read or written, or is damaged, 1 anything else.
#include "convert.hpp"

#include <pentad/checkpoint/folder.hpp>
#include <pentad/checkpoint/reader.hpp>
#include <pentad/program/exit_status.hpp>
#include <pentad/report/format.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <vector>

using namespace pentad;

namespace {

constexpr char const* name = "pentad_checkpoint";

/// The checkpoint that is meant: the path, or the newest in it. @throws program::BadInput where there is none
std::filesystem::path checkpoint_at(std::filesystem::path const& path) {
    if (checkpoint::is_checkpoint(path)) return path;
    auto const found = program::with_files_of_user([&] { return checkpoint::list(path); });
    if (found.empty()) throw program::BadInput(path.string() + " is no checkpoint, and has none in it");
    return found.back().path;
}

std::string bytes_text(std::uint64_t bytes) { return report::bytes(static_cast<double>(bytes)); }
std::uint64_t bytes_of(checkpoint::Manifest const& manifest) {
    std::uint64_t sum = 0;
    for (auto const& file : manifest.files) sum += file.bytes;
    return sum;
}
std::string time_of(std::filesystem::path const& folder) {
    struct stat status{};
    std::array<char, 32> text{};
    if (::stat((folder / checkpoint::manifest_file).c_str(), &status) == 0)
        std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", std::localtime(&status.st_mtime));
    return text.data();
}

/// Every checkpoint of a folder in a line; damaged ones too.
int list(std::filesystem::path const& folder) {
    auto const found = program::with_files_of_user([&] { return checkpoint::list(folder); });
    if (found.empty()) std::printf("there are no checkpoints in %s\n", folder.c_str());
    for (auto const& [step, path] : found) {
        std::string about;
        try {
            checkpoint::Reader const reader(path);
            auto const& manifest = reader.manifest();
            about = bytes_text(bytes_of(manifest)) + " in " + std::to_string(manifest.files.size()) +
                    (manifest.files.size() == 1 ? " file" : " files");
            if (auto const fault = reader.name_fault()) about += "; " + *fault;
        } catch (io::FileError const& error) {
            about = error.what();
        }
        std::printf("step %lld  %s  %s  %s\n", static_cast<long long>(step), time_of(path).c_str(), path.c_str(),
                    about.c_str());
    }
    return program::done;
}

/// What a checkpoint has, and how its run was started.
int show(std::filesystem::path const& path) {
    checkpoint::Reader const reader(path);
    auto const& manifest = reader.manifest();
    std::uint64_t elements = 0;
    for (auto const& tensor : manifest.tensors) elements += io::detail::elements(tensor.shape);
    std::map<std::string, std::pair<std::string, std::uint64_t>> states; // type and bytes
    for (auto const& file : manifest.files)
        for (auto const& piece : file.pieces) {
            auto& state = states[piece.state];
            state.first = piece.type;
            state.second += piece.bytes();
        }
    std::printf("%s\nstep %lld, written %s\n%zu tensors of %s parameters\n", path.c_str(),
                static_cast<long long>(manifest.step), time_of(path).c_str(), manifest.tensors.size(),
                report::count(static_cast<double>(elements)).c_str());
    for (auto const& [state, about] : states)
        std::printf("  %-16s %-5s %s\n", state.c_str(), about.first.c_str(), bytes_text(about.second).c_str());
    std::printf("%zu files, %s\n", manifest.files.size(), bytes_text(bytes_of(manifest)).c_str());
    if (manifest.run.contains("sequences"))
        std::printf("sequences seen: %lld\n", static_cast<long long>(manifest.run["sequences"].get<std::int64_t>()));
    if (manifest.run.contains("flags")) {
        std::printf("the run:");
        for (auto const& [flag, value] : manifest.run["flags"].items())
            std::printf(" %s %s", flag.c_str(), value.get<std::string>().c_str());
        std::printf("\n");
    }
    std::size_t longest = 0;
    for (auto const& tensor : manifest.tensors) longest = std::max(longest, tensor.name.size());
    for (auto const& tensor : manifest.tensors)
        std::printf("  %-*s  %s\n", static_cast<int>(longest), tensor.name.c_str(),
                    io::detail::shape_text(tensor.shape).c_str());
    return program::done;
}

/// Reads all of it. Each fault is a line on standard error.
int verify(std::filesystem::path const& path) {
    checkpoint::Reader const reader(path);
    std::size_t faults = 0;
    reader.verify([&](std::string const&, std::string const& why) {
        program::say(name, why);
        ++faults;
    });
    if (faults == 0)
        std::printf("%s is complete: %zu files, %s\n", path.c_str(), reader.manifest().files.size(),
                    bytes_text(bytes_of(reader.manifest())).c_str());
    return faults == 0 ? program::done : program::outside_failure;
}

int convert(std::filesystem::path const& from, std::filesystem::path const& to, std::string const& element) {
    std::error_code ignored;
    bool const is_published = std::filesystem::exists(from / "config.json", ignored);
    if (!is_published) {
        auto const path = checkpoint_at(from);
        to_hugging_face(path, to, element);
        std::printf("the weights of %s are in %s\n", path.c_str(), to.c_str());
    } else {
        std::printf("the weights of %s are the checkpoint %s\n", from.c_str(),
                    from_hugging_face(from, to, element).c_str());
    }
    return program::done;
}

} // namespace

int main(int argc, char** argv) {
    return program::run_alone(name, [&]() -> int {
        CLI::App app("Lists, shows, verifies and converts checkpoints of train_lm.", name);
        app.require_subcommand(1);
        std::string path, to, element;
        auto* const listed = app.add_subcommand("list", "the checkpoints of a folder");
        listed->add_option("FOLDER", path, "that of train_lm --save")->required();
        auto const add_checkpoint = [&](CLI::App* command) {
            command->add_option("CHECKPOINT", path, "a checkpoint, or a folder of them: then the newest")->required();
        };
        auto* const shown = app.add_subcommand("show", "what a checkpoint has, and how its run was started");
        add_checkpoint(shown);
        auto* const verified =
            app.add_subcommand("verify", "reads every byte, and names the file and tensor of each fault");
        add_checkpoint(verified);
        auto* const converted = app.add_subcommand(
            "convert", "a checkpoint to the files of Hugging Face (model.safetensors, config.json), or these to a "
                       "checkpoint of step 0 that train_lm --resume goes on from");
        converted->add_option("FROM", path, "a checkpoint, a folder of them, or a folder with config.json")->required();
        converted->add_option("TO", to, "a folder, which is made where there is none")->required();
        converted->add_option("--dtype", element, "f64, f32 or bf16 (default: as it is)")
            ->transform(CLI::CheckedTransformer(
                std::map<std::string, std::string>{{"f64", "F64"}, {"f32", "F32"}, {"bf16", "BF16"}}));
        try {
            app.parse(argc, argv);
        } catch (CLI::CallForHelp const&) {
            std::fputs(app.help().c_str(), stdout);
            return program::done;
        } catch (CLI::CallForAllHelp const&) {
            std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
            return program::done;
        } catch (CLI::ParseError const& error) {
            throw program::BadInput(error.what() + std::string(" (--help shows what there is)"));
        }
        if (listed->parsed()) return list(path);
        if (shown->parsed()) return show(checkpoint_at(path));
        if (verified->parsed()) return verify(checkpoint_at(path));
        return convert(path, to, element);
    });
}
