#!/usr/bin/env python3
"""Compares `capstan evaluate --tasks` with lm-evaluation-harness on the same files and model.

usage: check_tasks.py CAPSTAN TOKENIZER_FOLDER [--items N]      (with lm_eval, torch and transformers)

Makes a small random model, and questions in the harness's forms with letters, marks and lengths that
are easy to get wrong. Prints both scores; exits with 1 if any differs.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

WORDS = ("the cat sat on a mat, and then it “slept” for 3 hours in Zürich; nobody knows why the dog [title] ran away "
         "from its own house when rain fell over naïve people 12,000 times at $5.00 each").split()


def text(rng, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def files(count):
    rng = random.Random(4)
    rows = {"arc_easy": [], "hellaswag": [], "mmlu_anatomy": [], "gsm8k": []}
    for i in range(count):
        n = rng.choice([3, 4, 5])
        labels = rng.choice(["ABCDE", "12345"])[:n]
        rows["arc_easy"].append({"question": text(rng, 20) + "?", "answerKey": rng.choice(labels),
                                 "choices": {"text": [text(rng, 6) for _ in range(n)], "label": list(labels)}})
        rows["hellaswag"].append({"activity_label": "Doing " + text(rng, 2), "ctx_a": text(rng, 15) + ".",
                                  "ctx_b": rng.choice(["", "he THEN goes", "she"]), "label": str(rng.randrange(4)),
                                  "endings": [text(rng, 12) + rng.choice([".", " [step] done.", ""]) for _ in range(4)]})
        rows["mmlu_anatomy"].append({"question": " " + text(rng, 25) + "\n", "subject": "anatomy",
                                     "choices": [text(rng, 5) for _ in range(4)], "answer": rng.randrange(4)})
        if i < 12:
            rows["gsm8k"].append({"question": text(rng, 20), "answer": f"Because {i}.\n#### {rng.randrange(100)}"})
    return rows


def write(folder, rows):
    for name, all_of_it in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in all_of_it))


def harness_tasks(folder):
    import lm_eval
    source = pathlib.Path(lm_eval.__file__).parent / "tasks"
    tasks = folder / "tasks"
    tasks.mkdir()
    shutil.copy(source / "hellaswag/utils.py", tasks / "utils.py")
    origin = {"arc_easy": "arc/arc_easy.yaml", "hellaswag": "hellaswag/hellaswag.yaml", "gsm8k": "gsm8k/gsm8k.yaml",
              "mmlu_anatomy": "mmlu/default/_default_template_yaml"}
    for name, path in origin.items():
        lines = []
        skipping = False
        for line in (source / path).read_text().splitlines():
            key = line.split(":")[0]
            if not line.startswith((" ", "-")):
                skipping = key in ("dataset_path", "dataset_name", "training_split", "validation_split", "test_split",
                                   "fewshot_split", "fewshot_config", "tag", "task", "num_fewshot")
            if not skipping:
                lines.append(line)
        lines += [f"task: ours_{name}", "dataset_path: json", "test_split: test", "num_fewshot: 0",
                  "dataset_kwargs:", "  data_files:", f"    test: {folder / (name + '.jsonl')}"]
        if name == "mmlu_anatomy":
            lines.append('description: "The following are multiple choice questions (with answers) about anatomy.\\n\\n"')
        (tasks / f"ours_{name}.yaml").write_text("\n".join(lines) + "\n")
    return tasks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("capstan")
    parser.add_argument("tokenizer")
    parser.add_argument("--items", type=int, default=60)
    args = parser.parse_args()
    import lm_eval
    import torch
    import transformers
    from lm_eval.tasks import TaskManager
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = files(args.items)
        torch.manual_seed(0)
        model = folder / "model"
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.tokenizer)
        config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                          num_key_value_heads=2, vocab_size=len(tokenizer), max_position_embeddings=512,
                                          initializer_range=0.2)
        made = transformers.LlamaForCausalLM(config)
        made.save_pretrained(model)
        # Half of the answers are what the model says, so that some are right.
        for row in rows["gsm8k"][::2]:
            ids = tokenizer(f"Question: {row['question']}\nAnswer:", return_tensors="pt").input_ids
            said = tokenizer.decode(made.generate(ids, max_new_tokens=256, do_sample=False)[0, ids.shape[1]:],
                                    skip_special_tokens=True)
            numbers = re.findall(r"-?[$0-9.,]{2,}|-?[0-9]+", said)
            if numbers:
                row["answer"] = f"So.\n#### {numbers[-1]}"
        write(folder, rows)
        for file in pathlib.Path(args.tokenizer).iterdir():
            if file.is_file():
                shutil.copy(file, model / file.name)
        found = lm_eval.simple_evaluate(
            model="hf", model_args={"pretrained": str(model), "dtype": "float32"}, device="cpu", batch_size=1,
            tasks=[f"ours_{t}" for t in rows], task_manager=TaskManager(include_path=str(harness_tasks(folder))),
            bootstrap_iters=0, confirm_run_unsafe_code=True)["results"]
        words = [args.capstan, "evaluate", model, "--precision", "32-true", "--accelerator", "cpu", "--json"]
        for task in rows:
            words += ["--tasks", f"{task}:{folder / task}.jsonl"]
        ours = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        differs = 0
        for task in rows:
            for measure, value in ours[task].items():
                if measure == "items" or measure.endswith("_stderr"):
                    continue
                theirs = found[f"ours_{task}"][measure if "," in measure else f"{measure},none"]
                same = abs(theirs - value) < 1e-12
                differs += not same
                print(f"{'same   ' if same else 'DIFFERS'}  {task:14} {measure:30} {value:.6f}  {theirs:.6f}")
    sys.exit(differs > 0)


if __name__ == "__main__":
    main()
