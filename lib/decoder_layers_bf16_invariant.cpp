#include <pentad/train/planned.hpp>

namespace pentad {

using Stream = InvariantStream<bf16>;
using Exec = Kokkos::DefaultExecutionSpace;

template LayerRegistry<Stream, Exec> train::decoder_layers();
template LayerRegistry<Stream, Exec> train::planned_layers();
template class train::LanguageModel<Stream, Exec>;
template planner::PartAccounts train::dry_parts(model::Model const&, LayerRegistry<Stream, Exec> const&,
                                                std::vector<std::size_t> const&, planner::PartShape const&);

} // namespace pentad
