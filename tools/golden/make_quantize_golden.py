"""Writes tests/golden_lora/quantize.safetensors: what bitsandbytes makes of two small matrices.
README.md, beside this file, describes the tensors.

    python make_quantize_golden.py
"""

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

from make_golden import GOLDEN

SHAPES = {"large": (131, 127), "small": (7, 100)}  # 260 blocks of 64, and 11; both end in the middle


def nearest_in_blocks(x: torch.Tensor, code: torch.Tensor, blocksize: int) -> torch.Tensor:
    """As bitsandbytes' CUDA kernel and its default backend choose. Its CPU kernel looks values up in
    a table that is too coarse: near the middle of two it may take the farther."""
    middles = (code[:-1] + code[1:]) / 2
    blocks = [b * (1.0 / b.abs().max()) for b in x.split(blocksize)]
    return torch.bucketize(torch.cat(blocks), middles).to(torch.uint8)


def quantized_4bit(x: torch.Tensor, kind: str, double: bool) -> dict[str, torch.Tensor]:
    packed, state = bnb.quantize_4bit(x.float(), blocksize=64, compress_statistics=double,
                                      quant_type=kind)
    if double:
        _, plain = bnb.quantize_4bit(x.float(), blocksize=64, quant_type=kind)
        state.absmax = nearest_in_blocks(plain.absmax - state.offset, state.state2.code, 256)
    found = {"packed": packed.flatten(), "absmax": state.absmax}
    if double:
        found |= {"scale": state.state2.absmax, "offset": state.offset[None]}
    return found | {"values": bnb.dequantize_4bit(packed, state)}


def quantized_int8(x: torch.Tensor) -> dict[str, torch.Tensor]:
    packed, stats, _ = bnb.int8_vectorwise_quant(x.float())
    values = torch.ops.bitsandbytes.int8_vectorwise_dequant(packed, stats)
    return {"packed": packed.view(torch.uint8).flatten(), "absmax": stats, "values": values}


def main() -> None:
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(7)
    tensors = {"dynamic_map": bnb.create_dynamic_map()}
    for name, shape in SHAPES.items():
        x = (0.02 * torch.randn(shape, generator=rng)).to(torch.bfloat16)
        x[3] = 0  # a block of zeros
        tensors[f"{name}.x"] = x
        for kind in ("nf4", "fp4"):
            for double in (False, True):
                part = quantized_4bit(x, kind, double)
                if name == "large":
                    part["values"] = part["values"][-2:]
                    if double:
                        del part["packed"]  # the same
                prefix = f"{name}.{kind}{'-dq' if double else ''}"
                tensors |= {f"{prefix}.{k}": v for k, v in part.items()}
        part = quantized_int8(x)
        if name == "large":
            part["values"] = part["values"][-2:]
            del part["packed"]
        tensors |= {f"{name}.int8.{k}": v for k, v in part.items()}
    save_file({k: v.contiguous().clone() for k, v in tensors.items()},
              GOLDEN.parent / "golden_lora" / "quantize.safetensors")


if __name__ == "__main__":
    main()
