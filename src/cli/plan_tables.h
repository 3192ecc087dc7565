#pragma once

#include <string>

#include "cli/plan_answers.h"

// The tables of a plan's text. Each is empty if there is nothing to show.
namespace capstan::cli {

inline constexpr double kGiB = 0x1p30;

// "0.22 s": three digits, and minutes from 100 seconds.
std::string about(double seconds);
// "74,000", "67.4": three digits are enough for an estimate.
std::string three_digits(double n);

// "50 GB/s for each GPU between them (as machines with h100-sxm usually have; …)"; empty of one.
std::string between_text(const Machines& machines, const Answers& answers);

// "zero1 tp2 pp4"; "-" of one rank.
std::string short_mesh(const TrainOptions& options);

std::string remedy_table(const Answers& answers);
std::string scaling_table(const Planned& planned, const Answers& answers);
std::string offer_table(const Answers& answers);

}  // namespace capstan::cli
