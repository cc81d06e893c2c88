"""One picture against the one that is kept, without its words: fonts differ between machines.

`python tests/plots/test_picture.py` draws it anew.
"""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave
from matplotlib.text import Text

from nnfactor.plots import components_plot, images_plot
from nnfactor.plots.panels import CHANNELS

PICTURE = Path(__file__).with_name("picture.png")

BLOCK = 8  # pixels a side: edges that are drawn half a pixel further do not matter


def draw():
    """Mutation channels, bars, curves, and a mosaic of images, as pixels without words."""
    U = 0.5 + 0.5 * np.sin(np.outer(np.arange(96), [0.1, 0.37]))
    V = np.ones((4, 2))
    figure = Figure(figsize=(4.8, 4.0), dpi=80)
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(4, 2)
    figure.subplots_adjust(0.05, 0.05, 0.95, 0.95)
    components_plot([V, U], names=(None, CHANNELS), axes=axes[0])
    components_plot([V, U], kind="bars", axes=axes[1])
    components_plot([V, U], axes=axes[2])
    images_plot([V, U], image_shape=(8, 12), ax=axes[3, 0])
    axes[3, 1].set_axis_off()
    for text in figure.findobj(Text):
        text.set_visible(False)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3] / 255.0


def coarse(pixels):
    height, width = (n // BLOCK for n in pixels.shape[:2])
    return pixels[: height * BLOCK, : width * BLOCK].reshape(height, BLOCK, width, BLOCK, 3).mean((1, 3))


def test_the_picture_is_the_one_that_is_kept():
    drawn, kept = draw(), imread(PICTURE)[..., :3]
    assert drawn.shape == kept.shape
    difference = np.abs(coarse(drawn) - coarse(kept))
    assert difference.mean() < 0.01 and (difference.max(-1) > 0.2).mean() < 0.01


def test_another_picture_would_be_told_from_it():
    drawn = draw()
    moved = np.roll(drawn, 24, 1)
    difference = np.abs(coarse(drawn) - coarse(moved))
    assert difference.mean() > 0.02


if __name__ == "__main__":
    imsave(PICTURE, draw())
