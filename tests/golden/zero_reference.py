#!/usr/bin/env python3
"""Writes tests/golden/zero: checkpoints of DeepSpeed, and the weights that DeepSpeed's own converters read from them.

    python3 tests/golden/zero_reference.py tests/golden/zero

    stage1-bf16, stage2-fp16, stage3-bf16    as engine.save_checkpoint writes them, of 2 or 3 ranks on CPUs, with two groups of
                                             parameters; config.json is added, as transformers' Trainer does
                                             in the last two, the embedding and the MLP are not trained
    universal                                stage1-bf16 converted by ds_to_universal
    NAME/expected.safetensors                what zero_to_fp32 makes of each; of universal: the same as of stage1-bf16. At stage 2
                                             zero_to_fp32 leaves out what was not trained: it is taken from the model's states.

The fuzzer's first inputs are written, too. Needs torch, transformers and deepspeed (DS_BUILD_OPS=0 pip install deepspeed). Other versions may write other numbers.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

RANKS = {"stage1-bf16": 2, "stage2-fp16": 3, "stage3-bf16": 3}


def make_model():
    import torch
    import transformers
    config = transformers.LlamaConfig(vocab_size=11, hidden_size=4, intermediate_size=9, num_hidden_layers=1, num_attention_heads=2,
                                      num_key_value_heads=1, max_position_embeddings=16, tie_word_embeddings=True,
                                      bos_token_id=1, eos_token_id=2)
    torch.manual_seed(7)
    return transformers.LlamaForCausalLM(config)


def train(name, folder):
    """One rank: two steps, then a checkpoint."""
    import deepspeed
    import torch
    deepspeed.init_distributed(dist_backend="gloo")
    stage = int(name.split("-")[0][-1])
    model = make_model()
    if stage > 1:
        for parameter_name, parameter in model.named_parameters():
            parameter.requires_grad = "mlp" not in parameter_name and "embed" not in parameter_name
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1]}, {"params": [p for p in trained if p.dim() == 1]}]
    groups = [group for group in groups if group["params"]]
    # The converter to universal checkpoints needs the moments of Adam; other files are smaller without.
    optimizer = torch.optim.AdamW(groups, lr=0.01) if stage == 1 else torch.optim.SGD(groups, lr=0.05)
    precision = "bf16" if name.endswith("bf16") else "fp16"
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, precision: {"enabled": True}}
    if stage == 2:
        config["zero_optimization"]["parameter_alignment"] = True  # padding between parameters
    if precision == "fp16":
        config[precision]["initial_scale_power"] = 4
        deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True  # torch's CPU kernels compute in float16, too
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
    for _ in range(2):
        tokens = torch.randint(11, (2, 9), generator=generator)
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    engine.save_checkpoint(folder)


def run_ranks(name, folder):
    port = str(29500 + os.getpid() % 1000)
    ranks = [subprocess.Popen([sys.executable, __file__, "--rank", name, folder],
                              env=dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS[name]),
                                       MASTER_ADDR="127.0.0.1", MASTER_PORT=port, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1",
                                       LOCAL_SIZE=str(RANKS[name])))
             for rank in range(RANKS[name])]
    if any([rank.wait() != 0 for rank in ranks]):
        sys.exit(f"{name}: a rank failed")


def finish(folder):
    """Adds config.json and what DeepSpeed reads, and removes its scripts."""
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    from safetensors.torch import save_file
    expected = {name: tensor.float().contiguous().clone()
                for name, tensor in get_fp32_state_dict_from_zero_checkpoint(folder).items()}
    for file in glob.glob(os.path.join(folder, "*", "mp_rank_00_model_states.pt")):
        for name, tensor in torch.load(file, weights_only=False)["module"].items():
            expected.setdefault(name, tensor.float().clone())
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    make_model().config.save_pretrained(folder)
    for script in glob.glob(os.path.join(folder, "*.py")):
        os.remove(script)


def make_universal(source, folder):
    tag = open(os.path.join(source, "latest")).read().strip()
    os.makedirs(folder)
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", os.path.join(source, tag),
                    "--output_folder", os.path.join(folder, "universal"), "--num_extract_workers", "1",
                    "--num_merge_workers", "1", "--inject_missing_state"], check=True)
    for name in ("config.json", "expected.safetensors"):
        shutil.copy(os.path.join(source, name), folder)
    for file in glob.glob(os.path.join(folder, "universal", "zero", "**", "*.pt"), recursive=True):
        if os.path.basename(file) != "fp32.pt":  # the states of the optimizer, which Trivet does not read
            os.remove(file)


def write_seeds(target):
    """The fuzzer's first inputs: the pickles of the golden files."""
    from foreign_models import archive_seed
    import torch
    seeds = os.path.join(os.path.dirname(__file__), "..", "fuzz", "seeds", "zero_checkpoint")
    os.makedirs(seeds, exist_ok=True)
    names = {"model_states": {"mp": 0, "0": 1, "1": 2, "2": 3}, "optim_states": {"0": 4, "1": 5, "2": 6}}  # as in the target
    for folder in ("stage1-bf16", "stage2-fp16", "stage3-bf16"):
        content = b""
        for path in sorted(glob.glob(os.path.join(target, folder, "*", "*.pt"))):
            rank, kind = re.match(r".*/(?:bf16_)?(?:zero_pp_rank_(\d)_)?mp_rank_00_(\w+).pt", path).groups()
            content += bytes([names[kind][rank or "mp"]]) + archive_seed(torch.load(path, weights_only=False))
        with open(os.path.join(seeds, folder), "wb") as file:
            file.write(content)
    with open(os.path.join(seeds, "cut_short"), "wb") as file:
        file.write(content[:5000])
    with open(os.path.join(seeds, "universal"), "wb") as file:
        file.write(b"\7" + archive_seed({"param": torch.zeros(2, 3)}) + b"\0" + archive_seed({"shared_params": {}}))


def main(target):
    for name in RANKS:
        folder = os.path.join(target, name)
        shutil.rmtree(folder, ignore_errors=True)
        run_ranks(name, folder)
        finish(folder)
    shutil.rmtree(os.path.join(target, "universal"), ignore_errors=True)
    make_universal(os.path.join(target, "stage1-bf16"), os.path.join(target, "universal"))
    write_seeds(target)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        train(*sys.argv[2:])
    else:
        main(sys.argv[1])
