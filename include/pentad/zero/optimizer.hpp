// The optimizer of a bucket, or of this rank's shard of it: which one is a value, its state are tensors with names. A
// gradient that is still partial is refused by the compiler.
#pragma once

#include <pentad/kernels/adamw.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/lion.hpp>
#include <pentad/kernels/load_balance.hpp>
#include <pentad/kernels/sgd.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/model/precision.hpp>
#include <pentad/tensor/tensor.hpp>
#include <pentad/zero/compact.hpp>
#include <pentad/zero/matrices.hpp>
#include <pentad/zero/offload.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace pentad::zero {

/// The numbers of one update that change from step to step.
struct UpdateSettings {
    f64 learning_rate = 1e-3;
    f64 gradient_scale = 1; ///< what gradients are multiplied with first: clipping
};

/// Which random numbers round what a rank holds of a bucket, so that ranks that hold the same get the same bits: the
/// weights of a parameter by their numbers in the rank's shard of it, whatever bucket it is in.
struct WeightRounding {
    struct Part {
        std::size_t begin, end; ///< in the shard of the bucket
        std::size_t first;      ///< the number of `begin` in the shard of the parameter
        std::uint64_t stream;   ///< of that shard
    };
    std::uint64_t seed = 0;
    std::size_t first = 0; ///< of the rank's elements in the bucket
    std::vector<Part> parts;

    /// The key for moments, by their place in the bucket.
    [[nodiscard]] RoundingKey of_state(std::int64_t step, std::size_t state, std::size_t begin) const {
        std::uint64_t const stream = parts.empty() ? 0 : parts.front().stream;
        return {seed, mixed(stream, step, 1 + state), 4 * std::uint64_t{first} + begin};
    }
    /// f(from, to, key) for the parts of parameters in [begin, end).
    template <class F>
    void for_each_part(std::int64_t step, std::size_t begin, std::size_t end, F&& f) const {
        for (auto const& part : parts) {
            auto const from = std::max(begin, part.begin), to = std::min(end, part.end);
            if (from < to)
                f(from, to, RoundingKey{seed, mixed(part.stream, step, 0), part.first + (from - part.begin)});
        }
    }

  private:
    static std::uint64_t mixed(std::uint64_t stream, std::int64_t step, std::size_t what) {
        return stream + (static_cast<std::uint64_t>(step) * 4 + what) * 0x9e3779b97f4a7c15u; // odd: all differ
    }
};

/// An optimizer with state of layout `StateLayout`, in accumulators.
template <class StateLayout, class T, class Exec>
class Optimizer {
  public:
    using A = typename StateLayout::element;
    using State = Tensor<StateLayout, Exec>;
    using Weights = Tensor<with_element_t<StateLayout, T>, Exec>;
    static constexpr bool is_compact = !std::is_same_v<T, A>; ///< bf16 weights, with f32 masters or without

    Optimizer() = default;
    /// @param extent of the weights, as of all tensors of the state
    /// @param rounding which random numbers round the weights, where they have no masters
    /// @param offloaded where the state is; null: in memory
    Optimizer(Context<Exec> const& context, std::size_t extent, model::Optimizer const& settings,
              model::Precision const& precision = {}, WeightRounding rounding = {},
              OffloadedStates<Exec>* offloaded = nullptr)
        : context_(&context), extent_(extent), settings_(settings), precision_(precision),
          rounding_(std::move(rounding)) {
        auto const kept = model::state_tensors(settings, precision, is_compact);
        auto const bytes = model::state_bytes(kept, extent, sizeof(A));
        for (std::size_t i = 0; i < kept.size(); ++i) tensors_.push_back({kept[i], bytes[i]});
        if (offloaded != nullptr && !kept.empty()) {
            offloaded_ = offloaded;
            number_ = offloaded->add(model::offloaded_bytes(bytes));
        } else if (keeps_masters())
            tensors_[0].take(context);
    }

    /// Whether there are f32 weights behind bf16 ones.
    [[nodiscard]] bool keeps_masters() const { return is_compact && precision_.keeps_masters; }
    /// Calls f(tensor) with the weights in accumulators: the masters, the weights themselves, or a copy of them.
    /// @param writes whether f writes them: bf16 weights without masters follow, rounded to nearest
    template <class F>
    void with_master(Weights const& weights, bool writes, F&& f) {
        std::optional<Residence> here;
        if (keeps_masters()) here.emplace(*this, false, writes);
        in_accumulators(weights, writes, std::forward<F>(f));
    }

