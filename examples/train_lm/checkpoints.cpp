#include "checkpoints.hpp"

#include "flags.hpp"
#include "settings.hpp"

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/io/json.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/mesh/one_line.hpp>

#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <vector>

namespace train_lm {

namespace {

namespace checkpoint = pentad::checkpoint;
using Json = nlohmann::ordered_json; // so that the first difference is that of the most telling field

std::atomic<int> stop_signal{0};
struct sigaction former_termination{};
static_assert(std::atomic<int>::is_always_lock_free);

/// The run stops after the step that goes on. A second SIGTERM ends it at once.
extern "C" void pentad_stop_after_step(int signal) {
    stop_signal = signal;
    if (signal == SIGTERM) ::sigaction(SIGTERM, &former_termination, nullptr);
}

void stop_after_step_on_signals() {
    struct sigaction action{};
    action.sa_handler = pentad_stop_after_step;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGTERM, &action, &former_termination);
    ::sigaction(SIGUSR1, &action, nullptr);
}

std::string const state_of_run = "state of the run";

/// The model of a config.json as JSON, equal for models that are alike: as Pentad writes it, or, where it can
/// only be compared field by field, as it is. Without what may differ from one run of a model to the next.
Json model_of(std::string const& config) {
    auto json = Json::parse(config);
    try {
        json = pentad::io::family_config(pentad::io::model_from_config(config).model, 0, "", 0);
    } catch (std::invalid_argument const&) { // of no family
    }
    for (auto const* const field : {"max_position_embeddings", "torch_dtype", "dtype", "router_aux_loss_coef",
                                    "router_z_loss_coef", "aux_loss_alpha"})
        json.erase(field);
    return json;
}

/// The fields in which the model of a checkpoint differs from the run's; empty if there are none.
std::string differences_of(Json const& theirs, Json const& ours) {
    auto const text = [](Json const& config, std::string const& key) { // whatever the order of keys in objects
        return config.contains(key) ? nlohmann::json::parse(config.at(key).dump()).dump() : "not given";
    };
    std::string differences;
    auto const compare = [&](std::string const& key) {
        if (auto const his = text(theirs, key), own = text(ours, key); his != own)
            differences += (differences.empty() ? "its " : "; its ") + key + " is " + his + ", and the run has " + own;
    };
    for (auto const& [key, value] : ours.items()) compare(key);
    for (auto const& [key, value] : theirs.items())
        if (!ours.contains(key)) compare(key);
    return differences;
}

/// The facts that are the same in all checkpoints of a run.
std::string lasting_facts(Options const& options, int ranks, std::string const& config) {
    Json flags = Json::object();
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (auto const value = value_text(flag, options); !value.empty()) flags[std::string(flag.name)] = value;
    std::vector<std::string> data;
    for (auto const& path : options.tokens.empty() ? options.data : options.tokens)
        data.push_back(pentad::io::fingerprint(path));
    return pentad::io::detail::dump(
        Json{{"ranks", ranks}, {"config", Json::parse(config)}, {"flags", std::move(flags)}, {"data", data}});
}

} // namespace

Checkpoints::Checkpoints(Options const& options, pentad::program::Ranks const& ranks, std::string const& config,
                         std::function<void(pentad::train::SaveResult const&)> on_end)
    : options_(&options), ranks_(&ranks), config_(config), on_end_(std::move(on_end)),
      interval_(save_interval(options.save_every).value()), last_(Clock::now()) {
    bool const is_used = !(options.save.empty() && options.resume.empty());
    if (is_used && ranks.is_first()) facts_ = lasting_facts(options, ranks.size(), config);
    if (options.save.empty()) return;
    ranks.on_first([&] {
        pentad::program::with_files_of_user([&] {
            if (::mkdir(options.save.c_str(), 0777) != 0 && errno != EEXIST)
                throw pentad::io::FileError("write", options.save, errno);
            lock_.emplace(options.save);
            checkpoint::remove_left_behind(options.save);
        });
    });
    ranks.on_all([&] {
        std::error_code ignored;
        if (!std::filesystem::exists(std::filesystem::path(options.save) / checkpoint::lock_file, ignored))
            throw pentad::program::BadInput(
                "--save " + options.save + ": rank " + std::to_string(ranks.rank()) +
                " does not see the folder of rank 0: it must be on a file system that all share");
    });
    saver_.emplace(MPI_COMM_WORLD, options.save, static_cast<std::size_t>(options.keep.value_or(3)));
    stop_after_step_on_signals();
}

/// What a checkpoint has beside the tensors. On rank 0.
std::string Checkpoints::run_facts(Training const& training) const {
    auto facts = Json::parse(facts_);
    auto const position = training.position();
    facts["sequences"] = position.sequences;
    facts["bad_steps"] = position.bad_steps;
    for (auto const& order : position.expert_orders)
        facts["expert_orders"].push_back({{"block", order.block}, {"experts", order.experts}});
    return facts.dump();
}

