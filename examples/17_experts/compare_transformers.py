"""Compares a model that Trivet exported with what transformers makes of it: compare_transformers.py FOLDER CHATS LOSS QUESTION ANSWER

LOSS is Trivet's on the answers of CHATS, ANSWER its likeliest answer to QUESTION. Both computed in float32, so the losses may differ by
rounding: 1e-5.
"""
import json
import sys

import torch
import transformers

folder, chats, loss, question, answer = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def tokens_of(messages, **options):
    return tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt", **options)["input_ids"]


total = targets = 0
with torch.no_grad():
    for line in open(chats):
        messages = json.loads(line)["messages"]
        prompt = tokens_of(messages[:-1], add_generation_prompt=True)
        whole = tokens_of(messages)
        end = whole.tolist()[0].index(tokenizer.eos_token_id, prompt.shape[1]) + 1  # the answer ends with it; a newline may follow
        logits = model(whole[:, :end]).logits[0, prompt.shape[1] - 1 : -1]
        total += torch.nn.functional.cross_entropy(logits, whole[0, prompt.shape[1] : end], reduction="sum").item()
        targets += end - prompt.shape[1]
    prompt = tokens_of([{"role": "user", "content": question}], add_generation_prompt=True)
    made = model.generate(prompt, do_sample=False, max_new_tokens=40)[0, prompt.shape[1] :]
theirs = tokenizer.decode(made, skip_special_tokens=True).strip()
print(f"transformers: loss {total / targets:.6f}, Trivet {float(loss):.6f}; answer: {theirs}")
if abs(total / targets - float(loss)) > 1e-5:
    sys.exit("compare_transformers: the losses should be equal but for rounding")
if theirs != answer.strip():
    sys.exit("compare_transformers: the answers should be equal")
