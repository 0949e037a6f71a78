// A model to be planned: its description, and what its parts do on a rank. The planner knows nothing else of it.
#pragma once

#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/planner/detail/pass.hpp>
#include <pentad/planner/hardware.hpp>
#include <pentad/strategy/strategy.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad::planner {

/// All that the account of a part depends on.
struct PartShape {
    std::int64_t cp = 1, tp = 1;
    std::int64_t ep = 1, etp = 1;          ///< of experts
    std::int64_t nodes = 1;                ///< that the ranks of ep lie on, where dispatch goes by node
    std::int64_t micro_batch = 1, seq = 1; ///< sequences, and tokens of each
    std::int64_t padding = 0;              ///< of which so many are padding
    model::BlockStrategy block{};          ///< row_parts is as by default
    model::BlockStrategy before{};         ///< of what hands it the stream: as `block` but for the stream's layout
    model::BlockRecomputation recompute{}; ///< of each block. With any, blocks alone are run
    Element element = Element::bf16;
    Compact rows = Compact::none;    ///< as of a model::Precision
    double imbalance = 1;            ///< of experts: rows of the fullest rank over the mean
    bool leaves_out_experts = false; ///< blocks are run without their branches on the axes of experts

    /// All that the account of a part depends on that has nothing to do with experts.
    [[nodiscard]] PartShape without_experts() const {
        auto shape = *this;
        shape.ep = shape.etp = shape.nodes = 1;
        shape.rows = Compact::none;
        shape.imbalance = 1;
        return shape;
    }
    /// With attention in a ring.
    [[nodiscard]] PartShape in_a_ring() const {
        auto shape = *this;
        shape.block.use({});
        shape.before.use({});
        return shape;
    }
    /// The shape of a part that lies as `own`, where what hands it the stream lies as `from`.
    [[nodiscard]] PartShape laid(model::BlockStrategy const& own, model::BlockStrategy const& from) const {
        auto shape = *this;
        shape.block = own;
        shape.block.row_parts = model::BlockStrategy{}.row_parts; // nothing of it is planned
        shape.before = shape.block;
        shape.before.sequence_parallel = from.sequence_parallel;
        return shape;
    }

    friend auto operator<=>(PartShape const&, PartShape const&) = default;
    friend bool operator==(PartShape const&, PartShape const&) = default;
};

/// The parts of a model, added up.
struct Parts : PerPart<PartSums const*> {
    using PerPart::PerPart;
    double stream = 0; ///< bytes of the residual stream on a rank
};

/// Rows that a rank sends to others for one of its tokens in one dispatch.
struct SentRowsOfToken {
    double across = 0; ///< to other nodes, where a token goes once to each
    double inside = 0; ///< to other ranks of its node; in one exchange, of all of ep
    double held = 0;   ///< on ranks with experts of its, this rank among them: these are gathered over etp
};

/// The source of the work of parts.
enum class PartsFrom : unsigned char {
    runs, ///< dry runs of them
    /// Sums of fewer dry runs: the way in which attention goes over cp adds as much on every mesh of experts. The bytes
    /// that passes need for a while are not known, and what only the whole would refuse is not refused.
    sums,
    runs_beside_experts, ///< dry runs without the branches on the axes of experts, on whichever of their meshes
};

/// A model that train/planned.hpp makes. Copies share what they have found out.
class Model {
  public:
    /// Runs parts of the model dry. @throws std::invalid_argument where they cannot be laid out so
    /// @param wanted which parts @param has_matrices whether the parameters' matrices are accounted for, which takes a
    /// dry run of its own for each
    using DryRunner = std::function<PartAccounts(PartShape const&, PerPart<bool> const& wanted, bool has_matrices)>;

    std::string name = {};
    double imbalance = 1; ///< of experts: rows of the fullest rank over the mean
    /// Rows that were counted in a run; none: as even routing has them.
    std::optional<SentRowsOfToken> sent = std::nullopt;

