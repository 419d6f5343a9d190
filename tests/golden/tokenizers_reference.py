#!/usr/bin/env python3
"""Makes the goldens of tests/data/tokenizers_test.cpp: small tokenizers of every kind, and what their own programs make of texts.

  pip install tokenizers sentencepiece
  tests/golden/tokenizers_reference.py tests/golden/tokenizers

NAME.json or NAME.model is the tokenizer, NAME.jsonl has a line for each text: {"text", "ids", "special" (the ids if special tokens are
recognized; of tokenizer.json only), "decoded"}. frames.json has the ids that are put before and after a text.
"""
import json
import os
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from sentencepiece import sentencepiece_model_pb2

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)

CORPUS = """The river runs past the old mill, and the miller's daughter counts 12 boats. They're late; we'll wait.
def count(boats, limit=100):\n    return sum(1 for boat in boats if boat.length > limit)\n
Der Fluß fließt an der alten Mühle vorbei, und 1024 Boote fahren über das Wasser. Le café est fermé à midi.
Река течёт мимо старой мельницы. 河水流过古老的磨坊。川は古い水車のそばを流れる。 النهر يجري بجانب الطاحونة القديمة.
int main(void) { for (int i = 0; i < 256; ++i) printf("%d\\n", i); return 0; }
She sells sea shells by the sea shore; the shells she sells are sea shells, I'm sure. It's 3.14159, isn't it?
""".split("\n") * 4
TEXTS = [
    "", " ", "a", "The miller's daughter", "  two  spaces \n\n\n and\tlines\r\nend \n", "don't DON'T I'LL it'\u017f we're",
    "1234567 12 3.14 \u0663\u0664 \u2167 \u00b2", "\u6cb3\u6c34\u6d41\u8fc7\u53e4\u8001\u7684\u78e8\u574a\u3002 \u5ddd\u306f", "caf\u00e9 cafe\u0301 \ufb01 \u212b \u1e69 \u1100\u1161\u11a8",
    "\U0001F600 \U0001F469\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA \u2764\ufe0f", "\x00\x01\x07\x1f\x7f\x85\u200b\ufeff\ufffd", "\u00a0x\u3000y\u2028z\u180ew",
    "<s>x</s> <|endoftext|><mask> <sep>hello <0x41>", "camelCaseAndHTTPServer snake_case //////\n/** x */", "FOOBAR  x foo FOOBAR hello worlds hello world",
    "\u0627\u0644\u0646\u0647\u0631 \u05e9\u05dc\u05d5\u05dd \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947", "\u2581\u2581x \u2581", "\U00013460\U000105C0\U0001E5D0 x\U00011F50",
    "The \u0130stanbul STRASSE \u03a3\u0391\u03a3 \u1e9e \ua7cb", "a" * 150, "]]] }}} ==== ---- ]]]]]]]", "\u0301x \u0308", "##ing [UNK] [MASK] .,;!? \u00bf\u2014\u300c"]
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (r"[^\r\n\p{L}\p{N}]?%s*%s+%s|[^\r\n\p{L}\p{N}]?%s+%s*%s" % (UPPER, LOWER, SHORT, UPPER, LOWER, SHORT) +
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
            "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
BYTES_ONLY = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
frames = {}


def write(name, encode, decode, special=None, frame=None):
    with open("%s/%s.jsonl" % (folder, name), "w") as out:
        for text in TEXTS:
            ids = encode(text)
            line = {"text": text, "ids": ids}
            if special:
                line["special"] = special(text)
            line["decoded"] = decode(ids)
            out.write(json.dumps(line) + "\n")
    if frame:
        frames[name] = frame


def save(name, tokenizer):
    """Adds tokens, saves, and writes what it makes of the texts."""
    path = "%s/%s.json" % (folder, name)
    tokenizer.save(path, pretty=False)
    with open(path) as file:
        content = json.load(file)
    if "merges" in content["model"]:  # half of the files have the older form
        if len(name) % 2 and not any(" " in part for merge in content["model"]["merges"] for part in merge):
            content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    with open(path, "w") as file:
        json.dump(content, file, separators=(",", ":"))
    tokenizer = Tokenizer.from_file(path)
    framed = tokenizer.encode("x")
    inner = tokenizer.encode("x", add_special_tokens=False).ids
    at = next(i for i in range(len(framed.ids)) if framed.ids[i:i + len(inner)] == inner)

    def encode(text):
        tokenizer.encode_special_tokens = True
        return tokenizer.encode(text, add_special_tokens=False).ids

    def special(text):
        tokenizer.encode_special_tokens = False
        return tokenizer.encode(text, add_special_tokens=False).ids

    write(name, encode, lambda ids: tokenizer.decode(ids, skip_special_tokens=False), special,
          {"before": framed.ids[:at], "after": framed.ids[at + len(inner):]})


def bpe(name, splitter, special, normalizer=None, post=None, added=(), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer, tokenizer.decoder = splitter, decoders.ByteLevel()
    suffix = model.get("end_of_word_suffix", "")
    first = special + [c + suffix for c in ALPHABET if suffix]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=len(first) + 420, special_tokens=first, initial_alphabet=ALPHABET,
                                                              end_of_word_suffix=suffix, show_progress=False))
    if suffix:  # these are no special tokens
        content = json.loads(tokenizer.to_str())
        content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in special]
        tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    if post:
        tokenizer.post_processor = post(tokenizer)
    save(name, tokenizer)


