"""`python -m benchmarks CONFIG` runs a configuration and writes its report.

`list`, or no word, shows the configurations, `all` runs every one, `compare A B` sets the folders of two finished runs
side by side, `findings [DIR]` renews the tables of docs/findings from the finished runs in DIR, `claims` lists what the
papers claim, whether it holds there, and what was tried.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .harness import config as configs
from .harness.errors import BenchmarkError
from .harness.kinds import Context, kind
from .harness.results import Row


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 for a run that failed, 2 for what the caller can mend, 130 when interrupted."""
    options = parser().parse_args(arguments)
    try:
        if arguments is None:  # called as a program, which may be started anew
            _choose_blas(options)
        return _command(options)
    except BenchmarkError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # `list | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if options.traceback:
            raise
        return _fail(f"{type(error).__name__}: {error} (--traceback shows where)", 1)


def parser() -> argparse.ArgumentParser:
    """Make the command line."""
    p = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.replace("`", ""))
    known = "a TOML file, the bare name of one in configs/, or a word as above (default: list)"
    p.add_argument("config", metavar="CONFIG", nargs="?", default="list", help=known)
    p.add_argument("folders", metavar="DIR", nargs="*", type=Path, help="of compare and findings")
    p.add_argument("--data", metavar="DIR", type=Path, help="folder of data sets (default: $NNFACTOR_DATA)")
    p.add_argument("--device", help="run.device: cpu, cuda, cuda:1 or auto")
    p.add_argument("--threads", metavar="N", help="run.threads")
    p.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="e.g. parameters.iterations=50")
    p.add_argument("--out", metavar="DIR", type=Path, help="DIR/<name>/ (default: results; results/quick with --quick)")
    p.add_argument("--jobs", metavar="N", type=int, default=1, help="worker processes of a study (default: 1)")
    p.add_argument("--restart", action="store_true", help="run what is finished in the folder again")
    p.add_argument("--check", action="store_true", help="fail if a bar is missed, or a claim or method names nothing")
    size = p.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="the config's [full] tables: everything")
    size.add_argument("--quick", action="store_true", help="the config's [quick] tables: small")
    p.add_argument("--traceback", action="store_true", help="show where an unexpected error comes from")
    return p


def list_configs() -> int:
    """List names and one line each."""
    found = [configs.load(path) for path in configs.known_configs()]
    if not found:
        raise BenchmarkError(f"{configs.FOLDER} has no configs; run python -m benchmarks from a checkout")
    width = max(len(c.name) for c in found)
    for c in found:
        print(f"{c.name:{width}}  {c.header.summary}")
    return 0


def run_all(options: argparse.Namespace) -> int:
    """Run every config; go on after a failure, and fail at the end."""
    failed = []
    for path in configs.known_configs():
        try:
            if run(options, path):
                failed.append(path.stem)
        except Exception as error:
            if options.traceback:
                raise
            failed.append(path.stem)
            _fail(f"{path.stem}: {type(error).__name__}: {error}", 1)
    return _fail(f"{len(failed)} failed: {', '.join(failed)}", 1) if failed else 0


def compare_runs(options: argparse.Namespace) -> int:
    """Print a table of differences."""
    from .report.compare import compare, text

    if len(options.folders) != 2:
        raise BenchmarkError("compare needs two folders: python -m benchmarks compare results/a results/b")
    print(text(compare(*options.folders)))
    return 0


def write_findings(options: argparse.Namespace) -> int:
    """Renew the tables of the pages; with --check, say what their prose claims and their tables do not.

    `--check` without a folder renews nothing.
    """
    from .report.findings import FOLDER, write
    from .report.prose import find_faults

    if options.folders or not options.check:
        for page in write(options.folders[0] if options.folders else _out(options)):
            print(page)
    faults = find_faults(FOLDER) if options.check else []
    for fault in faults:
        _fail(fault, 1)
    return 1 if faults else 0


def list_claims() -> int:
    """List the papers' claims as the pages of docs/findings judge them."""
    from .report.findings import FOLDER
    from .report.prose import list_claims

    for line in list_claims(FOLDER):
        print(line)
    return 0


def run(options: argparse.Namespace, path: Path) -> int:
    """Load, run and write a configuration."""
    from .harness.machine import describe, prepare_torch
    from .report.page import need_extra, write

    variants = [v for v in configs.VARIANTS if getattr(options, v)]
    config = configs.load(path, _overrides(options), variants)
    need_extra()
    from nnfactor.core.precision import denormals

    folder = _out(options) / config.name
    context = Context(
        config.header.run,
        _data_folder(options.data),
        lambda line: print(line, file=sys.stderr),
        config,
        folder,
        options.jobs,
        options.restart,
    )
    prepare_torch(config.header.run.threads)
    machine = {**describe(context.device, config.header.run.threads), "variants": variants}
    start = time.perf_counter()
    with denormals(False):
        report = kind(config.header.experiment).run(config.parameters, context)
    machine["seconds"] = round(time.perf_counter() - start, 1)
    page = write(folder, config, report, machine)
    print(f"{page} ({machine['seconds']:.0f} s)")
    return _check(report.rows, config, path) if options.check else 0


def _check(rows: Sequence[Row], config: configs.Config, path: Path) -> int:
    from .report.check import find_faults

    faults = find_faults(rows, config, [configs.load(path, variants=v) for v in ((), ("full",))])
    for fault in faults:
        _fail(fault, 1)
    return 1 if faults else 0


WORDS: dict[str, Callable[[argparse.Namespace], int]] = {  # instead of a config
    "list": lambda options: list_configs(),
    "claims": lambda options: list_claims(),
    "all": run_all,
    "compare": compare_runs,
    "findings": write_findings,
}


def _choose_blas(options: argparse.Namespace) -> None:
    """Let OpenBLAS choose its kernel where an experiment asks for that, before anything loads it."""
    from .harness.machine import restart_on_fastest_blas

    if options.config not in WORDS or options.config == "all":
        paths = configs.known_configs() if options.config == "all" else [configs.find(options.config)]
        restart_on_fastest_blas(configs.read(path).get("experiment", "") for path in paths)


def _command(options: argparse.Namespace) -> int:
    if options.jobs < 1:
        raise BenchmarkError(f"--jobs {options.jobs}: at least 1")
    if options.config in WORDS:
        return WORDS[options.config](options)
    if options.folders:
        raise BenchmarkError(f"{options.folders[0]}: only compare and findings take folders; one CONFIG at a time")
    return run(options, configs.find(options.config))


def _out(options: argparse.Namespace) -> Path:
    return options.out or Path("results", "quick" if options.quick else "")


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
