"""Every experiment by name, in the order in which they are offered: what a page or a shell lists before it runs one.

Facts only; what runs is in experiments/, what is drawn in visualizations/experiments/.
"""

from __future__ import annotations

from cacheblend.evaluation.points import About

CATALOGUE: tuple[About, ...] = (
    About(
        name="fig02",
        title="Quality against the number of chunks",
        asks="Does full reuse lose more, the more chunks are in front of the question?",
        measures="Each question behind its first 1, 2, 3 … chunks, in full recompute, full reuse, blend and "
        "PrimeBlend: F1 against the gold answer, and mean KL to full along full's own answer. The paper "
        "shows full recompute and full reuse with up to 45 chunks of 128 tokens; here chunks are as long as"
        " yours.",
        slow="every question is asked once for each number of chunks",
    ),
    About(
        name="fig04",
        title="Attention matrices",
        asks="What does a chunk no longer see when its cache is reused?",
        measures="The attention of one middle layer, mean over heads, for the first question, in full recompute, full "
        "reuse and blend. A row that blend did not recompute shows the attention its cache was made with.",
    ),
    About(
        name="fig06",
        title="Attention deviation against the share recomputed",
        asks="How soon does the question's attention come back as more tokens are recomputed?",
        measures="Forward attention deviation: the L2 distance of the suffix rows' attention matrix from full's, "
        "mean over heads and layers, divided by its value with nothing recomputed; KV deviation likewise. "
        "Random tokens are the control, which the paper does not show.",
        slow="16 runs a question, each with its attention measured afterwards",
    ),
    About(
        name="fig07",
        title="Distribution of KV deviation",
        asks="Do a few tokens deviate much more than the others?",
        measures="Distance of each token's K and V in full reuse from full recompute's, in three neighbouring layers "
        "as deep as the paper's, divided by each layer's median, because absolute units differ between models. Tokens "
        "of chunks after the first; K and V are each divided by their mean norm, which the paper does not say it does.",
    ),
    About(
        name="fig08",
        title="Agreement between layers",
        asks="Can one layer choose the tokens for all the others?",
        measures="Rank correlation of the tokens' KV deviation between neighbouring layers, as in the paper, and "
        "between the layer at which blend selects and every deeper one, which the paper does not show; beside it, how "
        "many of the 15 % that deviate most two layers have in common.",
    ),
    About(
        name="fig12",
        title="Time to first token against quality",
        asks="What does each mode cost, and how near does it come to full recompute?",
        measures="TTFT divided by full's of the same question, median over questions, one pass each with warm chunk "
        "caches. Quality: the share of full reuse's distance that is closed, 1 − KL / KL of reuse, of KLs "
        "that are means over questions. Prefix caching finds the system prefix and the first chunk, as when"
        " another question began with them, read from memory. The paper has F1 or Rouge-L in place of KL; "
        "its points are moved to the same axes.",
    ),
    About(
        name="fig13",
        title="MapReduce and MapRerank",
        asks="Is it better to ask every chunk alone?",
        measures="F1 against the gold answer, or against full's answer where no question has one, and TTFT divided "
        "by full's. A reply whose score cannot be read counts as 0. TTFT is when the first token can be "
        "shown: for MapRerank behind all replies, which the paper's time cannot include.",
        slow="MapReduce and MapRerank decode a reply for every chunk",
    ),
    About(
        name="fig14",
        title="Load",
        asks="How many requests a second does each mode sustain?",
        measures="Every question four times, its chunks in another order each time, served one after another on an "
        "empty store with room for half of all chunks (for any one question's at least); caches that are missing are "
        "made while the request waits. How long requests wait is computed from these times and Poisson arrivals: the "
        "measured requests are gone through again and again, the cold ones too, where the paper leaves the first sixth "
        "out. A request keeps the engine busy until its answer is decoded.",
        slow="every question is answered four times in four modes",
    ),
    About(
        name="fig15",
        title="Chunks, their length, batch size",
        asks="How does the time to first token grow with the prompt?",
        measures="Warm caches, the median of three rounds, at most three questions. A batch is a loop, one question "
        "after another, in every mode; its time is when the last question has its first token.",
        slow="three rounds of every size",
    ),
    About(
        name="fig16",
        title="Quality against the share recomputed",
        asks="How much has to be recomputed to come near full recompute?",
        measures="The share of bare reuse's distance that is closed, 1 − KL / KL of reuse, of KLs that are means "
        "over questions, at 0 to 100 % of the context's tokens; F1 where questions have gold answers. HKVD "
        "chooses once or narrows layer by layer. PrimeBlend at 0 % is its recipe alone: primed chunk "
        "caches, nothing recomputed. The paper's curves are F1 or Rouge-L as a share of the gap between "
        "reuse and full.",
        slow="27 runs a question",
    ),
    About(
        name="fig17",
        title="Storage devices",
        asks="What does it cost to keep caches on something slower than memory?",
        measures="Reads from memory are held back to the speed of each device while loading and computing overlap; the "
        "median of three rounds, divided by full recompute's, at most three questions. The distance to full is "
        "measured on every device too. Prefix caching finds the system prefix and the first chunk, as when another "
        "question began with them.",
        slow="three rounds on nine devices",
    ),
    About(
        name="frontier",
        title="Policy frontier (ours)",
        asks="Which way of choosing tokens, and of making chunk caches, is worth its time?",
        measures="Every selection policy at 5, 15 and 30 %, full reuse of chunks made by every recipe, and "
        "PrimeBlend: mean KL to full against the share of tokens recomputed and against TTFT, which "
        "includes the selection's own cost. The oracle chooses by a full prefill of its own, so it is an "
        "upper bound and not to be had.",
        slow="more than 30 runs a question",
    ),
)
ABOUT = {about.name: about for about in CATALOGUE}
