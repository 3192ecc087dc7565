#!/usr/bin/env python3
"""Writes tests/golden_chat: prompts as LitGPT and transformers make them, for texts of our own.

  make_chat.py TOKENIZERS    a folder with llama3.2 and qwen2.5, each with tokenizer.json and
                             tokenizer_config.json

styles.json     what each of LitGPT's prompt styles makes of an instruction
templates.json  what chat templates make of conversations, and the ids where the tokenizer is given

Needs litgpt (its prompts.py alone: pip install --no-deps litgpt) and transformers.
"""

import importlib.util
import json
import sys
import types
from pathlib import Path

from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

OUT = Path(__file__).resolve().parents[2] / "tests/golden_chat"

INSTRUCTION = "Name three rivers.\nSay {input} where each begins."
INPUT = "They must be in Europe: {instruction}"
SYSTEM = "Answer like a map."

CONVERSATIONS = {
    "one turn": [
        {"role": "user", "content": "Which river is longer, the Rhine or the Elbe?"},
        {"role": "assistant", "content": "The Rhine: about 1,230 km."},
    ],
    "system and two turns": [
        {"role": "system", "content": "You answer in one word. Größe zählt nicht."},
        {"role": "user", "content": "  A colour?\n"},
        {"role": "assistant", "content": "Blue\n"},
        {"role": "user", "content": "Another, in 日本語"},
        {"role": "assistant", "content": " 赤 🟥"},
    ],
}

# What the models' own tokenizer_config.json hold, shortened by checks that only raise errors.
TEMPLATES = {
    "llama2": (
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system_message = messages[0]['content'] %}{% else %}"
        "{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
        "{% for message in loop_messages %}{% if loop.index0 == 0 and system_message != false %}"
        "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}"
        "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}"
        "{% endif %}{% endfor %}"),
    "llama3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
        "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim"
        " + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
        "{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"),
    "mistral": (
        "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}"
        "{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}"
        "{{ bos_token }}{% for message in loop_messages %}{% if message['role'] == 'user' %}"
        "{% if loop.first and system_message is defined %}"
        "{{ '[INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}"
        "{% else %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}"
        "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}"
        "{% endif %}{% endfor %}"),
    "mistral-v3": (
        "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"
        "{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}"
        "{%- endif %}{%- set user_messages = loop_messages | selectattr('role', 'equalto', 'user') "
        "| list %}{{- bos_token }}{%- for message in loop_messages %}"
        "{%- if message['role'] == 'user' %}{%- if tools is defined and tools %}"
        "{{- '[AVAILABLE_TOOLS] []' }}{%- endif %}"
        "{%- if (message == user_messages[-1]) and system_message is defined %}"
        "{{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}{%- else %}"
        "{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}"
        "{%- elif message['role'] == 'assistant' %}{{- ' ' + message['content']|trim + eos_token}}"
        "{%- endif %}{%- endfor %}"),
    "zephyr": (
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + "
        "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
        "{{ '<|system|>\\n' + message['content'] + eos_token }}\n"
        "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\\n'  + message['content'] + "
        "eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n"
        "{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"),
    "gemma": (
        "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'assistant') %}"
        "{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
        "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"),
    "smollm2": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
        "Face<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + "
        "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\\n' }}{% endif %}"),
}
TOKENS = {"llama3": ("<|begin_of_text|>", "<|eot_id|>"), "gemma": ("<bos>", "<eos>"),
          "smollm2": ("<|im_start|>", "<|im_end|>")}


def litgpt_styles():
    """LitGPT's table of styles, without the packages that the rest of it imports."""
    folder = Path(importlib.util.find_spec("litgpt").submodule_search_locations[0])
    config = types.ModuleType("litgpt.config")
    config.Config = object
    package = types.ModuleType("litgpt")
    package.__path__ = []
    sys.modules.update({"litgpt": package, "litgpt.config": config})
    spec = importlib.util.spec_from_file_location("litgpt.prompts", folder / "prompts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def styles():
    prompts = litgpt_styles()
    more = {"default": prompts.Default, "falcon3": prompts.Falcon3, "r1-base": prompts.R1Base,
            "chatml": prompts.ChatML}
    cases = []
    for name, cls in {**prompts.prompt_styles, **more}.items():
        style = cls()
        cases.append({"style": name, "class": cls.__name__, "plain": style.apply(INSTRUCTION),
                      "system": style.apply(INSTRUCTION, sys_prompt=SYSTEM)})
        if name == "alpaca":
            cases[-1]["input"] = style.apply(INSTRUCTION, input=INPUT)
    return {"instruction": INSTRUCTION, "input": INPUT, "system": SYSTEM, "cases": cases}


def variants(system=True):
    """(name, messages, generation): whole conversations, and without their last answers."""
    for name, messages in CONVERSATIONS.items():
        if messages[0]["role"] == "system" and not system:
            messages = messages[1:]
        yield name, messages, False
        yield name, messages[:-1], True


def templates(tokenizers):
    cases = []
    for family, jinja in TEMPLATES.items():
        bos, eos = TOKENS.get(family, ("<s>", "</s>"))
        for name, messages, generation in variants(system=family != "gemma"):
            text = render_jinja_template([messages], chat_template=jinja, bos_token=bos,
                                         eos_token=eos, add_generation_prompt=generation)[0][0]
            cases.append({"template": family, "jinja": jinja, "bos": bos, "eos": eos, "case": name,
                          "messages": messages, "generation": generation, "text": text})
    for model in "llama3.2", "qwen2.5":
        tokenizer = AutoTokenizer.from_pretrained(tokenizers / model)
        for name, messages, generation in variants():
            options = {"add_generation_prompt": generation, "date_string": "26 Jul 2024"}
            text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
            ids = tokenizer.apply_chat_template(messages, return_dict=True, **options)["input_ids"]
            cases.append({"model": model, "case": name, "messages": messages,
                          "generation": generation, "text": text, "ids": ids})
    return cases


def main(tokenizers):
    OUT.mkdir(parents=True, exist_ok=True)
    for name, value in ("styles.json", styles()), ("templates.json", templates(tokenizers)):
        # One case a line: readable, and small in a diff.
        text = json.dumps(value, ensure_ascii=False).replace(', {"style"', ',\n{"style"')
        text = text.replace(', {"template"', ',\n{"template"').replace(', {"model"', ',\n{"model"')
        (OUT / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
