// A parameter: its name, its layout as it is stored, its layout as it is used, and therefore the layout
// of its gradient. Where it is used for different work the gradient is partial; nothing else decides what is
// synchronised.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/stack_order.hpp>
#include <pentad/layout/algebra.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/random/philox.hpp>
#include <pentad/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace pentad {

/// What the elements of a parameter start as.
enum class InitialValues {
    normal, ///< with mean 0
    ones,
    log_of_number, ///< the i-th is log(i): log rates of Mamba-2, whose rates are 1, 2, ... (Dao and Gu 2024)
    step_bias ///< x whose softplus, a step of time, is log-uniform from 0.001 to 0.1 (Gu and Dao 2023, section 3.6)
};
struct Initialiser {
    double deviation = 0.02; ///< 0: zeros
    InitialValues values = InitialValues::normal;
};

namespace detail {
/// Element i of a shard, drawn by its global index; rows from `valid_rows` on (padding) are zero.
template <class T>
struct DrawElement {
    T* data;
    std::array<std::size_t, max_dimensions> global, local, first;
    std::size_t rank, valid_rows;
    std::uint64_t seed, stream;
    Initialiser initialiser;

    KOKKOS_FUNCTION void operator()(std::size_t i) const {
        std::size_t index = 0, stride = 1, rest = i, row = 0;
        for (std::size_t d = rank; d-- > 0;) {
            std::size_t const coordinate = first[d] + rest % local[d];
            rest /= local[d];
            index += coordinate * stride;
            stride *= global[d];
            row = coordinate;
        }
        data[i] = static_cast<T>(row < valid_rows ? value(index) : 0.0);
    }

  private:
    [[nodiscard]] KOKKOS_FUNCTION double value(std::size_t index) const {
        switch (initialiser.values) {
        case InitialValues::ones:
            return 1;
        case InitialValues::log_of_number:
            return Kokkos::log(static_cast<double>(index + 1));
        case InitialValues::step_bias: {
            double const step = 1e-3 * Kokkos::pow(100.0, random::uniform(seed, stream, index));
            return step + Kokkos::log(-Kokkos::expm1(-step));
        }
        default:
            return initialiser.deviation * random::normal(seed, stream, index);
        }
    }
};
template <class A, class Exec>
void draw_elements(Exec const& exec, std::size_t elements, DrawElement<A> const& draw) {
    Kokkos::parallel_for("pentad::draw", Kokkos::RangePolicy<Exec>(exec, 0, elements), draw);
}
PENTAD_KERNEL_OF_ACCUMULATORS(draw_elements)

template <class Stored>
consteval void require_storable() {
    if constexpr (!std::is_same_v<invariant_t<Stored>, Stored>)
        refuse<Text() << "pentad: a parameter is stored sharded or invariant: not " << layout_text<Stored>.view()>();
    if constexpr (Stored::value.is_uneven())
        refuse<Text() << "pentad: the blocks of a parameter are equal, and those of " << layout_text<Stored>.view()
                      << " may be uneven">();
}
} // namespace detail

/// How the dimensions of a linear map's weight make matrices [out, in].
struct MatrixDimensions {
    std::size_t stacked = 0; ///< the first dimensions, which number the matrices: one of experts
    std::size_t rows = 0;    ///< the dimensions after them, which are the rows; the rest are the columns. 0: no matrix
};

/// Rows of a published tensor that a parameter is, where that is of several parameters, one after the other.
struct PublishedRows {
    std::string tensor;
    std::size_t first = 0, count = 0; ///< the parameter's first, and how many the tensor has
};

/// A parameter with elements T, whatever its layouts: what whoever holds, draws, updates or writes it sees. The memory
/// of the value and of the gradient belongs to a sharder (zero/).
template <class T, class Exec>
class AnyParameter {
  public:
    using element = T;
    using accumulator = accumulator_t<T>;
    virtual ~AnyParameter() = default;

