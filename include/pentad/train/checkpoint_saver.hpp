// Saves checkpoints while training goes on: the state is copied, a thread writes the copy, and when all ranks have
// written, the first one publishes the checkpoint by one rename.
#pragma once

#include <pentad/checkpoint/folder.hpp>
#include <pentad/checkpoint/manifest.hpp>
#include <pentad/checkpoint/writer.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/first_failure.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/train/checkpoint_state.hpp>

#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace pentad::train {

/// How a save ended.
struct SaveResult {
    std::int64_t step = 0;
    bool is_saved = false;
    std::string failure{}; ///< on the first rank: why it is not saved, or why an older checkpoint could not be removed
    double waited = 0;     ///< seconds in which this rank copied its state and did not compute
    double seconds = 0;    ///< from the copy to the end
};

/// Every rank has one. What the ranks tell each other about it are numbers that the caller sums up after each step,
/// with its own: nothing is sent while a save goes on but them, and at its end what each rank has written.
class CheckpointSaver {
  public:
    /// @param folder in which the checkpoints are @param keep the newest of them, at least 1
    CheckpointSaver(MPI_Comm world, std::filesystem::path folder, std::size_t keep)
        : world_(world), folder_(std::move(folder)), keep_(keep) {
        MPI_Comm_rank(world, &rank_);
        MPI_Comm_size(world, &size_);
    }
    CheckpointSaver(CheckpointSaver const&) = delete;
    CheckpointSaver& operator=(CheckpointSaver const&) = delete;
    ~CheckpointSaver() {
        join();
        if (rank_ == 0) checkpoint::remove_spare(folder_);
    }

    /// Checks that the ranks together can write every element of the state once: what fails here fails in every save.
    /// When the saver is idle. Collective.
    /// @param visit calls what it is given with each HeldPiece that this rank will save; what they point to is not read
    /// @throws std::invalid_argument on all ranks, with the tensor
    template <class Visit>
    void require_plan(Visit&& visit) {
        std::vector<io::NamedShape> tensors;
        checkpoint::StoredFile file{.name = checkpoint::rank_file(rank_)};
        visit([&](HeldPiece const& piece) {
            tensors.push_back(piece.tensor);
            auto& stored = file.pieces.emplace_back(piece.stored);
            stored.blocks.resize((stored.bytes() + checkpoint::block_bytes - 1) / checkpoint::block_bytes);
        });
        record_ = record_of([&] {
            (void)checkpoint::header_of(file.pieces);
            return std::pair(tensors, std::optional(file));
        });
        gather_records();
        std::optional<comm::Failure> failure;
        try {
            if (rank_ == 0) (void)manifest_of_records();
        } catch (std::exception const& error) {
            failure = {0, error.what()};
        }
        if (auto const first = comm::first_failure(world_, failure)) throw std::invalid_argument(first->text);
    }

