"""Writes tests/golden/<case>/: tiny models with the logits, gradients, training run and greedy
decoding that transformers gives for them. README.md, beside this file, describes the files.

    python make_golden.py [case ...]        # all cases when none is named

Shapes: T tokens of all documents of a batch, V vocabulary, P prompt.
"""

import contextlib
import itertools
import json
import sys
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
IGNORED = -100
DOCUMENTS = (13, 7, 1, 18)  # the one-token document has no target at all
STEP_DOCUMENTS = (11, 16)
STEPS, NEW_TOKENS = 20, 16
MARGIN = 1e-2  # of the chosen token's logit over the second, when decoding
F32_BOUND = 3e-5  # what an f32 run may differ by; Capstan's tests allow 1e-4


@dataclass(frozen=True)
class Recipe:
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    # Not 1e-8: where a gradient is nearly zero the update would be its sign, that is, its rounding.
    eps: float = 1e-5
    weight_decay: float = 0.1  # on every parameter, norms and biases too
    max_norm: float = 1.0


@dataclass(frozen=True)
class Case:
    config: type[PreTrainedConfig]
    fields: dict[str, Any]
    # Fields of a config without the feature the case is about: its logits must differ.
    without: dict[str, Any] = field(default_factory=dict)


# head_dim is 16 (the least that attention on GPUs takes) but where it is the subject; widths are
# odd or indivisible by 8 where a model may have them so.
GQA = dict(hidden_size=24, intermediate_size=43, num_hidden_layers=2, num_attention_heads=4,
           num_key_value_heads=2, head_dim=16, vocab_size=67, rms_norm_eps=1e-5,
           max_position_embeddings=256)
SMALL = GQA | dict(hidden_size=32, intermediate_size=42, num_attention_heads=2,
                   num_key_value_heads=1, head_dim=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)
PLAIN = dict(rope_type="default", rope_theta=10000.0)
FAR = dict(rope_type="default", rope_theta=1000000.0)

CASES: dict[str, Case] = {
    "llama_mha": Case(LlamaConfig, SMALL | dict(num_key_value_heads=2, vocab_size=61)),
    "llama_gqa": Case(LlamaConfig, GQA),
    "llama_tied": Case(LlamaConfig, GQA | dict(tie_word_embeddings=True, vocab_size=96)),
    "mistral_window": Case(MistralConfig, GQA | dict(sliding_window=5), dict(sliding_window=None)),
    "qwen2_bias": Case(Qwen2Config, {k: v for k, v in SMALL.items() if k != "head_dim"}
                       | dict(rope_parameters=FAR)),
    "qwen3_qknorm": Case(Qwen3Config, GQA | dict(rope_parameters=FAR, vocab_size=71)),
    # 32 tokens put one of the 8 frequencies above, one inside and six below the blended band.
    "llama3_rope": Case(LlamaConfig, GQA | dict(rope_parameters=LLAMA3),
                        dict(rope_parameters=PLAIN)),
    "llama_linear_rope": Case(LlamaConfig, GQA | dict(rope_parameters=LINEAR),
                              dict(rope_parameters=PLAIN)),
    "llama_bias": Case(LlamaConfig, GQA | dict(attention_bias=True, mlp_bias=True)),
    "llama_head100": Case(LlamaConfig, SMALL | dict(hidden_size=12, intermediate_size=19,
                                                    head_dim=100)),
}


