#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace capstan::cli {

// An exception that ends the program.
struct Failure {
  int exit_code = 1;
  // With its first word: "error: ", "bug in capstan: ", "interrupted …"; empty: nothing is told.
  std::string message;
  std::string what;          // without it
  bool consequence = false;  // of another rank's failure
};
Failure failure_of(std::exception_ptr error);

// Prints it on stderr, with the lines after the first indented.
void tell(const Failure& failure, std::string_view who = "");

}  // namespace capstan::cli
