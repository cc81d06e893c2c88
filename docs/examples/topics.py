"""
Topics of short texts
=====================

A topic is a list of words that come together. Counts of words are a nonnegative matrix with texts as rows. The
Kullback-Leibler divergence is the right loss for counts.

The texts come with scikit-learn: the paragraphs of the descriptions of its data sets.
"""

import numpy as np
from sklearn import datasets
from sklearn.feature_extraction.text import CountVectorizer

from nnfactor import NMF
from nnfactor.plots import components_plot

names = ("digits", "iris", "wine", "diabetes", "breast_cancer", "linnerud")
texts, source = [], []
for name in names:
    described = getattr(datasets, f"load_{name}")().DESCR.split("\n\n")
    texts += [part for part in described if len(part.split()) > 5]
    source += [name] * (len(texts) - len(source))

vectorizer = CountVectorizer(min_df=2, stop_words="english", token_pattern="[a-z]{3,}")
counts = vectorizer.fit_transform(texts)
words = vectorizer.get_feature_names_out()
print(counts.shape, f"{counts.nnz / np.prod(counts.shape):.1%} are not zero")

# %%
# The matrix stays sparse. `normalize="l1"` makes every topic a distribution over words, so that the coefficients count
# words. Ten starts run as one batch, and the best is kept.

model = NMF(4, loss="kullback-leibler", normalize="l1", init="random", n_init=10, random_state=0).fit(counts)
for topic in model.components_:
    print(", ".join(words[topic.argsort()[::-1][:6]]))

# %%
# The pictures show the largest words of each topic.

components_plot(model, names=(None, words), n_top=8)

# %%
# Which topics does each text have? The mean share over the paragraphs of a source:

shares = model.embedding_ / model.embedding_.sum(axis=1, keepdims=True).clip(min=1e-12)
for name in names:
    print(f"{name:14}", shares[np.array(source) == name].mean(axis=0).round(2))

# %%
# **The full run** takes a corpus: `CountVectorizer` on your files, or `nnfactor.io.read_data("counts.mtx")`. Where the
# counts do not fit in memory use `batch_size=5000`, or `partial_fit`. For the number of topics ask `select_rank`.