    /// Calls f(name) for each state that for_each_state() shows once updates have made all of them.
    template <class F>
    void for_each_state_name(F&& f) const {
        f(std::string_view("weight"));
        for (std::size_t i = first_moment(); i < tensors_.size(); ++i) f(tensors_[i].how.name);
    }
    /// Calls f(name, tensor) for the weights in accumulators ("weight"), and for each tensor of model::state_names()
    /// that exists, in accumulators. The tensors are f's until it returns. @param writes whether f writes them: then
    /// all exist
    template <class F>
    void for_each_state(Weights const& weights, bool writes, F&& f) {
        Residence const here(*this, false, writes);
        if (writes) create_states();
        in_accumulators(weights, writes, [&](State const& master) { f(std::string_view("weight"), master); });
        for (std::size_t i = first_moment(); i < tensors_.size() && has_states_; ++i) {
            auto const& tensor = tensors_[i];
            if (tensor.how.element == Compact::none) {
                f(tensor.how.name, plain(tensor));
                continue;
            }
            State const all(*context_, {extent_}, observe::Memory::optimizer);
            expand<A>(context_->exec(), tensor.values(extent_), all.flat());
            f(tensor.how.name, all);
            if (writes) compress<A>(context_->exec(), all.flat(), tensor.values(extent_));
        }
    }

    /// One update; `step` counts from 1. Collective where it works on whole matrices.
    /// @param gradient is written over where the optimizer works on whole matrices
    /// @param decaying the first elements, which are subject to weight decay; the others are not
    /// @param matrices of the bucket, where the optimizer works on whole matrices
    /// @tparam Gradient must be the layout of the state.
    template <class Gradient>
    void update(Weights const& weights, Tensor<Gradient, Exec> gradient, std::int64_t step, UpdateSettings const& how,
                std::size_t decaying, BucketMatrices<T, Exec> const* matrices = nullptr) {
        if constexpr (is_partial<Gradient>)
            refuse<Text() << "pentad: a gradient that is still partial cannot be given to the optimizer: redistribute "
                             "it to the layout of the optimizer state first: from "
                          << layout_text<Gradient>.view() << " to " << layout_text<StateLayout>.view()>();
        else if constexpr (!std::is_same_v<Gradient, StateLayout>)
            refuse<Text() << "pentad: the gradient does not have the layout of the optimizer state: "
                          << layout_text<Gradient>.view() << " is not " << layout_text<StateLayout>.view()>();
        else {
            Residence const here(*this, true, true);
            create_states();
            if (auto const* const muon = std::get_if<model::Muon>(&settings_)) {
                if (matrices == nullptr) throw std::logic_error("this optimizer updates whole matrices");
                for_each_chunk(weights, step, {.states = true}, [&](Chunk const& chunk) {
                    kernels::muon_momentum<A>(context_->exec(), chunk.part(gradient.data()),
                                              chunk.view(chunk.states[0]), muon->momentum, muon->nesterov,
                                              how.gradient_scale);
                });
                auto shard = pentad::detail::shard_of(gradient);
                gradient = {};
                shard = matrices->orthogonalised(std::move(shard));
                gradient = State::unchecked(weights.context(), weights.extents(), std::move(shard.block), shard.data);
            }
            std::visit(
                [&](auto const& settings) {
                    bool const is_muon = std::is_same_v<std::decay_t<decltype(settings)>, model::Muon>;
                    for_each_chunk(weights, step, {.master = true, .states = !is_muon}, [&](Chunk const& chunk) {
                        auto const split = std::clamp(decaying, chunk.begin, chunk.end);
                        update_range(settings, chunk.cut(chunk.begin, split), weights, gradient, step, how);
                        auto without = settings;
                        if constexpr (requires { without.weight_decay; }) without.weight_decay = 0;
                        update_range(without, chunk.cut(split, chunk.end), weights, gradient, step, how);
                    });
                },
                settings_);
        }
    }

  private:
    /// While one lives the state is in memory. Nothing else knows where it is otherwise.
    class Residence {
      public:
        Residence(Optimizer& optimizer, bool updates, bool writes) : optimizer_(&optimizer), writes_(writes) {
            optimizer.acquire(updates);
        }
        Residence(Residence const&) = delete;
        Residence& operator=(Residence const&) = delete;
        ~Residence() { optimizer_->release(writes_); }

