// Checked builds (PENTAD_CHECKED): before a collective begins, the ranks of its group tell each other what
// they call. Where they differ, nothing is begun and every rank throws; when a rank stays away for PENTAD_TIMEOUT
// seconds, the others say who it is and what it called last, and end the job. In other builds nothing is here.
//
// Each rank sends its call to every other, over a communicator that is used for nothing else: it costs a group of n
// ranks n - 1 messages a rank. A started collective begins once all have come, while its rank waits for anything;
// collectives of one group begin in the order of the calls. Messages between two ranks are not compared. What is sent
// here is sent through MPI's profiling interface, so that tools count the program's messages and not these.
#pragma once

#include <pentad/comm/detail/call.hpp>

#if PENTAD_CHECKED
#if PENTAD_COMPILED_TENSOR && !PENTAD_COMPILED_CHECKED
#error                                                                                                                 \
    "pentad: pentad::compiled_tensor was compiled without checks: configure Pentad with -DPENTAD_CHECKED=ON, or link pentad::tensor alone"
#endif

#include <pentad/comm/detail/mpi_operation.hpp>
#include <pentad/comm/detail/pending.hpp>
#include <pentad/comm/end_job.hpp>
#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/progress.hpp>
#include <pentad/memory/shared_memory.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::comm::checked {

using Clock = std::chrono::steady_clock; // which all processes of a machine share

/// What this process called last, where the others of its machine can read it even when it never answers.
class NoticeBoard {
  public:
    NoticeBoard() : notice_(static_cast<Notice*>(memory::shared_memory().allocate(sizeof(Notice)))) {}

    void write(std::string_view what) {
        if (notice_ == nullptr) return;
        notice_->since = Clock::now().time_since_epoch().count();
        notice_->text[what.copy(notice_->text.data(), notice_->text.size() - 1)] = '\0';
    }
    [[nodiscard]] memory::Place place() const {
        return notice_ == nullptr ? memory::Place{} : memory::shared_memory().locate(notice_, sizeof(Notice));
    }
    /// What a peer has written; empty where it cannot be read.
    static std::string read(memory::Place const& place) {
        auto const* const notice = reinterpret_cast<Notice const*>(memory::shared_memory().at(place));
        if (notice == nullptr || notice->text[0] == '\0') return {};
        std::chrono::duration<double> const ago = Clock::now().time_since_epoch() - Clock::duration(notice->since);
        char seconds[32];
        std::snprintf(seconds, sizeof seconds, ", %.1f s ago", ago.count());
        return notice->text.data() + std::string(seconds);
    }

  private:
    struct Notice {
        Clock::rep since;
        std::array<char, 248> text;
    };
    Notice* notice_;
};
inline NoticeBoard& notice_board() {
    static NoticeBoard instance;
    return instance;
}

