// The meshes of blocks that see the ranks of their stage in a way of their own.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/mesh/value_mesh.hpp>
#include <pentad/model/block_mesh.hpp>
#include <pentad/model/block_strategy.hpp>
#include <pentad/model/model.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/tensor/context.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace pentad::train {

template <class Exec>
class BlockMeshes {
  public:
    /// Collective over all ranks.
    BlockMeshes(Context<Exec> const& context, model::Model const& model,
                std::vector<model::BlockStrategy> const& blocks)
        : context_(&context) {
        auto& communicators = context.communicators();
        for (auto const& block : blocks)
            if (block.mesh && find(block) == nullptr)
                made_.push_back(std::make_unique<Made>(block, model::mesh_of_block(communicators.mesh(), model, block),
                                                       communicators));
    }
    /// Where a block of the list is.
    [[nodiscard]] Context<Exec> const& of(model::BlockStrategy const& block) const {
        return block.mesh ? find(block)->context : *context_;
    }

  private:
    struct Made {
        model::BlockStrategy like;
        std::unique_ptr<comm::Communicators> communicators;
        Context<Exec> context;

        Made(model::BlockStrategy const& block, ValueMesh const& mesh, comm::Communicators& known)
            : like(block), communicators(made(mesh, known)), context(*communicators) {}
        static std::unique_ptr<comm::Communicators> made(ValueMesh const& mesh, comm::Communicators& known) {
            if (observe::dry_run() != nullptr) return std::make_unique<comm::Communicators>(mesh, known);
            return std::make_unique<comm::Communicators>(known.world().handle(), mesh, known.ledger());
        }
    };
    [[nodiscard]] Made const* find(model::BlockStrategy const& block) const {
        auto const found = std::find_if(made_.begin(), made_.end(),
                                        [&](auto const& made) { return model::are_on_one_mesh(made->like, block); });
        return found == made_.end() ? nullptr : found->get();
    }

    Context<Exec> const* context_;
    std::vector<std::unique_ptr<Made>> made_;
};

} // namespace pentad::train
