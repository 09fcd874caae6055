"""Run by a release's own Python: holds launches against its parser. RELEASE/bin/python - JSON < parse_with_release.py

In: {"launches": [[MODEL, --flag, value …] …], "variables": [NAME …]}. Out: {"version", "refused": [[launch, why] …],
"unknown": [variables it does not read]}. Nothing of vllm_doctor is needed, so it runs where only the release is.
"""

import contextlib
import io
import json
import sys
from importlib.metadata import version

import vllm.envs
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    """Parse every launch as `vllm serve` does, up to the engine's own arguments."""
    asked = json.loads(sys.argv[1])
    serve = ServeSubcommand()
    parser = FlexibleArgumentParser()
    serve.subparser_init(parser.add_subparsers(dest="subparser"))
    refused = []
    for launch in asked["launches"]:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                args = parser.parse_args(["serve", *launch])
                serve.validate(args)
                AsyncEngineArgs.from_cli_args(args)
        except SystemExit:
            refused.append([launch, said.getvalue().strip().splitlines()[-1]])
        except (ValueError, TypeError) as problem:
            refused.append([launch, str(problem)])
    unknown = [name for name in asked["variables"] if name not in vllm.envs.environment_variables]
    sys.stdout.write(json.dumps({"version": version("vllm"), "refused": refused, "unknown": unknown}))


if __name__ == "__main__":
    main()
