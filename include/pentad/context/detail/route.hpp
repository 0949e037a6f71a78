// How far each piece of a block of keys and values goes round a ring: to the last rank whose queries see it.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/context/detail/pair.hpp>
#include <pentad/context/detail/pass_blocks.hpp>
#include <pentad/kernels/dry.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/tensor/overlap.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace pentad::context::detail {

/// Ranks of the ring after its owner at which a piece is seen, in steps: the first of them and the last; 0: none.
struct Steps {
    std::size_t first = 0, last = 0;
};

/// The steps of all pieces of all blocks, which every rank of the ring knows.
class Routes {
  public:
    /// @param sees called with (rank, block, range): whether queries of a rank see any of these keys of a block
    template <class Sees>
    Routes(std::size_t ranks, comm::Pieces const& pieces, Sees&& sees)
        : pieces_(pieces), steps_(ranks * pieces.count()) {
        for (std::size_t block = 0; block < ranks; ++block)
            for (std::size_t i = 0; i < pieces.count(); ++i)
                for (std::size_t step = 1; step < ranks; ++step)
                    if (sees((block + step) % ranks, block, range(i))) {
                        auto& [first, last] = steps_[block * pieces.count() + i];
                        if (first == 0) first = step;
                        last = step;
                    }
    }
    [[nodiscard]] comm::Pieces const& pieces() const { return pieces_; }
    [[nodiscard]] KeyRange range(std::size_t i) const {
        return {pieces_.at(i).first_column, pieces_.at(i).last_column};
    }
    [[nodiscard]] Steps const& of(std::size_t block, std::size_t i) const {
        return steps_[block * pieces_.count() + i];
    }
    /// The share of the ranks that sends piece i of keys and values, or of gradients, at a step: a dry run whose rank
    /// stands for all ranks counts this share.
    [[nodiscard]] double keys_sent(std::size_t step, std::size_t i) const {
        return share(i, [step](Steps const& at) { return step < at.last; });
    }
    [[nodiscard]] double gradients_sent(std::size_t step, std::size_t i) const {
        return share(i, [step](Steps const& at) { return at.first > 0 && at.first <= step && step <= at.last; });
    }
    /// Whether any piece of a block comes to the rank `step` after its owner.
    [[nodiscard]] bool reaches(std::size_t block, std::size_t step) const {
        for (std::size_t i = 0; i < pieces_.count(); ++i)
            if (step <= of(block, i).last) return true;
        return false;
    }

  private:
    template <class Sends>
    [[nodiscard]] double share(std::size_t i, Sends&& sends) const {
        std::size_t const ranks = steps_.size() / pieces_.count();
        std::size_t count = 0;
        for (std::size_t block = 0; block < ranks; ++block) count += sends(of(block, i)) ? 1 : 0;
        return static_cast<double>(count) / static_cast<double>(ranks);
    }

    comm::Pieces pieces_;
    std::vector<Steps> steps_;
};

/// Pieces of a block, along the sequence: as many as `Communication` has across a network, and more where some of them
/// may be of no use to anybody.
template <class Communication, class L, class Exec>
comm::Pieces block_pieces(Tensor<L, Exec> const& key, PassBlocks<Exec> const& blocks, comm::Communicator const& comm) {
    constexpr std::size_t narrow = 8; // pieces in which work is dealt: Batch
    auto const block = pentad::detail::around(key, 1);
    std::size_t const wanted = comm.crosses_network() ? pentad::detail::pieces_of<Communication>(block) : 1;
    return comm::Pieces::of_columns(block.extent(0), block.extent(1),
                                    blocks.is_narrow() ? std::max(wanted, narrow) : wanted);
}

/// A dry run whose rank stands for all: what all ranks of the group but one send to their neighbour.
inline void dry_pass_on(observe::DryRun& run, comm::Communicator const& comm, double bytes) {
    if (comm.size() > 1)
        comm::detail::dry_send(run, comm, bytes * (comm.size() - 1.0) / comm.size(),
                               !comm.nodes().is_here((comm.rank() + 1) % comm.size()));
}

/// Transfers of pairs of keys and values between the ranks of a ring, in pieces of the sequence. What is sent is kept
/// until it has left.
template <class L, class Exec>
class RingExchange {
  public:
    /// @param first_tag of 2 Pieces::most
    RingExchange(Context<Exec> const& context, comm::Communicator const& comm, comm::Pieces const& pieces,
                 int first_tag)
        : exec_(&context.exec()), comm_(&comm), next_((comm.rank() + 1) % comm.size()),
          previous_((comm.rank() + comm.size() - 1) % comm.size()), pieces_(pieces), keys_(*exec_, comm, first_tag),
          values_(*exec_, comm, first_tag + static_cast<int>(comm::Pieces::most)) {}
    void send(std::size_t i, Pair<L, Exec> const& pair) { send_to(next_, i, pair); }
    void receive(std::size_t i, Pair<L, Exec> const& pair) { receive_from(previous_, i, pair); }
    void send_to(int rank, std::size_t i, Pair<L, Exec> const& pair) {
        keys_.send_to(rank, i, seen(pair.key), pieces_.at(i));
        values_.send_to(rank, i, seen(pair.value), pieces_.at(i));
        leaving_[i] = pair;
    }
    /// In a dry run: a send to the next rank that a share of the ranks makes.
    void dry_send(observe::DryRun& run, std::size_t i, Pair<L, Exec> const& pair, double share) const {
        auto const part = comm::detail::box_of(seen(pair.key), pieces_.at(i));
        double const bytes = share * static_cast<double>(part.size() * sizeof(typename L::element));
        for (int tensor = 0; tensor < 2 && bytes > 0; ++tensor)
            comm::detail::dry_send(run, *comm_, bytes, !comm_->nodes().is_here(next_));
    }
    void receive_from(int rank, std::size_t i, Pair<L, Exec> const& pair) {
        keys_.receive_from(rank, i, seen(pair.key), pieces_.at(i));
        values_.receive_from(rank, i, seen(pair.value), pieces_.at(i));
    }
    void await(std::size_t i) {
        keys_.await(i);
        values_.await(i);
    }
    void finish() {
        keys_.finish();
        values_.finish();
        leaving_ = {};
    }
    /// Piece i of `pair` becomes zeros.
    void clear(std::size_t i, Pair<L, Exec> const& pair) const {
        for (auto const* tensor : {&pair.key, &pair.value}) {
            auto const part = comm::detail::box_of(seen(*tensor), pieces_.at(i));
            if (!kernels::dry("clear", part)) comm::detail::clear(*exec_, part);
        }
    }
    /// to += from, of piece i.
    void add(std::size_t i, Pair<L, Exec> const& from, Pair<L, Exec> const& to) const {
        auto const box = pieces_.at(i);
        comm::detail::add(*exec_, comm::detail::box_of(seen(to.key), box), comm::detail::box_of(seen(from.key), box));
        comm::detail::add(*exec_, comm::detail::box_of(seen(to.value), box),
                          comm::detail::box_of(seen(from.value), box));
    }

