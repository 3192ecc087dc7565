"""Opens a folder that Capstan wrote in transformers (or an adapter in peft) and writes what it sees.

    python check_peers.py FOLDER OUT [BASE]

OUT/logits.safetensors has `ids` [1, T] and `logits` [1, T, V] (f32). For a whole model OUT/copy is the model
as transformers saves it again.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM


def main(folder: str, out: str, base: str | None) -> None:
    Path(out).mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(base or folder, dtype=torch.float32)
    if base:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, folder)
    else:
        model.save_pretrained(f"{out}/copy")
    ids = torch.arange(3, 20)[None] % model.config.vocab_size
    with torch.no_grad():
        logits = model.eval()(input_ids=ids).logits
    save_file({"ids": ids.int(), "logits": logits.float().contiguous()}, f"{out}/logits.safetensors")


main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
