#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "base/error.h"

namespace capstan {

// Runs `body`, which must throw an Error of this fault whose message holds each of `parts`.
template <class Body>
void expect_error(Fault fault, std::initializer_list<std::string> parts, const Body& body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), fault) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" is not in: " << error.what();
  }
}

}  // namespace capstan