def by_patterns(*patterns):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns] + [BYTES_ONLY])


bpe("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
bpe("llama3", by_patterns(GPT4), ["<s>", "</s>"], ignore_merges=True, post=lambda t: processors.Sequence([
    processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", 0)])]))
bpe("qwen2", by_patterns(GPT4.replace("{1,3}", "")), ["<|endoftext|>"], normalizer=normalizers.NFC())
bpe("gpt4o", by_patterns(GPT4O), ["<|endoftext|>"])
bpe("deepseek", by_patterns(*DEEPSEEK), ["<s>"], normalizer=normalizers.Sequence([]))
bpe("falcon", pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                       pre_tokenizers.Digits(individual_digits=False),
                                       pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]), ["<|endoftext|>"])
bpe("roberta", pre_tokenizers.ByteLevel(add_prefix_space=True), ["<s>", "</s>", "<mask>"],
    added=[AddedToken("<mask>", lstrip=True, special=True), AddedToken("hello world", single_word=True), AddedToken("FOOBAR", rstrip=True)],
    post=lambda t: processors.RobertaProcessing(("</s>", 1), ("<s>", 0)))
bpe("clip", pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
                                     BYTES_ONLY]), ["<|endoftext|>"], end_of_word_suffix="</w>",
    normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]))


def word_piece(name, normalizer, splitter):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, splitter, decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                                                    show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                             special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    save(name, tokenizer)


word_piece("bert_uncased", normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer())
word_piece("bert_cased", normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer())
word_piece("whitespace", normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip(), normalizers.Nmt()]),
           pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]))


def pieces(name, **options):
    lines, rules = folder + "/corpus.tmp", folder + "/rules.tmp"
    with open(lines, "w") as file:
        file.write("\n".join(line for line in CORPUS if line))
    if options.pop("rules", False):  # a small map of characters: ligatures, full-width letters, white space, one that goes away
        with open(rules, "w") as file:
            for source, target in [("FB01", "66 69"), ("3000", "20"), ("A0", "20"), ("A", "20"), ("9", "20"), ("200B", ""), ("FF21", "41"),
                                   ("65 301", "E9"), ("1100 1161", "AC00"), ("212B", "C5")]:
                file.write("%s\t%s\n" % (source, target))
        options["normalization_rule_tsv"] = rules
    sentencepiece.SentencePieceTrainer.train(input=lines, model_prefix="%s/%s" % (folder, name), minloglevel=2, hard_vocab_limit=False, **options)
    for path in (lines, rules, "%s/%s.vocab" % (folder, name)):
        if os.path.exists(path):
            os.remove(path)
    # Paths of this machine do not belong into the file.
    path = "%s/%s.model" % (folder, name)
    proto = sentencepiece_model_pb2.ModelProto()
    with open(path, "rb") as file:
        proto.ParseFromString(file.read())
    del proto.trainer_spec.input[:]
    proto.trainer_spec.model_prefix = ""
    proto.normalizer_spec.normalization_rule_tsv = ""
    with open(path, "wb") as file:
        file.write(proto.SerializeToString())
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    write(name, processor.EncodeAsIds, processor.DecodeIds)
    return proto


llama2 = pieces("llama2", model_type="bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity",
                remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True, character_coverage=0.98,
                user_defined_symbols=["<sep>", "\t\t"])
pieces("bpe_unknown", model_type="bpe", vocab_size=300, rules=True, character_coverage=0.98)
t5 = pieces("t5", model_type="unigram", vocab_size=300, rules=True, character_coverage=0.98)
pieces("unigram_bytes", model_type="unigram", vocab_size=600, byte_fallback=True, rules=True, user_defined_symbols=["<sep>", "hello"])

# The tokenizer.json that transformers makes of the models of Llama-2 and of T5.
vocabulary = [(piece.piece, piece.score) for piece in llama2.pieces]
ids, score = {piece: i for i, (piece, _) in enumerate(vocabulary)}, dict(vocabulary)
merges = [(score[piece], piece[:i], piece[i:]) for piece in ids for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
merges.sort(key=lambda merge: (-merge[0], ids[merge[1]], ids[merge[2]]))
tokenizer = Tokenizer(models.BPE(ids, [merge[1:] for merge in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
save("llama2_converted", tokenizer)
vocabulary = [(piece.piece, piece.score) for piece in t5.pieces]
tokenizer = Tokenizer(models.Unigram(vocabulary, t5.trainer_spec.unk_id))
tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(t5.normalizer_spec.precompiled_charsmap),
                                             normalizers.Replace(Regex(" {2,}"), " ")])
tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="first")
tokenizer.decoder = decoders.Metaspace("\u2581", prepend_scheme="first")
tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 2)])
save("t5_converted", tokenizer)

with open(folder + "/frames.json", "w") as out:
    json.dump(frames, out, indent=1)
