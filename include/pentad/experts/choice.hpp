// Who chooses whom (model::RouterChoice), and which choices an expert has room for.
#pragma once

#include <pentad/experts/detail/random_rows.hpp>
#include <pentad/experts/dispatch.hpp>
#include <pentad/experts/selection.hpp>
#include <pentad/kernels/choose_experts.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/select_tokens.hpp>
#include <pentad/kernels/sinkhorn.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::experts {

using namespace ml;

/// The choices of the tokens of a Stream. What depends on other tokens is found over the ranks that share them out, so
/// that equal scores give the same choices on every mesh.
template <class Stream, class Exec>
class Choice {
  public:
    using A = accumulator_t<typename Stream::element>;
    using Scores = View<A, 2, Exec>;
    using Index = View<i32, 2, Exec>;
    using Sums = summed_t<f64, Dims<Dim<expert>>, Stream>;

    /// @param name of the router: different ones have different hashes
    /// @throws std::invalid_argument where experts cannot be routed so, or not in slices of sequences
    Choice(LayerSetup<Exec> const& setup, model::Experts const& part, std::string const& name)
        : setup_(setup), router_(part.router), experts_(part.count), top_k_(part.top_k),
          groups_{.count = static_cast<int>(part.router.groups),
                  .chosen = static_cast<int>(part.router.top_groups),
                  .counted = part.router.score == model::RouterScore::sigmoid ? 2 : 1},
          stream_(random::stream(name)) {
        if (auto const why = router_.refusal(part.count, part.top_k); !why.empty())
            throw std::invalid_argument(name + ": " + why);
        if (setup.slices > 1 && router_.needs_whole_sequences())
            throw std::invalid_argument(name +
                                        ": capacity, expert choice and Sinkhorn see all tokens of a micro-batch: "
                                        "they need a schedule without slices of sequences");
        if (selects()) selection_.emplace(setup.context, experts_, setup.batch * setup.real_length());
        if (is(model::RouterChoice::sinkhorn)) prepare_redistribution<Sums, invariant_t<Sums>>(setup.context);
        if (selects() || router_.jitter > 0) {
            auto const like =
                Tensor<Stream, Exec>::without_memory(setup.context, {setup.batch, setup.seq, setup.hidden});
            batch_ = like.local()[0];
            length_ = like.local()[1];
            auto const numbers = setup.template token_numbers<Stream>(setup.partition(), batch_, length_);
            numbers_ = setup.context.take(numbers.size() * sizeof(i32));
            memory::copy_from_host(setup.context.exec(), numbers_.data(), numbers.data(), numbers.size() * sizeof(i32));
        }
    }

    /// Slots of a token: of expert choice one for each expert.
    [[nodiscard]] std::size_t slots() const { return is(model::RouterChoice::expert_choice) ? experts_ : top_k_; }

    [[nodiscard]] bool is_tokenwise() const { return !is(model::RouterChoice::expert_choice); }
    /// How many choices tokens have that go to an expert.
    [[nodiscard]] Routed routed() const {
        double const room = router_.capacity > 0 ? router_.capacity : 1;
        return {.choices =
                    static_cast<double>(top_k_) * (is(model::RouterChoice::expert_choice) ? room : std::min(room, 1.0)),
                .fills_all = !selects(),
                .groups = router_.groups,
                .top_groups = router_.top_groups};
    }
    /// index from the scores [tokens, experts] of a pass. Collective where it depends on other tokens.
    /// @param bias of each expert, for the choice alone, or of extent 0
    void choose(Pass<Exec> const& pass, Scores const& scores, View<A const, 1, Exec> bias,
                kernels::TokenRows const& rows, Index const& index) const {
        auto const& exec = pass.context.exec();
        if (is(model::RouterChoice::expert_choice)) return select(pass, scores, rows, index);
        if (is(model::RouterChoice::hash)) {
            hashed_experts(exec, pass.tokens, first_token(pass, rows), rows, static_cast<int>(experts_), stream_,
                           index);
        } else if (is(model::RouterChoice::sinkhorn) && pass.trains) {
            choose_balanced(pass, scores, rows, index);
        } else {
            kernels::choose_experts<A>(exec, scores, bias, index, groups_, rows);
        }
        // What an expert has room for is a rule of training: a token that is written depends on no token beside it.
        if (router_.capacity > 0 && pass.ragged == nullptr) drop(pass, scores, rows, index);
    }
    /// The numbers of the tokens of a pass, the same on every mesh. Only where something depends on them.
    [[nodiscard]] memory::Buffer<typename Exec::memory_space> token_numbers(Pass<Exec> const& pass) const {
        std::size_t const count = batch_ * length_;
        if (pass.map == nullptr || pass.map->dealt == nullptr || observe::dry_run() != nullptr) {
            if (setup_.slices == 1) return numbers_;
            auto const slice = pass.context.take(count * sizeof(i32));
            memory::copy(pass.context.exec(), slice.data(),
                         static_cast<i32 const*>(numbers_.data()) + pass.slice * count, count * sizeof(i32));
            return slice;
        }
        auto const numbers = setup_.template token_numbers<Stream>(*pass.map->dealt, batch_, length_);
        auto const here = pass.context.take(count * sizeof(i32));
        memory::copy_from_host(pass.context.exec(), here.data(), numbers.data() + pass.slice * count,
                               count * sizeof(i32));
        return here;
    }
    [[nodiscard]] View<i32 const, 1, Exec>
    number_view(memory::Buffer<typename Exec::memory_space> const& numbers) const {
        return View<i32 const, 1, Exec>(static_cast<i32 const*>(numbers.data()), batch_ * length_);
    }

