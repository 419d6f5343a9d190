#!/usr/bin/env python3
"""Writes chat_templates.jsonl: conversations, and the text that the templates of Hugging Face models make of them, evaluated by
Jinja2 in transformers' settings (trim_blocks, lstrip_blocks). tests/data/chat_template_test.cpp compares Trivet's with it. Needs
Jinja2: pip install jinja2
"""
import json
import pathlib

import jinja2.sandbox

TEMPLATES = {
    "chatml":
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}",
    "llama-2":
        "{% set system = '' %}{% set rest = messages %}"
        "{% if messages[0]['role'] == 'system' %}"
        "{% set system = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}{% set rest = messages[1:] %}{% endif %}"
        "{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ refuse() }}{% endif %}"
        "{% if m['role'] == 'user' %}{{ '<s>[INST] ' + ((system if loop.first else '') + m['content']).strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + m['content'].strip() + ' </s>' }}{% endif %}{% endfor %}",
    "llama-3":
        "{% for m in messages %}{% set turn = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim"
        " + '<|eot_id|>' %}{% if loop.first %}{% set turn = '<|begin_of_text|>' + turn %}{% endif %}{{ turn }}{% endfor %}",
}


def message(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = [
    [message("user", "Hello"), message("assistant", "Hi!")],
    [message("system", "Be brief."), message("user", "What is 2 + 2?"), message("assistant", "4"),
     message("user", "And 3 + 3?"), message("assistant", "6")],
    [message("user", "  space \n\t"), message("assistant", "\n around\u00a0\u2003")],
    [message("system", " a system "), message("user", "\u3000wide\u001c "), message("assistant", "caf\u00e9 \u20ac \U0001f600")],
    [message("user", ""), message("assistant", "")],
    [message("user", "no answer yet")],
    [message("system", "alone")],
    [message("assistant", "begins"), message("user", "follows")],
    [message("user", "one"), message("user", "two")],
    [message("user", "<|im_end|> [/INST] </s> {{ 1 + 1 }}"), message("assistant", "<|eot_id|>\\n")],
]


class Refused(Exception):
    pass


def refuse():
    raise Refused


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
with open(pathlib.Path(__file__).parent / "chat_templates.jsonl", "w") as file:
    for name, template in TEMPLATES.items():
        for messages in CONVERSATIONS:
            try:
                text = environment.from_string(template).render(messages=messages, refuse=refuse)
            except Refused:
                text = None
            if name == "llama-2" and messages[0]["role"] == "system" and len(messages) == 1:
                text = None  # the template would drop the message
            print(json.dumps({"template": name, "messages": messages, "text": text}), file=file)