    [[nodiscard]] Context<Exec> const& context() const { return *context_; }
    [[nodiscard]] std::string const& name() const { return name_; }
    [[nodiscard]] bool exists() const { return !name_.empty(); }
    /// How it lies on the mesh: invariant over every axis that does not shard it.
    [[nodiscard]] LayoutValue const& stored_layout() const { return *stored_; }
    /// The axes over which its gradient is partial, since it is used as replicated over them.
    [[nodiscard]] AxisNames const& synchronised_axes() const { return *synchronised_; }
    /// The global extents, of which the first stored_layout().rank count, and those of this rank's shard.
    [[nodiscard]] std::array<std::size_t, max_dimensions> const& global_extents() const { return global_; }
    [[nodiscard]] std::array<std::size_t, max_dimensions> const& local_extents() const { return local_; }
    /// Elements of this rank's shard.
    [[nodiscard]] std::size_t size() const { return size_; }
    /// Rows of the first dimension that exist; the rest is padding and stays zero.
    [[nodiscard]] std::size_t valid_rows() const { return valid_rows_; }
    /// Matrices are subject to weight decay, vectors (norm weights, biases) are not.
    [[nodiscard]] bool decays() const { return decays_; }
    /// Where it is the weight of a linear map, which some optimizers update as matrices; of embeddings, norms and
    /// biases there are no rows.
    [[nodiscard]] MatrixDimensions const& matrix_dimensions() const { return matrix_; }
    void set_matrix_dimensions(MatrixDimensions const& matrix) { matrix_ = matrix; }
    /// Where the first dimension is a stack of matrices that may change places: their order, else null.
    [[nodiscard]] StackOrder const* stack_order() const { return stack_order_; }
    void set_stack_order(StackOrder const* order) { stack_order_ = order; }
    /// The number of the matrix that index `place` of the first dimension, of all ranks, holds.
    [[nodiscard]] std::size_t matrix_at(std::size_t place) const {
        return stack_order_ == nullptr ? place : static_cast<std::size_t>(stack_order_->now()[place]);
    }

    /// Where it has an optimizer of its own, whatever the run's is: what it calls its gradient is what that works with,
    /// and is in no norm. Else nothing.
    [[nodiscard]] std::optional<model::Optimizer> const& own_optimizer() const { return own_optimizer_; }
    void set_own_optimizer(model::Optimizer const& optimizer) { own_optimizer_ = optimizer; }
    /// The value in accumulators, of a parameter with an optimizer of its own.
    [[nodiscard]] View<accumulator const, 1, Exec> exact_value() const {
        if constexpr (std::is_same_v<T, accumulator>)
            return View<accumulator const, 1, Exec>(value_data_, size_);
        else {
            if (exact_data_ == nullptr && observe::dry_run() == nullptr)
                throw std::logic_error(name_ + " has no value in accumulators");
            return View<accumulator const, 1, Exec>(exact_data_, size_);
        }
    }
    /// Where that is, if it is not the value itself.
    void place_exact_value(accumulator const* value) { exact_data_ = value; }

    /// Where it is part of a published tensor; else nothing. Parameters of one tensor follow each other in the order of
    /// their rows.
    [[nodiscard]] std::optional<PublishedRows> const& published_rows() const { return published_rows_; }
    void publish_as(PublishedRows rows) { published_rows_ = std::move(rows); }

    /// This rank's shards as lists of elements.
    [[nodiscard]] View<T, 1, Exec> flat_value() const { return View<T, 1, Exec>(value_data_, size_); }
    [[nodiscard]] View<accumulator, 1, Exec> flat_gradient() const {
        return View<accumulator, 1, Exec>(gradient_data_, size_);
    }
    /// This rank's shard of the value from the host and to it, row-major. Both wait.
    void set(T const* host) const { memory::copy_from_host(context_->exec(), value_data_, host, size_ * sizeof(T)); }
    void get(T* host) const { memory::copy_to_host(context_->exec(), host, value_data_, size_ * sizeof(T)); }
    /// Tell the parameter where its value and its gradient are; null: nowhere.
    virtual void place_value(T* value) { value_data_ = value; }
    virtual void place_gradient(accumulator* gradient) { gradient_data_ = gradient; }
    /// Draws this rank's shard in accumulators, into `data`: the same global tensor on every mesh.
    void draw(std::uint64_t seed, accumulator* data) const {
        auto const& exec = context_->exec();
        if (kernels::dry("draw", flat_gradient())) return;
        detail::DrawElement<accumulator> drawn{
            data, global_, local_, {}, stored_->rank, valid_rows_, seed, random::stream(name_), initialiser_};
        for (std::size_t d = 0; d < stored_->rank; ++d)
            drawn.first[d] = context_->communicators().shard_index(stored_->dimensions[d].axes) * drawn.local[d];
        detail::draw_elements<accumulator>(exec, size_, drawn);
    }

