#include "data/data_source.h"

#include <chrono>

#include "base/checksum.h"
#include "base/error.h"
#include "base/first_error.h"
#include "base/json_text.h"
#include "base/parallel.h"
#include "base/units.h"
#include "data/dataset/token_cache.h"
#include "data/record_renderer.h"
#include "data/records/file_kind.h"
#include "data/records/litdata.h"
#include "data/records/named_sets.h"
#include "data/records/record_file.h"
#include "data/records/text_files.h"

namespace capstan {

namespace fs = std::filesystem;

// Reads record files only when an example is requested (a run with cached tokens may never need
// one), and does not keep them: the training needs the memory.
class PromptSource {
 public:
  PromptSource(RecordRenderer renderer, RecordFields fields)
      : renderer_(std::move(renderer)), fields_(std::move(fields)) {}

  ExamplePrompt example(const std::string& file, int64_t record, const Tokenizer& tokenizer) const {
    const RecordFile records(file, fields_);
    require(record < records.size(), Fault::file,
            "{}: now has {}, fewer than when it was first read", file,
            count(records.size(), "record"));
    const RenderedRecord r = renderer_.prompt(records.record(record),
                                              fmt::format("{}:{}", file, records.line_of(record)));
    return {r.instruction, text_of(r.pieces), encode(r, tokenizer).tokens, r.answer};
  }

 private:
  RecordRenderer renderer_;
  RecordFields fields_;
};

namespace {

constexpr double kDefaultFraction = 0.05;  // LitGPT's default for records
constexpr int64_t kNoLimit = INT32_MAX;

struct Source {
  fs::path train, validation;  // validation may be empty
};

fs::path record_file_in(const fs::path& folder, const char* stem) {
  std::error_code error;
  for (const char* ending : {".json", ".jsonl", ".csv"})
    if (const fs::path path = folder / (std::string(stem) + ending);
        fs::is_regular_file(path, error))
      return path;
  const std::string conversion = conversion_of_folder(folder);
  require(conversion.empty(), Fault::file,
          "{}: expected {}.json or {}.jsonl in this folder, found a dataset in Arrow or Parquet "
          "files; convert it: {}",
          folder.string(), stem, stem, conversion);
  fail(Fault::file, "{}: expected {}.json, {}.jsonl or {}.csv in this folder, found none of them",
       folder.string(), stem, stem, stem);
}

Source source_of(const DataOptions& o) {
  std::error_code error;
  require(fs::exists(o.path, error), Fault::file, "{}: no such file or folder. Name {}",
          o.path.string(),
          o.kind == DataOptions::Kind::records
              ? "a JSON, JSONL or CSV file of records, or a folder with train.json and val.json"
              : "a text file, or a folder of .txt or .jsonl files");
  Source source{o.path, o.validation_path};
  if (o.kind == DataOptions::Kind::records && fs::is_directory(o.path, error)) {
    source.train = record_file_in(o.path, "train");
    if (source.validation.empty()) source.validation = record_file_in(o.path, "val");
  }
  require(source.validation.empty() || o.validation_fraction.value_or(0) == 0, Fault::usage,
          "data.val_split_fraction {} cannot be combined with separate validation data ({}). "
          "Remove one of them",
          o.validation_fraction.value_or(0), source.validation.string());
  return source;
}

// A tokenized record, or its error.
struct Tokenized {
  EncodedPieces sample;
  int32_t flags = 0;
  std::string error;
};

Tokenized tokenize(const RecordFile& file, int64_t index, const RecordRenderer& renderer,
                   const Tokenizer& tokenizer) {
  Tokenized out;
  try {
    const std::string where = fmt::format("{}:{}", file.name(), file.line_of(index));
    const RenderedRecord rendered = renderer.sample(file.record(index), where);
    out.sample = encode(rendered, tokenizer);
    out.flags = rendered.flags;
    require(out.sample.tokens.size() >= 2, Fault::file,
            "{}: has {}, too few to train on. Remove the record", where,
            count(std::ssize(out.sample.tokens), "token"));
  } catch (const Error& e) {
    if (e.fault() != Fault::file) throw;
    out.error = e.what();
  }
  return out;
}

std::shared_ptr<const Samples> tokenize_records(const fs::path& path, const DataOptions& o,
                                                const RecordRenderer& renderer,
                                                const Tokenizer& tokenizer,
                                                const DataProgress& progress) {
  constexpr int64_t kAtOnce = 512;
  const RecordFile file(path, o.fields);
  auto samples = std::make_shared<OwnedSamples>();
  const int32_t name = samples->file(path.string());
  RecordErrors errors;
  std::vector<Tokenized> results(kAtOnce);
  for (int64_t first = 0; first < file.size(); first += kAtOnce) {
    const int64_t n = std::min(kAtOnce, file.size() - first);
    FirstError failure;
    parallel_tasks(n, [&](int64_t i, int) {
      failure.guard(i, [&] {
        results[static_cast<size_t>(i)] = tokenize(file, first + i, renderer, tokenizer);
      });
    });
    failure.rethrow();
    for (int64_t i = 0; i < n; ++i) {
      const Tokenized& r = results[static_cast<size_t>(i)];
      if (!r.error.empty()) {
        errors.add(r.error);
      } else if (errors.empty()) {
        samples->add(r.sample.tokens, r.sample.learned,
                     {.file = name, .flags = r.flags, .line = file.line_of(first + i)});
      }
    }
    if (progress) progress(first + n, file.size());
  }
  errors.throw_if_any();
  return samples;
}

// All field names, for the cache key.
std::string names_of(const RecordFields& f) {
  std::string all = f.named ? "|named" : "|usual";
  for (const auto* name : {&f.instruction, &f.input, &f.output, &f.system, &f.messages, &f.text})
    all += fmt::format("|{}:{}", name->size(), *name);
  return all;
}

std::string other_templates(std::string_view known) {
  std::string names;
  for (const ChatTemplate& t : chat_templates())
    if (t.name != known) names.append(names.empty() ? "" : ", ").append(t.name);
  return names;
}

void add_all(Dataset& to, const Dataset& from) {
  const auto& files = from.samples()->files();
  for (int64_t i = 0; i < from.size(); ++i) {
    SampleOrigin origin = from.origin_of(i);
    if (origin.file >= 0) origin.file = to.add_file(files[static_cast<size_t>(origin.file)]);
    to.add(from.tokens_of(i), from.target_spans_of(i), origin);
  }
}

// Looks in the cache first; else calls `make` and stores the result.
template <class Make>
std::shared_ptr<const Samples> cached(const DataOptions& o, const TokenCacheKey& key,
                                      const std::vector<std::string>& files, bool& from_cache,
                                      const Make& make) {
  if (!o.cache) return from_cache = false, make();
  const fs::path folder = o.cache_folder.empty() ? token_cache_folder() : o.cache_folder;
  if (auto samples = read_token_cache(folder, key, files)) return samples;
  from_cache = false;
  auto samples = make();
  write_token_cache(folder, key, *samples);
  return samples;
}

class Loader {
 public:
  Loader(const DataOptions& options, const Tokenizer& tokenizer, const DataProgress& progress)
      : options_(options),
        tokenizer_(tokenizer),
        progress_(progress),
        renderer_(options),
        records_(options.kind == DataOptions::Kind::records) {}

