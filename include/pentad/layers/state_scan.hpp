// The recurrence of a layer with a state, along a sequence that may be sharded over cp: a chunked scan on each rank,
// and between ranks what their tokens leave. In each of packed documents by itself.
#pragma once

#include <pentad/kernels/chunk_scan.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/stretches.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace pentad {

/// What is scanned (kernels/chunk_scan.hpp): of this rank's tokens and heads.
template <class T, class Exec>
struct Scanned {
    using A = accumulator_t<T>;
    template <class E>
    using Strided = Kokkos::View<E****, Kokkos::LayoutStride, Kokkos::Device<Exec, typename Exec::memory_space>,
                                 Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    using Decays = Kokkos::View<A const***, Kokkos::LayoutStride, Kokkos::Device<Exec, typename Exec::memory_space>,
                                Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    // Each stretch of a sequence (layout/stretches.hpp) counts as one of the batch.
    Strided<T const> q, k; ///< [batch, seq, groups, state]
    Strided<T const> v;    ///< [batch, seq, heads, head_dim]
    Decays log_decay;      ///< [batch, seq, heads]; without memory: no decay

    /// Rows of a matrix of tokens as heads: columns [first, first + heads * dim). @param seq tokens of a stretch
    template <class Rows>
    static auto heads(Rows const& rows, std::size_t first, std::size_t seq, std::size_t heads, std::size_t dim) {
        std::size_t const distance = rows.stride(0), batch = rows.extent(0) / seq;
        return Strided<typename Rows::value_type>(
            rows.data() + first, Kokkos::LayoutStride(batch, seq * distance, seq, distance, heads, dim, dim, 1));
    }
};

/// The states of a layer for the sequences of a rank's lane that are being written.
template <class States, class Exec>
class StateCache final : public SequenceState {
  public:
    using A = typename States::element;
    /// @param extents of a state on this rank
    StateCache(Context<Exec> const* context, std::array<std::size_t, 3> const& extents)
        : context_(context), extents_(extents) {}

    void make_room(SequenceRoom const& room) override {
        sequences_ = room.sequences;
        states_ = context_->take(bytes(), observe::Memory::caches);
        memory::clear(context_->exec(), states_.data(), bytes());
    }
    [[nodiscard]] std::size_t bytes() const override { return sequences_ * size() * sizeof(A); }
    /// [1, heads, state, head_dim]
    [[nodiscard]] View<A, 4, Exec> of(std::size_t sequence) const {
        return View<A, 4, Exec>(static_cast<A*>(states_.data()) + sequence * size(), 1, extents_[0], extents_[1],
                                extents_[2]);
    }

  private:
    [[nodiscard]] std::size_t size() const { return extents_[0] * extents_[1] * extents_[2]; }

    Context<Exec> const* context_;
    std::array<std::size_t, 3> extents_;
    std::size_t sequences_ = 0;
    memory::Buffer<typename Exec::memory_space> states_;
};

/// @tparam Along what goes along the sequence over cp: context::Recurrence
template <class T, class Along, class Exec>
class StateScan {
  public:
    using A = accumulator_t<T>;
    using States = typename Along::template States<T>;
    using Carry = typename Along::template Carry<States, Exec>;
    using Cache = StateCache<States, Exec>;

    struct Saved {
        typename Carry::Saved carry;
        Tensor<States, Exec> initial; ///< in front of each stretch; empty: zero
    };

    /// Heads are those of all ranks together.
    StateScan(LayerSetup<Exec> const& setup, std::size_t heads, std::size_t state, std::size_t head_dim,
              std::size_t chunk)
        : batch_(setup.batch), heads_(heads), state_(state), head_dim_(head_dim),
          slices_(setup.template slice_state<typename Carry::Slices>()),
          cache_(setup.template sequence_state<Cache>(&setup.context,
                                                      std::array{heads / tensor_ranks(setup), state, head_dim})),
          stretches_(setup.partition()), chunk_(static_cast<i64>(chunk)) {
        if (slices_.exists() || setup.context.communicators().extent(ml::cp::name) > 1) carry_.emplace(setup);
    }
    [[nodiscard]] Stretches const& stretches(Pass<Exec> const& pass) const { return pass.stretches(stretches_); }

