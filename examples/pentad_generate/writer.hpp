// A model that writes, behind an interface without element types: each unit make_*.cpp instantiates one.
#pragma once

#include <pentad/checkpoint/reader.hpp>
#include <pentad/comm/communicator.hpp>
#include <pentad/io/checkpoint.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/train/scheduler.hpp>
#include <pentad/train/schedules.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pentad_generate {

class Writer {
  public:
    virtual ~Writer() = default;
    /// Weights to write by. Collective; each rank reads its part.
    virtual void import_weights(pentad::io::Checkpoint const& checkpoint,
                                std::vector<std::string> const& passed_over) = 0;
    virtual void restore(pentad::checkpoint::Reader const& reader, pentad::train::RunPosition const& position) = 0;
    /// Makes room for sequences. @throws std::invalid_argument where the model cannot write
    virtual void begin(std::size_t sequences, std::size_t length, std::size_t page, std::size_t pass_tokens) = 0;

    // What its scheduler does.
    virtual std::size_t submit(pentad::train::WritingRequest request) = 0;
    virtual void cancel(std::size_t request) = 0;
    [[nodiscard]] virtual bool is_idle() const = 0;
    virtual std::vector<pentad::train::WrittenToken> step() = 0;
    /// Bytes of what is kept of the sequences on this rank.
    [[nodiscard]] virtual std::size_t cache_bytes() const = 0;
};

struct WriterSetup {
    pentad::comm::Communicators& communicators;
    pentad::train::RunSettings settings;
    pentad::train::ProvenSchedules schedules;
};

/// A writer of the element T: f64, f32 or bf16.
template <class T>
std::unique_ptr<Writer> make(WriterSetup const& setup);

} // namespace pentad_generate
