#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

// The file of an offline run of W&B, which `wandb sync` uploads (of wandb 0.16 to 0.31):
//
//   file     ":W&B" · u16 0xBEE1 · u8 0, then blocks of 32 KiB, counted from the file's beginning
//   chunk    u32 CRC-32 of type and data · u16 length · u8 type (1 whole, 2 first, 3 middle, 4 last
//            of a record) · data; little-endian. Where a block has no room for a chunk's 7 bytes: 0
//   record   a protocol buffer: 1 num · 2 history · 17 run · 18 exit · 21 header
namespace capstan {

std::string wandb_file_begin();
// Appends a record to `to`, which comes at this place of the file.
void put_wandb_record(std::string& to, int64_t place, std::string_view record);
// The offset after each record that the bytes of a file begin with. Throws Fault::file for bytes
// that are not whole records with the right checksums.
std::vector<int64_t> wandb_record_ends(std::string_view bytes, const std::string& where);

// `index` beside the file has a line "step end" for each row, so that a resumed run can go on after
// the row it resumes from. The first, "-1 end start", is of what comes before the rows.
struct WandbIndex {
  std::string text;        // its lines up to a step
  int64_t last_step = -1;  // of them
  int64_t end = 0;         // of the file, after that row
  double start = 0;        // of the run, in seconds since 1970
};
// Throws Fault::file for what is no index. Of a killed process, it may lack the end of a line.
WandbIndex read_wandb_index(const std::filesystem::path& file, int64_t last_step);

}  // namespace capstan
