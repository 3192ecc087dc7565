#include <regex.h>

#include <array>

#include "base/error.h"
#include "data/prompt/prompt_style.h"

// LitGPT 0.5.13's styles. Models are trained and prompted with these exact texts, so every
// character counts; tests compare them with LitGPT's own output.
namespace capstan {
namespace {

constexpr std::string_view kTask =
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n";
constexpr std::string_view kTaskWithInput =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n";
constexpr std::string_view kInstruction =
    "{system_part}### Instruction:\n{instruction}\n\n### Response:\n";

constexpr std::string_view kChatMl =
    "{system_part}<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n";
constexpr std::string_view kChatMlSystem = "<|im_start|>system\n{system}<|im_end|>\n";

constexpr std::string_view kStableLmSystem =
    "# StableLM Tuned (Alpha version)\n"
    "- StableLM is a helpful and harmless open-source AI language model developed by "
    "StabilityAI.\n"
    "- StableLM is excited to be able to help the user, but will refuse to do anything that could "
    "be considered harmful to the user.\n"
    "- StableLM is more than just an information source, StableLM is also able to write poetry, "
    "short stories, and make jokes.\n"
    "- StableLM will refuse to participate in anything that could harm a human.";

// The doubled braces are in LitGPT.
constexpr std::string_view kFunctions =
    R"(<FUNCTIONS>{{"function": "search_bing", "description": "Search the web for content on Bing. )"
    R"(This allows users to search online/the internet/the web for content.", "arguments": )"
    R"([{{"name": "query", "type": "string", "description": "The search query string"}}]}})"
    "</FUNCTIONS>\n\n[INST]<<SYS>>\n{system_part}\n<</SYS>>\n\n{instruction}[/INST]\n\n";
constexpr std::string_view kFunctionsSystem =
    "You are a helpful, respectful and honest assistant. Always answer as helpfully aspossible. "
    "Your only response should be JSON formatted functions";

constexpr std::string_view kLlama2System =
    "You are a helpful, respectful and honest assistant. Always answer as helpfully as possible, "
    "while being safe.  Your answers should not include any harmful, unethical, racist, sexist, "
    "toxic, dangerous, or illegal content. Please ensure that your responses are socially unbiased "
    "and positive in nature.\n\nIf a question does not make any sense, or is not factually "
    "coherent, explain why instead of answering something not correct. If you don't know the "
    "answer to a question, please don't share false information.";

constexpr std::string_view kPhi4ReasoningSystem =
    "You are Phi, a language model trained by Microsoft to help users. Your role as an assistant "
    "involves thoroughly exploring questions through a systematic thinking process before "
    "providing the final precise and accurate solutions. This requires engaging in a comprehensive "
    "cycle of analysis, summarizing, exploration, reassessment, reflection, backtracing, and "
    "iteration to develop well-considered thinking process. Please structure your response into "
    "two main sections: Thought and Solution using the specified format: <think> {Thought section} "
    "</think> {Solution section}. In the Thought section, detail your reasoning process in steps. "
    "Each step should include detailed considerations such as analysing questions, summarizing "
    "relevant findings, brainstorming new ideas, verifying the accuracy of the current steps, "
    "refining any errors, and revisiting previous steps. In the Solution section, based on various "
    "attempts, explorations, and reflections from the Thought section, systematically present the "
    "final solution that you deem correct. The Solution section should be logical, accurate, and "
    "concise and detail necessary steps needed to reach the conclusion. Now, try to solve the "
    "following question through the above guidelines:";

constexpr std::string_view kSalamandraSystem =
    "I am Salamandra, an AI language model developed at the Barcelona Supercomputing Centre (BSC) "
    "by the Language Technologies Unit. My knowledge base was last updated on August 2023. Today "
    "Date: 2024-09-30\nSoy Salamandra, un modelo lingüístico de IA desarrollado en el Barcelona "
    "Supercomputing Centre (BSC) por la Language Technologies Unit. Mi base de conocimientos se "
    "actualizó por última vez en agosto de 2023.\nSoc Salamandra, un model de llenguatge d'IA "
    "desenvolupat al Barcelona Supercomputing Centre (BSC) per la Language Technologies Unit.";

PromptStyle chat_ml(std::string_view name, std::string_view class_name, std::string_view system) {
  return {.name = name,
          .class_name = class_name,
          .text = kChatMl,
          .system_part = kChatMlSystem,
          .system = system};
}

