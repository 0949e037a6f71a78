// What the command line says about files: data that are missing or too short, output that cannot be written.
#include "flags.hpp"
#include "model_file.hpp"
#include "options.hpp"
#include "rules.hpp"
#include "sample_text.hpp"

#include <pentad/checkpoint/folder.hpp>
#include <pentad/comm/environment.hpp>
#include <pentad/io/distinct_files.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/token_data.hpp>
#include <pentad/io/token_index.hpp>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace train_lm {

namespace {

/// What check_files() says. @param suggests also what would work, where that is known
std::optional<std::string> refusal_of(Options const& options, bool suggests);
/// Whether check_files() accepts these options: a suggestion is printed only then.
bool is_accepted(Options const& options) { return !refusal_of(options, false); }

std::string why(int error) { return std::generic_category().message(error); }

/// Whether a file can be made in a folder, found out by making one: a read-only mount refuses even root.
std::optional<std::string> unwritable(std::filesystem::path const& folder) {
    struct stat status{};
    if (::stat(folder.c_str(), &status) != 0) return "the folder " + folder.string() + " cannot be used: " + why(errno);
    if (!S_ISDIR(status.st_mode)) return folder.string() + " is not a folder";
    std::string name = (folder / ".pentad-XXXXXX").string();
    int const descriptor = ::mkstemp(name.data());
    if (descriptor < 0) return "no file can be made in the folder " + folder.string() + ": " + why(errno);
    ::close(descriptor);
    ::unlink(name.c_str());
    return std::nullopt;
}

std::optional<std::string> unwritable_file(std::filesystem::path const& path, bool replaced) {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0 && errno == ENAMETOOLONG) return why(errno);
    if (::stat(path.c_str(), &status) == 0) {
        if (S_ISDIR(status.st_mode)) return path.string() + " is a folder, and a file is needed";
        if (::access(path.c_str(), W_OK) != 0) return path.string() + " cannot be written: " + why(errno);
        if (!replaced || !S_ISREG(status.st_mode)) return std::nullopt;
    }
    auto const folder = path.parent_path();
    return unwritable(folder.empty() ? "." : folder);
}

/// Why a folder that may be made cannot be written to.
std::optional<std::string> unwritable_folder(std::filesystem::path const& folder) {
    std::error_code ignored;
    if (std::filesystem::exists(std::filesystem::symlink_status(folder, ignored))) return unwritable(folder);
    auto const around = std::filesystem::absolute(folder, ignored).lexically_normal();
    return unwritable((around.filename().empty() ? around.parent_path() : around).parent_path());
}

/// A folder in which a file can be made, and that is on a disk.
std::optional<std::string> unusable_for_offload(std::filesystem::path const& folder) {
    struct statfs status{};
    if (::statfs(folder.c_str(), &status) == 0 && status.f_type == TMPFS_MAGIC)
        return "the folder is in memory (tmpfs), which offload is to save: name one on a disk";
    return unwritable(folder);
}

/// The nearest folder to this one in which a file can be made: itself, one around it (but for the root), the present
/// one, the one for temporary files.
std::optional<std::filesystem::path> writable_near(std::filesystem::path const& folder) {
    std::error_code ignored;
    std::vector<std::filesystem::path> candidates;
    for (auto around = folder; around.has_relative_path(); around = around.parent_path()) candidates.push_back(around);
    candidates.push_back(".");
    candidates.push_back(std::filesystem::temp_directory_path(ignored));
    for (auto const& candidate : candidates)
        if (!unwritable(candidate)) return candidate;
    return std::nullopt;
}

/// "--log a/b: why: try --log ./b"
std::string refuse_output(std::string const& flag, std::string Options::* member, Options const& options,
                          std::string const& reason, bool suggests, bool wants_folder = false) {
    std::filesystem::path const path = options.*member;
    std::string sentence = flag + " " + path.string() + ": " + reason;
    if (!suggests) return sentence;
    std::error_code ignored;
    bool const is_folder = std::filesystem::is_directory(path, ignored) || path.filename().empty();
    auto const folder = writable_near(wants_folder || is_folder ? path : path.parent_path());
    if (!folder) return sentence;
    auto const name = is_folder ? std::filesystem::path(flag.substr(2)) : path.filename();
    Options elsewhere = options;
    elsewhere.*member = (wants_folder ? *folder : *folder / name).string();
    return is_accepted(elsewhere) ? sentence + ": try " + flag + " " + elsewhere.*member : sentence;
}

