// What tests of whole training steps share.
#pragma once

#include <pentad/pipeline/generators.hpp>
#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace support {

/// Bytes below 40, none twice in a row: data for a vocabulary of 40 or more.
inline std::string varied_text() {
    std::string text;
    for (int i = 0; i < 997; ++i) text += static_cast<char>((i * i / 3 + 7 * i) % 39 + 1);
    return text;
}

/// A trainer on a mesh, and the text that it reads.
template <class Stream>
struct Training {
    std::string text;
    io::TextData data;
    train::Trainer<Stream, Exec> trainer;

    /// By 1F1B.
    Training(OnMesh const& mesh, train::RunSettings const& settings, std::string bytes = varied_text())
        : Training(mesh, settings,
                   pipeline::generate("1f1b", {.ranks = mesh.context.communicators().extent("pp"),
                                               .micro_batches = static_cast<int>(settings.micro_batches)}),
                   std::move(bytes)) {}
    Training(OnMesh const& mesh, train::RunSettings const& settings, pipeline::Schedule schedule,
             std::string bytes = varied_text())
        : text(std::move(bytes)), data(text, "the text", static_cast<std::int64_t>(settings.seq), settings.seed),
          trainer(mesh.context, settings, train::ProvenSchedules(std::move(schedule)), data) {}
};

} // namespace support
