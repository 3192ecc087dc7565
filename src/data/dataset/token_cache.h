#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/samples.h"

// Tokenized samples on disk, so that the next run need not tokenize.
//
// One file KEY.tokens, little endian, written once and then read whole:
//
//   offset  bytes
//        0      8  "CAPTOKEN"
//        8      4  version, 1
//       12      4  0x01020304: byte order
//       16     64  the key, in hexadecimal
//       80     32  number of samples S, of tokens T, of spans P: int64 each; 8 zeros
//      112     64  SHA-256 of all bytes from 256 on, in hexadecimal
//      176     64  SHA-256 of bytes 0 … 175, in hexadecimal
//      240     16  zeros
//      256         token_begin (S + 1 int64), span_begin (S + 1 int64), origins (S SampleOrigin),
//                  tokens (T int32), spans (P TargetSpan); each array is padded with zeros to a
//                  multiple of 64 bytes
//
// Does not contain the names of source files: they may be elsewhere next time.
namespace capstan {

// Everything that the tokens depend on. Runs with equal keys get the same samples.
struct TokenCacheKey {
  std::string contents = {};   // SHA-256 of the source file(s)
  std::string tokenizer = {};  // its fingerprint
  std::string rendering = {};  // texts of the template or style, names of fields
  bool mask_prompt = false;
  int64_t max_seq_length = 0;  // 0 if samples do not depend on it

  std::string hex() const;  // SHA-256 of all of it and the format version
};

// $CAPSTAN_CACHE, else $XDG_CACHE_HOME/capstan/tokens, else ~/.cache/capstan/tokens; empty if none
// of the variables is set.
std::filesystem::path token_cache_folder();

// The samples stored under this key, in memory: later changes of the file do not affect them. Null
// if there are none. A damaged or foreign file, or one of another version, counts as none, with a
// warning. `files` are the names that the origins refer to.
std::shared_ptr<const Samples> read_token_cache(const std::filesystem::path& folder,
                                                const TokenCacheKey& key,
                                                std::vector<std::string> files);
// Creates the folder. A folder that is not writable is not an error: warns once per run and returns
// false.
bool write_token_cache(const std::filesystem::path& folder, const TokenCacheKey& key,
                       const Samples& samples);

}  // namespace capstan