      private:
        Optimizer* optimizer_;
        bool writes_;
    };
    void acquire(bool updates) {
        if (offloaded_ == nullptr) return;
        auto* next = offloaded_->acquire(number_, updates);
        for (auto& tensor : tensors_) {
            tensor.data = next;
            next += model::offload_stride(tensor.bytes);
        }
    }
    void release(bool changed) {
        if (offloaded_ == nullptr) return;
        for (auto& tensor : tensors_) tensor.data = nullptr;
        offloaded_->release(number_, changed);
    }
    /// Makes the tensors of model::state_names(), zeros, where they do not exist. The first update does: evaluation has
    /// none. Offloaded states are zeros until then.
    void create_states() {
        if (std::exchange(has_states_, true) || offloaded_ != nullptr) return;
        for (std::size_t i = first_moment(); i < tensors_.size(); ++i) {
            tensors_[i].take(*context_);
            memory::clear(context_->exec(), tensors_[i].data, tensors_[i].bytes);
        }
    }

    /// A tensor of the state, whose data is null while it does not exist or is offloaded.
    struct Kept {
        model::StateTensor how;
        std::size_t bytes;
        memory::Buffer<typename Exec::memory_space> block{};
        std::byte* data = nullptr;

        void take(Context<Exec> const& context) {
            block = context.take(bytes, observe::Memory::optimizer);
            data = static_cast<std::byte*>(block.data());
        }
        [[nodiscard]] CompactValues values(std::size_t extent) const {
            return CompactValues(how.element, model::has_sign(how.name), extent, data);
        }
    };
    [[nodiscard]] std::size_t first_moment() const { return keeps_masters() ? 1 : 0; }
    [[nodiscard]] State plain(Kept const& tensor) const {
        return State::unchecked(*context_, {extent_}, tensor.block, reinterpret_cast<A*>(tensor.data));
    }
    template <class F>
    void in_accumulators(Weights const& weights, bool writes, F&& f) {
        if constexpr (!is_compact)
            f(weights);
        else if (keeps_masters())
            f(plain(tensors_[0]));
        else {
            State const copy(*context_, {extent_}, observe::Memory::optimizer);
            kernels::convert<T, A>(context_->exec(), weights.flat(), copy.flat());
            f(copy);
            if (writes) kernels::convert<A, T>(context_->exec(), copy.flat(), weights.flat());
        }
    }

    /// Elements [begin, end) of the weights in accumulators and of the states, where they are asked for.
    struct Chunk {
        std::size_t begin, end;
        A* master;
        std::array<A*, 2> states;
        std::size_t state_count; ///< in use

        template <class E>
        [[nodiscard]] View<E, 1, Exec> part(E* whole) const {
            return View<E, 1, Exec>(whole + begin, end - begin);
        }
        [[nodiscard]] View<A, 1, Exec> view(A* own) const { return View<A, 1, Exec>(own, end - begin); }
        [[nodiscard]] Chunk cut(std::size_t from, std::size_t to) const {
            auto some = *this;
            some.begin = from;
            some.end = to;
            for (auto* const own : {&some.master, &some.states[0], &some.states[1]})
                if (*own != nullptr) *own += from - begin;
            return some;
        }
    };
    struct Wanted {
        bool master = false, states = false;
    };
    /// What is kept in fewer bits is brought into accumulators a chunk at a time, so that it stays in a cache, and
    /// rounded back: f(chunk) sees all of it in accumulators, which it may write.
    template <class F>
    void for_each_chunk(Weights const& weights, std::int64_t step, Wanted wanted, F&& f) {
        auto const& exec = context_->exec();
        std::size_t const first = first_moment(), states = wanted.states ? tensors_.size() - first : 0;
        bool const rounds_weights = wanted.master && is_compact && !keeps_masters();
        bool const rounds_states = states > 0 && precision_.moments != Compact::none;
        std::size_t const columns = (rounds_weights ? 1 : 0) + (rounds_states ? states : 0);
        std::size_t const longest = columns == 0 ? extent_ : std::min(extent_, longest_chunk);
        State const scratch = columns == 0 ? State() : State(*context_, {columns * longest});
        for (std::size_t begin = 0; begin < extent_; begin += longest) {
            Chunk chunk{begin, std::min(begin + longest, extent_), nullptr, {}, states};
            auto* next = scratch.data();
            if (rounds_weights) {
                chunk.master = std::exchange(next, next + longest);
                kernels::convert<T, A>(exec, chunk.part(weights.data()), chunk.view(chunk.master));
            } else if (wanted.master)
                in_accumulators(weights, false, [&](State const& master) { chunk.master = master.data() + begin; });
            auto const kept = [&](std::size_t i) { return tensors_[first + i].values(extent_).part(begin, chunk.end); };
            for (std::size_t i = 0; i < states; ++i) {
                if (!rounds_states) {
                    chunk.states[i] = reinterpret_cast<A*>(tensors_[first + i].data) + begin;
                    continue;
                }
                chunk.states[i] = std::exchange(next, next + longest);
                expand<A>(exec, kept(i), chunk.view(chunk.states[i]));
            }
            f(chunk);
            for (std::size_t i = 0; rounds_states && i < states; ++i)
                compress<A>(exec, chunk.view(chunk.states[i]), kept(i), rounding_.of_state(step, i, begin));
            if (rounds_weights)
                rounding_.for_each_part(step, begin, chunk.end, [&](std::size_t from, std::size_t to, RoundingKey key) {
                    auto const part = chunk.cut(from, to);
                    if constexpr (is_compact)
                        compress<A>(exec, part.view(part.master),
                                    CompactValues(Compact::bf16, true, to - from, weights.data() + from), key);
                });
        }
    }