  LoadedData load() {
    check();
    const Source source = source_of(options_);
    LoadedData out;
    out.from_cache = true;  // until a record is not
    Dataset all = dataset(source.train, out);
    for (const fs::path& more : options_.more_paths) add_all(all, dataset(more, out));
    out.lint = linted(all);
    if (source.validation.empty()) {
      hold_out(all, out);
    } else {
      out.train = all;
      out.validation = dataset(source.validation, out);
      out.lint = merge(std::move(out.lint), linted(out.validation));
    }
    if (records_) describe(all, out);
    return out;
  }

 private:
  int64_t limit() const {
    return options_.max_seq_length == 0 ? kNoLimit : options_.max_seq_length;
  }

  void check() const {
    const int64_t least = records_ ? 2 : 1, length = options_.max_seq_length;
    require(length >= least || (records_ && length == 0), Fault::usage,
            "train.max_seq_length must be {} or more for these data, not {}", least, length);
  }

  Dataset dataset(const fs::path& path, LoadedData& out) const {
    return records_ ? record_dataset(path, out) : text_dataset(path, out);
  }

  Dataset record_dataset(const fs::path& path, LoadedData& out) const {
    TokenCacheKey key{.contents = options_.cache ? sha256_of_file(path) : "",
                      .tokenizer = tokenizer_.fingerprint(),
                      .rendering = renderer_.fingerprint() + names_of(options_.fields),
                      .mask_prompt = options_.mask_prompt};
    // The file name decides the column separator.
    if (const auto delimiter = table_delimiter(path)) key.rendering += *delimiter;
    return Dataset(
        cached(options_, key, {path.string()}, out.from_cache,
               [&] { return tokenize_records(path, options_, renderer_, tokenizer_, progress_); }),
        Cut::tokens);
  }

  Dataset text_dataset(const fs::path& path, LoadedData& out) const {
    if (is_litdata(path)) return load_litdata(path, tokenizer_, options_.max_seq_length);
    TokenCacheKey key{.tokenizer = tokenizer_.fingerprint(),
                      .rendering = "text",
                      .max_seq_length = options_.max_seq_length};
    const TextSources sources = text_files(path);
    note_skipped_files(sources, out);
    std::vector<std::string> files;
    std::string kinds;  // the same bytes are text in one file and documents in another
    for (const fs::path& file : sources.files) {
      files.push_back(file.string());
      kinds += is_document_name(file) ? 'd' : 't';
      if (options_.cache) key.contents += sha256_of_file(file);
    }
    if (kinds.find('d') != std::string::npos)
      key.rendering =
          fmt::format("documents {} {} {}", kRecordReader, kinds, names_of(options_.fields));
    return Dataset(cached(options_, key, files, out.from_cache, [&] {
      return load_text_files(path, tokenizer_, options_.max_seq_length, options_.fields, progress_)
          .samples();
    }));
  }