    [[nodiscard]] bool is_idle() const { return phase_ == Phase::idle; }
    /// Copies the state and begins to write it. All ranks call it after the same step, when the saver is idle.
    /// @param run what resuming needs to know beside the tensors, an object; of the first rank
    /// @param visit calls what it is given with each HeldPiece of this rank; where it throws io::FileError, the save
    /// fails
    template <class Exec, class Visit>
    void start(Exec const& exec, std::int64_t step, io::detail::Json run, Visit&& visit) {
        began_ = Clock::now();
        result_ = {.step = step};
        run_ = std::move(run);
        copy(exec, std::forward<Visit>(visit));
        result_.waited = since(began_);
        phase_ = Phase::writing;
        in_background([this, step] { write(step); });
    }
    /// This rank's summand of the sum that advance() is given.
    [[nodiscard]] double progress() const {
        if (phase_ == Phase::writing) return is_done_ ? 1 : 0;
        return phase_ == Phase::publishing && rank_ == 0 && is_done_ ? (result_.is_saved ? 1 : 2) : 0;
    }
    /// Takes the sum of progress() over all ranks, and gives the result of a save that has ended. Collective.
    std::optional<SaveResult> advance(double sum) {
        if (phase_ == Phase::writing && sum == size_) {
            join();
            gather_records();
            phase_ = Phase::publishing;
            is_done_ = false;
            if (rank_ == 0) in_background([this] { publish(); });
        } else if (phase_ == Phase::publishing && sum > 0) {
            join();
            phase_ = Phase::idle;
            result_.is_saved = sum == 1;
            result_.seconds = since(began_);
            return result_;
        }
        return std::nullopt;
    }
    /// Waits for the end of a save. Collective.
    SaveResult wait() {
        for (;;) {
            double sum = progress();
            comm::check(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, world_), "MPI_Allreduce");
            if (auto result = advance(sum)) return *result;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

  private:
    using Clock = std::chrono::steady_clock;
    enum class Phase { idle, writing, publishing };

    static double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

    void join() {
        if (thread_.joinable()) thread_.join();
    }
    /// `work` on a thread that leaves the processor to training; where there are no more threads, at once.
    void in_background(std::function<void()> work) {
        is_done_ = false;
        try {
            thread_ = std::thread([this, work] {
                (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
                work();
                is_done_ = true;
            });
        } catch (std::system_error const&) {
            work();
            is_done_ = true;
        }
    }

    template <class Exec, class Visit>
    void copy(Exec const& exec, Visit&& visit) {
        tensors_.clear();
        pieces_.clear();
        copy_failure_.clear();
        try {
            visit([&](HeldPiece const& piece) {
                std::size_t const i = pieces_.size(), bytes = piece.stored.bytes();
                if (i == copies_.size()) copies_.emplace_back();
                auto& copy = copies_[i];
                if (copy.bytes < bytes) copy = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
                memory::copy_to_host(exec, copy.data.get(), piece.data, bytes);
                tensors_.push_back(piece.tensor);
                pieces_.push_back({piece.stored, copy.data.get()});
            });
        } catch (io::FileError const& error) {
            copy_failure_ = error.what();
        }
    }

    // On the thread:

    void write(std::int64_t step) {
        record_ = record_of([&] {
            if (!copy_failure_.empty()) throw io::FileError(copy_failure_);
            auto const partial = checkpoint::make_partial(folder_, step);
            std::optional<checkpoint::StoredFile> file;
            if (!pieces_.empty()) file = checkpoint::write_pieces(partial / checkpoint::rank_file(rank_), pieces_);
            return std::pair(tensors_, std::move(file));
        });
    }
    /// The result of `make`, the tensors of this rank and its file, as JSON; or the reason why it throws.
    template <class Make>
    static std::string record_of(Make const& make) {
        io::detail::OrderedJson record = io::detail::OrderedJson::object();
        try {
            auto const [tensors, file] = make();
            if (file) record["file"] = checkpoint::text_of(*file);
            for (auto const& [name, shape] : tensors) record["tensors"][name] = shape;
        } catch (std::exception const& error) {
            record = {{"failure", error.what()}};
        }
        return io::detail::dump(record);
    }
    /// The pieces that all ranks have written, on the first one.
    [[nodiscard]] checkpoint::Manifest manifest_of_records() const {
        checkpoint::Manifest manifest{.step = result_.step, .run = run_, .tensors = {}, .files = {}};
        std::map<std::string, std::vector<std::int64_t>> tensors;
        for (auto const& text : records_) {
            auto const record = io::detail::parse_object(text);
            if (record.contains("failure")) throw io::FileError(record["failure"].get<std::string>());
            if (record.contains("file"))
                manifest.files.push_back(checkpoint::file_of(record["file"].get_ref<std::string const&>()));
            if (record.contains("tensors"))
                for (auto const& [name, shape] : record["tensors"].items())
                    tensors.emplace(name, shape.template get<std::vector<std::int64_t>>());
        }
        for (auto const& [name, shape] : tensors) manifest.tensors.push_back({name, shape});
        if (auto const fault = checkpoint::cover_fault(manifest))
            throw std::logic_error("the ranks do not hold the state once: " + *fault);
        return manifest;
    }
    void publish() {
        try {
            checkpoint::publish(folder_, manifest_of_records());
            result_.is_saved = true;
            checkpoint::retain(folder_, keep_);
        } catch (std::exception const& error) {
            result_.failure = error.what();
            std::error_code ignored;
            std::filesystem::remove_all(checkpoint::partial_folder(folder_, result_.step), ignored);
        }
    }

    /// What the ranks have written, on the first one. Collective.
    void gather_records() {
        std::vector<int> sizes(static_cast<std::size_t>(size_)), places(sizes.size());
        int const own = static_cast<int>(record_.size());
        comm::check(MPI_Gather(&own, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, world_), "MPI_Gather");
        std::exclusive_scan(sizes.begin(), sizes.end(), places.begin(), 0);
        std::string all(rank_ == 0 ? static_cast<std::size_t>(places.back() + sizes.back()) : 0, ' ');
        comm::check(
            MPI_Gatherv(record_.data(), own, MPI_CHAR, all.data(), sizes.data(), places.data(), MPI_CHAR, 0, world_),
            "MPI_Gatherv");
        records_.clear();
        if (rank_ != 0) return;
        for (std::size_t i = 0; i < sizes.size(); ++i)
            records_.push_back(all.substr(static_cast<std::size_t>(places[i]), static_cast<std::size_t>(sizes[i])));
    }

    MPI_Comm world_;
    std::filesystem::path folder_;
    std::size_t keep_;
    int rank_ = 0, size_ = 1;

    Phase phase_ = Phase::idle;
    Clock::time_point began_;
    SaveResult result_;
    io::detail::Json run_;
    struct Copy {
        std::unique_ptr<std::byte[]> data;
        std::size_t bytes = 0;
    };
    std::vector<Copy> copies_; ///< of each piece; used again by the next save
    std::string copy_failure_;
    std::vector<io::NamedShape> tensors_;
    std::vector<checkpoint::WrittenPiece> pieces_;
    std::string record_;               ///< what this rank has written, as JSON
    std::vector<std::string> records_; ///< of all ranks
    std::atomic<bool> is_done_{false}; ///< what the thread has to do
    std::thread thread_;
};

} // namespace pentad::train