  private:
    using Candidates = kernels::SelectionCandidates<A, Exec>;
    static constexpr int sinkhorn_iterations = 16;

    [[nodiscard]] bool is(model::RouterChoice choice) const { return router_.choice == choice; }
    [[nodiscard]] bool selects() const { return is(model::RouterChoice::expert_choice) || router_.capacity > 0; }
    /// Choices that an expert takes.
    [[nodiscard]] std::size_t most_choices() const {
        return router_.most_choices(experts_, top_k_, static_cast<double>(setup_.batch * setup_.real_length()));
    }

    /// The first of this rank's tokens of a sequence among those of the pass, which tp may share.
    [[nodiscard]] static std::size_t first_token(Pass<Exec> const& pass, kernels::TokenRows const& rows) {
        if (observe::dry_run() != nullptr) return 0;
        auto const length = static_cast<std::size_t>(rows.length);
        if (pass.tokens.extent(1) < length || pass.tokens.extent(1) % length != 0)
            throw std::invalid_argument("hash routing needs the tokens of the pass");
        return pass.context.communicators().shard_index(Stream::value.dimensions[1].axes) %
               (pass.tokens.extent(1) / length) * length;
    }
    void select(Pass<Exec> const& pass, Scores const& scores, kernels::TokenRows const& rows,
                Index const& index) const {
        auto const numbers = token_numbers(pass);
        Candidates const candidates{scores, {}, number_view(numbers), static_cast<int>(experts_), rows};
        auto const limits = selection_->limits(pass.context, candidates, most_choices());
        kernels::selecting_experts<A>(pass.context.exec(), candidates, selection_->view(limits, experts_), index);
    }
    void drop(Pass<Exec> const& pass, Scores const& scores, kernels::TokenRows const& rows, Index const& index) const {
        auto const numbers = token_numbers(pass);
        auto const by = router_.drop == model::Drop::score ? scores : Scores(scores.data(), scores.extent(0), 0);
        Candidates const candidates{by, index, number_view(numbers), static_cast<int>(slots()), rows};
        auto const limits = selection_->limits(pass.context, candidates, most_choices());
        kernels::drop_choices<A>(pass.context.exec(), candidates, selection_->view(limits, experts_), index);
    }
    void choose_balanced(Pass<Exec> const& pass, Scores const& scores, kernels::TokenRows const& rows,
                         Index const& index) const {
        auto const& context = pass.context;
        auto const& exec = context.exec();
        std::size_t const tokens = scores.extent(0);
        auto const factors = context.take(experts_ * sizeof(A)), scratch = context.take(tokens * sizeof(A));
        auto const balanced = context.take(scores.size() * sizeof(A));
        View<A, 1, Exec> const factor(static_cast<A*>(factors.data()), experts_),
            sums_of_rows(static_cast<A*>(scratch.data()), tokens);
        double const target = static_cast<double>(setup_.batch * setup_.real_length()) / static_cast<double>(experts_);
        kernels::fill<A>(exec, factor, A(1));
        for (int i = 0; i < sinkhorn_iterations; ++i) {
            Tensor<Sums, Exec> sums(context, {experts_});
            kernels::sinkhorn_sums<A>(exec, scores, factor, sums_of_rows, sums.array());
            auto const total = redistribute<invariant_t<Sums>>(std::move(sums));
            kernels::sinkhorn_factors<A>(exec, total.array(), target, factor);
        }
        Scores const values(static_cast<A*>(balanced.data()), tokens, experts_);
        kernels::balanced_scores<A>(exec, scores, factor, values);
        kernels::choose_experts<A>(exec, values, {}, index, groups_, rows);
    }

    LayerSetup<Exec> setup_;
    model::Router router_;
    std::size_t experts_, top_k_;
    kernels::ExpertGroups groups_;
    std::uint64_t stream_;
    std::optional<Selection<Stream, Exec>> selection_;
    std::size_t batch_ = 0, length_ = 0; ///< of this rank's tokens in a pass
    memory::Buffer<typename Exec::memory_space> numbers_;
};

} // namespace pentad::experts
