"""Writes tests/golden_lora/<case>/: adapters of models in tests/golden/, with the gradients and the
training run that PEFT gives for them. README.md, beside this file, describes the files.

    python make_lora_golden.py [case ...]        # all cases when none is named
"""

import json
import sys
import zlib
from dataclasses import asdict, dataclass, field

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from make_golden import (F32_BOUND, GOLDEN, STEPS, Batch, Recipe, logits, make_copy, mean_loss, stored,
                         worst_difference)

FOLDER = GOLDEN.parent / "golden_lora"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Case:
    base: str  # a case of make_golden.py
    targets: tuple[str, ...]
    r: int
    alpha: int
    rslora: bool = False
    b_std: float = 0.1  # of the initial B; 0 as PEFT has it
    recipe: Recipe = field(default_factory=Recipe)


CASES = {
    "all_r8": Case("llama_gqa", (*ATTENTION, *MLP, "lm_head"), r=8, alpha=16, b_std=0),
    "qv_r4_alpha32": Case("llama_gqa", ("q_proj", "v_proj"), r=4, alpha=32),
    "rslora": Case("llama_gqa", ("k_proj", "o_proj", *MLP), r=4, alpha=8, rslora=True),
    "tied_head": Case("llama_tied", ("q_proj", "lm_head"), r=2, alpha=4),
    "qwen2_bias": Case("qwen2_bias", (*ATTENTION, *MLP), r=2, alpha=4),
    "qwen3_mlp": Case("qwen3_qknorm", MLP, r=2, alpha=4),
}


def make_model(case: Case, dtype: torch.dtype) -> PeftModel:
    base = AutoModelForCausalLM.from_pretrained(GOLDEN / case.base, dtype=torch.float32)
    config = LoraConfig(r=case.r, lora_alpha=case.alpha, lora_dropout=0.0, bias="none",
                        target_modules=list(case.targets), use_rslora=case.rslora,
                        task_type="CAUSAL_LM")
    return get_peft_model(make_copy(base, dtype), config)


def adapters(model: PeftModel) -> dict[str, Tensor]:
    """By the names that adapter_model.safetensors has."""
    return {n.replace(".default", ""): p for n, p in model.named_parameters() if p.requires_grad}


def initial_values(case: Case, model: PeftModel, rng: torch.Generator) -> dict[str, Tensor]:
    def draw(name: str, shape: torch.Size) -> Tensor:
        if "lora_B" in name:
            return case.b_std * torch.randn(shape, generator=rng)
        return (2 * torch.rand(shape, generator=rng) - 1) / shape[1] ** 0.5

    return {name: draw(name, p.shape) for name, p in adapters(model).items()}


def first_pass(model: PeftModel, batch: Batch) -> dict[str, Tensor]:
    model.zero_grad()
    logits_TV = logits(model, batch)
    loss = mean_loss(logits_TV, batch)
    loss.backward()
    return {"loss": loss.detach()[None]} | {f"grad.{n}": p.grad.clone()
                                            for n, p in adapters(model).items()}


def train(model: PeftModel, batches: list[Batch], recipe: Recipe) -> dict[str, Tensor]:
    weights = list(adapters(model).values())
    optimizer = torch.optim.AdamW(weights, lr=recipe.lr, eps=recipe.eps,
                                  betas=(recipe.beta1, recipe.beta2),
                                  weight_decay=recipe.weight_decay)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = mean_loss(logits(model, batch), batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(weights, recipe.max_norm))
        optimizer.step()
        losses.append(loss.detach())
    final = {f"final.{n}": p.detach().clone() for n, p in adapters(model).items()}
    return {"losses": torch.stack(losses), "grad_norms": torch.stack(norms)} | final


def results(case: Case, dtype: torch.dtype, initial: dict[str, Tensor], batch: Batch,
            steps: list[Batch]) -> dict[str, Tensor]:
    model = make_model(case, dtype)
    for name, p in adapters(model).items():
        p.data = initial[name].to(dtype)
    found = first_pass(model, batch) | train(model, steps, case.recipe)
    with torch.no_grad():
        return found | {"final_logits": logits(model, batch)}


def make_case(name: str, case: Case) -> None:
    rng = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    data = load_file(GOLDEN / case.base / "golden.safetensors")

    def batch_of(ids: Tensor, labels: Tensor, starts: Tensor) -> Batch:
        return Batch(ids.long(), labels.long(), starts.long())

    batch = batch_of(data["ids"], data["labels"], data["starts"])
    steps = [batch_of(data["step_ids"][i], data["step_labels"][i], data["step_starts"])
             for i in range(STEPS)]
    model = make_model(case, torch.float32)
    initial = initial_values(case, model, rng)
    for n, p in adapters(model).items():
        p.data = initial[n].clone()

    exact = results(case, torch.float64, initial, batch, steps)
    rounded = results(case, torch.float32, initial, batch, steps)
    line = name.ljust(16)
    for group in ("loss", "losses", "grad_norms", "final", "final_logits"):
        error = worst_difference(rounded, exact, group)
        line += f" {group} {error:.1e}"
        assert error < F32_BOUND, line
    print(line, f"loss {exact['losses'][0]:.3f} to {exact['losses'][-1]:.3f}", flush=True)

    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    assert set(get_peft_model_state_dict(model, save_embedding_layers=False)) == set(initial)
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config |= {"base_model_name_or_path": case.base, "target_modules": sorted(case.targets)}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({k: stored(v) for k, v in exact.items()}, folder / "golden.safetensors")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__,
                "peft": peft.__version__}
    settings = {"base": case.base} | asdict(case.recipe) | versions
    (folder / "golden.json").write_text(json.dumps(settings, indent=2) + "\n")


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("f32 against f64, worst norm-wise relative error over tensors")
    for name in sys.argv[1:] or CASES:
        make_case(name, CASES[name])


if __name__ == "__main__":
    main()
