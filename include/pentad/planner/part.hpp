// What a rank does for a micro-batch in a part of a model, as a dry run of the part records it
// (train/part_account.hpp): what it computes, reads, writes and sends in each pass, which parameters it has, and what
// it keeps between the passes.
#pragma once

#include <pentad/layout/cost.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/observe/dry_run.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pentad::planner {

/// The matrices that a parameter is made of, and what it takes to work on them whole (zero/matrices.hpp).
struct MatrixAccount {
    std::size_t count = 0; ///< of this rank, whole or a shard of each; 0: the parameter is none
    model::MatrixShape shape{};
    AxisNames axes{};     ///< those that shard rows or columns
    Cost sent{};          ///< bytes that bring the matrices together along these axes, and the results back
    double workspace = 0; ///< bytes, beside the shards
};

/// A parameter as a rank holds it.
struct ParameterAccount {
    std::string name;
    double elements = 0;         ///< of this rank
    AxisNames sharded, gradient; ///< the axes that shard it; those over which its gradient is partial
    int unit = 0;                ///< of the part: parameters that are needed together
    int acquired = 0;            ///< times that a micro-batch needs its values
    MatrixAccount matrices{};
    std::optional<model::Optimizer> own_optimizer{}; ///< whatever the run's is
};

/// One pass of a micro-batch.
struct PassAccount {
    std::vector<observe::Work> work;
    double peak = 0; ///< bytes of activations while it runs, over those before it
};

struct PartAccount {
    PassAccount forward, backward_data, backward_weight;
    double saved = 0; ///< bytes between forward and backward, without what passes between stages
    double left = 0;  ///< of them and of what backward_data adds, before backward_weight
    std::vector<ParameterAccount> parameters;
    observe::DecodingState state; ///< of a sequence that is being written
};

/// A value for each part that the stages of a model are built from: the embedding, the head, and a block of each kind.
template <class T>
class PerPart {
  public:
    explicit PerPart(std::size_t kinds = 0, T const& value = {}) : values_(2 + kinds, value) {}

    [[nodiscard]] decltype(auto) embedding() { return values_[0]; }
    [[nodiscard]] decltype(auto) embedding() const { return values_[0]; }
    [[nodiscard]] decltype(auto) head() { return values_[1]; }
    [[nodiscard]] decltype(auto) head() const { return values_[1]; }
    [[nodiscard]] decltype(auto) block(std::size_t kind) { return values_[2 + kind]; }
    [[nodiscard]] decltype(auto) block(std::size_t kind) const { return values_[2 + kind]; }
    /// All of them, in this order.
    [[nodiscard]] std::size_t size() const { return values_.size(); }
    [[nodiscard]] decltype(auto) operator[](std::size_t i) { return values_[i]; }
    [[nodiscard]] decltype(auto) operator[](std::size_t i) const { return values_[i]; }
    [[nodiscard]] bool is_end(std::size_t i) const { return i < 2; }

  private:
    std::vector<T> values_;
};

/// What a dry run recorded; a part that was not run has an empty account.
struct PartAccounts : PerPart<PartAccount> {
    using PerPart::PerPart;
    double stream = 0; ///< bytes of the residual stream on a rank
};

} // namespace pentad::planner