class Float64(TorchFunctionMode):
    """Makes f64 of every f32 that transformers asks for by name, even in a model of doubles: in
    norms, softmax, RoPE and generate()."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def widen(x: Any) -> Any:
            return torch.float64 if x is torch.float32 else x

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        y = func(*map(widen, args), **{k: widen(v) for k, v in (kwargs or {}).items()})
        assert not isinstance(y, Tensor) or y.dtype != torch.float32, f"{func} gave f32"
        return y


def computing_in(dtype: torch.dtype) -> contextlib.AbstractContextManager:
    return Float64() if dtype == torch.float64 else contextlib.nullcontext()


@dataclass(frozen=True)
class Batch:
    ids: Tensor
    labels: Tensor  # labels[t] is the token after ids[t] in its document, or IGNORED
    starts: Tensor


def random_batch(lengths: tuple[int, ...], vocabulary: int, rng: torch.Generator) -> Batch:
    starts = torch.tensor([0, *itertools.accumulate(lengths)])
    ids = torch.randint(vocabulary, (int(starts[-1]),), generator=rng)
    labels = ids.roll(-1)
    labels[torch.rand(ids.shape, generator=rng) < 0.2] = IGNORED
    labels[starts[1:] - 1] = IGNORED
    return Batch(ids, labels, starts)


def make_model(config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    with computing_in(dtype):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")


def randomize(model: PreTrainedModel, rng: torch.Generator) -> None:
    for name, p in model.named_parameters():
        mean, std = (1, 0.1) if name.endswith("norm.weight") else (0, 0.2)
        p.data = mean + std * torch.randn(p.shape, generator=rng)


def make_copy(model: PreTrainedModel, dtype: torch.dtype, **changes: Any) -> PreTrainedModel:
    config = type(model.config).from_dict(model.config.to_dict() | changes)
    copy = make_model(config, dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def logits(model: PreTrainedModel, batch: Batch) -> Tensor:
    """[T, V]; each document is run alone."""
    with computing_in(model.dtype):
        return torch.cat([model(batch.ids[None, a:b], use_cache=False).logits[0]
                          for a, b in itertools.pairwise(batch.starts.tolist())])


def mean_loss(logits_TV: Tensor, batch: Batch) -> Tensor:
    return torch.nn.functional.cross_entropy(logits_TV, batch.labels, ignore_index=IGNORED)


def first_pass(model: PreTrainedModel, batch: Batch) -> dict[str, Tensor]:
    model.zero_grad()
    logits_TV = logits(model, batch)
    loss = mean_loss(logits_TV, batch)
    loss.backward()
    grads = {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}
    return {"logits": logits_TV.detach(), "loss": loss.detach()[None]} | grads


def train(model: PreTrainedModel, batches: list[Batch], recipe: Recipe) -> dict[str, Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, eps=recipe.eps,
                                  betas=(recipe.beta1, recipe.beta2),
                                  weight_decay=recipe.weight_decay)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = mean_loss(logits(model, batch), batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_norm))
        optimizer.step()
        losses.append(loss.detach())
    final = {f"final.{name}": p.detach().clone() for name, p in model.named_parameters()}
    return {"losses": torch.stack(losses), "grad_norms": torch.stack(norms)} | final


@torch.no_grad()
def decode(model: PreTrainedModel, rng: torch.Generator) -> dict[str, Tensor]:
    """Of the prompts that decode unambiguously and to the full length, the one whose continuation
    has the most different tokens: a loop of one token would hide mistakes."""
    best, most = None, 0
    for length in torch.randint(4, 9, (40,), generator=rng).tolist():
        prompt = torch.randint(model.config.vocab_size, (length,), generator=rng)
        with computing_in(model.dtype):
            ids = model.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None],
                                 max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0)[0]
        if len(ids) != length + NEW_TOKENS:
            continue
        # One pass without the cache: must choose the same tokens, by a clear margin.
        whole = Batch(ids, ids, torch.tensor([0, len(ids)]))
        top = logits(model, whole)[length - 1:-1].topk(2)
        assert torch.equal(top.indices[:, 0], ids[length:]), "generate() differs from a full pass"
        different = len(ids[length:].unique())
        if (top.values[:, 0] - top.values[:, 1]).min() > MARGIN and different > most:
            best, most = {"decode_prompt": prompt, "decode_ids": ids}, different
    assert best is not None, "no prompt decodes unambiguously"
    return best


def worst_difference(a: dict[str, Tensor], b: dict[str, Tensor], group: str) -> float:
    """The largest norm-wise relative difference over the tensors named group or group.*"""
    return max(float((a[k] - b[k]).norm() / b[k].norm()) for k in b if k.split(".")[0] == group)


@torch.no_grad()
def check(name: str, case: Case, model: PreTrainedModel, exact: dict[str, Tensor],
          rounded: dict[str, Tensor], batch: Batch) -> None:
    line = name.ljust(18)
    for group in ("logits", "loss", "grad", "losses", "grad_norms", "final"):
        error = worst_difference(rounded, exact, group)
        line += f" {group} {error:.1e}"
        assert error < F32_BOUND, line
    if case.without:
        plain = make_copy(model, torch.float64, **case.without)
        effect = worst_difference({"logits": logits(plain, batch)}, exact, "logits")
        line += f" | effect {effect:.2f}"
        assert effect > 1e-2, line
    print(line, flush=True)


def stored(x: Tensor) -> Tensor:
    return x.to(torch.float32 if x.is_floating_point() else torch.int32).contiguous()


def make_case(name: str, case: Case, recipe: Recipe) -> None:
    rng = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = make_model(case.config(**case.fields), torch.float32)
    randomize(model, rng)
    vocabulary = model.config.vocab_size
    batch = random_batch(DOCUMENTS, vocabulary, rng)
    steps = [random_batch(STEP_DOCUMENTS, vocabulary, rng) for _ in range(STEPS)]

    folder = GOLDEN / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()

    def results(dtype: torch.dtype) -> dict[str, Tensor]:
        copy = make_copy(model, dtype)
        return first_pass(copy, batch) | train(copy, steps, recipe)

    exact = results(torch.float64)
    check(name, case, model, exact, results(torch.float32), batch)
    inputs = {"ids": batch.ids, "labels": batch.labels, "starts": batch.starts,
              "step_ids": torch.stack([s.ids for s in steps]),
              "step_labels": torch.stack([s.labels for s in steps]),
              "step_starts": steps[0].starts}
    decoded = decode(make_copy(model, torch.float64), rng)
    save_file({k: stored(v) for k, v in (inputs | exact | decoded).items()},
              folder / "golden.safetensors")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    (folder / "golden.json").write_text(json.dumps(asdict(recipe) | versions, indent=2) + "\n")


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("f32 against f64, worst norm-wise relative error over tensors")
    for name in sys.argv[1:] or CASES:
        make_case(name, CASES[name], Recipe())


if __name__ == "__main__":
    main()
