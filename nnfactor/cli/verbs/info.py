"""`info`: what a data file, a model file or a result folder holds."""

from argparse import Namespace
from pathlib import Path

from ...io import load, read_data
from ..errors import UserError
from ..folder import ResultFolder
from ..memory.needs import state_need


def run(arguments: Namespace, parameters: dict[str, str]) -> int:
    """Describe what a path holds, on standard output."""
    path = Path(arguments.path)
    if arguments.memory:
        print("\n".join(state_need(path, arguments)))
    elif path.is_dir() and (path / "metadata.json").exists():
        print(describe_folder(ResultFolder.open(path)))
    elif path.is_dir() and path.suffix != ".zarr":
        raise UserError(f"{path} is no result folder: it has no metadata.json")
    elif path.suffix == ".safetensors":
        print(describe_model(path))
    else:
        print(repr(read_data(path, key=arguments.key, long=arguments.long)))
    return 0


def describe_model(path: Path) -> str:
    """Describe a model file: the estimator, its factors, its loss."""
    model = load(path)
    lines = [f"{path}: {model!r}"]
    shown = {"embedding_": "coefficients", "components_": "components"}
    for name, what in shown.items():
        if getattr(getattr(model, name, None), "shape", None):
            lines.append(f"  {what}: {' x '.join(map(str, getattr(model, name).shape))}")
    for name in ("loss_", "reconstruction_err_", "n_iter_", "converged_"):
        if hasattr(model, name):
            value = getattr(model, name)
            lines.append(
                f"  {name.rstrip('_')}: {value:.6g}" if isinstance(value, float) else f"  {name.rstrip('_')}: {value}"
            )
    return "\n".join(lines)


def describe_folder(folder: ResultFolder) -> str:
    """Describe a result folder: what was asked, what is there, what is suggested."""
    known, plan = folder.metadata, folder.plan
    state = "finished" if known["finished"] else "unfinished: run its command again, or nnfactor combine"
    lines = [f"{folder.path}: {plan['verb']} of {plan['model']}, {state}"]
    lines += [f"  data: {line}" for line in known["data"]]
    lines.append(f"  command: {' '.join(known['command'])}")
    lines.append(f"  seed: {plan['seed']}")
    ranks = sorted(p.name.removeprefix("k_") for p in folder.file("all_solutions").glob("k_*"))
    lines.append(f"  solutions: {', '.join(rank.lstrip('0') for rank in ranks) or 'none yet'}")
    if known.get("reason"):
        lines.append(f"  suggested: {known['reason']}")
    return "\n".join(lines)
