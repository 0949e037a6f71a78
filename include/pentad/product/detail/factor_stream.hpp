// A factor of a product, panel by panel: read in place where its holders share a node's memory, else in messages that
// are under way while the panel before is multiplied.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/comm/window.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/product/detail/schedule.hpp>
#include <pentad/tensor/context.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace pentad::detail {

/// The blocks of a factor that a rank multiplies in one step, as they lie in memory.
template <class T, class Exec>
class FactorStream {
    using Matrix = View<T, 2, Exec>;

  public:
    using Part =
        decltype(Kokkos::subview(std::declval<Matrix const&>(), std::declval<std::pair<std::size_t, std::size_t>>(),
                                 std::declval<std::pair<std::size_t, std::size_t>>()));
    struct Block {
        Part matrix;
        IndexRange outer; ///< in the whole matrix
    };

    /// Collective over the group: opens the factor, which this rank holds at `data`, to the others.
    FactorStream(Context<Exec> const& context, comm::Communicator const& group, FactorMove const& move, T* data,
                 int tag)
        : context_(&context), group_(&group), move_(&move), data_(data), tag_(tag),
          window_(context.exec(), group, data, held(move.me).size() * sizeof(T)) {}
    FactorStream(FactorStream const&) = delete;
    FactorStream& operator=(FactorStream const&) = delete;

    /// True when nothing is copied.
    [[nodiscard]] bool is_in_place() const { return group_->size() == 1 || window_.is_open(); }
    /// What is given and taken from now on. The ranks of the group give schedules of one width.
    void follow(FactorSchedule const& schedule) {
        schedule_ = &schedule;
        if (group_->size() == 1) return;
        if (window_.is_open()) {
            auto const bytes = static_cast<double>(schedule.given_elements * sizeof(T));
            group_->ledger().record(observe::Operation::send, comm::detail::cost_of_sent(*group_, bytes), false, 0,
                                    false);
            return;
        }
        for (auto& buffer : buffers_) buffer = context_->take(schedule.longest * sizeof(T));
    }
    /// Follows a schedule in a dry run whose rank stands for all: what ranks send in the mean is booked at once.
    /// @param longest elements that arrive for a panel on any of them
    void follow_for_all(observe::DryRun& dry, FactorSchedule const& schedule, std::size_t longest) {
        schedule_ = &schedule;
        books_mean_ = true;
        if (group_->size() == 1) return;
        for (auto& buffer : buffers_) buffer = context_->take(longest * sizeof(T));
        std::size_t messages = 0;
        for (auto const& pieces : schedule.given) messages += pieces.size();
        messages = std::max<std::size_t>(messages, 1);
        double const bytes = schedule.mean_given * static_cast<double>(sizeof(T)) / static_cast<double>(messages);
        for (std::size_t i = 0; i < messages; ++i)
            dry.exchange(observe::Operation::send, comm::detail::cost_of_sent(*group_, bytes), group_->size(), true, 0,
                         false);
    }
    /// Starts what leaves and arrives for step `s`.
    void start(std::size_t s) {
        if (is_in_place() || books_mean_) return;
        auto const& exec = context_->exec();
        auto &leaving = leaving_[s % 2], &arriving = arriving_[s % 2];
        for (auto& request : leaving) request.wait(); // of step s - 2
        leaving.clear();
        arriving.clear();
        if (s < schedule_->taken.size()) {
            auto* to = static_cast<T*>(buffers_[s % 2].data());
            for (auto const& [member, block] : schedule_->taken[s]) {
                if (member == move_->me) continue;
                arriving.push_back(
                    comm::start_receive(exec, *group_, arrived(to, block), static_cast<int>(member), tag_));
                to += block.size();
            }
        }
        if (s < schedule_->given.size())
            for (auto const& [member, block] : schedule_->given[s])
                leaving.push_back(comm::start_send(exec, *group_, part(data_, held(move_->me), block),
                                                   static_cast<int>(member), tag_));
    }
    /// The blocks of step `s`, once they are there, until step s + 2 is started.
    std::vector<Block> const& await(std::size_t s) {
        blocks_.clear();
        if (s >= schedule_->taken.size()) return blocks_;
        for (auto& request : arriving_[s % 2]) request.wait();
        auto* from = static_cast<T*>(buffers_[s % 2].data());
        for (auto const& [member, block] : schedule_->taken[s]) {
            if (member == move_->me)
                blocks_.push_back({part(data_, held(member), block), block.outer});
            else if (window_.is_open())
                blocks_.push_back({part(address(member), held(member), block), block.outer});
            else {
                blocks_.push_back({arrived(from, block), block.outer});
                from += block.size();
            }
        }
        return blocks_;
    }
    /// Collective over the group: when it returns the factor may be written again.
    void finish() {
        for (auto& requests : leaving_)
            for (auto& request : requests) request.wait();
        window_.close();
    }

  private:
    [[nodiscard]] FactorBlock held(std::size_t member) const { return move_->held_by(move_->members[member]); }
    [[nodiscard]] T* address(std::size_t member) const {
        return reinterpret_cast<T*>(const_cast<std::byte*>(window_.of(static_cast<int>(member)))); // only read
    }
    /// Rows and columns as they are stored.
    [[nodiscard]] std::pair<IndexRange, IndexRange> stored(FactorBlock const& block) const {
        return move_->inner == 0 ? std::pair(block.inner, block.outer) : std::pair(block.outer, block.inner);
    }
    [[nodiscard]] Part part(T* data, FactorBlock const& whole, FactorBlock const& block) const {
        auto const [all_rows, all_columns] = stored(whole);
        auto const [rows, columns] = stored(block);
        Matrix const matrix(data, all_rows.size(), all_columns.size());
        return Kokkos::subview(matrix, std::pair(rows.begin - all_rows.begin, rows.end - all_rows.begin),
                               std::pair(columns.begin - all_columns.begin, columns.end - all_columns.begin));
    }
    [[nodiscard]] Part arrived(T* data, FactorBlock const& block) const { return part(data, block, block); }

    Context<Exec> const* context_;
    comm::Communicator const* group_;
    FactorMove const* move_;
    FactorSchedule const* schedule_ = nullptr;
    T* data_;
    int tag_;
    comm::Window window_;
    bool books_mean_ = false; ///< a dry run whose rank stands for all has what ranks send in the mean
    std::array<memory::Buffer<typename Exec::memory_space>, 2> buffers_;
    std::array<std::vector<comm::Request<comm::detail::Staged<Part>>>, 2> leaving_, arriving_;
    std::vector<Block> blocks_;
};

} // namespace pentad::detail