/// The files of a flag, of tokens where the training data are.
pentad::io::TokenData data_of(Options const& o, std::vector<std::string> const& paths) {
    using pentad::io::TokenFormat;
    auto const seed = static_cast<std::uint64_t>(o.seed);
    if (o.tokens.empty()) return {std::vector<std::filesystem::path>(paths.begin(), paths.end()), o.strategy.seq, seed};
    auto const other = o.token_type == "uint32"   ? TokenFormat::uint32
                       : o.token_type == "uint16" ? TokenFormat::uint16
                       : o.token_type == "uint8"  ? TokenFormat::bytes
                                                  : TokenFormat::automatic;
    std::vector<pentad::io::TokenFile> files;
    for (auto const& path : paths) files.push_back({path, pentad::io::token_format(path, other)});
    return {files, o.vocab, o.strategy.seq, seed};
}

/// The files of data, with the indices that say what is in them.
std::vector<std::string> with_indices(std::vector<std::string> files) {
    auto const count = files.size();
    for (std::size_t i = 0; i < count; ++i) {
        try {
            if (auto const index = pentad::io::index_beside(files[i])) files.push_back(index->string());
        } catch (pentad::io::FileError const&) { // it is said when the data are read
        }
    }
    return files;
}

/// Why files of data cannot be used.
std::optional<std::string> unusable(std::string const& flag, Options const& o, std::vector<std::string> const& paths) {
    try {
        (void)data_of(o, paths);
    } catch (pentad::io::UnknownTokenWidth const& error) {
        return flag + ": " + error.what() + ": say it with --token-type uint16 or --token-type uint32";
    } catch (pentad::io::FileError const& error) {
        return flag + ": " + error.what();
    } catch (std::invalid_argument const& error) {
        return flag + ": " + error.what();
    }
    return std::nullopt;
}

std::optional<std::string> check_validation(Options const& o) {
    if (!o.validation.empty() && o.quiet && o.log.empty())
        return "--validation computes a loss, and --quiet prints none: name a file for it with --log";
    if (!o.validation.empty()) return unusable("--validation", o, o.validation);
    if (o.validate_every > 0) return given(&Options::validate_every, o) + " needs data held out: --validation FILE";
    if (o.validation_batches)
        return "--validation-batches " + std::to_string(*o.validation_batches) +
               " needs data held out: --validation FILE";
    return std::nullopt;
}

std::optional<std::string> check_resume(Options const& o) {
    namespace checkpoint = pentad::checkpoint;
    try {
        std::error_code ignored;
        if (o.resume.empty() && !o.save.empty() && std::filesystem::is_directory(o.save, ignored))
            if (auto const found = checkpoint::list(o.save); !found.empty())
                return "--save " + o.save + " has the checkpoint of step " + std::to_string(found.back().step) +
                       ": go on from it with --resume auto, or save to another folder";
        if (o.resume.empty() || o.resume == "auto" || checkpoint::is_checkpoint(o.resume)) return std::nullopt;
        if (checkpoint::list(o.resume).empty()) return "--resume " + o.resume + ": there is no checkpoint in it";
    } catch (pentad::io::FileError const& error) {
        return "--resume: " + std::string(error.what());
    }
    return std::nullopt;
}

std::optional<std::string> check_data(Options const& o, bool suggests) {
    if (!o.tokens.empty()) {
        if (!o.data.empty()) return "--tokens and --data: give files of tokens or of text";
        if (o.sample > 0) return "--sample " + std::to_string(o.sample) + " is for text: leave it out with --tokens";
        return unusable("--tokens", o, o.tokens);
    }
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    std::string which;
    auto const add = [&](std::string name, std::int64_t bytes) {
        if (bytes < shortest) {
            shortest = bytes;
            which = std::move(name);
        }
    };
    if (o.data.empty()) add("the program's own text", static_cast<std::int64_t>(sample_text.size()));
    for (auto const& path : o.data) {
        try {
            add("--data " + path, static_cast<std::int64_t>(pentad::io::File::open_for_reading(path).size()));
        } catch (pentad::io::FileError const& error) {
            return "--data " + path + ": " + error.what() + "; without --data, a text of the program's own is used";
        }
    }
    if (shortest == 0)
        return which + " is empty, and a text of at least " + std::to_string(o.strategy.seq + 1) + " bytes is needed";
    if (shortest > o.strategy.seq) return o.data.empty() ? std::nullopt : unusable("--data", o, o.data);
    std::string reason = which + " has " + std::to_string(shortest) + " bytes, and " + given(of_strategy("--seq"), o) +
                         " needs " + std::to_string(o.strategy.seq + 1);
    if (!suggests) return reason;
    // The longest sequence that fits the text and the mesh.
    Options shorter = o;
    for (shorter.strategy.seq = shortest - 1; shorter.strategy.seq >= 1; --shorter.strategy.seq)
        if (obeys_rules(shorter))
            return is_accepted(shorter) ? reason + ": try " + given(of_strategy("--seq"), shorter) : reason;
    return reason + "; no sequence fits it";
}