  protected:
    AnyParameter() = default;
    AnyParameter(AnyParameter const&) = default;
    AnyParameter(AnyParameter&&) = default;
    AnyParameter& operator=(AnyParameter const&) = default;
    AnyParameter& operator=(AnyParameter&&) = default;

    Context<Exec> const* context_ = nullptr;
    std::string name_;
    Initialiser initialiser_;
    LayoutValue const* stored_ = nullptr;
    AxisNames const* synchronised_ = nullptr;
    std::array<std::size_t, max_dimensions> global_{}, local_{};
    std::size_t size_ = 0, valid_rows_ = 0;
    bool decays_ = false;
    MatrixDimensions matrix_;
    StackOrder const* stack_order_ = nullptr;
    std::optional<PublishedRows> published_rows_;
    std::optional<model::Optimizer> own_optimizer_;

  private:
    T* value_data_ = nullptr;
    accumulator* gradient_data_ = nullptr;
    accumulator const* exact_data_ = nullptr;
};

/// A parameter of a layer. `Stored` is how it lies on the mesh, invariant over every axis that does not shard it;
/// `Used` is used_t<Stored, activations...>.
template <class Stored, class Used, class Exec>
class Parameter final : public AnyParameter<typename Stored::element, Exec> {
  public:
    using stored = Stored;
    using used = Used;
    using element = typename Stored::element;
    using accumulator = accumulator_t<element>;
    /// Gradients are accumulated in f32 or better; they are partial where the parameter is used as replicated.
    using gradient_layout = with_element_t<dual_t<Used>, accumulator>;
    using value_type = Tensor<Stored, Exec>;
    using gradient_type = Tensor<gradient_layout, Exec>;
    using extents_type = typename value_type::extents_type;
    static_assert((detail::require_storable<Stored>(), true));

    Parameter() = default;
    /// @param name the published name; a "{}" in it stands for the number of the expert (the first dimension)
    /// @param valid_rows rows of the first dimension that exist; the rest is padding and stays zero (0: all exist)
    /// @param decays whether it is subject to weight decay
    Parameter(Context<Exec> const& context, std::string name, extents_type const& global, Initialiser initialiser = {},
              std::size_t valid_rows = 0, bool decays = Stored::rank > 1)
        : value_(value_type::without_memory(context, global)),
          gradient_(gradient_type::without_memory(context, global)) {
        this->context_ = &context;
        this->name_ = std::move(name);
        this->initialiser_ = initialiser;
        this->stored_ = &Stored::value;
        this->synchronised_ = &Used::value.replicated;
        for (std::size_t d = 0; d < Stored::rank; ++d) {
            this->global_[d] = global[d];
            this->local_[d] = value_.local()[d];
        }
        this->size_ = value_.size();
        this->valid_rows_ = valid_rows == 0 ? global[0] : valid_rows;
        this->decays_ = decays;
    }

    [[nodiscard]] value_type const& value() const { return value_; }
    [[nodiscard]] gradient_type const& gradient() const { return gradient_; }

    void place_value(element* value) override {
        AnyParameter<element, Exec>::place_value(value);
        value_ = value_type::unchecked(value_.context(), value_.extents(), {}, value);
    }
    void place_gradient(accumulator* gradient) override {
        AnyParameter<element, Exec>::place_gradient(gradient);
        gradient_ = gradient_type::unchecked(gradient_.context(), gradient_.extents(), {}, gradient);
    }

  private:
    value_type value_;
    gradient_type gradient_;
};

} // namespace pentad