void Checkpoints::require_plan(Training& training) {
    if (!saver_) return;
    try {
        saver_->require_plan([&](auto const& take) { training.for_each_planned_piece(take); });
    } catch (std::invalid_argument const& error) { // on all ranks
        throw pentad::program::BadInput("--save " + options_->save +
                                        ": no checkpoint of this run can be written: " + error.what());
    }
}

bool Checkpoints::will_resume(Options const& options, pentad::program::Ranks const& ranks) {
    bool const is_auto = options.resume == "auto";
    std::string found = options.resume.empty() ? "" : "found";
    ranks.on_first([&] {
        std::error_code ignored;
        if (!is_auto) return;
        bool const is_there = std::filesystem::is_directory(options.save, ignored);
        pentad::program::with_files_of_user([&] {
            if (!is_there || checkpoint::list(options.save).empty()) found.clear();
        });
    });
    return !pentad::comm::broadcast_text(MPI_COMM_WORLD, found, 0).empty();
}

std::string Checkpoints::resume(Training& training) {
    if (options_->resume.empty()) return "";
    bool const is_auto = options_->resume == "auto";
    std::string names;
    ranks_->on_first([&] {
        pentad::program::with_files_of_user([&] {
            std::filesystem::path const named = is_auto ? options_->save : options_->resume;
            if (!is_auto && checkpoint::is_checkpoint(named)) {
                names = named.string() + "\n";
                return;
            }
            auto found = checkpoint::list(named);
            if (!is_auto && !found.empty()) found.erase(found.begin(), found.end() - 1);
            std::reverse(found.begin(), found.end());
            for (auto const& [step, path] : found) names += path.string() + "\n";
            if (!is_auto && found.empty())
                throw pentad::program::BadInput("--resume " + options_->resume + ": there is no checkpoint in it");
        });
    });
    names = pentad::comm::broadcast_text(MPI_COMM_WORLD, names, 0);
    std::istringstream lines(names);
    std::vector<std::filesystem::path> damaged;
    std::string last_reason;
    for (std::string path; std::getline(lines, path);) {
        try {
            restore(training, path);
        } catch (std::invalid_argument const& error) {
            throw pentad::program::BadInput("--resume: " + std::string(error.what()));
        } catch (std::runtime_error const& error) { // on all ranks
            if (auto const* ending = dynamic_cast<pentad::program::Ending const*>(&error);
                ending != nullptr && ending->status() == pentad::program::bad_input)
                throw;
            if (!is_auto) throw pentad::program::OutsideFailure("--resume " + options_->resume + ": " + error.what());
            last_reason = error.what();
            damaged.emplace_back(path);
            if (ranks_->is_first()) pentad::program::say("train_lm", "passed over: " + last_reason);
            continue;
        }
        // Out of the way of the checkpoints that follow, of which the newest are kept.
        for (auto const& folder : damaged)
            if (ranks_->is_first()) {
                std::error_code error;
                std::filesystem::rename(folder, folder.string() + ".damaged", error);
            }
        return path;
    }
    if (!damaged.empty())
        throw pentad::program::OutsideFailure("no checkpoint in " + options_->save + " can be read: " + last_reason);
    return "";
}

void Checkpoints::restore(Training& training, std::filesystem::path const& path) {
    std::optional<checkpoint::Reader> reader;
    ranks_->on_all([&] { // small beside the data: each rank reads all of it
        reader.emplace(path);
        if (auto const fault = reader->name_fault()) throw checkpoint::Damaged(*fault);
    });
    auto const& manifest = reader->manifest();
    auto const& run = manifest.run;
    auto const number = [&](char const* key) { return run.contains(key) ? run.at(key).get<std::int64_t>() : 0; };
    if (run.contains("config")) {
        auto theirs = model_of(run.at("config").dump()), ours = model_of(config_);
        // Modules that predict further tokens: those of converted weights may be left out.
        std::string const predictors = "num_nextn_predict_layers";
        auto const count = [&](auto const& config) {
            auto const found = config.find(predictors);
            return found != config.end() && found->is_number() ? found->template get<std::int64_t>() : 0;
        };
        theirs.erase(predictors), ours.erase(predictors);
        if (run.contains("flags")) {
            theirs[predictors] = count(run.at("config"));
            ours[predictors] = count(Json::parse(config_));
        }
        if (auto const differences = differences_of(theirs, ours); !differences.empty())
            throw pentad::program::BadInput("--resume " + options_->resume + ": the checkpoint " + path.string() +
                                            " is of another model: " + differences);
    }
    if (manifest.step > options_->steps && options_->steps > 0) // no steps: evaluation, samples, weights
        throw pentad::program::BadInput("--resume " + options_->resume + ": the checkpoint " + path.string() +
                                        " is of step " + std::to_string(manifest.step) + ", and " +
                                        given(&Options::steps, *options_) + " ends before it");
    ranks_->on_first([&] {
        if (options_->save.empty()) return;
        for (auto const& [step, folder] : checkpoint::list(options_->save))
            if (step > manifest.step && options_->resume != "auto")
                throw pentad::program::BadInput("--save " + options_->save + " has the checkpoint of step " +
                                                std::to_string(step) + ", after step " + std::to_string(manifest.step) +
                                                " of --resume: save to another folder, or remove it");
    });
    pentad::train::RunPosition position{manifest.step, number("sequences"), number("bad_steps"), {}};
    if (run.contains("expert_orders"))
        for (auto const& order : run.at("expert_orders"))
            position.expert_orders.push_back(
                {order.at("block").get<std::size_t>(), order.at("experts").get<std::vector<std::int32_t>>()});
    training.restore(*reader, position);
    last_step_ = complete_step_ = manifest.step;
    if (!ranks_->is_first() || options_->quiet) return;
    std::printf("goes on from %s, after step %lld\n", path.c_str(), static_cast<long long>(manifest.step));
    if (!options_->weights.empty())
        std::printf("--weights %s is not read: the checkpoint has the weights\n", options_->weights.c_str());
    note_differences(run.dump(), run_facts(training));
}