/// The files of --weights, as far as names tell.
std::vector<std::string> weight_files(Options const& options) {
    std::vector<std::string> files;
    if (options.weights.empty()) return files;
    std::error_code ignored;
    std::filesystem::path const path = options.weights;
    bool const is_folder = std::filesystem::is_directory(path, ignored);
    if (!is_folder) files.push_back(path.string());
    if (!is_folder && path.extension() != ".json") return files;
    auto const folder = is_folder ? path : path.parent_path();
    for (auto const& entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder, ignored))
        if (auto const name = entry.path().filename().string();
            name.ends_with(".safetensors") || name == "model.safetensors.index.json")
            files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    return files;
}

std::optional<std::string> refusal_of(Options const& options, bool suggests) {
    std::vector<pentad::io::FlagFile> files;
    auto const add = [&](char const* flag, std::filesystem::path const& path, bool is_output) {
        if (!path.empty()) files.push_back({flag, path, is_output});
    };
    for (auto const& path : options.data) add("--data", path, false);
    for (auto const& path : with_indices(options.tokens)) add("--tokens", path, false);
    for (auto const& path : with_indices(options.validation)) add("--validation", path, false);
    add("--schedule-file", options.schedule_file, false);
    if (!options.model.empty()) add("--model", config_of(options.model), false);
    for (auto const& path : weight_files(options)) add("--weights", path, false);
    if (auto const* const tuning = pentad::comm::environment::tuning()) add("PENTAD_TUNING", tuning, false);
    add("--log", options.log, true);
    add("--trace", options.trace, true);
    if (std::filesystem::path const folder = options.dump_weights; !folder.empty())
        for (auto const* const name : {"model.safetensors", "model.safetensors.index.json", "config.json"})
            add("--dump-weights", folder / name, true);
    if (std::filesystem::path const folder = options.save; !folder.empty()) {
        add("--save", folder, true);
        add("--save", folder / pentad::checkpoint::lock_file, true);
    }
    if (auto refusal = pentad::io::refusal_of(files)) return refusal;
    if (auto refusal = check_data(options, suggests)) return refusal;
    if (auto refusal = check_validation(options)) return refusal;
    if (auto refusal = check_schedule_file(options)) return refusal;
    if (!options.log.empty())
        if (auto const reason = unwritable_file(options.log, false))
            return refuse_output("--log", &Options::log, options, *reason, suggests);
    if (!options.trace.empty())
        if (auto const reason = unwritable_file(options.trace, true))
            return refuse_output("--trace", &Options::trace, options, *reason, suggests);
    if (!options.save.empty())
        if (auto const reason = unwritable_folder(options.save))
            return refuse_output("--save", &Options::save, options, *reason, suggests, true);
    if (!options.offload_folder.empty())
        if (auto const reason = unusable_for_offload(options.offload_folder))
            return refuse_output("--offload-folder", &Options::offload_folder, options, *reason, suggests, true);
    if (auto refusal = check_resume(options)) return refusal;
    if (!options.dump_weights.empty())
        if (auto const reason = unwritable(options.dump_weights))
            return refuse_output("--dump-weights", &Options::dump_weights, options, *reason, suggests, true);
    return std::nullopt;
}

} // namespace

pentad::io::TokenData training_data(Options const& options) {
    if (!options.tokens.empty()) return data_of(options, options.tokens);
    if (!options.data.empty()) return data_of(options, options.data);
    return {sample_text, "the built-in text", options.strategy.seq, static_cast<std::uint64_t>(options.seed)};
}
pentad::io::TokenData validation_data(Options const& options) { return data_of(options, options.validation); }

std::string model_file(int argc, char const* const* argv) {
    std::string file;
    for (int i = 1; i < argc; ++i) {
        std::string_view const text = argv[i];
        if (text == "--model" && i + 1 < argc) file = argv[i + 1];
        if (text.starts_with("--model=")) file = text.substr(8);
    }
    return file.empty() ? file : config_of(file);
}

std::vector<pentad::comm::Fact> file_facts(std::vector<std::string> const& files) {
    std::vector<pentad::comm::Fact> facts;
    for (auto const& path : files) facts.push_back({"input files", path + " (" + pentad::io::fingerprint(path) + ")"});
    return facts;
}

std::vector<pentad::comm::Fact> input_facts(Options const& options) {
    auto files = options.data;
    for (auto const* const more : {&options.tokens, &options.validation}) {
        auto const found = with_indices(*more);
        files.insert(files.end(), found.begin(), found.end());
    }
    if (!options.schedule_file.empty()) files.push_back(options.schedule_file);
    auto const weights = weight_files(options);
    files.insert(files.end(), weights.begin(), weights.end());
    return file_facts(files);
}

std::string ParseResult::sentence() const { return suggested && is_accepted(*suggested) ? error + suggestion : error; }

std::optional<std::string> check_files(Options const& options) { return refusal_of(options, true); }

} // namespace train_lm