  private:
    using V = View<typename L::element, 3, Exec>;
    static V seen(Tensor<L, Exec> const& tensor) { return pentad::detail::around(tensor, 1); }

    Exec const* exec_;
    comm::Communicator const* comm_;
    int next_, previous_;
    comm::Pieces pieces_;
    comm::RingTransfers<Exec, V> keys_, values_;
    std::array<Pair<L, Exec>, comm::Pieces::most> leaving_;
};

/// Gradients of blocks that go round a ring with their blocks: each piece from the first rank that adds to it to the
/// last, and from there home.
template <class G, class Exec>
class GradientRoute {
  public:
    using Gradients = Pair<G, Exec>;

    /// @param own the gradients of this rank's block, to which those of the other ranks are added @param first_tag of 4
    /// Pieces::most
    GradientRoute(Context<Exec> const& context, comm::Communicator const& comm, Routes const& routes,
                  Gradients const& own, int first_tag)
        : routes_(&routes), own_(own), n_(static_cast<std::size_t>(comm.size())),
          rank_(static_cast<std::size_t>(comm.rank())), exchange_(context, comm, routes.pieces(), first_tag),
          homes_(context, comm, routes.pieces(), first_tag + 2 * static_cast<int>(comm::Pieces::most)) {
        if (!routes.reaches(rank_, 1)) return;
        home_ = own.like();
        for (std::size_t i = 0; i < pieces(); ++i)
            if (auto const last = routes.of(rank_, i).last; last > 0)
                homes_.receive_from(static_cast<int>((rank_ + last) % n_), i, home_);
    }
    /// Gradients of the block that is here in this step: what the ranks before have added to a piece is in it after
    /// await().
    Gradients const& begin(std::size_t step) {
        here_ = std::move(arriving_);
        if (here_.key.empty() && routes_->reaches(block(step), step)) here_ = own_.like();
        expect(step);
        return here_;
    }
    void await(std::size_t step, std::size_t i) {
        auto const first = routes_->of(block(step), i).first;
        if (step > first) exchange_.await(i);
        if (step == first) exchange_.clear(i, here_);
    }
    /// begin() from zero; what the ranks before have added arrives meanwhile, and await_and_add() adds it.
    Gradients const& begin_apart(std::size_t step) {
        arrived_ = std::move(arriving_);
        here_ = own_.template zeros<G>();
        expect(step);
        return here_;
    }
    void await_and_add(std::size_t step, std::size_t i) {
        auto const [first, last] = routes_->of(block(step), i);
        if (step <= first || step > last) return;
        exchange_.await(i);
        exchange_.add(i, arrived_, here_);
    }
    /// When this rank has added to a piece.
    void pass_on(std::size_t step, std::size_t i) {
        if (auto* const run = observe::dry_run_for_all())
            return exchange_.dry_send(*run, i, own_, routes_->gradients_sent(step, i));
        auto const [first, last] = routes_->of(block(step), i);
        if (step == last)
            homes_.send_to(static_cast<int>(block(step)), i, here_);
        else if (first <= step && step < last)
            exchange_.send(i, here_);
    }
    /// Receives a piece of the next step's block.
    void receive_next(std::size_t step, std::size_t i, bool waits = false) {
        if (step + 1 >= n_) return;
        auto const [first, last] = routes_->of(block(step + 1), i);
        if (first == 0 || first > step || step >= last) return;
        exchange_.receive(i, arriving_);
        if (waits) exchange_.await(i);
    }
    /// Adds what the other ranks have sent home.
    void finish() {
        for (std::size_t i = pieces(); i-- > 0;)
            if (routes_->of(rank_, i).last > 0) {
                homes_.await(i);
                homes_.add(i, home_, own_);
            }
        exchange_.finish();
        homes_.finish();
    }

  private:
    void expect(std::size_t step) {
        arriving_ = {};
        if (step + 1 < n_ && routes_->reaches(block(step + 1), step + 1)) arriving_ = own_.like();
    }
    [[nodiscard]] std::size_t pieces() const { return routes_->pieces().count(); }
    [[nodiscard]] std::size_t block(std::size_t step) const { return (rank_ + n_ - step % n_) % n_; }

    Routes const* routes_;
    Gradients own_, home_, arriving_, arrived_, here_;
    std::size_t n_, rank_;
    RingExchange<G, Exec> exchange_, homes_;
};

} // namespace pentad::context::detail
