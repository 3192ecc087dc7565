#!/usr/bin/env python3
"""Writes tests/golden_tokens: what the reference tokenizers make of texts.

  make_tokens.py [SHARED]    SHARED: the folder with data/tokenizers, data/gsm8k_train.json, …

Needs the packages tokenizers and sentencepiece. Tiny tokenizers are trained here on a text of our
own and committed with ids and texts; for the well-known tokenizers and real texts in SHARED, which
are not committed, there are ids of our own texts and a hash of the ids of each 100 lines.
"""

import hashlib
import json
import random
import sys
from pathlib import Path

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

OUT = Path(__file__).resolve().parents[2] / "tests/golden_tokens"

# What the tiny tokenizers are trained on.
PROSE = """
The harbour lay quiet when the first boats came in. Nobody had counted them the evening before, and
nobody would count them now: there were 12, or 13, or perhaps 120. "It's the tide," said the old
pilot, "and the tide doesn't ask." She'd seen it all; they'd seen nothing. We've heard that before.
A capstan is turned by people who walk in a circle; what they lift is an anchor, and what they learn
is patience. The weights are read, the gradients are summed, the optimizer takes its step, and the
loss goes down: 3.14, 2.72, 1.41, 0.69. Then it goes down again, and again, and then it does not.
    for (int i = 0; i < 100; ++i) total += value[i];
    if (total == 0) return;  // nothing to do
The mills of the river grind slowly, the mills of the town grind all night. Café, naïve, Straße,
señor, façade, über, œuvre; привет мир, 你好世界, こんにちは, 안녕하세요, שלום, مرحبا, नमस्ते.
One has to read the whole of the letter to know what the writer of the letter wanted from the reader.
"""

TORTURE = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", " \n \n ", "\t", "\r\n", "\r", "a\r\nb\r\n\r\nc",
    "Hello, world!", " Hello", "Hello ", "  Hello  ", "   x", "x   ", "a  b", "a   b    c", "a\n\n\nb",
    "it's It'S they'Ll WE'VE I'm i'D don't DON'T 're 'x ''s s'", "a'\u017fb '\u017f", "'", "''", "'s",
    "1", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000.00", "x1y22z333",
    "\u00bd \u00b2 \u2460 \u2167 \u0663\u0664\u0665\u0666 \u0967\u0968\u0969 \uff11\uff12\uff13",
    "caf\u00e9 cafe\u0301 na\u00efve \u00c5 A\u030a \u212b \u1e9b\u0323 \ufb01n \ufb03 \u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "e\u0301\u0323 e\u0323\u0301 \u1ebb\u0323 q\u0307\u0323 \u0344 \u0958 \u2126 \u1100\u1161\u11a8 \uac01",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f \u30ab\u30bf\u30ab\u30ca \ud55c\uad6d\uc5b4",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0",
    "\U0001f642 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd x\U0001f642y\U0001f642\U0001f642",
    "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u000bh\u000ci\u180ej\u200bk\ufeffl\u1680m\u202fn\u205fo",
    "\u0000\u0001\u0002\u001b[0m\u007f\u0080\u009f\u00ad\ufffd\ufffe\uffff\U0010ffff\ue000",
    "\u2581 \u2581\u2581a\u2581b \u2581", "\u0120hello \u010a", "<0x0A><0xE2>", "<0x41>",
    "<s>", "</s>", "<unk>", "<s>a</s>", " <s> a </s> ", "a<s>b", "<s", "s>", "<<s>>", "</s></s>", "<s></s>x",
    "<|begin_of_text|>hi<|eot_id|>", "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|>", "<|eot_id",
    "<tool_call>\n{\"name\": 1}\n</tool_call>", "<|fim_prefix|>a<|fim_suffix|>b",
    "[STRIP]", "a [STRIP] b", "a  [STRIP]\n\nb", "x[LEFT]y", "x  [LEFT]  y", "x[RIGHT]y", "x  [RIGHT]  y",
    "[STRIP] [STRIP]", "word wordy sword word. (word) w\u00f6rd word", "word", "NORMAL normal n\u00f6rmal",
    "[RIGHT]  [LEFT]", "  [LEFT]", "[RIGHT]  ", "a_word_b", "word-word",
    "def f(x):\n    return x ** 2  # squared\n\n\nclass A:\n\tpass\n",
    "if (a<b && c>>2) { x[i] += y->z; /* ... */ }", "https://example.org/a/b?c=d&e=%20f#g",
    "{\"key\": [1, 2.5e-3, null, true], \"\u00fc\": \"\\u00fc\"}", "| a | b |\n|---|---|\n| 1 | 2 |",
    "\\begin{equation} e^{i\\pi} + 1 = 0 \\end{equation}", "$5 50% @you #tag ~/x *b* _i_ `c`",
    "-----===+++!!!???...,,,;;;:::", "!\n", "!\r\n\r\n", " !\n\n x", "...\n   ...", "a.\n\n  b",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 40,
    " " * 17, " " * 70 + "x", "\n" * 33, "\t" * 9 + "x", "- " * 12, "=" * 90, "\u4f60" * 12, "\U0001f642" * 5,
    "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG.",
    "Pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism",
    "How many clips did she sell altogether in April and May?\n48/2 = 24 clips in May.\n48+24 = 72.",
    "\u0435\u0442\u043e \u043f\u0440\u0438\u043c\u0435\u0440 \u0442\u0435\u043a\u0441\u0442\u0430 \u0421 \u0411\u041e\u041b\u042c\u0428\u0418\u041c\u0418 \u0431\u0443\u043a\u0432\u0430\u043c\u0438",
    "x\u0301y\u0302z\u0303 \u200d\u200c a\u200db \u0301 \u0301\u0301", "\ud7ff \ue000 \uffff", "mixed\u4e2d\u6587and\u65e5\u672c\u8a9etext123\u4e8c\u5341",
]  # yapf: disable