    /// The fused kernel of an optimizer on a chunk.
    template <class Settings>
    void update_range(Settings const& settings, Chunk const& chunk, Weights const& weights, State const& gradient,
                      std::int64_t step, UpdateSettings const& how) {
        if (chunk.begin == chunk.end) return;
        auto const& exec = weights.context().exec();
        auto const used = chunk.part(weights.data());
        auto const gradients = chunk.part(gradient.data()), masters = chunk.view(chunk.master);
        auto const state = [&](std::size_t i) {
            return i < chunk.state_count ? chunk.view(chunk.states[i]) : View<A, 1, Exec>();
        };
        if constexpr (std::is_same_v<Settings, model::AdamW>)
            kernels::adamw<T>(exec, used, masters, gradients, state(0), state(1), step,
                              {.learning_rate = how.learning_rate,
                               .beta1 = settings.beta1,
                               .beta2 = settings.beta2,
                               .epsilon = settings.epsilon,
                               .weight_decay = settings.weight_decay,
                               .gradient_scale = how.gradient_scale});
        else if constexpr (std::is_same_v<Settings, model::Sgd>)
            kernels::sgd<T>(exec, used, masters, gradients, state(0),
                            {.learning_rate = how.learning_rate,
                             .momentum = settings.momentum,
                             .nesterov = settings.nesterov,
                             .weight_decay = settings.weight_decay,
                             .gradient_scale = how.gradient_scale});
        else if constexpr (std::is_same_v<Settings, model::Lion>)
            kernels::lion<T>(exec, used, masters, gradients, state(0),
                             {.learning_rate = how.learning_rate,
                              .beta1 = settings.beta1,
                              .beta2 = settings.beta2,
                              .weight_decay = settings.weight_decay,
                              .gradient_scale = how.gradient_scale});
        else if constexpr (std::is_same_v<Settings, model::LoadBalance>)
            kernels::load_balance<T>(exec, used, masters, gradients, settings.rate, settings.tolerance, settings.whole);
        else
            kernels::muon_step<T>(exec, used, masters, gradients, how.learning_rate, settings.weight_decay);
    }

    /// On a host such that a chunk of weights and moments stays in a cache; on a device such that launches cost little.
    static constexpr std::size_t longest_chunk = std::size_t{1} << (memory::runs_on_host<Exec> ? 15 : 22);

    Context<Exec> const* context_ = nullptr;
    std::size_t extent_ = 0;
    model::Optimizer settings_{};
    model::Precision precision_{};
    WeightRounding rounding_;
    OffloadedStates<Exec>* offloaded_ = nullptr; ///< null: the state is in memory
    std::size_t number_ = 0;                     ///< there
    bool has_states_ = false;                    ///< as model::state_names()
    std::vector<Kept> tensors_;                  ///< masters first, where they are kept
};

} // namespace pentad::zero
