// Long computations of the host thread, announced to whoever wants to work meanwhile: across a network,
// messages advance only while somebody calls MPI.
#pragma once

#include <pentad/observe/trace.hpp>

#include <string_view>

namespace pentad::observe {

/// Is told when the host thread begins a long computation, in which it neither communicates nor waits for anybody, and
/// when it ends.
class HostWorkListener {
  public:
    virtual void host_work_begins() = 0;
    virtual void host_work_ends() = 0;

  protected:
    ~HostWorkListener() = default;
};

/// The one listener of this process; null: none.
inline HostWorkListener*& host_work_listener() {
    static HostWorkListener* listener = nullptr;
    return listener;
}

/// A long computation of the host thread, as long as it lives.
class HostWork {
  public:
    explicit HostWork(std::string_view name) : scope_(name, "compute"), listener_(host_work_listener()) {
        if (listener_ != nullptr) listener_->host_work_begins();
    }
    HostWork(HostWork const&) = delete;
    HostWork& operator=(HostWork const&) = delete;
    ~HostWork() {
        if (listener_ != nullptr) listener_->host_work_ends();
    }

  private:
    Scope scope_;
    HostWorkListener* listener_;
};

} // namespace pentad::observe