POOL = (list(" \n\t\r  \n'\"abcdestvlmrSTDMLREV0123456789.,;!?-_()<>|[]/") +
        ["\u00e9", "e\u0301", "\u0301", "\u017f", "\u00df", "\u4f60", "\u597d", "\u2581", "\u00a0", "\u3000", "\u2028",
         "\U0001f642", "\u200d", "\u0663", "\u00bd", "\u2167", "\ufb01", "\u1100", "\u1161", "\u11a8", "\uac00",
         "'s", "'ll", "'RE", "<s>", "</s>", "<unk>", "  ", "\n\n", " the", "word", "[STRIP]", "[LEFT]"])  # yapf: disable


def torture():
    random.seed(1)
    made = ["".join(random.choices(POOL, k=random.randint(2, 40))) for _ in range(60)]
    return TORTURE + made + PROSE.strip().split("\n")


def special(content, **options):
    return AddedToken(content, special=True, normalized=False, **options)


def write_json(folder, tokenizer, config):
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def trained(tokenizer, size, specials, alphabet=()):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                  initial_alphabet=list(alphabet), limit_alphabet=400)
    tokenizer.train_from_iterator(PROSE.strip().split("\n"), trainer)
    return tokenizer


def make_bytes():
    """As GPT-2, with every kind of added token."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    t.decoder = decoders.ByteLevel()
    trained(t, 380, ["<s>", "</s>"], pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens([special("[STRIP]", lstrip=True, rstrip=True), special("[LEFT]", lstrip=True),
                          special("[RIGHT]", rstrip=True)])
    t.add_tokens([AddedToken("word", single_word=True, normalized=False),
                  AddedToken("n\u00f6rmal", normalized=True), AddedToken("  ", normalized=False)])
    write_json(OUT / "bytes", t, {"bos_token": "<s>", "eos_token": {"content": "</s>"},
                                  "add_bos_token": False, "tokenizer_class": "GPT2Tokenizer"})


def make_split():
    """As Llama 3: split by an expression, whole words first, a template with bos."""
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
               r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trained(t, 380, ["<|begin_of_text|>", "<|eot_id|>"], pre_tokenizers.ByteLevel.alphabet())
    t.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="$A $B",
        special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])
    write_json(OUT / "split", t, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>",
                                  "tokenizer_class": "PreTrainedTokenizerFast"})


def byte_pieces():
    return [f"<0x{b:02X}>" for b in range(256)]


def make_pieces():
    """As Llama 2: no words, spaces as U+2581, bytes for what the vocabulary lacks."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    # Trained by words, or tokens would be whole lines.
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    words = json.loads(trained(words, 300, ["<unk>", "<s>", "</s>"]).to_str())["model"]
    vocab = {token: i for i, token in enumerate(
        ["<unk>", "<s>", "</s>"] + byte_pieces() + [w for w in words["vocab"] if not w.startswith("<")])}
    t.model = models.BPE(vocab=vocab, merges=[tuple(m) for m in words["merges"]], unk_token="<unk>",
                         fuse_unk=True, byte_fallback=True)
    t.add_special_tokens([special("<unk>"), special("<s>"), special("</s>")])
    write_json(OUT / "pieces", t, {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "LlamaTokenizer"})


