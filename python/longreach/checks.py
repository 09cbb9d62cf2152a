"""What `longreach.bench` checks before it trains: the config, and the class of an encoding."""

import difflib
import math
from typing import Iterator, Optional

import torch

from .model import Content, Encoding, Shape, Transformer
from .program import BenchError
from .training import KNOWN, check_metric

# What the Python model knows, by table of a spec; a key that is not here is refused by name.
_KNOWN = {
    "model": "vocab_size d_model n_layers n_heads head_dim mlp d_ff norm activation tied_head "
    "biases embedding_std matrix_std qk_norm matmul pe dropout",
    "train": "train_len seq_len steps batch_size lr warmup_steps schedule final_lr grad_clip adamw "
    "length min_len stop stages",
    "eval": "test_lens seed rows batch_tokens variants",
}
_ONLY = [("model", "dropout", 0.0)]
_HOOKS = ("embed", "transform_qk", "logits", "logits_bias", "content_bias", "output_bias")


def check_config(spec: dict) -> None:
    """Refuses a config with features that the Python model lacks."""
    for table, known in _KNOWN.items():
        for key, value in spec[table].items():
            if key not in known.split():
                raise BenchError(f"{table}.{key} = {value!r}: bench has no {key}; leave it out")
    for table, key, value in _ONLY:
        if spec[table].get(key, value) != value:
            wrong = spec[table][key]
            raise BenchError(f"{table}.{key} = {wrong!r}: bench knows only {value!r}")
    if any(not isinstance(length, int) for length in spec["eval"]["test_lens"]):
        raise BenchError("eval.test_lens: bench tests at lengths, not over ranges of lengths")
    if spec["train"].get("stop"):
        check_metric(spec["train"]["stop"]["metric"], "train.stop.metric")
    check_stages(spec)


def check_stages(spec: dict) -> None:
    """Refuses a stage with an encoding or positions other than those of `spec["model"]`."""
    for at, stage in enumerate(spec["train"].get("stages", [])):
        for key in ("pe", "positions"):
            if key in stage:
                raise BenchError(f"train.stages.{at}.{key}: bench has one encoding and one kind of "
                                 "positions for all stages; leave it out")


def check_task(task: dict) -> None:
    """Refuses a task whose leading score is not known here. `task` is that of a record."""
    if task["primary_metric"] not in KNOWN:
        kind, metric = task["kind"], task["primary_metric"]
        raise BenchError(f"task.kind = {kind!r} is scored by {metric}; bench knows {', '.join(KNOWN)}")


class Checked(Encoding):
    """An encoding whose hooks must return tensors of the right shapes and numbers."""

    def __init__(self, inner: Encoding):
        super().__init__(inner.shape)
        self.inner = inner

    def _tensor(self, hook: str, value, shape: tuple, text: str, hides: bool = False):
        """`hides`: whether -inf is a number, that of a key which a query does not see."""
        name = f"{type(self.inner).__name__}.{hook}"
        if not isinstance(value, torch.Tensor):
            raise BenchError(f"{name} returned {type(value).__name__}; expected a tensor {text}")
        try:
            fits = len(value.shape) == len(shape) and all(
                want is None or have == want for have, want in zip(value.shape, shape)
            )
        except TypeError:
            fits = False
        if not fits:
            want = [size if size is not None else "any" for size in shape]
            raise BenchError(f"{name} returned shape {list(value.shape)}; expected {text} = {want}")
        if value.dtype != torch.float32:
            # Booleans would count as 1, doubles would turn all that follows into doubles.
            raise BenchError(f"{name} returned {value.dtype}; expected torch.float32: .float()")
        wrong = (value.isnan() | (value == math.inf)) if hides else ~value.isfinite()
        if wrong.any():
            at = wrong.nonzero()[0].tolist()
            # A root or a log of a negative number gives NaN there.
            hint = ". Later keys are computed too: .abs()" if hides and at[-1] > at[-2] else ""
            raise BenchError(f"{name} returned NaN or infinity, first at {at} of {text}{hint}")
        return value

    def embed(self, x):
        return self._tensor("embed", self.inner.embed(x), tuple(x.shape), "[B, L, D]")

    def transform_qk(self, layer, q, k, hidden):
        _check_finite(type(self.inner).__name__, q)
        pair = self.inner.transform_qk(layer, q, k, hidden)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            name = type(self.inner).__name__
            raise BenchError(f"{name}.transform_qk must return a pair, queries and keys")
        shape = (*q.shape[:3], None)
        new_q = self._tensor("transform_qk", pair[0], shape, "queries [B, H, L, E]")
        shape = (*k.shape[:3], new_q.shape[-1])
        return new_q, self._tensor("transform_qk", pair[1], shape, "keys [B, H, L, E]")

    def _optional(self, hook: str, value, *how) -> Optional[torch.Tensor]:
        return None if value is None else self._tensor(hook, value, *how)

    def logits(self, layer, content: Content):
        rows, heads, length, _ = content.q.shape
        shape = (rows, heads, length, length)
        return self._tensor("logits", self.inner.logits(layer, content), shape, "[B, H, L, L]")

    def logits_bias(self, layer, length):
        shape = (self.shape.n_heads, length, length)
        value = self.inner.logits_bias(layer, length)
        return self._optional("logits_bias", value, shape, "[H, L, L]", True)

    def content_bias(self, layer, content: Content):
        rows, heads, length, _ = content.q.shape
        value, shape = self.inner.content_bias(layer, content), (rows, heads, length, length)
        return self._optional("content_bias", value, shape, "[B, H, L, L]", True)

    def output_bias(self, layer, content: Content, weights):
        shape = tuple(content.raw_q.shape)
        value = self.inner.output_bias(layer, content, weights)
        return self._optional("output_bias", value, shape, "[B, H, L, E]")


