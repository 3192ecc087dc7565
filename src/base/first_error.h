#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

namespace capstan {

// Carries exceptions out of a parallel loop, whose body must not throw. Of several, it keeps the
// one with the smallest index, so the result does not depend on the number of threads.
class FirstError {
 public:
  template <class Body>
  void guard(int64_t index, const Body& body) {
    try {
      body();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (error_ && index_ < index) return;
      error_ = std::current_exception();
      index_ = index;
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  int64_t index_ = 0;
};

}  // namespace capstan