  static void note_skipped_files(const TextSources& sources, LoadedData& out) {
    const auto& others = sources.passed_over;
    if (others.empty()) return;
    out.notes.push_back(
        fmt::format("{} {} not read ({}{}): in a folder of text, only .txt and .jsonl files are",
                    others.size(), others.size() == 1 ? "file is" : "files are", others[0].string(),
                    others.size() > 1 ? ", …" : ""));
  }

  LintReport linted(const Dataset& data) const {
    LintOptions o{.max_seq_length = limit(), .documents = !records_};
    if (renderer_.chat()) {
      std::vector<Piece> end;
      const auto& chat = *renderer_.chat();
      const std::vector<std::string_view> specials(chat.specials.begin(), chat.specials.end());
      add_pieces(end, chat.assistant_end, specials, true);
      const auto tokens = encode(end, tokenizer_).tokens;
      if (!tokens.empty()) o.ends.push_back(tokens.back());
    }
    return lint(data, tokenizer_, o);
  }

  void hold_out(const Dataset& all, LoadedData& out) const {
    out.default_fraction = records_ && !options_.validation_fraction;
    out.validation_fraction =
        options_.validation_fraction.value_or(records_ && all.size() > 1 ? kDefaultFraction : 0);
    Split parts = split(all, out.validation_fraction, options_.seed);
    out.train = std::move(parts.train);
    out.validation = std::move(parts.validation);
  }

  void describe(const Dataset& all, LoadedData& out) const {
    int64_t first = 0;
    const auto flags = [&] { return all.origin_of(first).flags; };
    while (first < all.size() && (flags() & SampleOrigin::document)) ++first;
    if (first < all.size() && (flags() & SampleOrigin::chat))
      out.chat_template = renderer_.chat();
    else if (first < all.size())
      out.style = renderer_.style();
    out.prompts = std::make_shared<PromptSource>(renderer_, options_.fields);
    if (options_.style.empty()) note_styled_chats(all, out);
  }

  // For conversations if the model has no chat template and the user chose no style.
  void note_styled_chats(const Dataset& all, LoadedData& out) const {
    int64_t chats = 0;
    for (int64_t i = 0; i < all.size(); ++i)
      chats += (all.origin_of(i).flags & SampleOrigin::styled_chat) != 0;
    if (chats == 0) return;
    out.notes.push_back(fmt::format(
        "{} of {} samples are conversations, but the model has no known chat template: they use "
        "the prompt style {}, {}. To use a template, set --data.prompt_style chat_template:chatml "
        "(or {})",
        chats, all.size(), renderer_.style()->name,
        options_.mask_prompt
            ? "and only the answers are trained on, not the prompts (data.mask_prompt is true)"
            : "and prompts are trained on like answers (--data.mask_prompt true: answers only)",
        other_templates("chatml")));
  }

  const DataOptions& options_;
  const Tokenizer& tokenizer_;
  const DataProgress& progress_;
  RecordRenderer renderer_;
  bool records_;
};

}  // namespace

DataOptions named_set_options(DataClass name, const fs::path& json_path, const fs::path& root) {
  const NamedSet* set = find_named_set(name);
  require(set != nullptr, Fault::bug, "{} is not a named set of records", name_of(name));
  DataOptions o;
  o.path = json_path;
  if (json_path.empty()) {
    const NamedSetFiles files = locate(*set, root);
    o.path = files.train;
    o.validation_path = files.validation;
  }
  o.style = set->style;
  o.fields = set->fields;
  o.first_turn = set->first_turn;
  if (o.validation_path.empty() && set->validation_fraction > 0)
    o.validation_fraction = set->validation_fraction;
  return o;
}

ExamplePrompt LoadedData::example(const Dataset& part, int64_t index,
                                  const Tokenizer& tokenizer) const {
  require(prompts != nullptr, Fault::bug, "text files have no prompts");
  const auto file = static_cast<size_t>(part.origin_of(index).file);
  return prompts->example(part.samples()->files().at(file), part.id_of(index), tokenizer);
}

LoadedData load_data(const DataOptions& options, const Tokenizer& tokenizer,
                     const DataProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  LoadedData data = Loader(options, tokenizer, progress).load();
  data.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return data;
}

ModelPrompting prompting_of(const fs::path& folder, std::string_view model_name) {
  const RecordedPrompting recorded = read_prompt_style(folder);
  if (recorded.style != nullptr) return {recorded.style, {}};
  if (recorded.chat_template != nullptr) return {nullptr, *recorded.chat_template};
  if (auto chat = chat_template_of(folder)) return {nullptr, std::move(chat)};
  return {&style_for_model_name(model_name), {}};
}

std::vector<Piece> prompt_pieces(const ModelPrompting& prompting, std::string_view instruction) {
  if (prompting.style != nullptr) return render(*prompting.style, instruction);
  const Message message{Role::user, std::string(instruction)};
  return render(*prompting.chat_template, {&message, 1}, true);
}

}  // namespace capstan
