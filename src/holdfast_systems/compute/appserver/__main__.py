"""Run the AppServer: `holdfast-appserver --port 8080`."""

from holdfast_systems.json_lines import log_json_lines
from holdfast_systems.serve import serve


def main() -> None:
    log_json_lines()
    serve("holdfast_systems.compute.appserver.server:make_app")


if __name__ == "__main__":
    main()
