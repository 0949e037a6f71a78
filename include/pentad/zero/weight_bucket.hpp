// The weights of a bucket of parameters that are synchronised alike, flat and in one piece: in the layout in which they
// are stored, and gathered for their uses where that shards them.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/zero/layouts.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::zero {

template <class T, class Exec>
class WeightBucket {
  public:
    using A = accumulator_t<T>;

    /// Collective over the ranks of its plans.
    /// @param keeps_exact whether the values are read in accumulators too (AnyParameter::exact_value)
    /// @param keeps_gathered whether gathered values are kept until drop_values()
    WeightBucket(Context<Exec> const& context, BucketLayouts layouts, bool keeps_exact, bool keeps_gathered)
        : context_(&context), layouts_(std::move(layouts)), keeps_exact_(keeps_exact && !std::is_same_v<T, A>),
          keeps_gathered_(keeps_gathered) {
        pentad::detail::prepare(context, layouts_.gathering);
    }
    WeightBucket(WeightBucket const&) = delete;
    WeightBucket& operator=(WeightBucket const&) = delete;

    void add(AnyParameter<T, Exec>* parameter) {
        pieces_.push_back({parameter, 0});
        size_ += parameter->size();
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// To be called when it has all of its parameters. @param versions of the weights that are kept, the newest
    /// included
    void allocate_values(std::size_t versions) {
        std::stable_partition(pieces_.begin(), pieces_.end(), [](Piece const& x) { return x.parameter->decays(); });
        std::size_t offset = 0;
        for (auto& piece : pieces_) piece.offset = std::exchange(offset, offset + piece.parameter->size());
        extent_ = (size_ + shards(layouts_.state) - 1) / shards(layouts_.state) * shards(layouts_.state);
        stored_ = range(layouts_.stored);
        for (std::size_t i = 0; i < versions; ++i)
            versions_.emplace_back(*context_, std::array{stored_.extent}, observe::Memory::parameters);
        for (std::size_t i = 0; keeps_exact_ && i < versions; ++i)
            exact_.emplace_back(*context_, std::array{extent_}, observe::Memory::parameters);
        use_version(0);
    }

    /// What computes next sees the weights as they were after a number of updates: one of the versions that are kept.
    void use_version(std::size_t updates) {
        if (!exact_.empty())
            for (auto const& piece : pieces_)
                piece.parameter->place_exact_value(exact_[updates % exact_.size()].data() + piece.offset);
        if (!gathers_values())
            place_values(versions_[updates % versions_.size()].data());
        else if (updates != seen_)
            drop_values();
        seen_ = updates;
    }
    void prefetch_values() {
        if (!gathers_values() || !whole_.empty()) return;
        whole_ = Tensor<Whole<T>, Exec>(*context_, {extent_}, observe::Memory::parameters);
        auto const shard = pentad::detail::shard_of(versions_[seen_ % versions_.size()]);
        gather_.emplace(*context_, layouts_.gathering, shard, whole_.flat());
    }
    void acquire_values() {
        if (!gathers_values()) return;
        ++uses_;
        prefetch_values();
        if (!gather_) return;
        gather_->wait();
        gather_.reset();
        place_values(whole_.data());
    }
    void release_values() {
        if (gathers_values() && --uses_ == 0 && !keeps_gathered_) drop_values();
    }
    /// Forgets gathered values.
    void drop_values() {
        if (whole_.empty()) return;
        if (gather_) gather_->wait();
        gather_.reset();
        whole_ = {};
        place_values(nullptr);
    }
    [[nodiscard]] std::size_t updates() const { return updates_; }

    /// The newest value of a parameter becomes `value`, of its whole shard.
    void set_value(AnyParameter<T, Exec> const& parameter, View<A const, 1, Exec> const& value) {
        auto const piece = std::find_if(pieces_.begin(), pieces_.end(),
                                        [&](Piece const& candidate) { return candidate.parameter == &parameter; });
        std::size_t const begin = std::max(piece->offset, stored_.first),
                          end = std::min(piece->offset + parameter.size(), stored_.first + stored_.extent);
        if (begin < end)
            kernels::convert<A, T>(context_->exec(),
                                   View<A const, 1, Exec>(value.data() + (begin - piece->offset), end - begin),
                                   View<T, 1, Exec>(newest().data() + (begin - stored_.first), end - begin));
        if (!exact_.empty())
            memory::copy(context_->exec(), exact_[updates_ % exact_.size()].data() + piece->offset, value.data(),
                         parameter.size() * sizeof(A));
        drop_values();
    }

  protected:
    struct Piece {
        AnyParameter<T, Exec>* parameter;
        std::size_t offset;
    };
    /// A range of the elements of the bucket.
    struct Range {
        std::size_t first = 0, extent = 0;
    };

    [[nodiscard]] std::size_t shards(LayoutValue const& layout) const {
        std::size_t product = 1;
        for (auto const axis : layout.dimensions[0].axes)
            product *= static_cast<std::size_t>(context_->communicators().extent(axis));
        return product;
    }
    /// This rank's.
    [[nodiscard]] Range range(LayoutValue const& layout) const {
        std::size_t const extent = extent_ / shards(layout);
        return {extent * context_->communicators().shard_index(layout.dimensions[0].axes), extent};
    }
    [[nodiscard]] bool gathers_values() const { return stored_.extent < extent_; }
    void place_values(T* whole) {
        for (auto const& piece : pieces_)
            piece.parameter->place_value(whole == nullptr ? nullptr : whole + piece.offset);
    }
    [[nodiscard]] Tensor<Whole<T>, Exec> const& newest() const { return versions_[updates_ % versions_.size()]; }

    Context<Exec> const* context_;
    BucketLayouts layouts_;
    std::vector<Piece> pieces_;                    ///< those subject to weight decay first
    std::size_t size_ = 0, extent_ = 0;            ///< of the elements; with padding
    Range stored_;                                 ///< this rank's
    std::size_t updates_ = 0, seen_ = 0;           ///< of the weights; of those that are computed with
    std::vector<Tensor<Whole<T>, Exec>> versions_; ///< after i updates of the weights, number i mod their count
    std::vector<Tensor<Whole<A>, Exec>> exact_;    ///< in accumulators, of parameters that are read so

  private:
    bool keeps_exact_, keeps_gathered_;
    Tensor<Whole<T>, Exec> whole_; ///< gathered
    std::size_t uses_ = 0;         ///< of it
    std::optional<pentad::detail::StartedPlanInto<T, Exec>> gather_;
};

} // namespace pentad::zero