def check_class(encoding) -> None:
    """Refuses what is not a class of an encoding."""
    if not (isinstance(encoding, type) and issubclass(encoding, Encoding)):
        raise BenchError(f"{encoding!r} is not a class derived from longreach.bench.Encoding")
    # What Encoding has is a hook or of torch.nn.Module.
    added = sorted(set(dir(encoding)) - set(dir(Encoding)))
    own = [name for name in added if callable(getattr(encoding, name))]
    for name in own:
        close = difflib.get_close_matches(name, _HOOKS, 1, 0.8)
        if close:
            wrong = f"{encoding.__name__}.{name}"
            raise BenchError(f"{wrong} is not a hook and is never called; did you mean {close[0]}?")
    if own and all(getattr(encoding, hook) is getattr(Encoding, hook) for hook in _HOOKS):
        hooks = ", ".join(_HOOKS)
        raise BenchError(f"{encoding.__name__} overrides none of the hooks: {hooks}")


def make(encoding: type, shape: Shape, seed: int) -> Encoding:
    """An encoding with the values that its class draws from this seed."""
    torch.manual_seed(seed)
    name = encoding.__name__
    try:
        made = encoding(shape)
    except Exception as error:
        raise BenchError(f"{name}(shape) failed: {error}") from error
    if "_parameters" not in vars(made):
        raise BenchError(f"{name}.__init__ does not call super().__init__(shape)")
    for key, value in made.named_parameters():
        if value.dtype != torch.float32:
            raise BenchError(f"{name} has a parameter {key} of {value.dtype}; expected torch.float32")
    return made


