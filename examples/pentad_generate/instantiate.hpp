// The writer of an element, which the units make_*.cpp instantiate.
#pragma once

#include "writer.hpp"

#include <pentad/model/family.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/evaluator.hpp>
#include <pentad/train/import.hpp>

#include <optional>
#include <utility>

namespace pentad_generate {

template <class T>
class WriterOf final : public Writer {
    using Exec = Kokkos::DefaultExecutionSpace;

  public:
    explicit WriterOf(WriterSetup const& setup)
        : context_(setup.communicators),
          evaluator_(context_, pentad::model::stream_layout<T>(setup.settings.strategy.block), setup.settings,
                     setup.schedules) {}

    void import_weights(pentad::io::Checkpoint const& checkpoint,
                        std::vector<std::string> const& passed_over) override {
        pentad::train::import_weights<T>(context_, evaluator_.model(), evaluator_.store(),
                                         pentad::model::family_of(evaluator_.settings().model), checkpoint,
                                         passed_over);
    }
    void restore(pentad::checkpoint::Reader const& reader, pentad::train::RunPosition const& position) override {
        pentad::train::restore(evaluator_, reader, position);
    }
    void begin(std::size_t sequences, std::size_t length, std::size_t page, std::size_t pass_tokens) override {
        generator_.emplace(evaluator_.generator(sequences, length, page));
        scheduler_.emplace(*generator_, pass_tokens);
    }
    std::size_t submit(pentad::train::WritingRequest request) override {
        return scheduler_->submit(std::move(request));
    }
    void cancel(std::size_t request) override { scheduler_->cancel(request); }
    [[nodiscard]] bool is_idle() const override { return scheduler_->is_idle(); }
    std::vector<pentad::train::WrittenToken> step() override { return scheduler_->step(); }
    [[nodiscard]] std::size_t cache_bytes() const override { return generator_->bytes(); }

  private:
    pentad::Context<Exec> context_;
    pentad::train::Evaluator<T, Exec> evaluator_;
    std::optional<pentad::train::Generator<T, Exec>> generator_;
    std::optional<pentad::train::Scheduler<T, Exec>> scheduler_;
};

template <class T>
std::unique_ptr<Writer> make(WriterSetup const& setup) {
    return std::make_unique<WriterOf<T>>(setup);
}

} // namespace pentad_generate