/// Says which settings that the numbers depend on are not those of the checkpoint.
void Checkpoints::note_differences(std::string const& theirs, std::string const& ours) const {
    auto const before = Json::parse(theirs), now = Json::parse(ours);
    if (!before.contains("flags")) return; // converted weights
    auto differences = changed_settings(
        *options_, [&](std::string_view flag) -> std::string { return before["flags"].value(std::string(flag), ""); });
    if (before.value("data", Json::array()) != now["data"])
        differences += differences.empty() ? "other data" : ", other data";
    if (!differences.empty()) std::printf("with other settings than before: %s\n", differences.c_str());
}

Checkpoints::Numbers Checkpoints::numbers() const {
    if (!saver_) return {};
    double const seconds = std::chrono::duration<double>(Clock::now() - last_).count();
    bool const is_due = ranks_->is_first() && interval_.seconds > 0 && seconds >= interval_.seconds;
    return {saver_->progress(), is_due ? 1.0 : 0.0, stop_signal == SIGTERM ? 1.0 : 0.0,
            stop_signal == SIGUSR1 ? 1.0 : 0.0};
}

bool Checkpoints::after_step(Training& training, std::int64_t step, std::span<double const> sums) {
    if (!saver_) return false;
    if (auto const result = saver_->advance(sums[0])) end(*result);
    if (sums[2] > 0) stopped_by_ = "SIGTERM";
    if (sums[3] > 0) stopped_by_ = "SIGUSR1";
    bool const stops = !stopped_by_.empty();
    if (stops || step == options_->steps || sums[1] > 0 || (interval_.steps > 0 && step % interval_.steps == 0))
        save(training, step);
    return stops;
}

void Checkpoints::save(Training& training, std::int64_t step) {
    if (step <= last_step_) return;
    if (!saver_->is_idle()) end(saver_->wait()); // the interval is shorter than a save
    auto run = ranks_->is_first() ? Json::parse(run_facts(training)) : Json::object();
    saver_->start(Kokkos::DefaultExecutionSpace(), step, std::move(run),
                  [&](auto const& copy) { training.for_each_held_piece(copy); });
    last_ = Clock::now();
    last_step_ = step;
}

void Checkpoints::record(pentad::train::SaveResult const& result) {
    has_failed_ = !result.is_saved;
    failure_ = result.failure;
    if (result.is_saved) complete_step_ = result.step;
    if (ranks_->is_first()) on_end_(result);
    if (ranks_->is_first() && result.is_saved && !failure_.empty())
        pentad::program::say("train_lm", "the checkpoint of step " + std::to_string(result.step) +
                                             " is saved, but older ones are not removed: " + failure_);
}
void Checkpoints::end(pentad::train::SaveResult const& result) {
    record(result);
    if (ranks_->is_first() && has_failed_)
        pentad::program::say("train_lm", "the checkpoint of step " + std::to_string(result.step) +
                                             " is not saved: " + failure_ + "; the run goes on");
}

void Checkpoints::wait() {
    if (saver_ && !saver_->is_idle()) record(saver_->wait());
}
void Checkpoints::finish() {
    wait();
    if (has_failed_)
        throw pentad::program::OutsideFailure(
            "the last checkpoint is not saved: " + failure_ +
            (complete_step_ > 0 ? "; that of step " + std::to_string(complete_step_) + " is complete" : ""));
}

} // namespace train_lm
