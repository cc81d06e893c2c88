"""`python -m benchmarks CONFIG` runs a configuration and writes its report; `python -m benchmarks list` shows them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import config as configs
from .errors import BenchmarkError
from .kinds import Context, kind


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, 1 for a run that failed, 2 for what the caller can mend, 130 when interrupted."""
    options = parser().parse_args(arguments)
    try:
        return list_configs() if options.config == "list" else run(options)
    except BenchmarkError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except Exception as error:
        if options.traceback:
            raise
        return _fail(f"{type(error).__name__}: {error} (--traceback shows where)", 1)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.replace("`", ""))
    p.add_argument("config", metavar="CONFIG", help="a TOML file, the bare name of one in configs/, or 'list'")
    p.add_argument("--data", metavar="DIR", type=Path, help="folder of data sets (default: $NNFACTOR_DATA)")
    p.add_argument("--device", help="run.device: cpu or cuda")
    p.add_argument("--threads", metavar="N", help="run.threads")
    p.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="e.g. parameters.iterations=50")
    p.add_argument("--out", metavar="DIR", type=Path, default=Path("results"), help="DIR/<name>/ (default: results)")
    size = p.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="the config's [full] tables: everything")
    size.add_argument("--quick", action="store_true", help="the config's [quick] tables: small")
    p.add_argument("--traceback", action="store_true", help="show where an unexpected error comes from")
    return p


def list_configs() -> int:
    """Names and one line each."""
    found = [configs.load(path) for path in configs.known_configs()]
    width = max((len(c.name) for c in found), default=0)
    for c in found:
        print(f"{c.name:{width}}  {c.header.summary}")
    return 0


def run(options: argparse.Namespace) -> int:
    """Load, run, write."""
    from .report import need_extra, write

    path = configs.find(options.config)
    config = configs.load(path, _overrides(options), [v for v in configs.VARIANTS if getattr(options, v)])
    need_extra()
    context = Context(config.header.run, _data_folder(options.data), lambda line: print(line, file=sys.stderr))
    machine = _prepare(context)
    start = time.perf_counter()
    report = kind(config.header.experiment).run(config.parameters, context)
    machine["seconds"] = round(time.perf_counter() - start, 1)
    page = write(options.out / config.name, config, report, machine)
    print(f"{page} ({machine['seconds']:.0f} s)")
    return 0


def _prepare(context: Context) -> dict[str, object]:
    """Threads as asked, TF32 off; what the machine is."""
    import torch

    from .machine import describe

    device, threads = context.device, context.settings.threads
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    return describe(device, threads)


def _overrides(options: argparse.Namespace) -> list[str]:
    short = {"run.device": options.device, "run.threads": options.threads}
    quoted = {"run.device": '"{}"', "run.threads": "{}"}
    return [*options.set, *(f"{key}={quoted[key].format(v)}" for key, v in short.items() if v is not None)]


def _data_folder(named: Path | None) -> Path | None:
    folder = named or (Path(os.environ["NNFACTOR_DATA"]) if os.environ.get("NNFACTOR_DATA") else None)
    if folder is not None and not folder.is_dir():
        raise BenchmarkError(f"--data {folder}: no such folder")
    return folder


def _fail(message: str, status: int) -> int:
    print(f"benchmarks: {' '.join(message.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