    Model() = default;
    /// @param kinds the kind of each block: those of one kind are alike
    Model(std::string title, model::Model description, std::vector<std::size_t> kinds, DryRunner runner)
        : name(std::move(title)),
          known_(std::make_shared<Known>(std::move(description), std::move(kinds), std::move(runner))) {
        auto const is_on_expert_axes = [&](std::size_t block) {
            auto const& branches = this->description().block(block).branches;
            return std::any_of(branches.begin(), branches.end(),
                               [](auto const& branch) { return branch.part.is_on_expert_axes(); });
        };
        for (auto const kind : known_->kinds) count_ = std::max(count_, kind + 1);
        auto& on_expert_axes = known_->on_expert_axes = PerPart<bool>(count_, false);
        for (std::size_t i = 0; i < this->description().block_count(); ++i) {
            bool const is_predictor = i >= known_->kinds.size(); // a part of the head
            if (is_on_expert_axes(i))
                (is_predictor ? on_expert_axes.head() : on_expert_axes.block(known_->kinds[i])) = true;
        }
    }

    [[nodiscard]] model::Model const& description() const { return known_->description; }
    [[nodiscard]] std::int64_t layers() const { return static_cast<std::int64_t>(known_->kinds.size()); }
    /// How many kinds of blocks there are, and of which one is.
    [[nodiscard]] std::size_t kinds() const { return count_; }
    [[nodiscard]] std::size_t kind_of(std::int64_t layer) const {
        return known_->kinds[static_cast<std::size_t>(layer)];
    }
    /// The experts of the first block that has any, or null.
    [[nodiscard]] model::Experts const* experts() const { return known_->description.first<model::Experts>(); }

    /// The parts, found once for each shape; of blocks that recompute anything there are these alone.
    /// @throws std::invalid_argument where they cannot be laid out so
    [[nodiscard]] Parts const& parts(PartShape shape, PartsFrom from = PartsFrom::runs) const;
    [[nodiscard]] Parts const& parts(Strategy const& c, std::int64_t nodes) const { return parts(shape(c, nodes)); }
    /// Why they cannot be laid out so; empty where they can.
    [[nodiscard]] std::string const& why_not(Strategy const& c) const { return look_up(shape(c, 1)).why_not; }
    /// Whether their sums are known.
    [[nodiscard]] bool has_sums(Strategy const& c) const { return look_up_sums(shape(c, 1)).why_not.empty(); }
    /// All that the account of a part depends on that lies on its ranks as the model's ends.
    /// @param nodes to which dispatch takes a token once each: dispatch_nodes()
    [[nodiscard]] PartShape shape(Strategy const& c, std::int64_t nodes) const;
    /// All that was recorded. @throws std::invalid_argument where they cannot be laid out so
    [[nodiscard]] PartAccounts accounts(PartShape const& shape) const {
        return known_->runner(shape, PerPart<bool>(count_, true), false);
    }
    [[nodiscard]] PartAccounts accounts(Strategy const& c, std::int64_t nodes) const {
        return accounts(shape(c, nodes));
    }

  private:
    using ParameterList = std::shared_ptr<std::vector<ParameterAccount> const>;
    /// Parts that were run together.
    struct Run {
        PerPart<PartSums> parts;
        double stream = 0;
        std::string why_not;
    };
    struct Entry {
        Parts parts;
        std::string why_not;
    };
    struct Known {
        Known(model::Model d, std::vector<std::size_t> k, DryRunner r)
            : description(std::move(d)), kinds(std::move(k)), runner(std::move(r)) {}
        model::Model description;
        std::vector<std::size_t> kinds;
        PerPart<bool> on_expert_axes; ///< the others are run once for all meshes of experts
        DryRunner runner;
        std::map<PartShape, Entry> entries, sums;
        std::deque<PartSums> added;                     ///< those of `sums` that no dry run has
        std::map<std::pair<bool, PartShape>, Run> runs; ///< of the parts that are on the axes of experts, or are not
        /// They depend on little: the same lists serve many shapes.
        std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, model::TensorKind, bool, model::AttentionOutput,
                            Element, bool>,
                 PerPart<ParameterList>>
            parameters;
    };

    [[nodiscard]] Entry const& look_up(PartShape const& shape) const;
    [[nodiscard]] Entry const& look_up_sums(PartShape const& shape) const;
    [[nodiscard]] Run const& run(bool on_expert_axes, PartShape const& shape) const;

    std::shared_ptr<Known> known_;
    std::size_t count_ = 0;
};

/// Parameters of the model, each counted once; and those that a token meets: of routed experts its top_k, all of the
/// embedding and the head, as the models' cards count.
struct ParameterCount {
    double total = 0, active = 0;
};
[[nodiscard]] ParameterCount parameters(Model const& model);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/model.hpp>
#endif
