"""Writes crates/longreach/tests/golden/published.json: rotary frequencies of published models, computed by transformers.

Each model is the part of its published config.json that decides about positions; the name of the repository is its source. The
frequencies and factors come from the functions of transformers' modeling_rope_utils, in f32. Needs transformers and torch:

    python3 scripts/golden_published.py
"""

import json
from pathlib import Path

import transformers
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

OUT = Path("crates/longreach/tests/golden/published.json")


def model(name, kind, width, heads, layers, length, **facts):
    sizes = {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers, "max_position_embeddings": length}
    return name, {"model_type": kind} | sizes | facts


def llama3(factor, high=4.0):
    facts = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": high}
    return facts | {"original_max_position_embeddings": 8192}


def yarn(factor, original, **facts):
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original} | facts


def mla(mscale, factor=40.0, fast=32, slow=1):
    scaling = {"type": "yarn", "factor": factor, "original_max_position_embeddings": 4096, "beta_fast": fast, "beta_slow": slow}
    return {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_scaling": scaling | {"mscale": mscale, "mscale_all_dim": mscale}}


def layers_of(layers, period, first="sliding_attention", last="full_attention"):
    return [last if (layer + 1) % period == 0 else first for layer in range(layers)]


def every_other(layers, period):
    """transformers' `no_rope_layers`: 1 is a layer with RoPE."""
    return [int((layer + 1) % period != 0) for layer in range(layers)]


# Factors of LongRoPE as the two files have them, rounded to two places: they are such numbers in single precision.
PHI_35_SHORT = [
    1.0, 1.02, 1.03, 1.03, 1.05, 1.05, 1.05, 1.05, 1.05, 1.07, 1.1, 1.11, 1.16, 1.16, 1.17, 1.29, 1.34, 1.68, 1.79, 1.82, 1.85,
    1.88, 1.91, 1.94, 1.99, 2.02, 2.02, 2.02, 2.02, 2.02, 2.02, 2.03, 2.03, 2.03, 2.03, 2.03, 2.03, 2.03, 2.03, 2.03, 2.08, 2.09,
    2.19, 2.22, 2.59, 2.73, 2.75, 2.84,
]
PHI_35_LONG = [
    1.08, 1.11, 1.14, 1.34, 1.59, 1.6, 1.62, 2.62, 3.23, 3.23, 4.79, 7.4, 7.7, 9.09, 12.2, 17.67, 24.46, 28.57, 30.42, 30.84,
    32.59, 32.93, 42.32, 44.96, 50.34, 50.45, 57.55, 57.93, 58.21, 60.14, 62.61, 62.62, 62.71, 63.14, 63.14, 63.77, 63.93, 63.96,
    63.97, 64.03, 64.07, 64.08, 64.12, 64.41, 64.48, 64.51, 64.53, 64.84,
]
PHI_3_VISION_SHORT = [
    1.05, 1.05, 1.05, 1.1, 1.1, 1.1, 1.25, 1.25, 1.4, 1.45, 1.55, 1.85, 1.9, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0,
    2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.1, 2.1, 2.2, 2.35, 2.35, 2.35, 2.35, 2.4, 2.4, 2.65, 2.7, 2.9, 2.95, 3.05,
    3.05, 3.05,
]
PHI_3_VISION_LONG = [
    1.03, 1.05, 1.05, 1.08, 1.23, 1.23, 1.3, 1.45, 1.6, 1.65, 1.9, 2.86, 3.69, 5.42, 5.49, 5.49, 9.09, 11.58, 15.66, 15.77, 15.79,
    18.36, 21.99, 23.08, 30.01, 32.35, 32.59, 35.56, 39.95, 53.84, 56.2, 57.95, 59.29, 59.77, 59.92, 61.19, 61.96, 62.5, 63.37,
    63.48, 63.48, 63.66, 63.85, 64.08, 64.76, 64.8, 64.81, 64.81,
]


def longrope(short, long, kind="longrope"):
    factors = {"type": kind, "short_factor": short, "long_factor": long}
    return {"original_max_position_embeddings": 4096, "rope_theta": 10000.0, "rope_scaling": factors}


MODELS = [
    model("meta-llama/Llama-2-7b-hf", "llama", 4096, 32, 32, 4096),
    model("lmsys/vicuna-7b-v1.5-16k", "llama", 4096, 32, 32, 4096, rope_scaling={"type": "linear", "factor": 4.0}),
    model("NousResearch/Yarn-Llama-2-7b-128k", "llama", 4096, 32, 32, 131072, rope_scaling=yarn(32.0, 4096)),
    model("codellama/CodeLlama-7b-hf", "llama", 4096, 32, 32, 16384, rope_theta=1000000),
    model("meta-llama/Meta-Llama-3-8B", "llama", 4096, 32, 32, 8192, rope_theta=500000.0),
    model("meta-llama/Llama-3.1-8B", "llama", 4096, 32, 32, 131072, rope_theta=500000.0, rope_scaling=llama3(8.0)),
    model("meta-llama/Llama-3.2-1B", "llama", 2048, 32, 16, 131072, head_dim=64, rope_theta=500000.0, rope_scaling=llama3(32.0)),
    model("meta-llama/Llama-4-Scout-17B-16E", "llama4_text", 5120, 40, 48, 10485760, head_dim=128, rope_theta=500000.0,
          rope_scaling=llama3(16.0, 1.0), no_rope_layers=every_other(48, 4)),
    model("deepseek-ai/deepseek-coder-6.7b-base", "llama", 4096, 32, 32, 16384, rope_theta=100000,
          rope_scaling={"type": "linear", "factor": 4.0}),
    model("deepseek-ai/DeepSeek-V2-Lite", "deepseek_v2", 2048, 16, 27, 163840, rope_theta=10000, **mla(0.707)),
    model("deepseek-ai/DeepSeek-V3", "deepseek_v3", 7168, 128, 61, 163840, rope_theta=10000, **mla(1.0)),
    model("moonshotai/Kimi-K2-Instruct", "deepseek_v3", 7168, 64, 61, 131072, rope_theta=50000.0, **mla(1.0, 32.0, 1.0, 1.0)),
    model("01-ai/Yi-6B", "llama", 4096, 32, 32, 4096, rope_theta=5000000.0),
    model("Qwen/Qwen2.5-7B-Instruct", "qwen2", 3584, 28, 28, 32768, rope_theta=1000000.0),
    model("Qwen/Qwen3-8B", "qwen3", 4096, 32, 36, 40960, head_dim=128, rope_theta=1000000),
    model("Qwen/Qwen3-8B with YaRN as its card says", "qwen3", 4096, 32, 36, 131072, head_dim=128, rope_theta=1000000,
          rope_scaling=yarn(4.0, 32768)),
    model("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3_next", 2048, 16, 48, 262144, head_dim=256, rope_theta=10000000,
          partial_rotary_factor=0.25),
    model("microsoft/phi-2", "phi", 2560, 32, 32, 2048, rope_theta=10000.0, partial_rotary_factor=0.4),
    model("microsoft/phi-4", "phi3", 5120, 40, 40, 16384, rope_theta=250000, original_max_position_embeddings=16384),
    model("microsoft/Phi-3.5-mini-instruct", "phi3", 3072, 32, 32, 131072, sliding_window=262144,
          **longrope(PHI_35_SHORT, PHI_35_LONG)),
    model("microsoft/Phi-3-vision-128k-instruct", "phi3", 3072, 32, 32, 131072, sliding_window=131072,
          **longrope(PHI_3_VISION_SHORT, PHI_3_VISION_LONG, "su")),
    model("google/gemma-2-9b", "gemma2", 3584, 16, 42, 8192, head_dim=256, rope_theta=10000.0, sliding_window=4096,
          layer_types=layers_of(42, 2)),
    model("google/gemma-3-1b-pt", "gemma3_text", 1152, 4, 26, 32768, head_dim=256, rope_theta=1000000, rope_local_base_freq=10000,
          sliding_window=512, sliding_window_pattern=6),
    model("google/gemma-3-4b-pt", "gemma3_text", 2560, 8, 34, 131072, head_dim=256, rope_theta=1000000.0,
          rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 8.0}, sliding_window=1024,
          sliding_window_pattern=6),
    model("openai/gpt-oss-20b", "gpt_oss", 2880, 64, 24, 131072, head_dim=64, rope_theta=150000,
          rope_scaling=yarn(32.0, 4096, beta_fast=32.0, beta_slow=1.0, truncate=False), sliding_window=128,
          layer_types=layers_of(24, 2)),
    model("allenai/OLMo-2-1124-7B", "olmo2", 4096, 32, 32, 4096, rope_theta=500000),
    model("allenai/Olmo-3-1025-7B", "olmo3", 4096, 32, 32, 65536, rope_theta=500000, sliding_window=4096,
          layer_types=layers_of(32, 4),
          rope_scaling=yarn(8.0, 8192, attention_factor=1.2079441541679836, beta_fast=32.0, beta_slow=1.0)),
    model("THUDM/glm-4-9b-chat-hf", "glm", 4096, 32, 40, 131072, head_dim=128, rope_theta=10000.0, partial_rotary_factor=0.5),
    model("zai-org/GLM-4.5-Air", "glm4_moe", 4096, 96, 46, 131072, head_dim=128, rope_theta=1000000, partial_rotary_factor=0.5),
    model("HuggingFaceTB/SmolLM2-1.7B", "llama", 2048, 32, 24, 8192, rope_theta=130000),
    model("HuggingFaceTB/SmolLM3-3B", "smollm3", 2048, 16, 36, 65536, rope_theta=5000000.0, no_rope_layers=every_other(36, 4)),
    model("mistralai/Mistral-7B-v0.1", "mistral", 4096, 32, 32, 32768, rope_theta=10000.0, sliding_window=4096),
    model("mistralai/Mixtral-8x7B-v0.1", "mixtral", 4096, 32, 32, 32768, rope_theta=1000000.0),
    model("mistralai/Ministral-8B-Instruct-2410", "mistral", 4096, 32, 36, 32768, head_dim=128, rope_theta=100000000.0),
    model("mistralai/Ministral-3-8B-Base-2512", "ministral3", 4096, 32, 34, 262144, head_dim=128,
          rope_parameters=yarn(16.0, 16384, type="yarn", rope_theta=1000000.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
                               mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    model("CohereForAI/c4ai-command-r-v01", "cohere", 8192, 64, 40, 8192, rope_theta=8000000.0),
    model("CohereForAI/c4ai-command-r7b-12-2024", "cohere2", 4096, 32, 32, 8192, rope_theta=50000, sliding_window=4096,
          layer_types=layers_of(32, 4)),
    model("EleutherAI/gpt-neox-20b", "gpt_neox", 6144, 64, 44, 2048, rotary_pct=0.25, rotary_emb_base=10000),
    model("internlm/internlm3-8b-instruct", "internlm3", 4096, 32, 48, 32768, head_dim=128, rope_theta=50000000,
          rope_scaling={"rope_type": "dynamic", "factor": 6.0}),
    model("stabilityai/stablelm-2-1_6b", "stablelm", 2048, 32, 24, 4096, rope_theta=10000, partial_rotary_factor=0.25),
    model("MiniMaxAI/MiniMax-M2", "minimax_m2", 3072, 48, 62, 196608, head_dim=128, rotary_dim=64, rope_theta=5000000),
]


def rotations(config):
    """Layer type to parameters; the empty name where all layers have one rotation."""
    parameters = config.rope_parameters
    per_layer = {name: of for name, of in parameters.items() if isinstance(of, dict) and "rope_type" in of}
    return per_layer or {"": parameters}


def computed(config, layer_type, parameters, length):
    kind = parameters["rope_type"]
    if kind == "default":
        # The same formula without a factor.
        kind, parameters["factor"] = "linear", 1.0
    compute = ROPE_INIT_FUNCTIONS[kind]
    inv_freq, factor = compute(config, "cpu", seq_len=length, layer_type=layer_type or None)
    return {"inv_freq": [float(f"{value:.9g}") for value in inv_freq.tolist()], "attention_factor": factor}


def main():
    models = []
    for name, facts in MODELS:
        # transformers writes into the tables that it is given, and reads "su" in files alone.
        known = json.loads(json.dumps(facts).replace('"su"', '"longrope"'))
        config = AutoConfig.for_model(**known)
        length = 2 * config.max_position_embeddings
        of = rotations(config).items()
        expected = {layer_type: computed(config, layer_type, parameters, length) for layer_type, parameters in of}
        models.append({"name": name, "config": facts, "length": length, "expected": expected})
    source = f"transformers {transformers.__version__}, modeling_rope_utils, f32; facts of config.json of each name"
    lines = ",\n".join("  " + json.dumps(model) for model in models)
    OUT.write_text(f'{{"source": {json.dumps(source)}, "models": [\n{lines}\n]}}\n')
    print(f"{len(models)} models, {OUT.stat().st_size} bytes")


main()