/// What the ranks of one group tell each other.
class Checker {
  public:
    /// Collective over `comm`. @param where for messages: the group and this rank's place in it
    Checker(MPI_Comm comm, std::string const& label, std::string where)
        : label_(label), where_(std::move(where)), timeout_(environment::timeout()), board_(notice_board().place()) {
        check(PMPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
        PMPI_Comm_size(comm_, &size_);
        PMPI_Comm_rank(comm_, &rank_);
        auto const n = static_cast<std::size_t>(size_);
        inbox_.resize(n);
        last_.resize(n);
        boards_.resize(n);
        said_.resize(n);
        check(PMPI_Allgather(&board_, sizeof board_, MPI_BYTE, boards_.data(), sizeof board_, MPI_BYTE, comm_),
              "MPI_Allgather");
    }
    Checker(Checker const&) = delete;
    Checker& operator=(Checker const&) = delete;
    ~Checker() {
        receive(); // what was sent to calls that were over already
        for (auto& letter : sent_)
            if (!has_gone(letter)) (void)new Letter(std::move(letter)); // MPI may still read it
        PMPI_Comm_free(&comm_);
    }

    [[nodiscard]] std::string const& where() const { return where_; }
    /// Tells the others. Returns the number of the call.
    std::uint64_t say(Call const& call) {
        while (!sent_.empty() && has_gone(sent_.front())) sent_.pop_front();
        Said said;
        said.call = {.number = next_++,
                     .count = call.count,
                     .operation = static_cast<std::uint32_t>(call.operation),
                     .type = call.type,
                     .root = call.root,
                     .is_started = call.is_started ? 1 : 0,
                     .has_counts = call.sent.empty() ? 0 : 1};
        label_.copy(said.call.axes.data(), said.call.axes.size() - 1);
        said.counts.assign(call.sent.begin(), call.sent.end());
        said.counts.insert(said.counts.end(), call.received.begin(), call.received.end());
        notice_board().write(said.text() + " over " + label_);

        auto& letter = sent_.emplace_back();
        letter.text.resize(sizeof said.call + said.counts.size() * sizeof(std::int64_t));
        std::memcpy(letter.text.data(), &said.call, sizeof said.call);
        if (!said.counts.empty())
            std::memcpy(letter.text.data() + sizeof said.call, said.counts.data(),
                        said.counts.size() * sizeof(std::int64_t));
        for (int p = 0; p < size_; ++p)
            if (p != rank_)
                check(PMPI_Isend(letter.text.data(), static_cast<int>(letter.text.size()), MPI_BYTE, p, 0, comm_,
                                 &letter.requests.emplace_back(MPI_REQUEST_NULL)),
                      "MPI_Isend");
        inbox_[static_cast<std::size_t>(rank_)].push_back(std::move(said));
        return next_ - 1;
    }
    /// True once all ranks have come to call `number` and mean the same. Does not wait.
    /// @throws Error when those that have come do not; the call is over then
    bool agree(std::uint64_t number) {
        if (number != turn_) return false;
        receive();
        auto const now = Clock::now(); // of two looks far apart, this rank did something else in between
        waited_ += std::min(std::chrono::duration<double>(now - looked_).count(), 0.1);
        looked_ = now;
        std::size_t present = 0;
        for (std::size_t p = 0; p < said_.size(); ++p) {
            auto& letters = inbox_[p];
            while (!letters.empty() && letters.front().call.number < turn_) take(p); // it came to a call that was over
            said_[p] = letters.empty() ? nullptr : &letters.front();
            present += said_[p] != nullptr ? 1 : 0;
        }
        bool const all = present == said_.size();
        if (!all && waited_ < until_differences_are_told) return false;
        auto const why = difference(said_);
        if (!all && why.empty()) {
            end_if_missing_for_too_long();
            return false;
        }
        auto const own = said_[static_cast<std::size_t>(rank_)]->call.operation;
        for (std::size_t p = 0; p < said_.size(); ++p)
            if (said_[p] != nullptr) take(p);
        ++turn_;
        waited_ = 0;
        if (!why.empty())
            throw Error(std::string(observe::name(static_cast<observe::Operation>(own))) + " over " + label_ + ": " +
                        why);
        return true;
    }

  private:
    /// Calls that come within this time are told apart together.
    static constexpr double until_differences_are_told = 0.5;

    /// A call on its way to the others.
    struct Letter {
        std::vector<std::byte> text;
        std::vector<MPI_Request> requests;
    };
    static bool has_gone(Letter& letter) {
        int gone = 0;
        PMPI_Testall(static_cast<int>(letter.requests.size()), letter.requests.data(), &gone, MPI_STATUSES_IGNORE);
        return gone != 0;
    }
    void take(std::size_t p) {
        last_[p] = std::move(inbox_[p].front());
        inbox_[p].pop_front();
    }
    void receive() {
        for (;;) {
            int arrived = 0, bytes = 0;
            MPI_Message message;
            MPI_Status status;
            check(PMPI_Improbe(MPI_ANY_SOURCE, 0, comm_, &arrived, &message, &status), "MPI_Improbe");
            if (arrived == 0) return;
            PMPI_Get_count(&status, MPI_BYTE, &bytes);
            std::vector<std::byte> text(static_cast<std::size_t>(bytes));
            check(PMPI_Mrecv(text.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
            auto& said = inbox_[static_cast<std::size_t>(status.MPI_SOURCE)].emplace_back();
            std::memcpy(&said.call, text.data(), sizeof said.call);
            said.counts.resize((text.size() - sizeof said.call) / sizeof(std::int64_t));
            if (!said.counts.empty())
                std::memcpy(said.counts.data(), text.data() + sizeof said.call, text.size() - sizeof said.call);
        }
    }
    /// Ends the job when some ranks have stayed away for too long. The first of those present speaks for all; should it
    /// be elsewhere, the next does a second later.
    void end_if_missing_for_too_long() {
        std::vector<int> missing;
        double turn_to_speak = timeout_;
        for (int p = 0; p < size_; ++p) {
            if (said_[static_cast<std::size_t>(p)] == nullptr)
                missing.push_back(p);
            else if (p < rank_)
                turn_to_speak += 1;
        }
        if (waited_ < turn_to_speak) return;
        char seconds[32];
        std::snprintf(seconds, sizeof seconds, "%g", timeout_);
        std::string text = "pentad: " + said_[static_cast<std::size_t>(rank_)]->text() + " over " + label_ + ": " +
                           checked::text(missing) + " of " + std::to_string(size_) +
                           (missing.size() == 1 ? " has" : " have") + " not come within " + seconds +
                           " s (PENTAD_TIMEOUT); the job ends\n";
        for (int const p : missing) {
            auto const& last = last_[static_cast<std::size_t>(p)];
            auto const anywhere = NoticeBoard::read(boards_[static_cast<std::size_t>(p)]);
            text += "pentad: rank " + std::to_string(p) + " last called " +
                    (last.call.axes[0] == '\0' ? "nothing over " : last.text() + " over ") + label_ +
                    (anywhere.empty() ? "; its last call over other axes is not known here\n"
                                      : ", and of all " + anywhere + "\n");
        }
        std::fputs(text.c_str(), stderr);
        end_job(1);
    }

    MPI_Comm comm_ = MPI_COMM_NULL;
    std::string label_, where_;
    double timeout_;
    memory::Place board_;
    int size_ = 1, rank_ = 0;
    std::uint64_t next_ = 0, turn_ = 0; ///< the numbers of the next call, and of the one that is next to begin
    double waited_ = 0;                 ///< seconds, for that one
    Clock::time_point looked_ = Clock::now();
    std::vector<std::deque<Said>> inbox_; ///< of each rank, itself among them
    std::vector<Said const*> said_;
    std::vector<Said> last_;
    std::vector<memory::Place> boards_;
    std::deque<Letter> sent_;
};

/// A collective that begins when all have come and mean the same.
class Collective final : public Pending {
  public:
    /// `own` begins one of the library's own, or returns null: then `mpi` starts it.
    void begin(Checker& checker, Call const& call, std::function<Pending*()> own, std::string_view mpi_call,
               std::function<int(MPI_Request*)> mpi) {
        checker_ = &checker;
        own_ = std::move(own);
        mpi_ = std::move(mpi);
        mpi_call_ = mpi_call;
        is_begun_ = is_complete_ = false;
        number_ = checker.say(call);
    }
    bool step() override {
        if (is_complete_) return true;
        if (!is_begun_) {
            if (!checker_->agree(number_)) return false;
            is_begun_ = true;
            operation_ = own_();
            if (operation_ == nullptr) operation_ = &progress().begin<MpiOperation>(checker_->where(), mpi_call_, mpi_);
        }
        if (!operation_->advance()) return false;
        struct Finish {
            Pending* operation;
            ~Finish() { progress().finish(operation); }
        } const finish{std::exchange(operation_, nullptr)};
        finish.operation->rethrow();
        return is_complete_ = true;
    }

  private:
    Checker* checker_ = nullptr;
    std::function<Pending*()> own_;
    std::function<int(MPI_Request*)> mpi_;
    std::string_view mpi_call_;
    std::uint64_t number_ = 0;
    bool is_begun_ = false, is_complete_ = true;
    Pending* operation_ = nullptr;
};

} // namespace pentad::comm::checked

#endif
