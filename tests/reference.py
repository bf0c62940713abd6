"""Oracles: what the library must compute, written a second time and naively. Imports nothing of the code under test.

Two kinds: transformers' own forward with an explicit mask, for every family; and a Llama in plain loops over rows,
which recomputes chosen rows of a mixed cache.
"""

from __future__ import annotations

import copy

import torch
from transformers import DynamicCache


def full_forward(hf_model, token_ids):
    """Logits (tokens, vocab) and [(keys, values)] per layer, keys after RoPE, (tokens, kv_heads, head_dim)."""
    return _forward(hf_model, token_ids, list(range(len(token_ids))), None)


def forward_at(hf_model, token_ids, positions):
    """The same with explicit positions and causal attention among these tokens only."""
    n = len(token_ids)
    return _forward(hf_model, token_ids, positions, torch.ones(n, n, dtype=torch.bool).tril())


def reuse_forward(hf_model, prefix, chunks, suffix):
    """Full reuse: each segment sees only itself, the suffix sees everything; positions as in the whole prompt."""
    token_ids = [*prefix, *(t for chunk in chunks for t in chunk), *suffix]
    return _forward(hf_model, token_ids, list(range(len(token_ids))), _apart(prefix, chunks, suffix))


def _apart(prefix, chunks, suffix):
    """Who sees whom in full reuse, bool (tokens, tokens)."""
    length = len(prefix) + sum(map(len, chunks)) + len(suffix)
    visible = torch.zeros(length, length, dtype=torch.bool)
    start = 0
    for segment in (prefix, *chunks):
        for row in range(start, start + len(segment)):
            visible[row, start : row + 1] = True
        start += len(segment)
    for row in range(start, length):
        visible[row, : row + 1] = True
    return visible


def suffix_weights(hf_model, prefix, chunks, suffix, *, apart):
    """Attention weights of the suffix in full reuse (apart) or full prefill, a layer each (heads, suffix, tokens).

    As transformers' eager attention returns them.
    """
    eager = copy.deepcopy(hf_model)
    eager.set_attn_implementation("eager")
    token_ids = [*prefix, *(t for chunk in chunks for t in chunk), *suffix]
    length = len(token_ids)
    visible = _apart(prefix, chunks, suffix) if apart else torch.ones(length, length, dtype=torch.bool).tril()
    with torch.inference_mode():
        out = eager(
            torch.tensor([token_ids]),
            position_ids=torch.arange(length)[None],
            attention_mask=torch.zeros(length, length).masked_fill(~visible, float("-inf"))[None, None],
            output_attentions=True,
        )
    return [layer[0, :, -len(suffix) :] for layer in out.attentions]


def unplaced_forward(hf_model, prefix, chunks, suffix):
    """Reuse whose keys carry the positions each segment had alone; only the suffix stands where it stands."""
    token_ids, positions, segment_of = [], [], []
    for number, segment in enumerate((prefix, *chunks)):
        for position, token in enumerate(segment):
            token_ids.append(token)
            positions.append(position)
            segment_of.append(number)
    for token in suffix:
        positions.append(len(token_ids))
        token_ids.append(token)
        segment_of.append(None)
    visible = torch.zeros(len(token_ids), len(token_ids), dtype=torch.bool)
    for row in range(len(token_ids)):
        for col in range(row + 1):
            visible[row, col] = segment_of[row] is None or segment_of[row] == segment_of[col]
    return _forward(hf_model, token_ids, positions, visible)


def _forward(hf_model, token_ids, positions, visible):
    mask = None
    if visible is not None:
        mask = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))[None, None]
    with torch.inference_mode():
        out = hf_model(
            torch.tensor([token_ids]),
            position_ids=torch.tensor([positions]),
            attention_mask=mask,
            past_key_values=DynamicCache(),
            use_cache=True,
        )
    layers = [(x.keys[0].transpose(0, 1), x.values[0].transpose(0, 1)) for x in out.past_key_values.layers]
    return out.logits[0], layers


