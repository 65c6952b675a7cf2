"""Serve a local Salesforce until SIGTERM: `holdfast-salesforce-local --port 8600`."""

from holdfast_systems.serve import serve

HOSTS = ("localhost", "127.0.0.1", "::1", "local.my.salesforce.com")


def main() -> None:
    serve("holdfast_systems.documents.salesforce.local.app:make_app", certified=HOSTS)


if __name__ == "__main__":
    main()