const std::vector<PromptStyle> kStyles = {
    {.name = "default", .class_name = "Default", .text = "{instruction}"},
    {.name = "alpaca",
     .class_name = "Alpaca",
     .text = kInstruction,
     .with_input = "{system_part}### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n"
                   "### Response:\n",
     .system_part = "{system}",
     .system = kTask,
     .system_with_input = kTaskWithInput},
    {.name = "flan",
     .class_name = "FLAN",
     .text = kInstruction,
     .system_part = "{system}",
     .system = kTask},
    {.name = "longform",
     .class_name = "Longform",
     .text = kInstruction,
     .system_part = "{system}",
     .system = kTaskWithInput},
    {.name = "stablelm-alpha",
     .class_name = "StableLMAlpha",
     .text = "<|SYSTEM|>{system_part}<|USER|>{instruction}<|ASSISTANT|>",
     .system_part = "{system}",
     .system = kStableLmSystem,
     .stops = {"<|SYSTEM|>", "<|ASSISTANT|>", "<|USER|>"}},
    {.name = "stablelm-zephyr",
     .class_name = "StableLMZephyr",
     .text = "<|user|>\n{instruction}<|endoftext|>\n<|assistant|>\n"},
    {.name = "falcon",
     .class_name = "Falcon",
     .text = "{instruction}\nAnswer:",
     .stops = {"User :"}},
    {.name = "falcon3",
     .class_name = "Falcon3",
     .text = "<|user|>\n{instruction}<|endoftext|>\n<|assistant|>\n",
     .stops = {"<|endoftext|>"}},
    {.name = "llama2-function-calling",
     .class_name = "Llama2FunctionCalling",
     .text = kFunctions,
     .system_part = "{system}",
     .system = kFunctionsSystem},
    {.name = "llama2",
     .class_name = "Llama2",
     .text = "[INST] <<SYS>>\n{system_part}\n<</SYS>>\n\n {instruction} [/INST] ",
     .system_part = "{system}",
     .system = kLlama2System},
    {.name = "freewilly2",
     .class_name = "FreeWilly2",
     .text = "### System:\n{system_part}\n\n### User:\n{instruction}\n\n### Assistant:\n",
     .system_part = "{system}",
     .system = "This is a system prompt, please behave and help the user."},
    {.name = "platypus",
     .class_name = "Platypus",
     .text = "### Instruction:\n\n{instruction}\n\n### Response:\n"},
    {.name = "stablecode",
     .class_name = "StableCode",
     .text = "###Instruction\n{instruction}###Response\n"},
    {.name = "codellama",
     .class_name = "CodeLlama",
     .text = "[INST] {system_part}{instruction} [/INST]",
     .system_part = "<<SYS>>\n{system}\n<</SYS>>\n\n"},
    {.name = "phi-1",
     .class_name = "Phi1",
     .text = "{instruction}\n\nAnswer:",
     .stops = {"Answer :", "Ċ Answer :"}},
    {.name = "phi-2", .class_name = "Phi2", .text = "Instruct: {instruction}\nOutput:"},
    {.name = "phi-3",
     .class_name = "Phi3",
     .text = "<|system|>\n{system_part}<|end|>\n<|user|>\n{instruction}<|end|>\n<|assistant|>\n",
     .system_part = "{system}",
     .system = "You are a helpful assistant."},
    {.name = "phi-4",
     .class_name = "Phi4",
     .text = "{system_part}<|im_start|>user<|im_sep|>{instruction}<|im_end|>"
             "<|im_start|>assistant<|im_sep|>",
     .system_part = "<|im_start|>system<|im_sep|>{system}<|im_end|>"},
    // "<|im_start>" is LitGPT's typo; models were prompted with it.
    {.name = "phi-4-reasoning",
     .class_name = "Phi4Reasoning",
     .text = "<|im_start>system<|im_sep|>{system_part}<|im_end|><|im_start|>user<|im_sep|>"
             "{instruction}<|im_end|><|im_start|>assistant<|im_sep|>",
     .system_part = "{system}",
     .system = kPhi4ReasoningSystem},
    {.name = "phi-4-mini",
     .class_name = "Phi4Mini",
     .text = "{system_part}<|user|>{instruction}<|end|><|assistant|>",
     .system_part = "<|system|>{system}<|end|>"},
    {.name = "phi-4-mini-reasoning",
     .class_name = "Phi4MiniReasoning",
     .text = "{system_part}<|user|>{instruction}<|end|><|assistant|>",
     .system_part = "<|system|>{system}<|end|>",
     .system = "Your name is Phi, an AI math expert developed by Microsoft."},
    {.name = "tinyllama",
     .class_name = "TinyLlama",
     .text = "<|system|>\n{system_part}</s>\n<|user|>\n{instruction}</s>\n<|assistant|>\n",
     .system_part = "{system}",
     .system = "You are a friendly chatbot who always gives helpful, detailed, and polite "
               "answers."},
    {.name = "gemma",
     .class_name = "Gemma",
     .text = "<start_of_turn>user\n{instruction}<end_of_turn>\n<start_of_turn>model\n"},
    {.name = "llama3",
     .class_name = "Llama3",
     .text = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{system_part}"
             "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{instruction}<|eot_id|>"
             "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .system_part = "{system}",
     .system = "You are a helpful assistant.",
     .stops = {"<|eot_id|>"}},
    {.name = "olmo",
     .class_name = "OLMo",
     .text = "<|endoftext|><|user|>\n{instruction}\n<|assistant|>\n"},
    {.name = "r1-base",
     .class_name = "R1Base",
     .text = "{system_part}<｜User｜>{instruction}<｜Assistant｜>",
     .system_part = "{system}",
     .stops = {"<｜end▁of▁sentence｜>"}},
    chat_ml("chatml", "ChatML", ""),
    chat_ml("qwen2.5", "Qwen2_5",
            "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    chat_ml("qwen2.5-math", "Qwen2_5_Math",
            "Please reason step by step, and put your final answer within \\boxed{}."),
    chat_ml("qwq", "QwQ",
            "You are a helpful and harmless assistant. You are Qwen developed by Alibaba. You "
            "should think step-by-step."),
    chat_ml("qwen3", "Qwen3", ""),
    chat_ml("smollm2", "SmolLM2",
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    chat_ml("salamandra", "Salamandra", kSalamandraSystem),
};

struct ModelPattern {
  const char* pattern;  // a POSIX extended regular expression
  std::string_view style;
};
// The first pattern that matches a model's name wins.
constexpr std::array kPatterns = {
    ModelPattern{"stablelm-tuned-alpha", "stablelm-alpha"},
    ModelPattern{"stablelm-zephyr-3b", "stablelm-zephyr"},
    ModelPattern{"stablecode-instruct", "stablecode"},
    ModelPattern{"Falcon3.*-Instruct", "falcon3"},
    ModelPattern{"falcon.*-instruct", "falcon"},
    ModelPattern{"Llama-2-7b-chat-hf-function-calling-v2", "llama2-function-calling"},
    ModelPattern{"Llama-2.*-chat", "llama2"},
    ModelPattern{"Llama-3.*-Instruct", "llama3"},
    ModelPattern{"OLMo-2.*-(Instruct|SFT|DPO)", "llama3"},
    ModelPattern{"R1", "r1-base"},
    ModelPattern{"FreeWilly2", "freewilly2"},
    ModelPattern{"Platypus", "platypus"},
    ModelPattern{"CodeLlama|Mi[sx]tral.*Instruct", "codellama"},
    ModelPattern{"phi-1", "phi-1"},
    ModelPattern{"phi-2", "phi-2"},
    ModelPattern{"Phi-3", "phi-3"},
    ModelPattern{"Phi-4-reasoning", "phi-4-reasoning"},
    ModelPattern{"Phi-4-mini-reasoning", "phi-4-mini-reasoning"},
    ModelPattern{"Phi-4-mini", "phi-4-mini"},
    ModelPattern{"phi-4", "phi-4"},
    ModelPattern{"tiny-llama.*chat", "tinyllama"},
    ModelPattern{"(Code)?Gemma.*-it", "gemma"},
    ModelPattern{"OLMo.*-hf", "olmo"},
    ModelPattern{"Qwen2\\.5-Math-.*", "qwen2.5-math"},
    ModelPattern{"Qwen2\\.5-.*", "qwen2.5"},
    ModelPattern{"QwQ-.*", "qwq"},
    ModelPattern{"Qwen3-.*", "qwen3"},
    ModelPattern{"SmolLM2.*-Instruct", "smollm2"},
    ModelPattern{"salamandra-.*-instruct", "salamandra"},
};

// The C library's regex: std::regex takes seconds to compile and recurses over long names.
bool holds(const std::string& name, const char* pattern) {
  regex_t compiled;
  require(::regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) == 0, Fault::bug,
          "'{}' is no regular expression", pattern);
  const bool found = ::regexec(&compiled, name.c_str(), 0, nullptr, 0) == 0;
  ::regfree(&compiled);
  return found;
}

}  // namespace

std::span<const PromptStyle> prompt_styles() {
  return kStyles;
}

const PromptStyle& style_for_model_name(std::string_view model_name) {
  const std::string name(model_name.substr(0, 200));  // longer ones are not names
  for (const ModelPattern& p : kPatterns)
    if (holds(name, p.pattern)) return prompt_style(p.style);
  return prompt_style("default");
}

}  // namespace capstan