def naive_llama_blend(hf_model, prefix, chunks, suffix, choose, write_all=True, carry=False):
    """A Llama that recomputes chosen rows over a mixed cache, row by row in plain loops.

    carry: a cached row takes over half the mean change of the recomputed rows in front of it in its chunk, four more of
    which count as unchanged.

    choose(layer, rows, deviations) → the rows that go on, where deviations is the squared distance of fresh values to
    cached values per row (None for suffix rows). Returns last logits and [(keys, values)] per layer.
    """
    config, decoder = hf_model.config, hf_model.model
    token_ids = [*prefix, *(t for chunk in chunks for t in chunk), *suffix]
    num_context = len(token_ids) - len(suffix)
    _, cached = reuse_forward(hf_model, prefix, chunks, suffix)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = config.hidden_size // heads
    theta = config.rope_parameters["rope_theta"]
    frequencies = [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]

    def norm(x, weight):
        return x / torch.sqrt((x * x).mean() + config.rms_norm_eps) * weight

    def rotate(x, position):
        half = head_dim // 2
        out = torch.empty_like(x)
        for i, frequency in enumerate(frequencies):
            angle = torch.tensor(position * frequency)
            a, b = x[i].clone(), x[i + half].clone()
            out[i] = a * torch.cos(angle) - b * torch.sin(angle)
            out[i + half] = b * torch.cos(angle) + a * torch.sin(angle)
        return out

    rows = list(range(len(token_ids)))
    hidden = {row: decoder.embed_tokens.weight[token_ids[row]].clone() for row in rows}
    mixed = []
    for layer, block in enumerate(decoder.layers):
        attention = block.self_attn
        keys, values = cached[layer][0].clone(), cached[layer][1].clone()
        queries, fresh = {}, {}
        for row in rows:
            x = norm(hidden[row], block.input_layernorm.weight)
            queries[row] = [rotate(h, row) for h in (attention.q_proj.weight @ x).view(heads, head_dim)]
            fresh[row] = (
                torch.stack([rotate(h, row) for h in (attention.k_proj.weight @ x).view(kv_heads, head_dim)]),
                (attention.v_proj.weight @ x).view(kv_heads, head_dim),
            )
        deviations = [float(((fresh[row][1] - values[row]) ** 2).sum()) if row < num_context else None for row in rows]
        kept = choose(layer, rows, deviations)
        start = 0
        for segment in (prefix, *chunks) if carry else ():
            changes = []
            for row in range(start, start + len(segment)):
                if row in fresh:
                    unplaced = [rotate(h, -row) for h in fresh[row][0] - keys[row]]
                    changes.append((unplaced, fresh[row][1] - values[row]))
                elif changes:
                    for head in range(kv_heads):
                        keys[row, head] += rotate(sum(k[head] for k, _ in changes) / (len(changes) + 4) / 2, row)
                        values[row, head] += sum(v[head] for _, v in changes) / (len(changes) + 4) / 2
            start += len(segment)
        for row in rows if write_all else kept:
            keys[row], values[row] = fresh[row]
        for row in kept:
            outputs = []
            for head in range(heads):
                kv_head = head // (heads // kv_heads)
                scores = torch.stack([queries[row][head] @ keys[t, kv_head] for t in range(row + 1)]) / head_dim**0.5
                outputs.append(torch.softmax(scores, 0) @ values[: row + 1, kv_head])
            hidden[row] = hidden[row] + attention.o_proj.weight @ torch.cat(outputs)
            x = norm(hidden[row], block.post_attention_layernorm.weight)
            gate, up = block.mlp.gate_proj.weight @ x, block.mlp.up_proj.weight @ x
            hidden[row] = hidden[row] + block.mlp.down_proj.weight @ (gate * torch.sigmoid(gate) * up)
        rows = kept
        mixed.append((keys, values))
    last = norm(hidden[len(token_ids) - 1], decoder.norm.weight)
    return hf_model.lm_head.weight @ last, mixed
