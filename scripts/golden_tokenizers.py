#!/usr/bin/env python3
"""Writes crates/tasks/tests/golden/tokenizers.json: what Hugging Face's `tokenizers` (0.23.3) makes
of small texts, to hold the byte-pair encoding of crates/tasks against. Needs `pip install tokenizers`.

Texts are drawn here: Chinese without spaces, DNA without line ends, code, and English. `merges` are
pairs of ids, `ids` the tokens of `sample`.
"""
import json, pathlib, random, re

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/tasks/tests/golden/tokenizers.json"
# As in crates/tasks/src/text/bpe/words.rs, over bytes.
ASCII = (rb" ?[^\x00-@\[-`{-\x7F]+| ?[0-9]+| ?[\x00-\x08\x0E-\x1F!-/:-@\[-`{-\x7F]+"
         rb"|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+")
LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SAMPLE = "It's  我们的 x1 = 1234;\r\n\n\t// été, 2½ ＋3。 don't <|end|>\u3000 \u00a0end  "


def texts():
    draw = random.Random(7)
    signs = "的一是不了人我在有他这中大来上国们到说和地也子时道"
    weights = [1 / (n + 1) for n in range(len(signs))]
    chinese = "".join(draw.choices(signs + "，。", weights + [0.05, 0.05], k=1500))
    repeats = ["".join(draw.choices("ACGT", k=20)) for _ in range(12)]
    dna = "".join(draw.choice(repeats + ["".join(draw.choices("ACGT", k=9))]) for _ in range(200))
    names = ["count", "index", "value", "first", "rest", "table", "Größe"]
    code = "".join(
        f"    if {draw.choice(names)}[{draw.randrange(99)}] != {draw.choice(names)}.len() {{\n"
        f"\treturn {draw.choice(names)} + {draw.randrange(12)}; // {draw.choice(names)}'s {draw.choice(names)}\n    }}\n\n"
        for _ in range(60))
    return {"chinese": chinese, "dna": dna, "code": code, "all": code[:1500] + chinese[:300] + "\n" + dna[:600]}


def pairs(tokenizer):
    vocab = tokenizer.get_vocab()
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [[vocab[left], vocab[right]] for left, right in merges]


def by_ascii(text, vocab):
    """Bytes keep their order: each is one character of its own."""
    mark = chr(0x800)
    words = [bytes(word) for word in re.findall(ASCII, text.encode())]
    assert b"".join(words) == text.encode()
    spelled = mark.join("".join(chr(0x100 + byte) for byte in word) for word in words)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(mark, "removed")
    tokenizer.train_from_iterator([spelled], trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, initial_alphabet=[chr(0x100 + byte) for byte in range(256)], show_progress=False))
    return pairs(tokenizer)


def by_unicode(text, vocab):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def llama_3(text, vocab):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([AddedToken("<|end|>")])
    return tokenizer


def main():
    trained = []
    for name, text in texts().items():
        for vocab in (300, 800):
            gpt_2 = by_unicode(text, vocab)
            trained.append({
                "name": name, "vocab": vocab, "ascii": by_ascii(text, vocab), "unicode": pairs(gpt_2),
                "ids": gpt_2.encode(SAMPLE).ids})
    text = texts()["all"]
    tokenizer = llama_3(text, 420)
    read = {"json": json.loads(tokenizer.to_str()), "ids": tokenizer.encode(SAMPLE).ids,
            "all": tokenizer.encode(text).ids}
    OUT.write_text(json.dumps({"sample": SAMPLE, "texts": texts(), "trained": trained, "read": read}) + "\n")


main()