def check_encoding(encoding: type, shape: Shape, config: dict, weights: dict, tokens, lengths: list):
    """Refuses a class that cannot be compared. `tokens` [B, L] are of the training, `lengths` those
    of the tests, in tokens."""
    name = encoding.__name__
    made, again = make(encoding, shape, 1), make(encoding, shape, 1)
    pairs = zip(made.parameters(), again.parameters())
    if not all(torch.equal(a, b) for a, b in pairs):
        raise BenchError(f"{name} draws other values each time: draw with torch's own generator")
    if made.max_position is not None and made.max_position < tokens.shape[1]:
        raise BenchError(
            f"{name}: max_position = {made.max_position} is less than the training length of "
            f"{tokens.shape[1]} tokens; lengths above it get no score"
        )
    model = Transformer(config, made)
    model.start_from(weights)
    model.encoding = Checked(made)
    longest = max(lengths)
    most = min(longest, made.max_position or longest)
    whole = tokens.flatten()[:1].repeat(1, most)
    whole[0, : min(most, tokens.shape[1])] = tokens[0, :most]
    # Tests run in the other mode than the training does.
    for is_training in (True, False):
        model.train(is_training)
        _check_model(name, model, tokens, whole, lengths)
    # A term that starts at 0 hides what it reads.
    before = {key: value.clone() for key, value in made.state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in made.parameters():
            noise = torch.randn(value.shape, generator=generator).to(value)
            value.add_(0.1 * noise * (1.0 + value.abs()))
        for is_training in (True, False):
            model.train(is_training)
            # Such values need not be ones that the encoding can have.
            if _is_finite(model, tokens) and _is_finite(model, whole):
                _check_model(name, model, tokens, whole, lengths)
    made.load_state_dict(before)
    model.train()
    _check_gradients(name, model, tokens)


def _check_model(name: str, model, tokens, whole, lengths: list) -> None:
    """Refuses what depends on later tokens, on other rows or on chance. `whole` [1, L] are tokens of
    the longest test."""
    trained, most = tokens.shape[1], whole.shape[1]
    try:
        logits = model(tokens)
    except BenchError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise BenchError(f"{name} fails at {trained} tokens: {what}") from error
    _check_finite(name, logits)
    if not torch.equal(logits, model(tokens)):
        raise BenchError(f"{name} is not deterministic: the same tokens gave other logits")
    if (model(tokens[:1]) - logits[:1]).abs().max() > 1e-4 * _scale(logits):
        raise BenchError(f"{name} reads other rows of the batch: the first alone gave other logits")
    _check_causal(name, model, tokens, logits)
    with torch.no_grad():
        try:
            model(whole)
        except (RuntimeError, IndexError) as error:
            raise BenchError(
                f"{name} fails at the longest test length, {most} tokens: {error}. If it has no "
                f"more positions than it was trained on, set max_position = {trained}"
            ) from error
        # What it does may depend on the length.
        for length in sorted({*lengths, most}):
            if trained != length <= most:
                row = whole[:, :length]
                found = model(row)
                _check_finite(f"{name}, at {length} tokens,", found)
                _check_causal(name, model, row, found, trained)


def _is_finite(model, tokens) -> bool:
    try:
        return bool(model(tokens).isfinite().all())
    except BenchError:
        return False


def _check_finite(name: str, computed: torch.Tensor) -> None:
    """Refuses what the model computed from numbers that each were finite."""
    if not computed.isfinite().all():
        raise BenchError(f"{name} gives NaN: a query sees no key, or its numbers are too large")


def _scale(logits) -> float:
    """What rounding grows with."""
    return max(1.0, logits.abs().max().item())


def _check_gradients(name: str, model, tokens) -> None:
    """Every parameter that is trained must get a finite gradient, in every step."""
    for _ in range(2):
        try:
            model(tokens).square().mean().backward()
        except RuntimeError as error:
            hint = "what it keeps between calls must be detached"
            raise BenchError(f"{name} cannot be trained: {error} ({hint})") from error
    known = {id(value) for value in model.parameters()}
    if any(id(leaf) not in known for leaf in _leaves(model(tokens))):
        hint = "keep parameters in torch.nn.ParameterList or ParameterDict, not in a list or dict"
        wrong = "reads tensors that need a gradient and are not in parameters()"
        raise BenchError(f"{name} {wrong}: {hint}")
    own = dict(model.encoding.inner.named_parameters())
    idle = [key for key, value in own.items() if value.requires_grad and value.grad is None]
    if own and (idle or all(value.grad is None for value in own.values())):
        idle = ", ".join(idle or own)
        hint = "use it in a hook, or make it a buffer: register_buffer"
        raise BenchError(f"{name} has parameters that nothing trains: {idle} got no gradient; {hint}")
    for key, value in own.items():
        if value.grad is not None and not value.grad.isfinite().all():
            raise BenchError(f"{name}: the gradient of {key} is NaN or infinite")


def _leaves(computed: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that a gradient of `computed` reaches."""
    left, seen = [computed.grad_fn], set()
    while left:
        at = left.pop()
        if at is None or at in seen:
            continue
        seen.add(at)
        if hasattr(at, "variable"):
            yield at.variable
        left.extend(before for before, _ in at.next_functions)


def _check_causal(name: str, model, tokens, logits, *cuts: int) -> None:
    """Every prefix must give the same whatever follows it."""
    length = tokens.shape[1]
    places = {1, length // 3, length // 2, length - 1, *cuts}
    for cut in sorted(place for place in places if 0 < place < length):
        other = tokens.clone()
        other[:, cut:] = (other[:, cut:] + 1) % int(model.embedding.shape[0])
        with torch.no_grad():
            changed = (model(other)[:, :cut] - logits[:, :cut]).abs().max().item()
        if not changed <= 1e-5 * _scale(logits):
            raise BenchError(
                f"{name} looks at later tokens: of {length} tokens, changing those from position "
                f"{cut} on changed logits before it by {changed:.1e}"
            )
