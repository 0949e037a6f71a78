// A parameter: its name, its layout as it is stored, its layout as it is used, and therefore the layout
// of its gradient. Where it is used for different work the gradient is partial; nothing else decides what is
// synchronised.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layout/algebra.hpp>
#include <pentad/layout/random.hpp>
#include <pentad/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace pentad {

/// How the elements of a parameter start: all ones, or normal with mean 0.
struct Initialiser {
    double deviation = 0.02;
    bool ones = false;
};

/// Whoever holds the gradients of some parameters and waits until all of them are complete.
class GradientOwner {
  public:
    virtual void gradient_is_complete() = 0;

  protected:
    ~GradientOwner() = default;
};

namespace detail {
/// Element i of a shard, drawn by its global index; rows from `valid_rows` on (padding) are zero.
template <class T, std::size_t Rank>
struct DrawElement {
    T* data;
    std::array<std::size_t, Rank> global, local, first;
    std::size_t valid_rows;
    std::uint64_t seed, stream;
    double deviation;

    KOKKOS_FUNCTION void operator()(std::size_t i) const {
        std::size_t index = 0, stride = 1, rest = i, row = 0;
        for (std::size_t d = Rank; d-- > 0;) {
            std::size_t const coordinate = first[d] + rest % local[d];
            rest /= local[d];
            index += coordinate * stride;
            stride *= global[d];
            row = coordinate;
        }
        data[i] = static_cast<T>(row < valid_rows ? deviation * random::normal(seed, stream, index) : 0.0);
    }
};

template <class Stored>
consteval void require_storable() {
    if constexpr (!std::is_same_v<invariant_t<Stored>, Stored>)
        refuse<Text() << "pentad: a parameter is stored sharded or invariant: not " << layout_text<Stored>.view()>();
}
} // namespace detail

/// A parameter of a layer. `Stored` is how it lies on the mesh, invariant over every axis that does not shard it;
/// `Used` is used_t<Stored, activations...>. The memory of the value and of the gradient belongs to a sharder (zero/).
template <class Stored, class Used, class Exec>
class Parameter {
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
    Parameter(Context<Exec> const& context, std::string name, extents_type const& global, Initialiser initialiser = {},
              std::size_t valid_rows = 0)
        : name_(std::move(name)), initialiser_(initialiser), valid_rows_(valid_rows == 0 ? global[0] : valid_rows),
          value_(context, global, {}, nullptr), gradient_(context, global, {}, nullptr) {}

    [[nodiscard]] std::string const& name() const { return name_; }
    [[nodiscard]] value_type const& value() const { return value_; }
    [[nodiscard]] gradient_type const& gradient() const { return gradient_; }
    [[nodiscard]] std::size_t valid_rows() const { return valid_rows_; }
    [[nodiscard]] bool exists() const { return !name_.empty(); }
    /// How many layers here use it: its gradient is complete when each has said so.
    [[nodiscard]] std::size_t users() const { return users_; }
    void set_users(std::size_t users) { users_ = users; }
    /// Matrices are subject to weight decay, vectors (norm weights) are not.
    static constexpr bool decays = Stored::rank > 1;

    /// Tells the parameter where its value and gradient live, and whose they are.
    void place(element* value, accumulator* gradient, GradientOwner* owner = nullptr) {
        auto const& context = value_.context();
        auto const global = value_.extents();
        value_ = value_type(context, global, {}, value);
        gradient_ = gradient_type(context, global, {}, gradient);
        owner_ = owner;
    }
    /// One of its users adds nothing more to the gradient before an update.
    void complete_gradient() const {
        if (owner_ != nullptr) owner_->gradient_is_complete();
    }
    /// Draws this rank's shard in accumulators, into `data`: the same global tensor on every mesh.
    void draw(std::uint64_t seed, accumulator* data) const {
        auto const& context = value_.context();
        if (initialiser_.ones) {
            kernels::fill<accumulator, Exec>(context.exec(), View<accumulator, 1, Exec>(data, value_.size()),
                                             accumulator(1));
            return;
        }
        detail::DrawElement<accumulator, Stored::rank> drawn{
            data, value_.extents(),      value_.local(),        {}, valid_rows_,
            seed, random::stream(name_), initialiser_.deviation};
        for (std::size_t d = 0; d < Stored::rank; ++d)
            drawn.first[d] = context.communicators().shard_index(Stored::value.dimensions[d].axes) * drawn.local[d];
        Kokkos::parallel_for("pentad::draw", Kokkos::RangePolicy<Exec>(context.exec(), 0, value_.size()), drawn);
    }

  private:
    std::string name_;
    Initialiser initialiser_;
    std::size_t valid_rows_ = 0;
    value_type value_;
    gradient_type gradient_;
    GradientOwner* owner_ = nullptr;
    std::size_t users_ = 1;
};

} // namespace pentad