def make_metaspace():
    """As Mistral's later files: Metaspace at the first word only, unknown characters one by one."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    trained(t, 260, ["<unk>", "<s>", "</s>"])
    t.add_special_tokens([special("[STRIP]", lstrip=True, rstrip=True)])
    write_json(OUT / "metaspace", t, {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True,
                                      "tokenizer_class": "LlamaTokenizerFast"})


def make_mixed():
    """Normalizers and pre-tokenizers that the others do not have; no decoder; no unknown token."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                         normalizers.Replace(Regex(r"\.{2,}"), "\u2026"), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("-", "merged_with_previous"), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(Regex(r"[<>|]+"), "contiguous"), pre_tokenizers.Punctuation("isolated"),
        pre_tokenizers.Whitespace()])
    trained(t, 220, ["</s>"])
    write_json(OUT / "mixed", t, {"eos_token": "</s>"})


def make_model():
    """SentencePiece itself, BPE, as Llama 2's."""
    folder = OUT / "model"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "tokenizer.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(PROSE.strip().split("\n")), model_writer=file, model_type="bpe",
            vocab_size=480, byte_fallback=True, normalization_rule_name="identity",
            remove_extra_whitespaces=False, split_digits=True, character_coverage=0.99, num_threads=1,
            user_defined_symbols=["[LEFT]"], minloglevel=2)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"add_bos_token": True, "tokenizer_class": "LlamaTokenizer"}) + "\n")


class Reference:
    """A tokenizer.json or tokenizer.model by the library that it was made for."""

    def __init__(self, path):
        self.is_model = path.suffix == ".model"
        if self.is_model:
            self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path))
        else:
            self.tokenizer = Tokenizer.from_file(str(path))

    def encode(self, text):
        return self.tokenizer.encode(text) if self.is_model else self.tokenizer.encode(
            text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids) if self.is_model else self.tokenizer.decode(
            ids, skip_special_tokens=True)

    def size(self):
        return self.tokenizer.vocab_size() if self.is_model else self.tokenizer.get_vocab_size()


def cases(reference, texts):
    """Ids of texts, and texts of ids: of some texts, of halves of them, and random ones."""
    random.seed(2)
    encoded = [reference.encode(t) for t in texts]
    ids = [e[len(e) // 2:] for e in encoded[::5]] + encoded[1:24:4] + [[]]
    ids += [[random.randrange(reference.size()) for _ in range(random.randint(1, 12))] for _ in range(30)]
    ids += [[random.randrange(min(300, reference.size())) for _ in range(9)] for _ in range(20)]
    return {"ids": encoded, "decoded": [[i, reference.decode(i)] for i in ids]}


def real_lines(shared):
    records = json.loads((shared / "data/gsm8k_train.json").read_text(encoding="utf-8"))
    lines = [r["instruction"] + "\n" + r["output"] for r in records]
    play = (shared / "data/tinyshakespeare.txt").read_text(encoding="utf-8").split("\n")
    return lines + play


def block_hashes(reference, lines):
    """Of the ids of each 100 lines, as "1 2 3\\n" per line: the first 8 digits of a SHA-256."""
    hashes = []
    for i in range(0, len(lines), 100):
        text = "".join(" ".join(map(str, reference.encode(line))) + "\n" for line in lines[i:i + 100])
        hashes.append(hashlib.sha256(text.encode()).hexdigest()[:8])
    return hashes


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (OUT / name).write_text(text.replace("]],", "]],\n") + "\n")


def main(shared):
    for make in make_bytes, make_split, make_pieces, make_metaspace, make_mixed, make_model:
        make()
    texts = torture()
    write("texts.json", texts)
    for path in sorted(OUT.glob("*/tokenizer.json")) + sorted(OUT.glob("*/tokenizer.model")):
        write(f"{path.parent.name}/expected.json", cases(Reference(path), texts))
    if not shared:
        return
    lines = real_lines(shared)
    known = {name: shared / f"data/tokenizers/{name}/tokenizer.json" for name in ("llama2", "llama3.2", "qwen2.5")}
    known["llama2_model"] = shared / "data/llama2_tokenizer.model"
    for name, path in known.items():
        reference = Reference(path)
        write(f"{name}.json", {**cases(reference, texts), "blocks": block_hashes(reference, lines)})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