    /// y [batch, seq, heads, head_dim]. Collective over cp, as the backward pass.
    template <class Y>
    void forward(Pass<Exec>& pass, Scanned<T, Exec> const& of, Y const& y, Saved& saved) const {
        auto const& exec = pass.context.exec();
        auto const memory = workspace(pass, kernels::chunk_scan_workspace<T>(exec, sizes(of)));
        auto const documents = positions(pass, of);
        if (carry_) {
            auto const& order = stretches(pass);
            Tensor<States, Exec> const state(pass.context, extents(order));
            Tensor<typename Carry::Decay, Exec> decay;
            if (of.log_decay.data() != nullptr || documents.data() != nullptr)
                decay = {pass.context, {batch_, order.order.size(), heads_}};
            kernels::chunk_scan_state(exec, of.k, of.v, of.log_decay, chunk_, own(state), totals(decay), memory.view,
                                      documents);
            saved.initial = carry_->forward(state, decay, order, slices(pass), saved.carry);
        }
        kernels::chunk_scan_forward(exec, of.q, of.k, of.v, of.log_decay, own(saved.initial), chunk_, y,
                                    View<A, 4, Exec>(), memory.view, documents);
    }
    /// y for the tokens of a run of a pass that continues sequences, from the state that the sequence has, which is
    /// then that behind them. @param of, y the tokens of the run alone, as one sequence
    template <class Y>
    void continue_sequence(Pass<Exec>& pass, TokenRun const& run, Scanned<T, Exec> const& of, Y const& y) const {
        auto const state = pass.sequences->of(cache_).of(run.sequence);
        auto const memory = workspace(pass, kernels::chunk_scan_workspace<T>(pass.context.exec(), sizes(of)));
        kernels::chunk_scan_forward(pass.context.exec(), of.q, of.k, of.v, of.log_decay,
                                    run.position == 0 ? View<A, 4, Exec>() : state, chunk_, y, state, memory.view);
    }
    /// Writes dq and dk [batch, seq, groups, state], dv and, where it has memory, the gradient of the log decay, all in
    /// accumulators.
    template <class DY, class DQ, class DV, class DA>
    void backward(Pass<Exec>& pass, Scanned<T, Exec> const& of, DY const& dy, DQ const& dq, DQ const& dk, DV const& dv,
                  DA const& da, Saved& saved) const {
        auto const& exec = pass.context.exec();
        auto const memory = workspace(pass, kernels::chunk_scan_backward_workspace<T>(exec, sizes(of)));
        auto const documents = positions(pass, of);
        Tensor<dual_t<States>, Exec> d_final;
        if (carry_) {
            auto const& order = stretches(pass);
            Tensor<dual_t<States>, Exec> const d_initial(pass.context, extents(order));
            kernels::chunk_scan_initial_gradient(exec, of.q, of.log_decay, dy, chunk_, own(d_initial), memory.view,
                                                 documents);
            d_final = carry_->backward(d_initial, order, slices(pass), saved.carry).state;
        }
        kernels::chunk_scan_backward(exec, of.q, of.k, of.v, of.log_decay, own(saved.initial), dy, own(d_final), chunk_,
                                     dq, dk, dv, da, View<A, 4, Exec>(), memory.view, documents);
        saved = {};
    }

  private:
    static std::size_t tensor_ranks(LayerSetup<Exec> const& setup) {
        return static_cast<std::size_t>(setup.context.communicators().extent(ml::tp::name));
    }
    struct Workspace {
        memory::Buffer<typename Exec::memory_space> buffer;
        View<A, 1, Exec> view;
    };
    static Workspace workspace(Pass<Exec>& pass, std::size_t numbers) {
        Workspace result{pass.context.take(numbers * sizeof(A)), {}};
        result.view = View<A, 1, Exec>(static_cast<A*>(result.buffer.data()), numbers);
        return result;
    }
    /// [batch, seq]; without memory where each sequence is one document.
    static View<i32 const, 2, Exec> positions(Pass<Exec> const& pass, Scanned<T, Exec> const& of) {
        if (pass.map == nullptr || pass.map->positions.data() == nullptr) return {};
        return View<i32 const, 2, Exec>(pass.map->positions.data(), of.v.extent(0), of.v.extent(1));
    }
    [[nodiscard]] kernels::ScanSizes sizes(Scanned<T, Exec> const& of) const {
        return kernels::detail::scan_sizes(of.k, of.v, chunk_);
    }
    [[nodiscard]] std::array<std::size_t, 5> extents(Stretches const& order) const {
        return {batch_, order.order.size(), heads_, state_, head_dim_};
    }
    [[nodiscard]] AtSlice<typename Carry::Slices> slices(Pass<Exec> const& pass) const {
        return pass.at_slice(slices_);
    }
    /// This rank's stretches, as of the batch.
    template <class L>
    static View<A, 4, Exec> own(Tensor<L, Exec> const& states) {
        if (states.empty()) return {};
        auto const& local = states.local();
        return View<A, 4, Exec>(states.data(), local[0] * local[1], local[2], local[3], local[4]);
    }
    static View<A, 2, Exec> totals(Tensor<typename Carry::Decay, Exec> const& decays) {
        if (decays.empty()) return {};
        return View<A, 2, Exec>(decays.data(), decays.local()[0] * decays.local()[1], decays.local()[2]);
    }

    std::size_t batch_, heads_, state_, head_dim_;
    StateKey<SliceState<typename Carry::Slices>> slices_;
    StateKey<Cache> cache_;
    Stretches stretches_;
    i64 chunk_;
    std::optional<Carry> carry_;
};

} // namespace pentad
