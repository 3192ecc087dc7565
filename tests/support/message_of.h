#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace capstan {

// The message of the Error that `body` must throw, with this fault.
template <class Body>
std::string message_of(Fault fault, const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), fault) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace capstan
