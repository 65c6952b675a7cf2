"""Run the gateway: `holdfast-gateway --port 8080`."""

from holdfast_systems.serve import serve


def main() -> None:
    serve("holdfast_systems.convert.gateway.app:make_app")


if __name__ == "__main__":
    main()
