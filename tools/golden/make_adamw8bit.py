"""Writes tests/golden_adamw8bit/steps.safetensors: ten steps of bitsandbytes' AdamW8bit on one small
tensor.

    python make_adamw8bit.py

signed_map, unsigned_map   F32 [256]: the values that codes of the two moments stand for
weight, final              F32: before the first step, and after the last
gradients                  BF16 [10, ...]: one for each step
exp_avg, exp_avg_sq        U8: the moments after the last step
exp_avg.absmax, …          F32 [17]: their scales, one for each block of 256
"""

import bitsandbytes as bnb
import bitsandbytes.backends.cpu.ops as cpu_ops
import torch
from bitsandbytes.functional import create_dynamic_map
from safetensors.torch import save_file

from make_golden import GOLDEN

SHAPE = (46, 90)  # 16 blocks of 256, and one of 44
STEPS = 10
SETTINGS = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def quantize_to_nearest(x, code, absmax_out, out, blocksize):
    """As bitsandbytes' CUDA kernel and its default backend choose. Its CPU kernel looks values up in
    a table that is too coarse: near the middle of two it may take the farther."""
    middles = (code[:-1] + code[1:]) / 2
    for i, block in enumerate(x.flatten().split(blocksize)):
        absmax_out[i] = block.abs().max()
        scaled = block * (1 / absmax_out[i]) if absmax_out[i] > 0 else block
        out.view(-1)[i * blocksize:i * blocksize + len(block)] = torch.bucketize(scaled, middles)


def gradients() -> torch.Tensor:
    """Of many magnitudes, as a model's are; one block has none, another none at first."""
    rng = torch.Generator().manual_seed(11)
    size = 10 ** (-2 * torch.rand(SHAPE, generator=rng))
    g = size * torch.randn((STEPS, *SHAPE), generator=rng)
    flat = g.view(STEPS, -1)
    flat[:, 512:768] = 0
    flat[:3, 1024:1280] = 0
    return g.to(torch.bfloat16)


def main() -> None:
    torch.set_num_threads(1)
    cpu_ops._quant_blockwise_fp32_direct = quantize_to_nearest
    weight = torch.randn(SHAPE, generator=torch.Generator().manual_seed(12))
    tensors = {"signed_map": create_dynamic_map(True), "unsigned_map": create_dynamic_map(False),
               "weight": weight.clone(), "gradients": gradients()}
    parameter = torch.nn.Parameter(weight)
    optimizer = bnb.optim.AdamW8bit([parameter], **SETTINGS)
    for g in tensors["gradients"]:
        parameter.grad = g.float()
        optimizer.step()
    state = optimizer.state[parameter]
    tensors |= {"final": parameter.detach(), "exp_avg": state["state1"],
                "exp_avg_sq": state["state2"], "exp_avg.absmax": state["absmax1"],
                "exp_avg_sq.absmax": state["absmax2"]}
    folder = GOLDEN.parent / "golden_adamw8bit"
    folder.mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "steps.safetensors")


if __name__ == "__main__":
    main()
